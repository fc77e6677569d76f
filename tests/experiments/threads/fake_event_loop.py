"""An event loop that takes no time, and a recording of it: for tests of what is made of both."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perflib.instruments.threads.formats import INTERVAL, Lock
from perflib.instruments.threads.record import Profiled, Ran
from perflib.instruments.threads.recording import Recording
from perflib.measure.jobs.event_loop import POINTS, Account
from tests.instruments.threads.made import write

BEGIN_NS = 10**12
PREPARE_NS, MERGE_NS = 20_000_000, 10_000_000
MAIN, FIRST = 500, 501  # thread ids
SHARE = 0.1  # of the threads' time, that each point costs


class FakeLoop:
    """Stands for `run_alone` and `profile_job`; notes what it was requested."""

    def __init__(self, *, noise: float = 0.01) -> None:
        self.requested: list[dict[str, Any]] = []
        self.generator = np.random.default_rng(1)
        self.noise = noise
        self.meta: dict[str, Any] = {}
        self.problem = ""
        self.checksum = "abc"

    def run_alone(self, argv: Sequence[str], conditions: Any, **options: Any) -> Ran:
        """As `perflib.instruments.threads.record.run_alone`."""
        self.requested.append({"argv": list(argv), "conditions": conditions, **options})
        text = self.account(argv)
        return Ran(0, text, Account.parse(text).duration_s + 0.03, self.problem)

    def profile_job(
        self, argv: Sequence[str], settings: Any, folder: Path, backend: str, conditions: Any,
        **options: Any,
    ) -> Profiled:  # fmt: skip
        """As `perflib.instruments.threads.record.profile_job`."""
        given = {"backend": backend, "settings": settings, "conditions": conditions, **options}
        self.requested.append({"argv": list(argv), **given})
        text = self.account(argv)
        account = Account.parse(text)
        made = recording(folder, account, self.meta)
        return Profiled(0, text, account.duration_s + 0.03, self.problem, made)

    def account(self, argv: Sequence[str]) -> str:
        """What the job would print."""
        said = dict(zip(argv[1::2], argv[2::2], strict=True))
        threads, events = int(said["--threads"]), int(said["--events"])
        points = [one for one in said["--points"].split(",") if one != "none"]
        share = SHARE * len(points) if threads > 1 else 0.0
        factor = math.exp(self.generator.normal(0, self.noise))
        loop_ns = round(events * 1e6 / threads / (1 - share) * factor)
        locks = [
            {
                "name": POINTS[point][0], "point": point, "address": 4096, "taken": events,
                "waits": 3, "waiting_ns": round(SHARE * threads * loop_ns) if threads > 1 else 0,
                "longest_ns": 1000, "held_ns": 1000, "spinning_ns": 0,
            }
            for point in points
        ]  # fmt: skip
        per_thread = [
            {"tid": FIRST + i, "name": f"event-{i}", "events": 1, "cpu_ns": 1, "waiting_ns": 0}
            for i in range(threads)
        ]
        found = {
            "threads": threads, "events": events, "points": points, "pid": MAIN,
            "begin_ns": BEGIN_NS, "end_ns": BEGIN_NS + loop_ns, "checksum": self.checksum,
            "locks": locks, "per_thread": per_thread,
        }  # fmt: skip
        return f"a line\n{json.dumps(found)}\n"


def recording(folder: Path, account: Account, meta: dict[str, Any] | None = None) -> Recording:
    """The main thread prepares, joins and merges; the others wait for each lock, then work."""
    begin, end = account.begin_ns, account.end_ns
    start, stop = begin - PREPARE_NS, end + MERGE_NS
    locks = [Lock(one.name, "mutex", one.address, MAIN) for one in account.locks]
    locks.append(Lock("pthread_join", "join", 8192, MAIN))
    joined = len(locks) - 1
    rows = [0, 0, 0]
    intervals: list[tuple[int, ...]] = [
        (start, begin, 0, 0, 0, -1, -1, -1),
        (begin, end, 2, 0, -1, joined, -1, -1),
        (end, stop, 0, 0, 0, -1, -1, -1),
    ]
    for i, _ in enumerate(account.per_thread):
        now = begin
        for lock, one in enumerate(account.locks):
            waited = round(one.waiting_ns / account.threads)
            asleep = now + 9 * waited // 10  # and then run-queue delay
            intervals.append((now, asleep, 2, 0, -1, lock, -1, -1))
            intervals.append((asleep, now + waited, 1, 0, -1, lock, -1, -1))
            now += waited
        intervals.append((now, end, 0, 0, i, -1, -1, -1))
        rows += [i + 1] * (2 * len(account.locks) + 1)
    names = ["event_loop", *(one.name for one in account.per_thread)]
    threads = pd.DataFrame(
        {
            "tid": [MAIN, *(one.tid for one in account.per_thread)], "pid": MAIN, "name": names,
            "start_ns": start, "end_ns": stop,
        }
    )  # fmt: skip
    return write(
        folder, threads=threads, intervals=np.array(intervals, dtype=INTERVAL), rows=rows,
        locks=locks, meta={
            "backend": "fake", "start_ns": start, "end_ns": stop, "job_pid": MAIN, "cpus": 2,
            **(meta or {}),
        },
    )  # fmt: skip
