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
        [(*one, *(0, 0, -1, -1, -1)[len(one) - 3 :]) for one in intervals] for intervals in threads
    ]
    return _recording(
        folder,
        [np.array(intervals, dtype=INTERVAL) for intervals in filled],
        names or [f"event-{row}" for row in range(len(threads))],
        np.array(samples or [], dtype=SAMPLE),
        meta or {},
        locks,
        stacks,
    )


def _recording(
    folder: Path,
    threads: Sequence[np.ndarray[Any, Any]],
    names: list[str],
    samples: np.ndarray[Any, Any],
    meta: dict[str, Any],
    locks: Sequence[Lock] = LOCKS,
    stacks: Sequence[str] = STACKS,
) -> Recording:
    """A recording of the intervals of each thread."""
    intervals = np.concatenate([np.zeros(0, INTERVAL), *threads])
    start = int(intervals["start_ns"].min()) if len(intervals) else 0
    end = int(intervals["end_ns"].max(initial=0))
    table = pd.DataFrame(
        {
            "tid": np.arange(len(threads)) + 100,
            "pid": 100,
            "name": pd.Series(names, dtype=object),
            "start_ns": [one["start_ns"][0] if len(one) else start for one in threads],
            "end_ns": [one["end_ns"][-1] if len(one) else start for one in threads],
        }
    )
    rows = np.repeat(np.arange(len(threads)), [len(one) for one in threads])
    return write(
        folder,
        threads=table,
        intervals=intervals,
        rows=rows,
        samples=samples,
        stacks=stacks,
        locks=locks,
        meta={"backend": "made", "start_ns": start, "end_ns": end} | meta,
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
    goes through runs, waits for a lock (``waits``), run-queue delay, sleeps and spinning,
    ``per_second`` intervals a second. The first lock of ``LOCKS`` is waited for longest.
    """
    rng = np.random.default_rng(seed)
    start, total = 1_000_000_000_000, round(seconds * 1e9)
    begin, end = start + total // 10, start + total - total // 10
    n = max(4, round(per_second * (end - begin) / 1e9)) // 4 * 4
    first = [
        (start, begin, 0, 0, 0, -1, -1, -1),
        (begin, end, 2, 0, -1, 3, -1, 3),
        (end, start + total, 0, 0, 0, -1, -1, -1),
    ]
    made = [np.array(first, dtype=INTERVAL)]
    made += [_worker(rng, begin, end, n, threads, cpus, waits=waits) for _ in range(1, threads)]
    names = names or ["job", *(f"event-{row}" for row in range(threads - 1))]
    meta = {"job_pid": 100, "cpus": cpus, "sample_period_ns": 1_000_000}
    return _recording(folder, made, names, _samples(made), meta)


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


def _samples(threads: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """One in the middle of each run, of its whole length."""
    intervals = np.concatenate(threads)
    rows = np.repeat(np.arange(len(threads)), [len(one) for one in threads])
    runs = np.flatnonzero(intervals["state"] == 0)
    samples = np.zeros(len(runs), dtype=SAMPLE)
    samples["time_ns"] = (intervals["start_ns"][runs] + intervals["end_ns"][runs]) // 2
    samples["thread"] = rows[runs]
    samples["stack"] = np.where(rows[runs] == 0, 6, 4 + runs % 2)
    samples["weight_ns"] = intervals["end_ns"][runs] - intervals["start_ns"][runs]
    return np.sort(samples, order="time_ns")
