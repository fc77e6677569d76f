"""Which pieces take longer than the reference, and how many samples had their core alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pandas as pd

from perflib.experiments.bracketed.claims import ALONE, SLOWER
from perflib.experiments.bracketed.table import BracketedTable
from perflib.framework.levels import levels_table
from perflib.model.errors import UserError, choose
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Decision, Reason
from perflib.stats.interval import columns


def table_of(run: Run) -> BracketedTable:
    """The run's samples by turns.

    Raises
    ------
    UserError
        There is no piece of the reference's name.
    """
    table = BracketedTable(run.samples, run.params["against"])
    if table.against not in table.names:
        raise UserError(choose("piece (against)", table.against, table.names))
    return table


def findings(run: Run) -> list[Finding]:
    """Each piece compared with the reference; then how many samples had their core alone."""
    table = table_of(run)
    found = [_slower(run, table, name) for name in table.others]
    if not table.classified:
        return [*found, ALONE.found(Decision("inconclusive", (Reason("not_classified"),)))]
    seen = Decision("supported", (Reason("seen"),))
    return [*found, ALONE.found(seen, table.alone_percent())]


def _slower(run: Run, table: BracketedTable, name: str) -> Finding:
    threshold = run.params["threshold_percent"]
    effect = table.slower(name)
    slowdown = effect.slowdown
    remarks = [Reason("one_process")] if table.processes == 1 else []
    mine = (table.rows["name"] == name).to_numpy()
    if table.classified and not table.alone[mine & table.counts].all():
        remarks.append(Reason("all_count"))
    apart = math.isnan(slowdown.effect)
    decision = effect.decide(
        threshold,
        remarks,
        prevented=Reason("not_in_turns", {"against": table.against}) if apart else None,
    )
    less = slowdown.high < -threshold
    return SLOWER.found(
        decision,
        slowdown,
        threshold=threshold,
        about={"name": name, "against": table.against},
        facts={"how": "less time than" if less else "no longer than"},
        evidence={"p_holm": effect.p_holm, "segments_percent": list(effect.segments)},
        confidence=table.confidence,
    )


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``Bracketed.tables``."""
    table = table_of(run)
    return {"pieces": partial(_pieces, table), "samples": partial(_samples, table)}


def levels(run: Run) -> pd.DataFrame:
    """What each piece takes."""
    table = table_of(run)
    return levels_table(
        [(-1, f"name={name}", table.time_ns(name).effect, "ns") for name in table.names]
    )


def _pieces(table: BracketedTable) -> pd.DataFrame:
    """One row a piece."""
    rows = []
    for name in table.names:
        mine = (table.rows["name"] == name).to_numpy()
        rows.append(
            {
                "name": name,
                "against": table.against,
                "samples": int(mine.sum()),
                "alone_percent": 100 * float(table.alone[mine].mean())
                if table.classified
                else math.nan,
                **columns("time_ns", table.time_ns(name)),
                **columns("longer_percent", table.slower(name).slowdown),
            }
        )
    return pd.DataFrame(rows)


def _samples(table: BracketedTable) -> pd.DataFrame:
    """One row a sample, in the order of time."""
    return pd.DataFrame(
        {
            "sample": range(len(table.rows)),
            "process": table.rows["process"],
            "name": table.rows["name"],
            "time_us": pd.Series(table.log_ns).map(lambda log: math.exp(log) / 1e3),
            "counts": table.counts,
        }
    )
