"""Samples of `layout` by simulation: the schedule is the real one, the noise is not the model's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.layout.factors import columns_of, draw
from perflib.experiments.layout.measure import layout_number
from perflib.measure.schedule import round_order

FACTORS: dict[str, list[Any]] = {
    "environment": [0, 1040, 2080, 3120],
    "argv0": [0, 40, 120],
    "aslr": ["off", "on"],
    "allocator": [{"name": name, "path": ""} for name in ("glibc", "jemalloc", "tcmalloc")],
    "huge_pages": ["never", "default"],
    "cpu": [0, 1],
}
Effect = Callable[[Mapping[str, Any], int], float]


def trials(
    seed: int,
    effect: Effect = lambda _layout, _number: 0.0,
    *,
    rounds: int = 40,
    fresh: int = 6,
    trial_s: float = 0.25,
    noise: float = 0.01,
    bursts: float = 0.25,
    core: int | None = None,
    b_less: float | None = None,
) -> pd.DataFrame:
    """Trials as ``measure`` makes them.

    ``effect``: log time of a layout, by its levels and number. The noise is skewed, follows a slow
    wander, and a core (any, or always ``core``) is slower by up to 20 % in bursts of seconds,
    ``bursts`` of the time.
    ``b_less``: there is a second build, by so much faster (log).
    """
    generator = np.random.default_rng(seed)
    apart = max(1, min(math.ceil(16 / (2 * fresh * trial_s)), rounds // 4))
    builds = ["A"] if b_less is None else ["A", "B"]
    total_s = rounds * 2 * fresh * len(builds) * trial_s
    edges, slow = [0.0], [False]
    while edges[-1] < total_s:
        slow.append(not slow[-1])
        mean_s = 3.0 if slow[-1] else 3.0 * (1 - bursts) / max(bursts, 1e-9)
        edges.append(edges[-1] + generator.exponential(mean_s))
    heights = generator.uniform(0.02, 0.2, len(edges))
    cores = generator.integers(2, size=len(edges)) if core is None else np.full(len(edges), core)
    wander, now, rows = 0.0, 0.0, []
    for round_ in range(rounds):
        for position, which in enumerate(round_order(seed, round_, 2 * fresh * len(builds))):
            slot, build = divmod(which, len(builds))
            number = layout_number(fresh, apart, round_, slot)
            layout = draw(FACTORS, seed, number)
            wander = 0.98 * wander + 0.2 * noise * generator.standard_normal()
            log_time = effect(layout, number) + wander
            log_time += noise * (generator.gamma(1.0) - 1)
            place = int(np.searchsorted(edges, now)) - 1
            if bursts and slow[place] and layout["cpu"] == cores[place]:
                log_time += heights[place]
            if builds[build] == "B":
                assert b_less is not None
                log_time -= b_less
            now += trial_s
            rows.append(
                {
                    "round": round_, "position": position, "build": builds[build],
                    "layout": number, "cpu_s": 0.2 * np.exp(log_time), "wall_s": 0.25,
                    **columns_of(layout), "output": "a", "start_ns": int(1e9 * now), "ok": True,
                }
            )  # fmt: skip
    return pd.DataFrame(rows)
