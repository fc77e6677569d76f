"""The compiled switch next to the assembled one: do both slow down at the same size?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.code_size import tables as frames
from perflib.experiments.code_size.claims import SAME_KNEE, SAME_KNEE_SIMULATED
from perflib.experiments.code_size.code_segment.simulated import STEPS
from perflib.experiments.code_size.table import COMPILED, CodeTable
from perflib.framework.samples import labelled
from perflib.measure.pages.kinds import SMALL_PAGES
from perflib.model.finding import Finding
from perflib.stats.decide import Decision, Reason
from perflib.stats.interval import NO_INTERVAL, Interval, columns, percent
from perflib.stats.knee_ratio import SizeCurve, knee_ratio
from perflib.stats.knees import Knees, find_knees

BOTH = ("random", COMPILED)
_NAMES = {"random": "assembled", COMPILED: "compiled"}
_KIB = 1024
_LEAST_PERCENT = 5.0  # of the steps miss: less is what few conflicts within a set make
_SAME_SIZE = 1.05  # the compiler's cases differ in size, so sizes are equal but for this
_Z = 1.96


def same_knee(
    table: CodeTable, tolerance: float, visible: float, prevented: Reason | None
) -> Finding:
    """The ratio of the knees against 2 MiB pages, from the sizes that both switches have.

    ``supported``: its interval is within ``tolerance`` percent, up or down. ``refuted``: it is
    outside, or one has a knee of more than ``visible`` percent and the other, to that precision,
    has none. ``prevented``: why times on these pages decide nothing.
    """
    curves = {pattern: SizeCurve(*table.page_rows(pattern, table.huge[0])) for pattern in BOTH}
    most = min(curve.sizes[-1] for curve in curves.values()) * _SAME_SIZE
    curves = {
        pattern: SizeCurve(
            curve.sizes[curve.sizes <= most], curve.log_ratio[:, curve.sizes <= most]
        )
        for pattern, curve in curves.items()
    }
    knees = {pattern: find_knees(*curve, "random") for pattern, curve in curves.items()}
    ratio = NO_INTERVAL
    decision = _without_knee(knees, visible)
    if decision is None:
        ratio = knee_ratio(curves[BOTH[0]], curves[BOTH[1]])
        decision = _decided(ratio, tolerance)
    if prevented is not None:
        decision = Decision("inconclusive", (prevented,))
    return SAME_KNEE.found(
        decision,
        percent(ratio),
        threshold=tolerance,
        evidence={
            "knees_kib": {
                pattern: [[end / _KIB for end in knee.size] for knee in found.knees]
                for pattern, found in knees.items()
            },
            "p": {pattern: found.p for pattern, found in knees.items()},
        },
    )


def _without_knee(knees: Mapping[str, Knees], visible: float) -> Decision | None:
    """The decision where a switch shows no knee."""
    for pattern, other in (BOTH, BOTH[::-1]):
        if knees[pattern].knees:
            continue
        bound = 100 * math.expm1(knees[pattern].bound)
        if not math.isfinite(bound):
            return Decision("inconclusive", (Reason("too_few"),))
        numbers = {"pattern": _NAMES[pattern], "bound": bound}
        seen = [percent(knee.height).low > visible for knee in knees[other].knees]
        if bound < visible and any(seen):
            return Decision("refuted", (Reason("no_knee", numbers),))
        return Decision("inconclusive", (Reason("no_knee_seen", numbers),))
    return None


def _decided(
    ratio: Interval, tolerance: float, numbers: Mapping[str, Any] | None = None
) -> Decision:
    """Is a log ratio within so many percent, as many up as down?"""
    margin = math.log1p(tolerance / 100)
    if not math.isfinite(ratio.half_width):
        return Decision("inconclusive", (Reason("no_interval"),))
    if -margin <= ratio.low and ratio.high <= margin:
        return Decision("supported", (Reason("clear", numbers or {}),))
    if ratio.high < -margin or ratio.low > margin:
        return Decision("refuted", (Reason("excluded", numbers or {}),))
    return Decision("inconclusive", (Reason("open"),))


def same_knee_simulated(
    table: CodeTable, simulated: Mapping[str, Any], tolerance: float
) -> Finding | None:
    """The same from simulated misses of the instruction TLB; ``None``: one was not simulated.

    Of code at random over ``s`` bytes a TLB of reach ``K`` misses the share 1 - K/s, so ``K``
    is ``s`` times what does not miss. It is compared at the first size at which both switches miss
    with 5 of 100 steps or more. Where but one ever does, the other's is at least the largest size:
    that can refute, and never support. The interval is that of so many steps drawn at random.
    """
    rows = _simulated_sizes(table, simulated)
    if rows.empty:
        return None
    rising = 100 * rows[list(BOTH)] >= _LEAST_PERCENT
    if not rising.to_numpy().any():
        decision = Decision("inconclusive", (Reason("no_rise", {"least": _LEAST_PERCENT}),))
        return SAME_KNEE_SIMULATED.found(decision, threshold=tolerance)
    both = rows[rising.all(axis=1)]
    row = rows.iloc[-1] if both.empty else both.iloc[0]
    misses = row[list(BOTH)].to_numpy(np.float64)
    kept = np.clip(1 - misses, 1 / STEPS, 1 - 1 / STEPS)
    reach_kib = kept * row[[f"{pattern}_bytes" for pattern in BOTH]].to_numpy(np.float64) / _KIB
    effect = math.log(reach_kib[1] / reach_kib[0])
    half = _Z * math.sqrt(float(((1 - kept) / kept / STEPS).sum()))
    ratio = Interval(effect, effect - half, effect + half)
    numbers = {
        "size_bytes": float(row["random_bytes"]),
        "random_percent": 100 * misses[0],
        "compiled_percent": 100 * misses[1],
    }
    decision = _decided(ratio, tolerance, numbers)
    if both.empty and decision.verdict == "supported":
        decision = Decision("inconclusive", (Reason("open"),))
    return SAME_KNEE_SIMULATED.found(
        decision,
        percent(ratio),
        threshold=tolerance,
        evidence={
            "model": simulated["model"],
            "reach_kib": dict(zip(BOTH, reach_kib.tolist(), strict=True)),
        },
    )


def _simulated_sizes(table: CodeTable, simulated: Mapping[str, Any]) -> pd.DataFrame:
    """Misses a step of both switches at the sizes that both were simulated at, ascending."""
    rows = pd.DataFrame(simulated["rows"], columns=["pattern", "n", "misses_per_step"])
    known = []
    for pattern in BOTH:
        extent = dict(zip(table.sizes(pattern), table.code_bytes(pattern), strict=True))
        mine = rows[(rows["pattern"] == pattern) & rows["n"].isin(list(extent))]
        size = mine["n"].map(extent).astype(np.float64)
        found = pd.DataFrame({f"{pattern}_bytes": size, pattern: mine["misses_per_step"]})
        known.append(found.sort_values(f"{pattern}_bytes", ignore_index=True, kind="stable"))
    first, second = known
    if first.empty or second.empty:
        return pd.DataFrame()
    sizes = (one.iloc[:, 0].to_numpy(np.float64) for one in known)
    gaps = np.abs(np.subtract.outer(*(np.log(size) for size in sizes)))
    nearest = second.iloc[gaps.argmin(axis=1)].reset_index(drop=True)
    both = pd.concat([first, nearest], axis=1)
    return pd.DataFrame(both[gaps.min(axis=1) <= math.log(_SAME_SIZE)])


def both_switches(table: CodeTable, simulated: Mapping[str, Any] | None) -> pd.DataFrame:
    """Both switches at each size, on each kind of pages, all cores together.

    ``extra_percent``: what 4 KiB pages cost beyond each kind of 2 MiB pages; ``misses_per_step``:
    simulated, of 4 KiB pages; both NaN where there is none.
    """
    extra = frames.page_ratio(table)
    parts = []
    for pattern in BOTH:
        for backing in table.backings:
            curve = table.curve(pattern, backing)
            sizes = table.sizes(pattern)
            parts.append(labelled(curve, pattern=pattern, backing=backing, n=sizes))
    frame = pd.concat(parts, ignore_index=True)
    ends = list(columns("extra_percent", NO_INTERVAL))
    keys = ["pattern", "backing", "code_bytes"]
    frame = frame.merge(extra.reindex(columns=[*keys, *ends]), on=keys, how="left")
    rows = pd.DataFrame((simulated or {}).get("rows", ()))
    rows = rows.reindex(columns=["pattern", "n", "misses_per_step"])
    return frame.merge(rows.assign(backing=SMALL_PAGES), on=["pattern", "backing", "n"], how="left")
