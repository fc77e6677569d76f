"""The derived tables of both sweeps; each figure is drawn from the one of its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.code_size.reaches import Reaches
from perflib.experiments.code_size.table import RINGS, CodeTable
from perflib.framework.samples import labelled
from perflib.measure.pages.kinds import SMALL_PAGES
from perflib.model.run import Run
from perflib.stats.interval import NO_INTERVAL, Interval, columns, percent
from perflib.stats.intervals import t_interval, t_intervals
from perflib.stats.knees import Knees

_MOST_CORES = 8


def _fitting(table: CodeTable, pattern: str, reaches: Reaches) -> dict[str, int]:
    """The caches that the largest code exceeds."""
    largest = table.code_bytes(pattern).max()
    return {name: size for name, size in reaches.caches.items() if size < largest}


def times(
    table: CodeTable, pattern: str, reaches: Reaches, shared: CodeTable | None = None
) -> pd.DataFrame:
    """Time of a step at each size: of each core, or of the mean of many (``cpu`` is missing).

    ``state``: "alone", or "all" where no state is known; of ``shared``, the table of a busy
    sibling, all cores together. ``predicted_ns``, of code at random on the last backing: misses as
    often as the caches' sizes say, their costs fitted (``CodeTable.miss_model``).
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
        cpus = pd.Series([cpu] * len(curve), dtype="Int64")
        parts.append(labelled(curve, pattern=pattern, backing=backing, cpu=cpus, state=_state(of)))
    frame = pd.concat(parts, ignore_index=True).assign(predicted_ns=np.nan)
    levels, last = _fitting(table, pattern, reaches), table.backings[-1]
    here = (frame["backing"] == last) & (frame["state"] != "shared")
    if levels and pattern == "random" and frame.loc[here, "step_ns"].notna().all():
        _, model = table.miss_model(pattern, last, levels)
        frame.loc[here, "predicted_ns"] = np.tile(model, int(here.sum()) // len(model))
    return frame


def _state(table: CodeTable) -> str:
    return table.state if table.core_states is not None else "all"


def miss_costs(table: CodeTable, pattern: str, reaches: Reaches) -> pd.DataFrame:
    """What a step costs that misses a cache, in ns, by the model of random accesses."""
    levels = _fitting(table, pattern, reaches)
    costs, _ = table.miss_model(pattern, table.backings[-1], levels)
    return costs.rename_axis("level").rename("cost_ns").reset_index()


def _ends(name: str, found: Iterable[Interval]) -> pd.DataFrame:
    """One row for each interval: ``name``, ``name_low``, ``name_high``."""
    return pd.DataFrame([columns(name, one) for one in found])


def page_ratio(table: CodeTable) -> pd.DataFrame:
    """How much longer the same code takes on 4 KiB pages than on each kind of 2 MiB pages."""
    parts = []
    for pattern in table.sweeps:
        for huge in table.huge if SMALL_PAGES in table.backings else ():
            blocks = table.page_ratio(pattern, huge)
            part = _ends("extra_percent", (percent(t_interval(column)) for column in blocks.T))
            sizes = table.code_bytes(pattern)
            parts.append(labelled(part, pattern=pattern, backing=huge, code_bytes=sizes))
    return _joined(parts, ["pattern", "backing", "code_bytes", "extra_percent"])


def knees(table: CodeTable, shared: CodeTable | None = None) -> pd.DataFrame:
    """Each knee: of which pattern, compared with what (a backing, or the ring ``line``), and where.

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
        (pattern, control, state, *knee.size, percent(knee.height).effect, knee.p)
        for pattern, control, state, known in found
        for knee in known.knees
    ]
    names = ["pattern", "compared_with", "state", *columns("size_bytes", NO_INTERVAL)]
    return pd.DataFrame(rows, columns=[*names, "height_percent", "p"])


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
        for end in ("", "_low", "_high"):
            frame[f"{pattern}_ns{end}"] = curve[f"step_ns{end}"].to_numpy()
    ratios = (Interval(*np.exp(t_interval(column))) for column in blocks.T)
    return frame.join(_ends("ratio", ratios))


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
            parts.append(labelled(part, backing=backing, cpu=cpu, code_bytes=sizes))
    return _joined(parts, ["backing", "cpu", "code_bytes", "slowdown_percent"])


def misses(table: CodeTable, simulated: Mapping[str, Any]) -> pd.DataFrame:
    """ITLB misses of a step at each size, simulated and counted, and its ``extra_ns`` on 4 KiB."""
    rows = pd.DataFrame(simulated["rows"])
    parts = []
    for pattern in table.patterns:
        mine = rows[rows["pattern"] == pattern].set_index("n")
        if mine.empty:
            continue
        sizes = {"n": table.sizes(pattern), "code_bytes": table.code_bytes(pattern)}
        part = labelled(_extra_ns(table, pattern), pattern=pattern, **sizes)
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
        return _ends("extra_ns", [NO_INTERVAL] * len(table.sizes(pattern)))
    huge_ns = table.curve(pattern, table.huge[0])["step_ns"].to_numpy()
    blocks = table.page_ratio(pattern, table.huge[0])
    found = zip(huge_ns, t_intervals(blocks), strict=True)
    return _ends("extra_ns", (Interval(*(ns * np.expm1(ends))) for ns, ends in found))


def backings(run: Run) -> pd.DataFrame:
    """On each kind of pages: how many samples, and how many whose pages were verified."""
    kept_as = {"samples": ("round", "size")}
    if "ok" in run.samples:
        kept_as["verified"] = ("ok", "sum")
    if "huge_bytes" in run.samples:
        kept_as["huge_bytes"] = ("huge_bytes", "median")
    kept = run.samples.groupby("backing").agg(**kept_as).reset_index()
    if "huge_bytes" in kept:
        kept["huge_kib"] = kept.pop("huge_bytes") / 1024
    absent = run.provenance.get("plan", {}).get("absent", {})
    lacking = pd.DataFrame(absent.items(), columns=["backing", "not_available"], dtype=object)
    return kept.merge(lacking, on="backing", how="outer") if absent else kept


def _joined(parts: Sequence[pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(names))
