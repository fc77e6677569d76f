"""Trials of ``threads`` as a job with known locks gives them, and its network by simulation."""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from perflib.measure.jobs.event_loop import POINTS, VERSIONS

WORK_S = 1.0  # of one thread
LOCKS = {point: locks[0] for point, locks in POINTS.items()}
SHARES = {"formula": 0.25, "interface": 0.06, "output": 0.04, "checksum": 0.01, "queue": 0.05}


def samples(
    seed: int = 1,
    *,
    versions: Mapping[str, Sequence[str]] = VERSIONS,
    shares: Mapping[str, float] = SHARES,
    threads: int = 2,
    rounds: int = 24,
    cost: float = 0.0,
    off: float = 0.0,
    ready: float = 0.0,
    pessimism: float = 1.0,
    noise: float = 0.02,
    lost: int = 0,
    spill: float = 0.0,
) -> pd.DataFrame:
    """Rows as ``threads`` makes them.

    ``shares``: of the threads' time that each point costs. ``cost``: the profile's, as a log ratio.
    ``off``: the profile's waits over the self-reported ones. ``ready``: share of the threads' time
    that is run-queue delay. ``pessimism``: the profile's concurrency over the true one.
    ``spill``: of the waiting for a point that is switched off, the share that comes about
    elsewhere.
    """
    generator = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    configurations = [
        (version, way)
        for version, points in versions.items()
        for way in ("one_thread", "alone", "profiled", *(f"without:{one}" for one in points))
    ]
    now = 0.0
    for round_ in range(rounds):
        for position, number in enumerate(generator.permutation(len(configurations))):
            version, way = configurations[number]
            waited = {point: shares[point] for point in POINTS if point in versions[version]}
            n = 1 if way == "one_thread" else threads
            lost_share = 0.0 if n == 1 else sum(waited.values()) + ready
            time_s = WORK_S / n / (1 - lost_share) * math.exp(generator.normal(0, noise))
            time_s *= 1 - (1 - spill) * waited.get(way.removeprefix("without:"), 0.0)
            time_s *= (1 + 0.2 * now / 1e3) * math.exp(cost if way == "profiled" else 0.0)
            row = {
                "round": round_, "position": position, "version": version,
                "configuration": way,
                "threads": n, "start_ns": int(now * 1e9), "job_time_s": time_s, "wall_s": time_s,
                "cpus": threads, "ok": True, "self_report": json.dumps({}),
            }  # fmt: skip
            row |= dict.fromkeys(_PROFILE)
            if way == "profiled":
                row |= _profile(generator, waited, time_s, n, off, ready, pessimism, lost)
            rows.append(row)
            now += time_s
    return pd.DataFrame(rows)


_PROFILE = (
    "backend", "recorded_s", "whole_s", "concurrency", "concurrency_s", "running_s", "ready_s",
    "waiting_s", "sleeping_s", "spinning_s", "unknown_s", "free_ready_s", "locks", "limiting",
    "serial_begin_s", "serial_end_s", "serial_middle_s", "lost_events", "lost_samples",
)  # fmt: skip


def _profile(
    generator: np.random.Generator, waited: Mapping[str, float], time_s: float, threads: int,
    off: float, ready: float, pessimism: float, lost: int,
) -> dict[str, Any]:  # fmt: skip
    whole = threads * time_s
    truth = {
        point: share * whole * math.exp(generator.normal(0, 0.1)) for point, share in waited.items()
    }
    seen = {
        point: s * (1 + off) * math.exp(generator.normal(0, 0.005)) for point, s in truth.items()
    }
    ordered = sorted(seen, key=lambda point: -seen[point])
    locks = {
        LOCKS[point]: {
            "kind": "mutex", "waits": 100, "waiting_s": 0.9 * seen[point],
            "ready_s": 0.1 * seen[point], "longest_ms": 1.0, "gain_s": 0.8 * seen[point] / threads,
        }
        for point in ordered
    }  # fmt: skip
    waiting = sum(seen.values())
    running = whole * (1 - ready) - waiting
    busy = min(running / whole * pessimism, 1.0)
    at_once = [time_s * math.comb(threads, k) * busy**k * (1 - busy) ** (threads - k)
               for k in range(threads + 1)]  # fmt: skip
    return {
        "self_report": json.dumps(
            {
                LOCKS[point]: {"point": point, "waits": 100, "waiting_s": s, "spinning_s": 0.0}
                for point, s in truth.items()
            }
        ),
        "backend": "perf", "recorded_s": time_s, "whole_s": time_s + 0.03,
        "concurrency": threads * busy, "concurrency_s": json.dumps(at_once),
        "running_s": running, "ready_s": ready * whole + 0.1 * waiting, "waiting_s": 0.9 * waiting,
        "sleeping_s": 0.0, "spinning_s": 0.0, "unknown_s": 0.0, "free_ready_s": ready * whole,
        "locks": json.dumps(locks), "limiting": LOCKS[ordered[0]] if ordered else "",
        "serial_begin_s": 0.01, "serial_end_s": 0.0, "serial_middle_s": 0.1 * time_s,
        "lost_events": lost, "lost_samples": 0,
    }  # fmt: skip


def network(
    generator: np.random.Generator, threads: int, held: Sequence[float], scatter: float, *,
    events: int = 4000, off: Collection[int] = (),
) -> tuple[float, list[float]]:  # fmt: skip
    """Threads go round: work, then one lock after the other, first come first served.

    Returns how long all rounds take, and how long is waited for each lock. ``held``: the share of
    a round's work that is done under each lock; ``scatter``: of all times; ``off``: what is done
    without its lock.
    """
    free, waits = [0.0] * len(held), [0.0] * len(held)
    sigma = math.sqrt(math.log(1 + scatter**2))
    draws = iter(np.exp(generator.normal(-(sigma**2) / 2, sigma, 4 * events * len(held))))
    outside = (1 - sum(held)) / len(held)
    coming = [(float(generator.random()), thread, 0) for thread in range(threads)]
    heapq.heapify(coming)
    begun, end = threads, 0.0
    while coming:
        now, thread, lock = heapq.heappop(coming)
        takes = held[lock] * float(next(draws))
        if lock not in off:
            waits[lock] += max(0.0, free[lock] - now)
            now = max(now, free[lock])
            free[lock] = now + takes
        now += takes
        if lock + 1 == len(held):
            end = max(end, now)
            begun += 1
            if begun > events:
                continue
        after = now + outside * float(next(draws))
        heapq.heappush(coming, (after, thread, (lock + 1) % len(held)))
    return end, waits
