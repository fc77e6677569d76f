"""What distances of two buffers cost: those predicted to alias, and the slowest whatever it be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.aliasing.addresses import LINE_BYTES, aliasing
from perflib.experiments.aliasing.alone import ALONE, SHARED, State, in_state
from perflib.experiments.aliasing.offsets.claims import ALIASES, ALIASES_SHARED, SLOWEST
from perflib.experiments.aliasing.offsets.functions import ROUTINES, Swept
from perflib.experiments.aliasing.offsets.table import OffsetTable, functions_in
from perflib.model.claim import Claim
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Reason, Witness
from perflib.stats.interval import Interval

OTHER = "other"  # the kind of all functions that are not ours
_ALPHA = 0.05
_ENDS = ("", "_low", "_high")
_APART_BYTES = 2048  # the distance of two arrays that pl.alias_free places


def findings(run: Run) -> list[Finding]:
    """Of each function: do the predicted offsets cost time, and does any?

    And do the predicted ones next to a busy sibling, where that was seen?
    """
    threshold = run.params["threshold_percent"]
    alone = [
        finding
        for swept, table in _functions(run)
        for finding in offset_findings(swept, table, threshold)
    ]
    return alone + [
        _predicted(ALIASES_SHARED, swept, effect, threshold)
        for swept, effect in _beside_sibling(run)
    ]


def _functions(run: Run, state: State = ALONE) -> list[tuple[Swept, OffsetTable]]:
    return functions_in(run.samples, run.provenance.get("plan", {}), state)


def _beside_sibling(run: Run) -> list[tuple[Swept, Interval]]:
    """What the predicted offsets cost each function while a sibling of the core works."""
    found = [
        (swept, table.predicted(swept.period))
        for swept, table in _functions(run, SHARED)
        if swept.period is not None
    ]
    return [(swept, effect) for swept, effect in found if math.isfinite(effect.half_width)]


def offset_findings(swept: Swept, table: OffsetTable, threshold: float) -> list[Finding]:
    """The claims about one function, each with its verdict; ``threshold`` is in percent."""
    found = [_slowest(swept, table, threshold)]
    if swept.period is not None:
        found.insert(0, _predicted(ALIASES, swept, table.predicted(swept.period), threshold))
    return found


def _predicted(claim: Claim, swept: Swept, effect: Interval, threshold: float) -> Finding:
    about, evidence = swept.columns, {"period_bytes": swept.period}
    return claim.decided(effect, threshold, about=about, evidence=evidence)


def _slowest(swept: Swept, table: OffsetTable, threshold: float) -> Finding:
    """``supported`` takes three witnesses: the interval, the permutation, every third."""
    slowest, fastest = table.slowest, table.fastest
    p, segments = {"p": slowest.p}, {"segments": slowest.segments}
    return SLOWEST.decided(
        slowest.difference,
        threshold,
        about=swept.columns,
        facts={"offset_bytes": slowest.offset_bytes},
        evidence={
            "slowest_offset_bytes": slowest.offset_bytes,
            "fastest_offset_bytes": fastest.offset_bytes,
            "fastest_percent": list(fastest.difference),
            "p": slowest.p,
            "segments_percent": list(slowest.segments),
        },
        to_support=[
            Witness(slowest.p < _ALPHA, Reason("chance", p), Reason("offset", p)),
            Witness(
                all(part > threshold for part in slowest.segments),
                Reason("segments_disagree", segments),
            ),
        ],
    )


# --- tables --------------------------------------------------------------------------------------


def kind_of(swept: Swept) -> str:
    """With which other functions it is drawn."""
    return swept.routine if swept.routine in ROUTINES else OTHER


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``AliasOffsets.tables``."""
    found = _functions(run)

    def of(kind: str) -> Callable[[], pd.DataFrame]:
        return lambda: curves(pair for pair in found if kind_of(pair[0]) == kind)

    made = {f"time_{kind}": of(kind) for kind in dict.fromkeys(kind_of(one) for one, _ in found)}
    if "simulated" in run.provenance:
        made["simulated"] = lambda: pd.DataFrame(run.provenance["simulated"]["rows"])
    return {
        **made,
        "effects": lambda: _effects(found, dict(_beside_sibling(run))),
        "remedy": lambda: _remedy(found),
        "used": lambda: _used(run.samples),
    }


def curves(functions: Iterable[tuple[Swept, OffsetTable]]) -> pd.DataFrame:
    """Each function's time at each offset; ``predicted``: where it is predicted to alias."""
    parts = []
    for swept, table in functions:
        curve = table.curve()
        offsets, period = curve["offset_bytes"].to_numpy(), swept.period
        near = np.zeros(len(offsets), bool) if period is None else aliasing(offsets, period)[0]
        parts.append(curve.assign(**swept.columns, predicted=near))
    frame = pd.concat(parts, ignore_index=True)
    return frame[[*Swept("").columns, "predicted", *curve.columns]]


def _effects(
    functions: Iterable[tuple[Swept, OffsetTable]], beside: Mapping[Swept, Interval]
) -> pd.DataFrame:
    """What the predicted offsets cost each function, and its slowest and fastest."""
    rows: list[dict[str, Any]] = []
    for swept, table in functions:
        row = swept.columns
        kinds = {
            "predicted": None if swept.period is None else table.predicted(swept.period),
            "shared": beside.get(swept),
            "slowest": table.slowest.difference,
            "fastest": table.fastest.difference,
        }
        for what, ends in kinds.items():
            names = [f"{what}_percent{end}" for end in _ENDS]
            row |= dict(zip(names, ends or (np.nan,) * 3, strict=True))
        row["slowest_offset_bytes"] = table.slowest.offset_bytes
        row["fastest_offset_bytes"] = table.fastest.offset_bytes
        rows.append(row)
    return pd.DataFrame(rows)


def _remedy(functions: Iterable[tuple[Swept, OffsetTable]]) -> pd.DataFrame:
    """Each predicted offset compared with 2048 bytes, and with 2048 at the same place in a line."""
    rows = []
    for swept, table in functions:
        for before in map(int, table.offsets[aliasing(table.offsets)[0]]):
            alike = _APART_BYTES + before % LINE_BYTES
            if not {_APART_BYTES, alike} <= set(table.offsets):
                continue
            row = {"function": swept.name, "before_bytes": before, "after_bytes": _APART_BYTES}
            for what, after in (("cost", _APART_BYTES), ("distance", alike)):
                names = [f"{what}_percent{end}" for end in _ENDS]
                row |= dict(zip(names, table.difference(before, after), strict=True))
            rows.append(row)
    named = ["cost", "distance"]
    columns = [f"{what}_percent{end}" for what in named for end in _ENDS]
    return pd.DataFrame(rows, columns=["function", "before_bytes", "after_bytes", *columns])


def _used(samples: pd.DataFrame) -> pd.DataFrame:
    """How many samples each function has, how many of them are used, and of how many calls."""
    ok = samples["ok"] if "ok" in samples else pd.Series(data=True, index=samples.index)
    used = ok.fillna(value=True).astype(bool) & in_state(samples)
    counted = samples.assign(ok=used).groupby("function", sort=False)
    return counted.agg(
        samples=("ok", "size"), used=("ok", "sum"), calls=("calls", "median")
    ).reset_index()
