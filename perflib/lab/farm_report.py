"""The report of a farm: one HTML file without anything outside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from perflib.fleet.analysis.comparisons import THRESHOLD_PERCENT
from perflib.lab.farm import FarmView, farm
from perflib.lab.pictures import picture
from perflib.lab.report import template, write_page
from perflib.lab.summary import statements
from perflib.lab.tables import STYLE, table, verdicts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from perflib.model.finding import Finding

_MOST_VERDICTS = 40
_MOST_NODES = 4  # with a figure of their own, of each experiment
_MOST_MISSING = 200


def write_farm_report(
    levels: pd.DataFrame,
    nodes: pd.DataFrame,
    out: Path,
    *,
    title: str = "The farm",
    outcomes: pd.DataFrame | None = None,
    threshold_percent: float = THRESHOLD_PERCENT,
    wrong: Sequence[Finding] = (),
) -> list[str]:
    """Write the report of a farm.

    Parameters
    ----------
    levels, nodes
        The farm's table (`perflib.fleet.analysis.table.farm_table`).
    out
        The HTML file to write; style and figures are inside it.
    title
        Its heading: the name of a plan.
    outcomes
        What became of the rows of a plan, ``state`` and ``reason`` among its columns: those that
        are not done are listed.
    threshold_percent
        The least slowdown that matters.
    wrong
        Of `perflib.fleet.analysis.correct.all_findings`: they come first.

    Returns
    -------
    What stands out, and what else was compared, in sentences: the report begins with them.

    Raises
    ------
    UserError
        A table lacks a column.
    MeasurementError
        The file cannot be written.
    """
    view = farm((levels, nodes), threshold_percent=threshold_percent, wrong=wrong)
    sentences = statements(view.findings)
    found = [one.sentence for one in sentences if one.verdict == "supported"]
    others = [one.sentence for one in sentences if one.verdict != "supported"]
    shown = _shown(view.findings)
    missing, words = _missing(outcomes)
    page = template("farm.html.j2").render(
        title=title,
        about=_about(view),
        style=STYLE,
        simulated=bool(view.label),
        found=found,
        others=others,
        nothing=f"{view.label}nothing that is certain.".capitalize(),
        overview=view.overview().html() if view.findings else "",
        threshold=f"{threshold_percent:g}",
        common=_common(view),
        correctness=made.html() if (made := view.correctness()).rows else "",
        sections=[_section(view, name) for name in view.experiments],
        verdicts=verdicts(shown).html() if shown else "",
        more=len(view.findings) - len(shown),
        missing=missing,
        missing_words=words,
    )
    write_page(page, out)
    return [*found, *others]


def _about(view: FarmView) -> str:
    start = view.levels["start"].dropna()
    days = f"{start.min():%Y-%m-%d} to {start.max():%Y-%m-%d}" if len(start) else "no known day"
    written = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"{repr(view)[1:-1]} · {days} · written {written}"


def _common(view: FarmView) -> str:
    made = view.in_common()
    return made.html() if made.rows else ""


def _shown(findings: list[Finding]) -> list[Finding]:
    order = {"supported": 0, "inconclusive": 1, "refuted": 2}
    return sorted(findings, key=lambda one: order[one.verdict])[:_MOST_VERDICTS]


def _section(view: FarmView, experiment: str) -> dict[str, Any]:
    figures = [
        {**vars(picture(figure)), "caption": caption}
        for caption, figure in _figures(view, experiment)
    ]
    return {"title": f"{view.label}{experiment}", "figures": figures}


def _figures(view: FarmView, experiment: str) -> Iterator[tuple[str, Figure]]:
    label = view.label
    words = "arrows mark core positions, names next to the rows nodes that stand out"
    yield (
        f"{label}each core of each node compared with its model, the slowest nodes on top; {words}",
        view.heatmap(experiment),
    )
    if len(view.table("hours", experiment)):
        yield (
            f"{label}racks by the hour of the day (UTC), each node against its median",
            view.hours(experiment),
        )
    named = [one.about["node"] for one in view.found if "node" in one.about
             and one.about.get("experiment") == experiment]  # fmt: skip
    for node in dict.fromkeys(named[:_MOST_NODES] or view.slowest(experiment)[:1]):
        yield f"{label}{node} among the nodes of its model", view.node(node, experiment)


def _missing(outcomes: pd.DataFrame | None) -> tuple[str, str]:
    """A table of what is not done, and how much that is."""
    if outcomes is None:
        return "", ""
    rows = outcomes[outcomes["state"] != "done"]
    if rows.empty:
        return "", ""
    words = f"{len(rows)} of {len(outcomes)} measurements are not done"
    if len(rows) > _MOST_MISSING:
        words += f", of which the first {_MOST_MISSING} are listed"
    columns = [name for name in ("node", "experiment", "state", "reason") if name in rows]
    return table(rows[columns].head(_MOST_MISSING)).html(), words + "."
