"""Samples of a core whose sibling thread works at times, with the probes that tell it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

ALONE_NS, CHAIN_NS = 4070.0, 1740.0


def busy_times(seed: int, count: int, share: float, period: float) -> NDArray[np.bool_]:
    """Which samples are taken while the sibling works: a share of them, in random periods."""
    generator = np.random.default_rng(seed)
    busy = np.zeros(count, dtype=np.bool_)
    now, works = 0, bool(generator.random() < share)
    while now < count:
        mean = period * 2 * (share if works else 1 - share)
        length = 1 + int(generator.exponential(mean))
        busy[now : now + length] = works
        now, works = now + length, not works
    return busy


def with_sibling(
    table: pd.DataFrame,
    share: float,
    *,
    seed: int = 1,
    slower: float = 1.4,
    period: float = 200.0,
    extra: ArrayLike = 1.0,
    columns: Sequence[str] = ("time_ns",),
) -> pd.DataFrame:
    """The rows as they come in time; while the sibling works they take longer, by varying factors.

    ``extra``: a further factor of each row while the sibling works. Each third sample has a tick of
    the timer, and a few lose the core: the wall time, not the CPU time. At a share of 1 the probes
    never show the core alone.
    """
    generator = np.random.default_rng(seed)
    count = len(table)
    busy = busy_times(seed, count, share, period) if share < 1 else np.ones(count, dtype=np.bool_)
    factor = np.where(busy, generator.gamma(8, (slower - 1) / 8, count) + 1, 1.0)
    factor *= np.where(busy, np.asarray(extra), 1.0)
    factor *= 1 + 0.05 * (generator.random(count) < 1 / 3)
    lost_ns = (generator.random(count) < 0.02) * generator.exponential(2e6, count)
    longer = {name: table[name] * factor + lost_ns for name in columns}
    cpu_time_ns = table[columns[0]] * factor

    def probes(level_ns: float, most: float) -> NDArray[np.float64]:
        ns = level_ns * np.exp(generator.normal(0, 0.001, count))
        return np.where(busy, level_ns * generator.uniform(1.01, most, count), ns)

    return table.assign(
        **longer,
        cpu=table.get("cpu", 0),
        cpu_time_ns=cpu_time_ns,
        run_delay_ns=0.0,
        throttled_ns=None,
        probe_before_ns=probes(ALONE_NS, 1.5),
        probe_after_ns=probes(ALONE_NS, 1.5),
        chain_before_ns=probes(CHAIN_NS, 1.03),
        chain_after_ns=probes(CHAIN_NS, 1.03),
    )


def never_alone(table: pd.DataFrame) -> pd.DataFrame:
    """The rows, each between probes of which one at most saw the core alone."""
    generator = np.random.default_rng(5)
    lone = np.arange(len(table)) % 4 == 0
    alone_ns = ALONE_NS * np.exp(generator.normal(0, 0.001, len(table)))
    busy_ns = ALONE_NS * generator.uniform(1.2, 1.8, len(table))
    return table.assign(
        cpu=table.get("cpu", 0),
        probe_before_ns=np.where(lone, alone_ns, busy_ns),
        probe_after_ns=np.roll(busy_ns, 1),
        chain_before_ns=CHAIN_NS,
        chain_after_ns=CHAIN_NS,
    )
