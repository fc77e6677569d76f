"""What is seen of one machine over days, and how often a healthy one is accused: simulated.

Series of `tests.stats.test_series` (drift, working hours, days that differ, skewed noise with a
memory), with and without a step; runs against a baseline (heavy-tailed scatter from run to run that
differs from core to core). What counts is what `perflib trend` and `perflib check` would say.

    python benchmarks/over_time.py [--series 200] [--machines 400]
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd

from perflib.fleet.analysis.baseline import UNCHANGED, prediction
from perflib.stats.interval import percent
from perflib.stats.series import find_steps
from tests.stats.test_series import is_shown, two_weeks

_SERIES = (
    {"days": 14, "per_day": 8},
    {"days": 14, "per_day": 24},
    {"days": 14, "per_day": 1},
    {"days": 60, "per_day": 4},
)


def series(count: int) -> pd.DataFrame:
    """Shares of series in which a step is shown; and whose date and size are covered."""
    rows = []
    for shape in _SERIES:
        for step in (0.0, 0.03, 0.05):
            rng = np.random.default_rng(1)
            shown = dated = sized = 0
            for _ in range(count):
                time_s, values, at = two_weeks(rng, step=step, **shape)
                (found,) = find_steps(time_s, values[:, None])
                shown += is_shown(found)
                if found is not None:
                    dated += found.first <= at <= found.last
                    sized += found.size.low <= step <= found.size.high
            row = {**shape, "step %": 100 * step, "shown": shown / count}
            rows.append({**row, "date covered": dated / count, "size covered": sized / count})
    return pd.DataFrame(rows)


def baselines(count: int, threshold_percent: float = 2.0) -> pd.DataFrame:
    """Shares of machines of which any core, or the whole, is called changed."""
    rows = []
    for cores in (2, 8, 64, 128):
        for runs in (3, 5, 10):
            rng = np.random.default_rng(2)
            named = {0.0: 0, 0.05: 0}
            for change in named:
                for _ in range(count):
                    scatter = 0.004 * np.exp(0.5 * rng.standard_normal(cores))
                    logs = rng.standard_t(5, (runs + 1, cores)) * scatter
                    logs += 0.003 * rng.standard_t(5, (runs + 1, 1))
                    logs[-1] += change
                    whole = logs.mean(axis=1, keepdims=True)
                    table = np.hstack([whole, logs - whole])
                    found = [
                        UNCHANGED.decided(percent(one), threshold_percent).verdict
                        for one in prediction(table[:-1], table[-1])
                    ]
                    named[change] += "supported" in (found if change == 0 else found[:1])
            rates = {f"called changed, {k:.0%} slower": n / count for k, n in named.items()}
            rows.append({"cores": cores, "runs": runs, **rates})
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=200)
    parser.add_argument("--machines", type=int, default=400)
    given = parser.parse_args()
    print(series(given.series).round(3).to_string(index=False))
    print(baselines(given.machines).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
