"""What a store-load map says: time against the distance of store and load, within rounds."""

from __future__ import annotations

import math
from collections.abc import Callable

import pandas as pd

from perflib.experiments.aliasing.alone import ALONE, SHARED
from perflib.experiments.aliasing.map.claims import CONTROL_BYTES, WAITS, WAITS_SHARED
from perflib.experiments.aliasing.map.table import AliasMapTable
from perflib.model.claim import Claim
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Reason, Witness
from perflib.stats.interval import Interval, percent
from perflib.stats.intervals import t_interval

_TRUE = 0
_AGREE = {_TRUE: "all bits", 3072: "no more than 10 bits"}


def findings(run: Run) -> list[Finding]:
    """What 4 and 8 KiB cost over 2 KiB; true dependencies and 3 KiB as controls.

    The same next to a busy sibling, where that was seen.
    """
    threshold = run.params["threshold_percent"]
    beside = _findings(AliasMapTable(run.samples, SHARED), WAITS_SHARED, threshold)
    return [
        *_findings(AliasMapTable(run.samples), WAITS, threshold),
        *(finding for finding in beside if math.isfinite(finding.high)),
    ]


def _findings(table: AliasMapTable, claim: Claim, threshold: float) -> list[Finding]:
    if CONTROL_BYTES not in table.regions:
        return []
    true = _finding(table, claim, _TRUE, threshold, []) if _TRUE in table.regions else None
    seen = true is not None and true.verdict == "supported"
    control = [Witness(seen, Reason("unproven"))]
    others = [region for region in table.regions if region not in (_TRUE, CONTROL_BYTES)]
    found = [_finding(table, claim, region, threshold, control) for region in others]
    return [true, *found] if true is not None else found


def _finding(
    table: AliasMapTable, claim: Claim, region: int, threshold: float, to_refute: list[Witness]
) -> Finding:
    extra = table.extra_ns(region)
    return claim.decided(
        percent(t_interval(table.ratio(region))),
        threshold,
        about={"distance_bytes": region},
        facts={
            "agree": _AGREE.get(region, "the low 12 bits"),
            "control_bytes": CONTROL_BYTES,
        },
        evidence={
            "extra_ns": list(extra),
            "control_ns": table.control_ns(),
            "cores": table.cores,
        },
        prevented=None if table.used.any() else Reason("never_alone"),
        to_refute=to_refute,
        remarks=_extra(table, extra),
    )


def _extra(table: AliasMapTable, extra: Interval) -> list[Reason]:
    if not math.isfinite(extra.half_width):
        return []
    most = max(extra.high, 0.0)
    cycles = most * table.core_mhz / 1e3
    numbers = {"extra_ns": extra.effect, "most_ns": most, "most_cycles": cycles}
    return [Reason("extra_cycles" if math.isfinite(cycles) else "extra_ns", numbers)]


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``AliasMap.tables``."""
    table = AliasMapTable(run.samples)
    return {"map": lambda: _map(table), "distance": lambda: _distances(run, table)}


def _map(table: AliasMapTable) -> pd.DataFrame:
    axes = [table.regions, table.stores, table.loads]
    names = ["region_bytes", "store_bytes", "load_bytes"]
    index = pd.MultiIndex.from_product(axes, names=names)
    return pd.Series(table.map_ns.ravel(), index, name="pair_ns").reset_index()


def _distances(run: Run, alone: AliasMapTable) -> pd.DataFrame:
    beside, found = AliasMapTable(run.samples, SHARED), _distance(alone, ALONE)
    if not beside.used.any():
        return found
    return pd.concat([found, _distance(beside, SHARED)], ignore_index=True)


def _distance(table: AliasMapTable, state: str) -> pd.DataFrame:
    rows = [
        (state, region, distance, *ends)
        for region in table.regions
        for distance, ends in zip(table.distances(), table.by_distance(region), strict=True)
    ]
    columns = ["state", "region_bytes", "distance_bytes"]
    columns += ["pair_ns", "pair_ns_low", "pair_ns_high"]
    return pd.DataFrame(rows, columns=columns)
