from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from perflib.framework.watch import Watch

NAMES = ("probe_before_ns", "probe_after_ns", "chain_before_ns", "chain_after_ns")
TRIAL = 8


def records(busy: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[Any]:
    """Samples in a row of a core whose sibling was busy at some of them."""
    found = np.zeros(len(busy), dtype=[(name, "i8") for name in NAMES])
    for name in NAMES:
        ports = name.startswith("probe")
        alone, shared = (4000, 6200) if ports else (1700, 1750)
        scatter = np.where(busy, rng.lognormal(0, 0.12, len(busy)), rng.normal(1, 0.002, len(busy)))
        found[name] = np.where(busy, shared, alone) * scatter
    return found


def watched(share_busy: float, trials: int = 60) -> tuple[Watch, np.random.Generator]:
    rng = np.random.default_rng(1)
    watch = Watch()
    for _ in range(trials):
        watch.add(3, records(np.full(TRIAL, rng.random() < share_busy), rng))
    return watch, rng


def test_nothing_is_reported_too_early_or_of_another_core() -> None:
    watch, rng = watched(0.5, trials=2)
    samples = records(np.zeros(TRIAL, dtype=bool), rng)
    assert watch.alone(3, samples) is None
    watch, rng = watched(0.5)
    assert watch.alone(4, samples) is None


def test_nobody_waits_for_a_core_that_is_hardly_ever_alone() -> None:
    """Next to a core that is: its level shows what alone would be."""
    watch, rng = watched(0.5)
    for _ in range(200):
        watch.add(7, records(np.ones(TRIAL, dtype=bool), rng))
    assert watch.alone(3, records(np.zeros(TRIAL, dtype=bool), rng)) == TRIAL
    assert watch.alone(7, records(np.zeros(TRIAL, dtype=bool), rng)) is None
    assert watch.never_alone == [7]
