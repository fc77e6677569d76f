"""Recordings of threads that never ran, for tests of what is made of a recording."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perflib.instruments.threads.formats import INTERVAL, SAMPLE, Lock, Rows
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.writer import Writer

LOCKS = (
    Lock("output_module", "mutex", 0x1000, 100),
    Lock("formula_lock", "mutex", 0x2000, 100),
    Lock("task_queue", "condition", 0x3000, 100),
    Lock("pthread_join", "join", 0x4000, 100),
)
STACKS = (
    "main;event_loop;output;lock_wait",
    "main;event_loop;formula;construct;lock_wait",
    "main;event_loop;queue;wait",
    "main;join",
    "main;event_loop;physics",
    "main;event_loop;physics;scatter",
    "main;prepare",
)


def write(
    folder: Path,
    *,
    threads: pd.DataFrame,
    intervals: np.ndarray[Any, Any],
    rows: Rows = (),
    samples: np.ndarray[Any, Any] | None = None,
    stacks: Sequence[str] = (),
    locks: Sequence[Lock] = (),
    lost: np.ndarray[Any, Any] | None = None,
    meta: dict[str, Any],
) -> Recording:
    """Write a recording from memory: intervals in any order, ``rows`` has the thread of each."""
    order = np.argsort(intervals["start_ns"], kind="stable")
    with Writer(folder) as writer:
        writer.add(np.asarray(rows, dtype=np.int32)[order], intervals[order])
        writer.add_samples(np.zeros(0, SAMPLE) if samples is None else samples)
        writer.close(threads=threads, stacks=stacks, locks=locks, lost=lost, meta=meta)
    return Recording.open(folder)


def recording_of(
    folder: Path,
    threads: list[list[tuple[Any, ...]]],
    *,
    names: list[str] | None = None,
    locks: tuple[Lock, ...] = LOCKS,
    stacks: tuple[str, ...] = STACKS,
    samples: list[tuple[int, int, int, int]] | None = None,
    meta: dict[str, Any] | None = None,
) -> Recording:
    """A recording of the intervals of each thread, as tuples in the order of ``INTERVAL``'s fields.

    What a tuple leaves out is: no flags, CPU 0, no lock, no other thread, no stack.
    """
    filled = [
        (*one, *(0, 0, -1, -1, -1)[len(one) - 3 :]) for intervals in threads for one in intervals
    ]
    rows = [row for row, intervals in enumerate(threads) for _ in intervals]
    ends = [(one[0], one[1]) for one in filled] or [(0, 0)]
    whole = (min(start for start, _ in ends), max(end for _, end in ends))
    table = pd.DataFrame(
        {
            "tid": np.arange(len(threads)) + 100,
            "pid": 100,
            "name": pd.Series(
                names or [f"event-{row}" for row in range(len(threads))], dtype=object
            ),
            "start_ns": [one[0][0] if one else whole[0] for one in threads],
            "end_ns": [one[-1][1] if one else whole[0] for one in threads],
        }
    )
    return write(
        folder,
        threads=table,
        intervals=np.array(filled, dtype=INTERVAL),
        rows=rows,
        samples=np.array(samples or [], dtype=SAMPLE),
        stacks=stacks,
        locks=locks,
        meta={"backend": "made", "start_ns": whole[0], "end_ns": whole[1]} | (meta or {}),
    )


def made_recording(
    folder: Path,
    threads: int = 8,
    seconds: float = 10.0,
    *,
    per_second: float = 200.0,
    cpus: int = 8,
    seed: int = 1,
    waits: bool = True,
    names: list[str] | None = None,
) -> Recording:
    """A job: the first thread prepares alone, starts the others, joins them, merges alone.

    The first and the last tenth of the time are serial. In between each of the other threads
    goes through runs, waits for a lock (``waits``), times without a core, sleeps and spinning,
    ``per_second`` intervals a second. The first lock of ``LOCKS`` is waited for longest.
    """
    rng = np.random.default_rng(seed)
    start, total = 1_000_000_000_000, round(seconds * 1e9)
    begin, end = start + total // 10, start + total - total // 10
    n = max(4, round(per_second * (end - begin) / 1e9)) // 4 * 4
    pieces, rows = [_first_thread(start, begin, end, start + total)], [np.zeros(3, dtype=np.int32)]
    for row in range(1, threads):
        pieces.append(_worker(rng, begin, end, n, threads, cpus, waits=waits))
        rows.append(np.full(n, row, dtype=np.int32))
    intervals = np.concatenate(pieces)
    whose = np.concatenate(rows)
    table = pd.DataFrame(
        {
            "tid": np.arange(threads) + 100,
            "pid": 100,
            "name": names or ["job", *(f"event-{row}" for row in range(threads - 1))],
            "start_ns": [start] + [begin] * (threads - 1),
            "end_ns": [start + total] + [end] * (threads - 1),
        }
    )
    return write(
        folder,
        threads=table,
        intervals=intervals,
        rows=whose,
        samples=_samples(intervals, whose),
        stacks=STACKS,
        locks=LOCKS,
        meta={
            "backend": "made",
            "start_ns": start,
            "end_ns": start + total,
            "job_pid": 100,
            "cpus": cpus,
            "sample_period_ns": 1_000_000,
        },
    )


def _first_thread(start: int, begin: int, end: int, last: int) -> np.ndarray[Any, Any]:
    return np.array(
        [
            (start, begin, 0, 0, 0, -1, -1, -1),
            (begin, end, 2, 0, -1, 3, -1, 3),
            (end, last, 0, 0, 0, -1, -1, -1),
        ],
        dtype=INTERVAL,
    )


def _worker(
    rng: np.random.Generator,
    begin: int,
    end: int,
    n: int,
    threads: int,
    cpus: int,
    *,
    waits: bool,
) -> np.ndarray[Any, Any]:
    """Run, wait for a lock or sleep, be ready, spin or run, again and again."""
    weights = rng.gamma(2.0, size=n) * np.tile([8.0, 4.0, 0.5, 2.0], n // 4)
    edges = begin + np.append(0, np.cumsum(weights) / weights.sum() * (end - begin)).astype("i8")
    edges[-1] = end
    made = np.zeros(n, dtype=INTERVAL)
    made["start_ns"], made["end_ns"] = edges[:-1], edges[1:]
    made["lock"] = made["other"] = made["stack"] = -1
    made["cpu"] = rng.integers(0, cpus, n)
    groups = n // 4
    lock = rng.choice([0, 1, 2, -1], size=groups, p=[0.5, 0.2, 0.1, 0.2]) if waits else -1
    lock = np.broadcast_to(lock, groups)
    other = np.where(lock >= 0, rng.integers(1, max(threads, 2), groups), -1)
    made["state"] = np.tile([0, 2, 1, 0], groups)
    made["state"][1::4] = np.where(lock >= 0, 2, 3)
    if waits:
        made["state"][3::4] = np.where(rng.random(groups) < 0.1, 4, 0)
    for at in (1, 2):
        made["lock"][at::4] = lock
        made["other"][at::4] = other
        made["stack"][at::4] = lock
    made["cpu"][1::4] = -1
    return made


def _samples(intervals: np.ndarray[Any, Any], rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """One in the middle of each run, of its whole length."""
    runs = np.flatnonzero(intervals["state"] == 0)
    samples = np.zeros(len(runs), dtype=SAMPLE)
    samples["time_ns"] = (intervals["start_ns"][runs] + intervals["end_ns"][runs]) // 2
    samples["thread"] = rows[runs]
    samples["stack"] = np.where(rows[runs] == 0, 6, 4 + runs % 2)
    samples["weight_ns"] = intervals["end_ns"][runs] - intervals["start_ns"][runs]
    return np.sort(samples, order="time_ns")
