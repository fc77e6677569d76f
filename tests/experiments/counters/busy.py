"""Jobs, counted and not, on a simulated machine that is busy; what counting costs them is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments.counters.modes import ALONE, KERNEL, NOTHING, ONE_SET, ROTATED, SAMPLED

MODES = (ONE_SET, ROTATED, KERNEL, SAMPLED)
_SLICES, _PAIRS, _ROUNDS = 40, 8, 4
_STEP_S = 1e-3


def _sibling(generator: np.random.Generator, seconds: float, share: float) -> NDArray[np.bool_]:
    """Whether a thread on the same physical core works, by ms: in bursts of 3 s, with flicker."""
    state, now, at = np.zeros(round(seconds / _STEP_S), dtype=bool), generator.random() < share, 0
    while share > 0 and at < state.size:
        mean_s = 6 * (share if now else 1 - share)
        until = at + max(1, round(generator.exponential(mean_s) / _STEP_S))
        state[at:until], now, at = now, not now, until
    return state ^ (generator.random(state.size) < 0.02)


def slices(
    generator: np.random.Generator,
    cost: dict[str, float] | None = None,
    *,
    shared: float = 0.5,
    probes: bool = True,
) -> pd.DataFrame:
    """Slices of one job in pairs of segments, in every mode.

    A busy sibling costs 40 %; a tick falls into a third of the slices, a preemption into some; what
    sampling costs comes in interrupts of 15 µs; the first slices of a counted segment are cold.
    """
    cost = cost or {}
    parts: list[dict[str, Any]] = []
    work_us = 300 * np.exp(generator.normal(0, 0.1, _SLICES))
    at_s = 0.0
    busy = _sibling(generator, _ROUNDS * len(MODES) * (_PAIRS * 2 * 0.025 + 1.0), shared)
    for round_ in range(_ROUNDS):
        for mode in generator.permutation(MODES):
            at_s += 0.6
            for pair in range(_PAIRS):
                for on in generator.permutation(2):
                    begin_s = at_s + 0.00032 * np.arange(_SLICES)
                    company = busy[(begin_s / _STEP_S).astype(int)]
                    own = np.exp(generator.normal(0, 0.004, _SLICES))
                    time_us = work_us * own * np.where(company, 1.4, 1.0)
                    time_us += 15 * (generator.random(_SLICES) < 0.33)
                    time_us += 40 * (generator.random(_SLICES) < 0.03)
                    if on:
                        hit = generator.random(_SLICES) < cost.get(mode, 0.0) * work_us / 15
                        time_us += 15 * hit
                        time_us[0] *= 1.08
                    rows: dict[str, Any] = {
                        "round": round_,
                        "mode": mode,
                        "pair": pair,
                        "counted": int(on),
                        "slice": np.arange(_SLICES),
                        "start_ns": (1e9 * begin_s).astype(np.int64),
                        "cpu_time_ns": 1e3 * time_us,
                    }
                    for name in ("probe_before_ns", "probe_after_ns") if probes else ():
                        alone = 4070 * np.exp(generator.normal(0, 0.001, _SLICES))
                        longer = generator.uniform(1.1, 1.5, _SLICES)
                        rows[name] = np.where(company, longer, 1.0) * alone
                    parts.append(rows)
                    at_s += 0.02
    table = pd.concat([pd.DataFrame(part) for part in parts], ignore_index=True)
    return table.assign(jobs=1, set=NOTHING, event=NOTHING, job_event=0, cpu=0)


def whole_jobs(generator: np.random.Generator, shared: float) -> pd.DataFrame:
    """Whole jobs of half a second in rounds of all modes; nothing costs anything."""
    busy = _sibling(generator, 6 * 2 * 5 * 2.0, shared)
    rows, at_s = [], 0.0
    for round_ in range(6):
        for jobs in (1, 3):
            for mode in generator.permutation([ALONE, *MODES]):
                offset = math.exp(generator.normal(0, 0.015))  # of this process
                here = busy[round(at_s / _STEP_S) : round((at_s + 0.5) / _STEP_S)].mean()
                preempted = math.exp(generator.exponential(0.02))
                time_ns = 5e8 * (1 + 0.4 * here) * offset * preempted
                rows.append({"round": round_, "mode": mode, "jobs": jobs, "cpu_time_ns": time_ns})
                at_s += 1.2
    return pd.DataFrame(rows).assign(event=NOTHING)
