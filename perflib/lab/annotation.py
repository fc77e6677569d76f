"""A function's instructions side by side, in a notebook: what `perflib annotate` prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import ipywidgets as widgets
import pandas as pd

from perflib.experiments.event_profile.instructions import sides_of
from perflib.instruments.profile.findings import instruction_findings
from perflib.instruments.profile.lines import beside_text
from perflib.instruments.profile.side_by_side import SideBySide
from perflib.lab.markup import escape
from perflib.model.errors import UserError
from perflib.model.run import Run

_LEAST_PERCENT = 0.5  # of a row that is shown without 'all'
_STYLE = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")


class AnnotationView(widgets.VBox):
    """Both shares of each instruction and their difference; ``order`` and ``whole`` may be set."""

    def __init__(self, found: SideBySide) -> None:
        self.found = found
        self.order = widgets.ToggleButtons(
            options=[("by address", "address"), ("by difference", "difference")]
        )
        self.whole = widgets.Checkbox(False, description="all instructions", indent=False)
        self._body = widgets.HTML()
        for control in (self.order, self.whole):
            control.observe(self._draw, "value")
        first = instruction_findings(found)[0]
        words = [f"{first.plain}. {first.reason}", *found.remarks]
        head = "".join(f"<div>{escape(sentence)}</div>" for sentence in words)
        bar = widgets.HBox([self.order, self.whole])
        super().__init__([widgets.HTML(f"<style>{_STYLE}</style>{head}"), bar, self._body])
        self._draw()

    def _draw(self, *_: object) -> None:
        self._body.value = _table(self.found, self.order.value, whole=self.whole.value)


def annotation(
    run: Run,
    function: str | None = None,
    against: Run | None = None,
    cores: Sequence[int] = (),
    event: str | None = None,
) -> AnnotationView:
    """The instructions of a function on two cores of a run, or in two runs, side by side.

    Parameters
    ----------
    run, against, cores, event
        What is compared, as `perflib annotate` has it: the second side is ``run``'s.
    function
        By default the one that stands out most; where none does, the costliest.

    Raises
    ------
    UserError
        There is no such function or core, or the run has one core and nothing to compare.
    """
    sides = sides_of(run, against, cores, event)
    if sides is None:
        msg = f"{run.id} has samples of one core: name another run, or use pl.profiles.annotate"
        raise UserError(msg)
    return AnnotationView(sides.beside(function or (sides.standing or [sides.costliest])[0]))


def _table(found: SideBySide, order: str, *, whole: bool) -> str:
    """The rows as HTML; everything that comes from a file is escaped."""
    rows = found.table
    if not whole:
        most = rows[["percent_first", "percent_second"]].max(axis=1)
        rows = rows[(most >= _LEAST_PERCENT) | rows["stands_out"]]
    if order == "difference":
        rows = rows.sort_values("difference", key=lambda column: -column.abs(), kind="stable")
    heads = [found.first, found.second, "difference (points)", "interval", "offset"]
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    lines = [f'<tr>{head}<th class="code">instruction</th></tr>']
    before = None
    for row in rows.to_dict("records"):
        source = (row["source_file"], row["source_line"])
        if order == "address" and isinstance(source[0], str) and source != before:
            text = row["source_text"] if isinstance(row["source_text"], str) else ""
            shown = f"{Path(source[0]).name}:{source[1]}  {text.strip()}"
            lines.append(f'<tr class="source"><td colspan="6">{escape(shown)}</td></tr>')
            before = source
        interval = f"[{row['difference_low']:+.2f}, {row['difference_high']:+.2f}]"
        tested = not pd.isna(row["difference"])
        at = row["offset_first"] if pd.isna(row["offset_second"]) else row["offset_second"]
        cells = [
            *(
                f"{row[f'percent_{side}']:.2f} %" if not pd.isna(row[f"offset_{side}"]) else "–"
                for side in ("first", "second")
            ),
            f"{row['difference']:+.2f}" if tested else "",
            interval if tested else "",
            f"+{int(at):#x}" if at >= 0 else "none",
        ]
        made = "".join(f"<td>{cell}</td>" for cell in cells)
        odd = ' class="odd"' if row["stands_out"] else ""
        lines.append(f'<tr{odd}>{made}<td class="code">{escape(beside_text(row))}</td></tr>')
    return f'<table class="perflib-beside">{"".join(lines)}</table>'
