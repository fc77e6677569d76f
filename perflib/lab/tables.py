"""Tables of findings and of anything else: HTML in a notebook and the report, text elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from perflib.lab.markup import escape
from perflib.model.escape import visible
from perflib.model.finding import Finding
from perflib.model.sentences import estimate, recorded_apart
from perflib.stats.decide import Verdict

_MARKS: dict[Verdict, str] = {"supported": "●", "refuted": "○", "inconclusive": "◐"}
_COLUMNS = ("subject", "what is so", "verdict", "estimate", "exact claim, and why")

STYLE = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Table:
    """Rows of words: ``_repr_html_`` for a notebook, ``str`` for a terminal.

    ``classes`` holds the style class of some cells, by row and column.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    classes: dict[tuple[int, int], str]

    def html(self) -> str:
        """The table alone, for a page that has ``STYLE``."""
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in self.columns)
        body = "".join(
            "<tr>" + "".join(self._cell(i, j, word) for j, word in enumerate(row)) + "</tr>\n"
            for i, row in enumerate(self.rows)
        )
        return (
            f'<table class="perflib-table"><thead><tr>{head}</tr></thead>\n'
            f"<tbody>{body}</tbody></table>"
        )

    def _cell(self, row: int, column: int, word: str) -> str:
        kind = self.classes.get((row, column))
        named = f' class="{escape(kind)}"' if kind else ""
        return f"<td{named}>{escape(word)}</td>"

    def _repr_html_(self) -> str:
        return f"<style>{STYLE}</style>{self.html()}"

    def __repr__(self) -> str:
        lines = [[visible(word) for word in row] for row in (self.columns, *self.rows)]
        widths = [max(map(len, words)) for words in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )


def styles(rows: Iterable[Sequence[str]]) -> dict[tuple[int, int], str]:
    """The ``classes`` of a table, from those of the cells of each row; empty: none."""
    return {(i, j): kind for i, row in enumerate(rows) for j, kind in enumerate(row) if kind}


def table(frame: pd.DataFrame | Iterable[dict[str, Any]]) -> Table:
    """Any data frame or list of records as a table; numbers to the right, nothing for None."""
    frame = frame if isinstance(frame, pd.DataFrame) else pd.DataFrame(list(frame))
    rows = []
    classes = {}
    for i, values in enumerate(frame.itertuples(index=False)):
        rows.append([_word(value) for value in values])
        for j, value in enumerate(values):
            if isinstance(value, int | float) and not isinstance(value, bool):
                classes[i, j] = "number"
    return Table([str(name) for name in frame.columns], rows, classes)


def _word(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def interval(low: float, high: float) -> str:
    """The two ends of an interval in brackets; a dash where there is none."""
    return f"[{low:.2f}, {high:.2f}]" if math.isfinite(low) and math.isfinite(high) else "–"


def verdicts(findings: Iterable[Finding]) -> Table:
    """The findings, one a row: what is so, in plain words, and the exact claim with its reason."""
    found = list(findings)
    head, texts = recorded_apart([one.plain for one in found])
    subject, what, *others = _COLUMNS
    rows = [
        [
            one.subject,
            text,
            f"{_MARKS[one.verdict]} {one.verdict}",
            estimate(one) if math.isfinite(one.effect) else "–",
            f"“{one.claim}.” {one.reason}",
        ]
        for one, text in zip(found, texts, strict=True)
    ]
    kinds = (("name", "prose", f"{one.kind} {one.verdict}", "number", "exact") for one in found)
    return Table([subject, head or what, *others], rows, styles(kinds))
