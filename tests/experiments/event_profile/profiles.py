"""Samples of an event's profile as a machine with known differences would give them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

_SHARES = {
    "kv_runge_kutta": 0.20,
    "kv_locate": 0.16,
    "__sin_fma": 0.12,
    "kv_step": 0.10,
    "kv_delta_rays": 0.09,
    "kv_scatter": 0.08,
    "kv_next": 0.07,
    "__log_fma": 0.06,
    "kv_physics": 0.05,
    "kv_share": 0.04,
    "main": 0.03,
}
FUNCTIONS = list(_SHARES)
_PERIOD_NS = 500_000


def samples(
    seed: int = 1,
    *,
    cores: int = 2,
    rounds: int = 20,
    count: int = 1500,
    slow: Mapping[int, float] | None = None,
    costlier: Mapping[tuple[int, str], float] | None = None,
) -> pd.DataFrame:
    """Rows as ``event_profile`` makes them, of about ``count`` samples a trial.

    ``slow``: a core's slowdown, of all functions alike; ``costlier``: a function's own on a core.
    """
    generator = np.random.default_rng(seed)
    parts = []
    for round_ in range(rounds):
        drift = 1 + 0.2 * round_ / rounds
        for position, core in enumerate(generator.permutation(cores)):
            mean = count * drift * np.array(list(_SHARES.values()))
            mean *= 1 + (slow or {}).get(int(core), 0.0)
            for place, function in enumerate(FUNCTIONS):
                mean[place] *= 1 + (costlier or {}).get((int(core), function), 0.0)
            # A clock's samples: their number is the time, and chance only says where they fall.
            taken = generator.multinomial(round(mean.sum()), mean / mean.sum())
            symbols = np.repeat(FUNCTIONS, taken)
            generator.shuffle(symbols)
            begin_ns = (round_ * cores + position) * 10**10
            parts.append(
                pd.DataFrame(
                    {
                        "round": round_,
                        "position": position,
                        "core": int(core),
                        "symbol": symbols,
                        "period": _PERIOD_NS,
                        "event": "cpu-clock",
                        "time_ns": begin_ns + _PERIOD_NS * np.arange(1, len(symbols) + 1),
                        "begin_ns": begin_ns,
                        "event_time_ns": _PERIOD_NS * (len(symbols) + 1),
                        "missed_begin_ns": 100_000,
                        "missed_end_ns": 0,
                    }
                )
            )
    return pd.concat(parts, ignore_index=True)
