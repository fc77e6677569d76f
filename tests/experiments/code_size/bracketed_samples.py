"""Samples between probes of a machine whose siblings come and go, as kernels give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tests.experiments.made_once import made_once

KIB = 1024
PAGES = (8, 16, 24, 32, 36, 40, 48, 56, 64, 72, 80, 96, 128, 192, 256)
SIZES_KIB = (8, 16, 64, 128, 256, 512, 1024, 2048)
SAMPLE_NS = 3e5
ALONE_NS, CHAIN_NS = 4080.0, 1740.0
_STAY = 0.9  # from one sample to the next, of a trial, the sibling does what it did
_TICK_NS = 15e3


def ring_ns(pages: float, pattern: str, reach: float) -> float:
    """A jump: the chase misses always beyond the reach, its control never."""
    return 0.27 if pattern == "line" or pages <= reach else 0.55


def call_ns(kib: float) -> float:
    """A call in code of a size: it misses the L1 of 32 KiB, then the L2 of 1 MiB."""
    return 17 + 5 * max(0.0, 1 - 32 / kib) + 20 * max(0.0, 1 - 1024 / kib)


@made_once
def samples(
    seed: int = 1,
    *,
    cores: Sequence[int] = (0, 1),
    rounds: int = 12,
    slices: int = 6,
    busy: Mapping[int, float] | float = 0.4,
    reach_shared: float = 32,
    rings: bool = True,
    slow: Mapping[int, float] | None = None,
    slow_beyond_kib: float = 0.0,
) -> pd.DataFrame:
    """Rows in the order of time: two rings, and code at random on two kinds of pages.

    Parameters
    ----------
    busy
        The share of time in which a core's sibling works, by core or of all.
    reach_shared
        Pages that the instruction TLB, of 64 entries, holds for a core that is not alone.
    slow, slow_beyond_kib
        How much slower a core is in code at random, of this size and more.
    """
    rng = np.random.default_rng(seed)
    work = [("chase", "4k", n) for n in PAGES] + [("line", "4k", n) for n in PAGES]
    work = work * rings + [("random", back, kib * 8) for kib in SIZES_KIB for back in ("4k", "thp")]
    trials = [(cpu, *one) for cpu in cores for one in work]
    parts: list[dict[str, Any]] = []
    now_ns = 0
    for round_ in range(rounds):
        for place in rng.permutation(len(trials)):
            cpu, pattern, backing, n = trials[place]
            share = busy if isinstance(busy, float) else busy[cpu]
            company, load = _company(rng, share, slices + 1)
            kib = n / 8 if pattern == "random" else 4 * n
            late = (slow or {}).get(cpu, 0.0) * (kib >= slow_beyond_kib) * (pattern == "random")
            pure = {
                state: (1 + late)
                * (call_ns(kib) if pattern == "random" else ring_ns(n, pattern, pages))
                for state, pages in ((False, 64), (True, reach_shared))
            }
            steps = int(SAMPLE_NS / pure[False])
            held = np.where(company, pure[True] * load, pure[False])
            cpu_ns = steps * (held[1:] + held[:-1]) / 2 * rng.gamma(4e5, 1 / 4e5, slices)
            cpu_ns += _TICK_NS * (rng.random(slices) < 0.3)
            ports = ALONE_NS * np.where(company, load, 1.0) * rng.normal(1, 0.002, slices + 1)
            chains = CHAIN_NS * rng.normal(1, 0.002, slices + 1)
            stolen = np.where(rng.random(slices) < 0.05, rng.exponential(2e6, slices), 0.0)
            time_ns = np.floor(cpu_ns + stolen)
            start_ns = now_ns + np.cumsum(np.append(0.0, time_ns[:-1]))
            now_ns = int(start_ns[-1] + time_ns[-1] + 5e6)
            parts.append(
                {
                    "round": round_,
                    "cpu": cpu,
                    "pattern": pattern,
                    "backing": backing,
                    "n": n,
                    "code_bytes": int(kib * KIB) if pattern != "line" else n * 64,
                    "steps": steps,
                    "time_ns": time_ns,
                    "cpu_time_ns": np.floor(cpu_ns),
                    "run_delay_ns": 0,
                    "probe_before_ns": np.floor(ports[:-1]),
                    "probe_after_ns": np.floor(ports[1:]),
                    "chain_before_ns": np.floor(chains[:-1]),
                    "chain_after_ns": np.floor(chains[1:]),
                    "start_ns": start_ns.astype(np.int64),
                    "ok": True,
                }
            )
    return pd.DataFrame(
        {
            name: np.concatenate([np.broadcast_to(part[name], slices) for part in parts])
            for name in parts[0]
        }
    )


def _company(
    rng: np.random.Generator, share: float, count: int
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """When the sibling works, and by what factor it then slows the core: each time by another."""
    found = np.empty(count, dtype=bool)
    found[0] = rng.random() < share
    for i in range(1, count):
        found[i] = found[i - 1] if rng.random() < _STAY else rng.random() < share
    return found, rng.uniform(1.35, 1.7) * rng.lognormal(0, 0.03, count)
