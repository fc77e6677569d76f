"""What a layout of the blocks costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments.aliasing.alone import ALONE, SHARED
from perflib.experiments.aliasing.erasure_coding import claims
from perflib.experiments.aliasing.erasure_coding.layouts import REFERENCE
from perflib.experiments.aliasing.erasure_coding.table import ErasureTable
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Reason, Witness
from perflib.stats.interval import percent
from perflib.stats.intervals import t_interval

_ALPHA = 0.05  # of a false claim in a run
_SEGMENTS = 3


def findings(run: Run) -> list[Finding]:
    """Of each implementation: what aligned blocks cost, what aliases cost, and the control.

    The intervals hold for all of them together (Bonferroni): among eighteen claims one in twenty
    would be false. What is different next to a busy sibling follows, where that was seen.
    """
    table = ErasureTable(run.samples)
    pairs = [
        (name, layout)
        for name in table.implementations
        for layout in table.compared
        if layout in claims.BY_LAYOUT
    ]
    confidence = 1 - _ALPHA / max(len(pairs), 1)
    found = [_finding(table, run, name, layout, confidence) for name, layout in pairs]
    beside = [
        finding
        for name in table.implementations
        for finding in _beside_sibling(table, ErasureTable(run.samples, SHARED), run, name)
    ]
    return found + [finding for finding in beside if math.isfinite(finding.high)]


def _beside_sibling(
    alone: ErasureTable, shared: ErasureTable, run: Run, name: str
) -> Iterator[Finding]:
    """What layouts cost one implementation there, and what the sibling takes from it."""
    threshold, about = run.params["threshold_percent"], {"implementation": name}
    for layout, claim in claims.SHARED_BY_LAYOUT.items():
        if layout in shared.compared:
            yield claim.decided(shared.effect(name, layout), threshold, about=about)
    by_batch = {
        state: table.batches(name, REFERENCE) for state, table in ((ALONE, alone), (SHARED, shared))
    }
    speeds = {ALONE: alone.speed(name, REFERENCE), SHARED: shared.speed(name, REFERENCE)}
    yield claims.SLOWED.decided(
        percent(t_interval(by_batch[SHARED] - by_batch[ALONE])),
        threshold,
        about=about,
        facts={f"{state}_mb_per_s": speed.effect for state, speed in speeds.items()},
        evidence={"mb_per_s": {state: list(speed) for state, speed in speeds.items()}},
    )


def _finding(table: ErasureTable, run: Run, name: str, layout: str, confidence: float) -> Finding:
    claim, threshold = claims.BY_LAYOUT[layout], run.params["threshold_percent"]
    by_batch = table.effect_batches(name, layout)
    effect = percent(t_interval(by_batch, confidence))
    segments = _segments(by_batch)
    sign = -1 if claim.direction == "beyond" and effect.effect < 0 else 1
    evidence: dict[str, Any] = {
        "segments_percent": segments,
        "percent_by_core": {
            f"cpu{cpu}": list(table.effect(name, layout, cpu)) for cpu in table.cores
        },
        "mb_per_s": {kind: table.speed(name, kind).effect for kind in (layout, REFERENCE)},
    }
    remarks = []
    if claim is claims.ALIGNED:
        blocks = run.params["data_blocks"] + run.params["parity_blocks"]
        ways = l1d_ways_of(run.provenance.get("machine", {}))
        evidence |= {"blocks": blocks, "l1d_ways": ways}
        if effect.low > threshold and ways is not None and blocks > ways:
            remarks = [Reason("one_set", {"blocks": blocks, "ways": ways})]
    return claim.decided(
        effect,
        threshold,
        about={"implementation": name},
        evidence=evidence,
        confidence=confidence,
        to_support=[
            Witness(
                all(sign * part > threshold for part in segments),
                Reason("segments_disagree", {"segments": segments}),
            ),
            Witness(bool(segments), Reason("too_short")),
        ],
        remarks=remarks,
    )


def _segments(batches: NDArray[np.float64]) -> list[float]:
    """Percent, in each third of the run; none if it is too short for thirds."""
    seen = batches[np.isfinite(batches)]
    if len(seen) < _SEGMENTS:
        return []
    return [100 * math.expm1(float(part.mean())) for part in np.array_split(seen, _SEGMENTS)]


def l1d_ways_of(machine: Mapping[str, Any]) -> int | None:
    """How many lines a set of the first-level data cache holds, by a run's provenance."""
    for cache in machine.get("caches", ()):
        if cache["level"] == 1 and cache["kind"] == "data":
            ways: int | None = cache["ways"]
            return ways
    return None


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``ErasureCoding.tables``."""
    table = ErasureTable(run.samples)
    return {
        "speed": lambda: _speeds(run, table),
        "speed_by_core": lambda: table.speeds(by_core=True),
        "layout_cost": table.costs,
    }


def _speeds(run: Run, alone: ErasureTable) -> pd.DataFrame:
    """MB/s by implementation, layout and state of the core: alone, and shared if it was seen."""
    found = [
        table.speeds().assign(state=state)
        for state, table in ((ALONE, alone), (SHARED, ErasureTable(run.samples, SHARED)))
    ]
    seen = found if found[1]["mb_per_s"].notna().any() else found[:1]
    return pd.concat(seen, ignore_index=True)
