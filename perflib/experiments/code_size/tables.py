"""The derived tables of both sweeps; each figure is drawn from the one of its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.code_size.reaches import Reaches
from perflib.experiments.code_size.table import RINGS, CodeTable
from perflib.measure.pages.text_backings import SMALL_PAGES
from perflib.model.run import Run
from perflib.stats.interval import Interval, percent
from perflib.stats.intervals import t_interval
from perflib.stats.knees import Knees

__all__ = [
    "backings",
    "core_difference",
    "knees",
    "miss_costs",
    "misses",
    "page_ratio",
    "ring_ratio",
    "times",
]

_MOST_CORES = 8


def _fitting(table: CodeTable, pattern: str, reaches: Reaches) -> dict[str, int]:
    """The caches that the largest code exceeds."""
    largest = table.code_bytes(pattern).max()
    return {name: size for name, size in reaches.caches.items() if size < largest}


def times(
    table: CodeTable, pattern: str, reaches: Reaches, shared: CodeTable | None = None
) -> pd.DataFrame:
    """Time of a step at each size: of each core, or of the mean of many (``cpu`` is missing).

    ``state``: "alone", or "all" where nothing is told; of ``shared``, the table of a busy sibling,
    all cores together. ``predicted_ns``, of code at random on the last backing: misses as often as
    the caches' sizes say, their costs fitted (``CodeTable.miss_model``).
    """
    few = len(table.cores) <= _MOST_CORES
    curves: list[tuple[CodeTable, str, int | None]] = [
        (table, backing, cpu)
        for backing in table.backings
        for cpu in (table.cores if few else [None])
    ]
    if shared is not None:
        curves += [(shared, backing, None) for backing in table.backings]
    parts = []
    for of, backing, cpu in curves:
        curve = of.curve(pattern, backing, cpu)
        curve.insert(0, "state", _state(of))
        curve.insert(0, "cpu", pd.Series([cpu] * len(curve), dtype="Int64"))
        curve.insert(0, "backing", backing)
        curve.insert(0, "pattern", pattern)
        parts.append(curve)
    frame = pd.concat(parts, ignore_index=True).assign(predicted_ns=np.nan)
    levels, last = _fitting(table, pattern, reaches), table.backings[-1]
    here = (frame["backing"] == last) & (frame["state"] != "shared")
    if levels and pattern == "random" and frame.loc[here, "step_ns"].notna().all():
        _, model = table.miss_model(pattern, last, levels)
        frame.loc[here, "predicted_ns"] = np.tile(model, int(here.sum()) // len(model))
    return frame


def _state(table: CodeTable) -> str:
    return table.state if table.told is not None else "all"


def miss_costs(table: CodeTable, pattern: str, reaches: Reaches) -> pd.DataFrame:
    """What a step costs that misses a cache, in ns, by the model of random accesses."""
    levels = _fitting(table, pattern, reaches)
    costs, _ = table.miss_model(pattern, table.backings[-1], levels)
    return costs.rename_axis("level").rename("cost_ns").reset_index()


def _ends(name: str, found: Iterable[Interval]) -> pd.DataFrame:
    """Intervals as the columns ``NAME_UNIT``, ``low_UNIT`` and ``high_UNIT``."""
    unit = name.rpartition("_")[2]
    rows = [tuple(one) for one in found]
    return pd.DataFrame(rows, columns=[name, f"low_{unit}", f"high_{unit}"])


def page_ratio(table: CodeTable) -> pd.DataFrame:
    """How much longer the same code takes on 4 KiB pages than on each kind of 2 MiB pages."""
    parts = []
    for pattern in table.sweeps:
        for huge in table.huge if SMALL_PAGES in table.backings else ():
            blocks = table.page_ratio(pattern, huge)
            part = _ends("extra_percent", (percent(t_interval(column)) for column in blocks.T))
            part.insert(0, "code_bytes", table.code_bytes(pattern))
            part.insert(0, "backing", huge)
            part.insert(0, "pattern", pattern)
            parts.append(part)
    return _joined(parts, ["pattern", "backing", "code_bytes", "extra_percent"])


def knees(table: CodeTable, shared: CodeTable | None = None) -> pd.DataFrame:
    """Each knee: of which pattern, beside what (a backing, or the ring ``line``), and where.

    ``state``: as of ``times``; while a sibling is busy, the chase's only.
    """
    found: list[tuple[str, str, str, Knees]] = []
    for of in (table, shared):
        if of is None:
            continue
        patterns = table.sweeps if of is table else [RINGS[0]] * (RINGS[0] in table.patterns)
        if SMALL_PAGES in table.backings and table.huge:
            huge = table.huge[0]
            found += [(name, huge, _state(of), of.knees(name, huge)) for name in patterns]
        if table.has_ring_control:
            found.append((RINGS[0], RINGS[1], _state(of), of.ring_knees()))
    rows = [
        (pattern, beside, state, *knee.size, percent(knee.height).effect, knee.p)
        for pattern, beside, state, known in found
        for knee in known.knees
    ]
    columns = ["pattern", "beside", "state", "size_bytes", "low_bytes", "high_bytes"]
    return pd.DataFrame(rows, columns=[*columns, "height_percent", "p"])


def ring_ratio(table: CodeTable, shared: CodeTable | None = None) -> pd.DataFrame:
    """One jump a page (``chase_ns``) and one a line (``line_ns``), and their ratio, on 4 KiB."""
    return pd.concat(
        [_ring_ratio(of) for of in (table, shared) if of is not None], ignore_index=True
    )


def _ring_ratio(table: CodeTable) -> pd.DataFrame:
    extent, blocks = table.ring_ratio()
    frame = pd.DataFrame({"state": _state(table), "code_bytes": extent})
    for pattern in RINGS:
        curve = table.curve(pattern, SMALL_PAGES).iloc[table.ring_places(pattern)]
        for name, column in (("", "step_ns"), ("low_", "low_ns"), ("high_", "high_ns")):
            frame[f"{name}{pattern}_ns"] = curve[column].to_numpy()
    ratio = np.exp([tuple(t_interval(column)) for column in blocks.T])
    frame[["ratio", "low_ratio", "high_ratio"]] = ratio.reshape(-1, 3)
    return frame


def core_difference(table: CodeTable, pattern: str) -> pd.DataFrame:
    """How much slower each core is than the median of the others, at each size."""
    parts = []
    for backing in (SMALL_PAGES, *table.huge[:1]):
        if backing not in table.backings:
            continue
        sizes = table.code_bytes(pattern)
        compared = table.difference_by_size(pattern, backing)
        for place, cpu in enumerate(table.cores):
            part = _ends("slowdown_percent", (one.effects[place].slowdown for one in compared))
            part.insert(0, "code_bytes", sizes)
            part.insert(0, "cpu", cpu)
            part.insert(0, "backing", backing)
            parts.append(part)
    return _joined(parts, ["backing", "cpu", "code_bytes", "slowdown_percent"])


def misses(table: CodeTable, simulated: Mapping[str, Any]) -> pd.DataFrame:
    """ITLB misses of a step at each size, simulated and counted, and its ``extra_ns`` on 4 KiB."""
    rows = pd.DataFrame(simulated["rows"])
    parts = []
    for pattern in table.patterns:
        mine = rows[rows["pattern"] == pattern].set_index("n")
        if mine.empty:
            continue
        part = _extra_ns(table, pattern)
        part.insert(0, "code_bytes", table.code_bytes(pattern))
        part.insert(0, "n", table.sizes(pattern))
        part.insert(0, "pattern", pattern)
        for column in ("misses_per_step", "walks_per_step"):
            part[column] = mine[column].reindex(part["n"]).to_numpy()
        counted = table.values(pattern, SMALL_PAGES, "itlb_misses")
        steps = table.values(pattern, SMALL_PAGES, "steps")
        each = (counted / steps).reshape(-1, counted.shape[2])
        part["counted_per_step"] = pd.DataFrame(each).median().to_numpy()
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def _extra_ns(table: CodeTable, pattern: str) -> pd.DataFrame:
    """Time of a step on 4 KiB pages beyond that on 2 MiB pages; NaN where one was not measured."""
    if not table.huge or SMALL_PAGES not in table.backings:
        nothing = Interval(np.nan, np.nan, np.nan)
        return _ends("extra_ns", [nothing] * len(table.sizes(pattern)))
    huge_ns = table.curve(pattern, table.huge[0])["step_ns"].to_numpy()
    blocks = table.page_ratio(pattern, table.huge[0])
    found = zip(huge_ns, (t_interval(column) for column in blocks.T), strict=True)
    return _ends("extra_ns", (Interval(*(ns * np.expm1(ends))) for ns, ends in found))


def backings(run: Run) -> pd.DataFrame:
    """On each kind of pages: how many samples, and how many whose pages were verified."""
    columns = {"samples": ("round", "size")}
    if "ok" in run.samples:
        columns["verified"] = ("ok", "sum")
    if "huge_bytes" in run.samples:
        columns["huge_bytes"] = ("huge_bytes", "median")
    kept = run.samples.groupby("backing").agg(**columns).reset_index()
    if "huge_bytes" in kept:
        kept["huge_kib"] = kept.pop("huge_bytes") / 1024
    absent = run.provenance.get("plan", {}).get("absent", {})
    lacking = pd.DataFrame(absent.items(), columns=["backing", "not_available"], dtype=object)
    return kept.merge(lacking, on="backing", how="outer") if absent else kept


def _joined(parts: Sequence[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(columns))
