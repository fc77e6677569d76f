"""The ledger of hypotheses as a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pandas as pd

from perflib import experiments
from perflib.investigation.ledger import Entry, State
from perflib.lab.tables import Table, styles, verdicts
from perflib.model import hypotheses
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.model.sentences import render

_TITLES = {  # the day and the experiment are part of a run's name
    "hypothesis": "hypothesis",
    "verdict": "verdict",
    "share": "share",
    "explains": "which extra time",
    "because": "because",
    "run": "run",
    "machine": "machine",
}
_CLASSES = {"share": "number", "because": "prose"}
_STATES: dict[State, tuple[str, str]] = {  # how an investigation's entry is marked and coloured
    "measured": ("●", "supported"),
    "excluded": ("○", "refuted"),
    "open": ("◐", "inconclusive"),
    "not tested": ("–", "name"),
}


def ledger(found: Iterable[Run | Finding]) -> Table:
    """What explains the extra time, and what does not.

    Parameters
    ----------
    found
        Runs, which are analysed, or the findings of an analysis, or both. Of several runs of one
        experiment on one machine the newest counts. Findings that judge no hypothesis are left
        out.
    """
    given = list(found)
    entries: list[tuple[Run, Sequence[Finding]]] = [
        (run, experiments.get(run.experiment).analyse(run)) for run in given if isinstance(run, Run)
    ]
    alone = [finding for finding in given if isinstance(finding, Finding)]
    entries.append((Run("", "", {}, pd.DataFrame()), alone))
    return ledger_table(entries)


def ledger_table(entries: Iterable[tuple[Run, Sequence[Finding]]]) -> Table:
    """The ledger of runs that are analysed already; columns that say nothing are left out."""
    pairs = list(entries)
    rows = hypotheses.ledger(pairs)
    shown_verdicts = verdicts(finding for _, finding in hypotheses.standing(pairs))
    marked = [row[shown_verdicts.columns.index("verdict")] for row in shown_verdicts.rows]
    shown = [name for name in _TITLES if name in rows and (rows.empty or rows[name].any())]
    kinds = (
        [verdict if name == "verdict" else _CLASSES.get(name, "") for name in shown]
        for verdict in rows["verdict"]
    )
    cells = rows.assign(verdict=marked)[shown].to_numpy().tolist()
    return Table([_TITLES[name] for name in shown], cells, styles(kinds))


def entries_table(entries: Sequence[Entry]) -> Table:
    """The ledger of an investigation: what each hypothesis adds to the time, or why it is out."""
    rows, kinds = [], []
    for one in entries:
        mark, kind = _STATES[one.state]
        percent, share = (
            render("{part:interval %}", {"part": part}) for part in (one.percent, one.share_percent)
        )
        rows.append(
            [
                one.hypothesis,
                f"{mark} {one.state}",
                percent if math.isfinite(one.percent.effect) else "–",
                share if math.isfinite(one.share_percent.effect) else "–",
                one.because,
                one.run or "–",
            ]
        )
        kinds.append(("name", kind, "number", "number", "prose", "exact"))
    columns = ("hypothesis", "state", "adds to the time", "of the extra time", "because", "run")
    return Table(columns, rows, styles(kinds))
