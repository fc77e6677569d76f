"""Where allocators place pairs of large buffers, and what that costs."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from perflib.experiments.aliasing.allocators.claims import BY_STATE, COST
from perflib.experiments.aliasing.allocators.table import AllocatorTable, Cost, Share
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Reason, Witness

__all__ = ["findings", "tables"]


def findings(run: Run) -> list[Finding]:
    """Of each allocator: do large pairs share their low bits, and what does it cost?"""
    table, large_bytes = AllocatorTable(run.samples), run.params["large_bytes"]
    found = []
    for allocator in table.allocators:
        for state in BY_STATE:
            share = table.share(allocator, state, large_bytes)
            if share is not None:
                found.append(_share(allocator, state, share, run))
    return found + [_cost(*cell, cost, run) for cell, cost in table.costs.items()]


def _share(allocator: str, state: str, share: Share, run: Run) -> Finding:
    above = share.near - share.equal
    return BY_STATE[state].decided(
        share.percent,
        run.params["share_percent"],
        about={"allocator": allocator},
        facts={
            "large_bytes": run.params["large_bytes"],
            "equal": share.equal,
            "pairs": share.pairs,
            "processes": share.processes,
            "above": above,
            "above_percent": 100 * above / share.pairs,
        },
        evidence={
            "pairs": share.pairs,
            "equal": share.equal,
            "up_to_127_bytes_above": share.near,
            "processes": share.processes,
        },
        remarks=[Reason("above")] if above else [],
    )


def _cost(allocator: str, function: str, size: int, cost: Cost, run: Run) -> Finding:
    """``supported`` takes the interval and every third of the run."""
    threshold = run.params["threshold_percent"]
    return COST.decided(
        cost.distance,
        threshold,
        about={"allocator": allocator, "function": function, "size_bytes": size},
        evidence={
            "processes_predicted_to_alias_percent": cost.aliasing,
            "other_effects_percent": list(cost.other),
            "element_ns": list(cost.element_ns),
            "segments_percent": list(cost.segments),
        },
        to_support=[
            Witness(
                all(part > threshold for part in cost.segments),
                Reason("segments_disagree", {"segments": cost.segments}),
            )
        ],
    )


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``Allocators.tables``."""
    table = AllocatorTable(run.samples)
    made: dict[str, Callable[[], pd.DataFrame]] = {}
    if table.sizes:
        made["addresses"] = table.shares
    if table.cells:
        made |= {"cost": lambda: _costs(table), "time": lambda: _times(table)}
    return made


def _costs(table: AllocatorTable) -> pd.DataFrame:
    columns = ["allocator", "function", "size_bytes"]
    for what in ("distance", "other"):
        columns += [f"{what}_percent", f"{what}_low_percent", f"{what}_high_percent"]
    rows = [
        (*cell, *cost.distance, *cost.other, cost.aliasing) for cell, cost in table.costs.items()
    ]
    return pd.DataFrame(rows, columns=[*columns, "predicted_percent"])


def _times(table: AllocatorTable) -> pd.DataFrame:
    columns = ["allocator", "function", "size_bytes", "element_ns", "low_ns", "high_ns"]
    rows = [(*cell, *cost.element_ns) for cell, cost in table.costs.items()]
    return pd.DataFrame(rows, columns=columns)
