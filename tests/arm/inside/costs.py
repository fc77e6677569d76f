"""What counting and sampling add to a job, in instructions, of which each takes a nanosecond.

The whole machine is one CPU that never waits while the job runs; so the time that passes is all
instructions that anything executes, the kernel's and those of what counts among them.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from perflib.instruments.counters.groups import CounterGroup
from perflib.instruments.counters.monitor import Monitor
from perflib.instruments.counters.watched import watch
from tests.arm.inside.counts import LOOP, known, named, waiting

ROUNDS = 100_000  # 100 million instructions: as long as a tenth of a second
ROWS: dict[str, float] = {}
Mode = Callable[[int], contextlib.AbstractContextManager[object]]


@contextlib.contextmanager
def counting(pid: int, *names: str) -> Iterator[None]:
    with CounterGroup(named(*names), watch(pid=pid)) as group:
        group.enable()
        yield


@contextlib.contextmanager
def sampling(pid: int, hz: int) -> Iterator[None]:
    argv = ["perf", "record", "-q", "-e", "instructions", "-F", str(hz), "-p", str(pid)]
    (theirs, control), (answers, answer) = os.pipe(), os.pipe()
    argv += ["--delay=-1", f"--control=fd:{theirs},{answer}", "-o", "/dev/shm/perf.data"]
    with subprocess.Popen(argv, pass_fds=(theirs, answer)) as perf:
        os.write(control, b"enable\n")  # perf's own start is no cost of sampling
        os.read(answers, 8)
        yield
        perf.wait()
    for end in (theirs, control, answers, answer):
        os.close(end)


SIX = ("instructions", "cycles", "r08", "r11", "r23", "r24")
MODES: dict[str, Mode] = {
    "alone": lambda _: contextlib.nullcontext(),
    "one counter": lambda pid: counting(pid, "instructions"),
    "six counters": lambda pid: counting(pid, *SIX),
    "six, read every 10 ms": lambda pid: Monitor(
        {"six": named(*SIX)}, watch(pid=pid), period_s=0.01
    ),
    "samples, 1000 a second": lambda pid: sampling(pid, 1000),
}


def instructions(mode: Mode) -> float:
    with waiting(LOOP, str(ROUNDS), "wait") as (pid, go), mode(pid):
        start = time.monotonic_ns()
        go()
        return float(time.monotonic_ns() - start)


@pytest.mark.parametrize("name", MODES)
def test_costs_in_instructions(name: str) -> None:
    # The least: what the kernel does meanwhile only adds, now and then 2 %.
    ROWS[name] = min(instructions(MODES[name]) for _ in range(6))
    added = ROWS[name] - ROWS["alone"]
    percent = 100 * added / known(ROUNDS)
    print(f"{name}: {added:,.0f} instructions in a job of {known(ROUNDS):,}, {percent:.3f} %")
    assert ROWS[name] > known(ROUNDS)
    # For samples perf itself runs, on the only CPU.
    assert percent < (30 if name.startswith("samples") else 1.5 if "read" in name else 0.5)
