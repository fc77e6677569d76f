"""What limits a job follows from the job's end: simulated traces of idle pools, and of locks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.experiments.threads import experiment
from perflib.experiments.threads.trials import PROFILED, summary
from perflib.instruments.threads.formats import Lock, State
from perflib.model.finding import Finding
from tests.experiments.judged import by_subject, codes, made_run
from tests.experiments.threads.thread_samples import samples
from tests.instruments.threads.made import recording_of

MS = 1_000_000
RUNNING, WAITING, SLEEPING = State.RUNNING, State.WAITING, State.SLEEPING
MAIN, FIRST, SECOND = 0, 1, 2
MUTEX, POOL = 0, 1
TIMER = -1
Trace = list[list[tuple[Any, ...]]]


def wait(start: int, end: int, lock: int, waker: int) -> tuple[Any, ...]:
    return (start, end, WAITING, 0, -1, lock, waker)


def idle(begin: int, end: int, lock: int, waker: int, waits: int = 5) -> list[tuple[Any, ...]]:
    """Waits again and again, runs for a moment, waits."""
    edges = np.linspace(begin, end, waits + 1).astype(int).tolist()
    each = [
        [wait(low, high - MS // 10, lock, waker), (high - MS // 10, high, RUNNING)]
        for low, high in itertools.pairwise(edges)
    ]
    return [one for pair in each for one in pair]


def alone(span: int) -> list[tuple[Any, ...]]:
    return [(0, span, RUNNING)]


def pool(span: int) -> Trace:
    """The first thread computes; two others wait for work that never comes."""
    return [alone(span), idle(MS, span - 5 * MS, POOL, TIMER), idle(MS, span - MS, POOL, FIRST)]


def stopped_at_the_end(span: int) -> Trace:
    """The first thread wakes those that were idle, and sleeps until they end."""
    ends = span - 2 * MS
    helper = [wait(MS, ends, POOL, MAIN), (ends, ends + MS, RUNNING)]
    main = [(0, ends, RUNNING), (ends, ends + MS, SLEEPING, 0, -1, -1, FIRST)]
    return [[*main, (ends + MS, span, RUNNING)], helper, helper]


def contended_off_the_path(span: int) -> Trace:
    """Two threads wait for each other's lock; the first, which ends last, never does."""
    turns = range(MS, span - 12 * MS, 10 * MS)
    return [alone(span), convoy(turns, SECOND), convoy(turns, FIRST, 5 * MS)]


def convoy(turns: range, other: int, late: int = 0) -> list[tuple[Any, ...]]:
    """Half of each turn a thread has the lock, and half it waits for the other one."""
    return [
        one
        for at in turns
        for one in (
            (at + late, at + late + 5 * MS, RUNNING),
            wait(at + late + 5 * MS, at + late + 10 * MS, MUTEX, other),
        )
    ]


def limiting(span: int) -> Trace:
    """All work is under one lock: nobody works but who has it."""
    turns = range(0, span - 10 * MS, 10 * MS)
    end = turns[-1] + 10 * MS
    first, second = convoy(turns, SECOND), convoy(turns, FIRST, 5 * MS)
    return [[*alone(MS // 10), wait(MS // 10, span, POOL, TIMER)],
            [*first, (end, end + MS, RUNNING)],
            [wait(0, 5 * MS, MUTEX, FIRST), *second]]  # fmt: skip


def work_awaited(span: int) -> Trace:
    """The first thread waits until the other has computed all of it."""
    ends = span - 2 * MS
    main = [(0, MS, RUNNING), wait(MS, ends, POOL, FIRST), (ends, span, RUNNING)]
    return [main, [(MS, ends, RUNNING)]]


def judged(folder: Path, trace: Callable[[int], Trace], kind: str, rounds: int = 6) -> Finding:
    generator = np.random.default_rng(1)
    locks = (Lock("guard", "mutex", 0x1000, 100), Lock("pool", kind, 0x2000, 100))
    rows: list[dict[str, Any]] = []
    for round_ in range(rounds):
        span = int(generator.integers(95, 106)) * MS
        threads = trace(span)
        made = recording_of(
            folder / str(round_), threads, locks=locks, meta={"job_pid": 100, "cpus": 4}
        )
        rows.append(
            {
                "round": round_, "position": 0, "version": "job", "configuration": PROFILED,
                "threads": len(threads), "cpus": 4, "start_ns": round_ * 10**9,
                "job_time_s": span / 1e9, "wall_s": span / 1e9, "self_report": None, "ok": True,
                "backend": "perf", "whole_s": span / 1e9, "serial_begin_s": 0.0,
                "serial_end_s": 0.0, "serial_middle_s": 0.0, "lost_events": 0, "lost_samples": 0,
                **summary(made, 0, span),
            }
        )  # fmt: skip
    run = made_run(experiment, pd.DataFrame(rows), job="command", job_command="job")
    return by_subject(experiment.analyse(run))["job limiting lock"]


KINDS = ["mutex", "condition", "rwlock", "semaphore", "barrier", "other"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trace", [pool, stopped_at_the_end])
def test_threads_that_idle_limit_nothing(
    tmp_path: Path, trace: Callable[[int], Trace], kind: str
) -> None:
    one = judged(tmp_path, trace, kind)
    assert one.verdict == "inconclusive"
    assert one.effect > 30  # as long as they wait
    assert codes(one)[0] == ("not_shorter" if kind in ("mutex", "rwlock") else "work")


@pytest.mark.parametrize("kind", ["condition", "semaphore", "barrier", "other"])
def test_who_waits_for_a_result_waits_for_the_work(tmp_path: Path, kind: str) -> None:
    """Without the wait the job would be shorter, and without a result."""
    one = judged(tmp_path, work_awaited, kind)
    assert (one.verdict, codes(one)[0]) == ("inconclusive", "work")
    assert one.evidence["gain_percent"]["pool"][0] > 50  # bounded by the CPUs


def test_a_lock_that_is_contended_beside_the_path_limits_nothing(tmp_path: Path) -> None:
    one = judged(tmp_path, contended_off_the_path, "condition")
    assert (one.facts["lock"], one.verdict, codes(one)[0]) == (
        "guard",
        "inconclusive",
        "not_shorter",
    )
    assert one.effect > 10
    assert one.evidence["gain_percent"]["guard"][0] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_under_which_all_work_is_done_limits_the_job(tmp_path: Path, kind: str) -> None:
    """It is named although a thread that only idles waits longer."""
    one = judged(tmp_path, limiting, kind)
    assert (one.verdict, one.facts["lock"]) == ("supported", "guard")
    assert codes(one)[:2] == ["shorter", "first"]
    assert one.evidence["gain_percent"]["guard"][1] > 40


def test_a_run_that_has_no_gain_is_recorded_again(tmp_path: Path) -> None:
    """As runs of before: waits alone say nothing."""
    made = recording_of(tmp_path, limiting(100 * MS))
    assert '"gain_s"' in summary(made, 0, 100 * MS)["locks"]
    frame = samples(rounds=6)
    frame = frame[~frame["configuration"].str.startswith("without")]
    frame["locks"] = frame["locks"].str.replace("gain_s", "old")
    one = by_subject(experiment.analyse(made_run(experiment, frame)))["Initial limiting lock"]
    assert (one.verdict, codes(one)[0]) == ("inconclusive", "no_gain")
