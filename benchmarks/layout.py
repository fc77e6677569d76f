"""How often layout is blamed wrongly, how well its number covers, and what is found.

    python benchmarks/layout.py [RUNS]

Simulated runs (200 of each kind unless given), scheduled as real ones; noise is skewed and wanders,
and cores are slowed by others in bursts of seconds.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from perflib.experiments.layout.table import LayoutTable
from tests.experiments.layout.simulated import trials

_SHAPES: dict[str, dict[str, Any]] = {
    "120 s, trials of 0.25 s": {},
    "the same, nobody disturbs": {"bursts": 0.0},
    "96 s, trials of 1 s": {"rounds": 16, "trial_s": 1.0, "fresh": 3},
    "128 s, trials of 4 s": {"rounds": 8, "trial_s": 4.0, "fresh": 2},
}
_SD, _LESS = 0.03, 0.02


def _own(layout: Mapping[str, Any], _number: int) -> float:
    seed = zlib.crc32(repr(sorted(layout.items(), key=str)).encode())
    return _SD * float(np.random.default_rng(seed).standard_normal())


def main(runs: int) -> None:
    """Print a line for each kind of run."""
    for name, shape in _SHAPES.items():
        alarms, silent, covers, found = [], [], [], []
        for seed in range(runs):
            null = LayoutTable(trials(seed, **shape))
            alarms.append(any(one.largest.low > 1 and one.p < 0.05 for one in null.effects))
            silent.append(not null.alone.low > 0)
            alone = LayoutTable(trials(seed, _own, **shape)).alone
            covers.append(alone.low <= 100 * np.expm1(_SD) <= alone.high)
            five = trials(seed, lambda one, _: 0.05 * (one["environment"] == 2080), **shape)
            effects = {one.factor.name: one for one in LayoutTable(five).effects}
            one = effects["environment"]
            found.append(one.largest.low > 1 and one.p < 0.05)
        print(
            f"{name}: false alarms {np.mean(alarms):.1%}, layout alone silent {np.mean(silent):.1%}"
            f", covers 3 % in {np.mean(covers):.1%}, 5 % found in {np.mean(found):.1%}",
            flush=True,
        )
    less, wrong = [], []
    for seed in range(runs):
        faster = LayoutTable(trials(seed, _own, fresh=3, b_less=_LESS)).faster
        less.append(faster.low <= -100 * np.expm1(-_LESS) <= faster.high)
        equal = LayoutTable(trials(seed, _own, fresh=3, b_less=0.0)).faster
        wrong.append(equal.low > 0 or equal.high < 0)
    print(f"two builds: covers 2 % in {np.mean(less):.1%}, wrong where equal {np.mean(wrong):.1%}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
