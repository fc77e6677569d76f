"""What factors do, what layout alone does, and whether one build is faster than another."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.layout.claims import ALONE, DRAWS, FASTER, MOVES, OUTPUT
from perflib.experiments.layout.table import Effect, LayoutTable
from perflib.framework.levels import levels_table
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Decision, Reason, Witness
from perflib.stats.interval import Interval
from perflib.stats.intervals import t_interval
from perflib.stats.layouts import needed_pairs

__all__ = ["SAID", "findings", "levels", "table_of", "tables", "tables_of"]

_ALPHA = 0.05
_ONE_EACH = 1.96 * math.sqrt(2)  # of two layouts, one a build: their difference, at 95 %
SAID = {"cpu": "CPU time", "wall": "wall time"}


def findings(run: Run) -> list[Finding]:
    """Of two builds which is faster; what layout alone does; each factor; the output."""
    table = table_of(run)
    about = {"response": SAID[run.params["response"]]}
    threshold = run.params["threshold_percent"]
    found = []
    if table.builds == 2:
        found.append(_faster(run, table, about))
    alone = ALONE.decided(
        table.alone,
        threshold,
        about=about,
        facts={"beside": _ONE_EACH * table.alone.effect},
        evidence={"layouts": len(table.twice)},
        prevented=Reason("few_starts") if table.twice.empty else None,
        remarks=_failed(table),
    )
    found.append(alone)
    found += [_moves(effect, threshold, about) for effect in table.effects]
    if math.isfinite(table.draws.half_width):
        found.append(DRAWS.decided(table.draws, threshold))
    if "output" in table.rows:
        found.append(_output(table))
    return found


def _moves(effect: Effect, threshold: float, about: dict[str, str]) -> Finding:
    p = {"p": effect.p}
    return MOVES.decided(
        effect.largest,
        threshold,
        about={"factor": effect.factor.says, **about},
        facts={"fastest": effect.fastest, "slowest": effect.slowest},
        evidence={**p, "share_percent": 100 * effect.share},
        to_support=[
            Witness(effect.p < _ALPHA, Reason("chance", p), Reason("permuted", p)),
        ],
        remarks=[Reason("core")] if effect.factor.name == "cpu" else [],
    )


def _failed(table: LayoutTable) -> list[Reason]:
    failed = table.trials - len(table.rows)
    return [Reason("failed", {"failed": failed, "trials": table.trials})] if failed else []


def _faster(run: Run, table: LayoutTable, about: dict[str, str]) -> Finding:
    pairs = len(table.pairs)
    needed = needed_pairs(
        table.pairs["difference"].to_numpy(np.float64), run.params["precision_percent"]
    )
    layout_more = table.alone.low > 0 and table.alone.effect > abs(table.faster.effect)
    more = Reason("layout_more", {"alone": table.alone.effect})
    return FASTER.decided(
        table.faster,
        0.0,
        about=about,
        facts={
            "pairs": pairs,
            "needed": max(needed[0], pairs) if needed else "more",
            "target": run.params["precision_percent"],
        },
        evidence={"pairs": pairs},
        remarks=[more] if layout_more else [],
    )


def _output(table: LayoutTable) -> Finding:
    outputs = table.rows.groupby("build")["output"].nunique()
    more = int(outputs.sum()) - len(outputs)
    pairs = table.twice
    each_start = bool((pairs["output_first"] != pairs["output_again"]).any())
    reasons = (Reason("outputs", {"trials": len(table.rows)}),)
    decision = Decision("supported", reasons)
    if more:
        decision = Decision("refuted", reasons)
        if each_start or pairs.empty:
            decision = Decision("inconclusive", (Reason("each_start"), *reasons))
    shown = Interval(float(more), float(more), float(more))
    return OUTPUT.found(decision, shown, facts={"outputs": more + 1})


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``Layout.tables``."""
    return tables_of(table_of(run))


def tables_of(table: LayoutTable) -> dict[str, Callable[[], pd.DataFrame]]:
    """The same, of samples that are arrays already."""
    return {
        "factors": partial(_factors, table),
        "levels": partial(_levels, table),
        "layouts": partial(_layouts, table),
        "builds": partial(_builds, table),
        "counters": table.counters,
        "simulated": lambda: table.simulated,
    }


def levels(run: Run) -> pd.DataFrame:
    """The program's typical time, and its spread over layouts."""
    table = table_of(run)
    rows = [
        (-1, f"build={build}", float(np.exp(np.median(table.log_time[mine]))), "s")
        for build, mine in table.rows.groupby("build").indices.items()
    ]
    return levels_table([*rows, (-1, "layout alone", table.alone.effect, "percent")])


def table_of(run: Run) -> LayoutTable:
    """The run's samples as arrays."""
    simulated = run.provenance.get("simulated") or {}
    return LayoutTable(run.samples, run.params["response"], simulated.get("rows", ()))


def _factors(table: LayoutTable) -> pd.DataFrame:
    """One row a factor, the largest difference first."""
    rows = [
        {
            "factor": effect.factor.name,
            "levels": len(table.levels(effect.factor)[1]),
            "largest_percent": effect.largest.effect,
            "largest_percent_low": effect.largest.low,
            "largest_percent_high": effect.largest.high,
            "fastest": effect.fastest,
            "slowest": effect.slowest,
            "p": effect.p,
            "share_percent": 100 * effect.share,
        }
        for effect in table.effects
    ]
    names = ["factor", "levels", "largest_percent", "largest_percent_low", "largest_percent_high"]
    found = pd.DataFrame(rows, columns=[*names, "fastest", "slowest", "p", "share_percent"])
    return found.sort_values("largest_percent", ascending=False, ignore_index=True)


def _levels(table: LayoutTable) -> pd.DataFrame:
    """One row a level of each factor: its time, compared with the mean of the factor's levels."""
    rows: list[dict[str, Any]] = []
    for factor in table.factors:
        codes, names = table.levels(factor)
        by_block = table.by_block(factor)
        for place, name in enumerate(names):
            found = Interval(*(100 * math.expm1(one) for one in t_interval(by_block[:, place])))
            rows.append(
                {
                    "factor": factor.name,
                    "level": name,
                    "starts": int((codes == place).sum()),
                    "percent": found.effect,
                    "percent_low": found.low,
                    "percent_high": found.high,
                }
            )
    names = ["factor", "level", "starts", "percent", "percent_low", "percent_high"]
    return pd.DataFrame(rows, columns=names)


def _layouts(table: LayoutTable) -> pd.DataFrame:
    """One row a layout that was started twice: its times, compared with their rounds' means."""
    pairs = table.twice
    return pd.DataFrame(
        {
            "layout": pairs["layout"],
            "build": pairs["build"],
            "first_percent": 100 * np.expm1(pairs["centred_first"].astype(float)),
            "again_percent": 100 * np.expm1(pairs["centred_again"].astype(float)),
        }
    )


def _builds(table: LayoutTable) -> pd.DataFrame:
    """One row a layout of a round: by how much less time B takes than A."""
    pairs = table.pairs
    less = -100 * np.expm1(pairs["difference"].astype(float))
    return pairs[["round", "layout", "block"]].assign(less_percent=less)
