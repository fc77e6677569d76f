"""Samples of two builds' functions by simulation; the noise is not the model's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from perflib.model.run import Run
from tests.experiments.layout.simulated import trials

SHARES = {
    "track": 0.2, "field": 0.3, "mix": 0.15, "hash": 0.1, "step": 0.1, "store": 0.05, "read": 0.04,
    "memcpy": 0.03, "sort": 0.02, "log": 0.01,
}  # fmt: skip
PERIOD_NS = 250_000


def recorded(
    seed: int,
    grown: Mapping[str, float] | None = None,
    *,
    layout_effect: float = 0.01,
    rounds: int = 16,
    fresh: int = 2,
    trial_s: float = 1.0,
    b_less: float = 0.0,
    **noise: Any,
) -> pd.DataFrame:
    """Starts of both builds with their functions, as ``measure`` makes them.

    ``grown``: by which factor B's functions cost more. Times wander, are skewed and come in bursts
    (`simulated.trials`); in a burst half of the functions are slowed down more than the others;
    each layout moves each function, in both builds alike, by ``layout_effect``; counts scatter more
    than Poisson's.
    """
    generator = np.random.default_rng(seed)
    starts = trials(seed, rounds=rounds, fresh=fresh, trial_s=trial_s, b_less=b_less, **noise)
    names, shares = np.array(list(SHARES)), np.array(list(SHARES.values()))
    size = (len(starts), len(names))
    sensitive = np.where(generator.random(len(names)) < 0.5, 1.3, 0.7)
    _, layout = np.unique(starts["layout"], return_inverse=True)
    of_layout = generator.standard_normal((layout.max() + 1, len(names)))
    log_cost = np.log(shares) + layout_effect * of_layout[layout]
    slowed = np.log(starts["cpu_s"].to_numpy(np.float64) / 0.2)
    log_cost = log_cost + slowed[:, None] * sensitive + 0.01 * generator.standard_t(4, size)
    more = np.log([(grown or {}).get(str(name), 1.0) for name in names])
    log_cost = log_cost + np.outer(starts["build"] == "B", more)
    cost = 0.2 * np.exp(log_cost)
    counts = generator.negative_binomial(cost / (PERIOD_NS / 1e9), 0.5)  # twice as wide as counting
    row, place = counts.nonzero()
    symbol = names[place]
    starts = starts.assign(cpu_s=cost.sum(axis=1)).iloc[row].reset_index(drop=True)
    found: pd.DataFrame = starts.assign(
        symbol=symbol, object="/b/job", offset=8, stack=[f"main;{one}" for one in symbol],
        event="cpu-clock", count=counts[row, place], period=counts[row, place] * PERIOD_NS,
    )  # fmt: skip
    return found


def run_of(samples: pd.DataFrame, facts: Mapping[str, Any] | None = None, **params: Any) -> Run:
    """A run of both builds."""
    given = {
        "job": "command",
        "job_command": "a",
        "other_command": "b",
        "functions": True,
        **params,
    }
    programs = {"programs": {"A": "/b/job", "B": "/b/job"}}
    provenance = {
        "code": programs | dict(facts or {}), "stopped": "budget spent", "trials": len(samples),
        "problems": [], "machine": {"processor": "test", "microarchitecture": "simulated"},
    }  # fmt: skip
    return Run("layout-20260101-000000-test-aaaaaaaa", "layout", given, samples, provenance)


THREE_FUNCTIONS = """
#include <stdint.h>
#include <stdio.h>
#define OWN __attribute__((noinline))
OWN uint64_t mix(uint64_t x) { for (int i = 0; i < N; i++) x = x * 77 + (x >> 29); return x; }
OWN uint64_t track(uint64_t x) { for (int i = 0; i < N; i++) x ^= x << 13 ^ x >> 7; return x; }
OWN uint64_t step(uint64_t x) { for (int i = 0; i < N; i++) x = x * 3 + (x >> 3) % 9; return x; }
int main(void) {
  uint64_t x = 1;
  for (int i = 0; i < 60; i++) x = mix(x) + EXTRA + track(x) + step(x);
  return printf("%d\\n", x == 0) < 0;
}
"""
"""A program whose build may have more to do: three functions."""
