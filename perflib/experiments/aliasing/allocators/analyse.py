"""Where allocators place pairs of large buffers, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from perflib.experiments.aliasing.allocators.claims import BY_STATE, COST, COST_SHARED
from perflib.experiments.aliasing.allocators.table import AllocatorTable, Cost, Share
from perflib.experiments.aliasing.alone import SHARED
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Reason, Witness
from perflib.stats.interval import NO_INTERVAL, Interval


def findings(run: Run) -> list[Finding]:
    """Of each allocator: do large pairs share their low bits, and what does it cost?"""
    table, large_bytes = AllocatorTable(run.samples), run.params["large_bytes"]
    found = []
    for allocator in table.allocators:
        for state in BY_STATE:
            share = table.share(allocator, state, large_bytes)
            if share is not None:
                found.append(_share(allocator, state, share, run))
    found += [_cost(*cell, cost, run) for cell, cost in table.costs.items()]
    shared = [
        COST_SHARED.decided(distance, run.params["threshold_percent"], about=_about(*cell))
        for cell, distance in _beside_sibling(run).items()
    ]
    return found + shared


def _beside_sibling(run: Run) -> dict[tuple[str, str, int], Interval]:
    """What distances cost while a sibling of the core works, of all cells where it was seen."""
    costs = AllocatorTable(run.samples, SHARED).costs
    distances = {cell: cost.distance for cell, cost in costs.items()}
    return {cell: one for cell, one in distances.items() if math.isfinite(one.half_width)}


def _about(allocator: str, function: str, size: int) -> dict[str, Any]:
    return {"allocator": allocator, "function": function, "size_bytes": size}


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
        about=_about(allocator, function, size),
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
        made |= {"cost": lambda: _costs(table, _beside_sibling(run)), "time": lambda: _times(table)}
    return made


def _costs(table: AllocatorTable, beside: Mapping[tuple[str, str, int], Interval]) -> pd.DataFrame:
    columns = ["allocator", "function", "size_bytes"]
    for what in ("distance", "shared", "other"):
        columns += [f"{what}_percent", f"{what}_percent_low", f"{what}_percent_high"]
    rows = [
        (*cell, *cost.distance, *beside.get(cell, NO_INTERVAL), *cost.other, cost.aliasing)
        for cell, cost in table.costs.items()
    ]
    return pd.DataFrame(rows, columns=[*columns, "predicted_percent"])


def _times(table: AllocatorTable) -> pd.DataFrame:
    columns = ["allocator", "function", "size_bytes"]
    columns += ["element_ns", "element_ns_low", "element_ns_high"]
    rows = [(*cell, *cost.element_ns) for cell, cost in table.costs.items()]
    return pd.DataFrame(rows, columns=columns)
