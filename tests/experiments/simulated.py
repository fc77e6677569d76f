"""Samples of KV as a machine with known faults would give them."""

from __future__ import annotations

import numpy as np
import pandas as pd


def samples(
    seed: int = 1,
    *,
    cores: int = 4,
    rounds: int = 60,
    events: int = 20,
    slow: dict[int, float] | None = None,
    slow_events: tuple[int, ...] = (),
    burst_share: dict[int, float] | None = None,
    burst_s: float = 3.0,
    drift: float = 0.2,
    noise: float = 0.02,
) -> pd.DataFrame:
    """Rows as ``kv_per_core`` makes them; 100 ms a turn.

    ``slow``: a core's slowdown, of all events or of ``slow_events``. ``burst_share``: the share of
    time in which a core takes twice as long, in bursts of ``burst_s``. ``drift``: how much slower
    the whole machine is at the end.
    """
    generator = np.random.default_rng(seed)
    cost_ns = generator.lognormal(0, 1, events)
    cost_ns *= 100e6 / cost_ns.sum()
    slow, burst_share = slow or {}, burst_share or {}
    total_s = rounds * cores * 0.1
    bursts = {
        cpu: _bursts(generator, share, burst_s, 3 * total_s) for cpu, share in burst_share.items()
    }
    now_s = 0.0
    parts = []
    for round_ in range(rounds):
        for position, cpu in enumerate(generator.permutation(cores)):
            factor = np.full(events, 1 + drift * now_s / total_s)
            hit = np.isin(np.arange(events), slow_events) if slow_events else slice(None)
            factor[hit] *= 1 + slow.get(int(cpu), 0.0)
            if any(begin <= now_s < end for begin, end in bursts.get(int(cpu), [])):
                factor *= 2
            time_ns = cost_ns * factor * np.exp(generator.normal(0, noise, events))
            start_ns = now_s * 1e9 + np.cumsum(time_ns) - time_ns
            parts.append(
                pd.DataFrame(
                    {
                        "round": round_,
                        "position": position,
                        "cpu": int(cpu),
                        "event": np.arange(events),
                        "start_ns": start_ns.astype(np.int64),
                        "time_ns": time_ns.astype(np.int64),
                    }
                )
            )
            now_s += float(time_ns.sum()) / 1e9
    return pd.concat(parts, ignore_index=True)


def _bursts(
    generator: np.random.Generator, share: float, length_s: float, until_s: float
) -> list[tuple[float, float]]:
    found = []
    now_s = 0.0
    while now_s < until_s:
        now_s += generator.exponential(length_s * (1 - share) / share)
        found.append((now_s, now_s + length_s))
        now_s += length_s
    return found
