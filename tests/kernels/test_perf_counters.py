"""perf_counters.c: its arithmetic against a Python reference, its calls against the kernel."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib import kernels
from perflib.instruments.counters.follower import STOPPED, CounterFollower
from perflib.instruments.counters.readings import new_readings
from tests.reference.perf_counters import next_tick

SOFTWARE, TASK_CLOCK, PAGE_FAULTS, DUMMY = 1, 1, 2, 9
OFF = 8
KERNEL = "perf_counters"


@pytest.fixture
def counters(kernel: kernels.Kernel) -> Iterator[list[int]]:
    """Page faults lead a group, and the task clock is in it; both are off."""
    leader = open_(kernel, config=PAGE_FAULTS, options=OFF | 2)
    opened = [leader, open_(kernel, config=TASK_CLOCK, leader=leader, options=2)]
    yield opened
    for descriptor in opened:
        os.close(descriptor)


def open_(
    kernel: kernels.Kernel, *, config: int, options: int, leader: int = -1, tid: int = 0
) -> int:
    return int(kernel.lib.counter_open(SOFTWARE, config, 0, 0, tid, -1, leader, options))


def read(kernel: kernels.Kernel, counters: list[int]) -> Any:
    out = new_readings(len(counters))
    buffer = kernel.ffi.from_buffer("counter_reading[]", out, require_writable=True)
    assert kernel.lib.counter_read(counters, len(counters), buffer) == 0
    return out


def touch(pages: int) -> None:
    """Fault in so many pages, for certain: they are new."""
    with mmap.mmap(-1, pages * mmap.PAGESIZE) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(pages):
            memory[page * mmap.PAGESIZE] = 1


@given(
    elapsed_ns=st.integers(0, 10**6), period_ns=st.integers(10**4, 10**7), due=st.integers(0, 200)
)
def test_which_tick_is_next(
    kernel: kernels.Kernel, elapsed_ns: int, period_ns: int, due: int
) -> None:
    missed = kernel.ffi.new("int64_t *", 99)
    number = kernel.lib.counter_next_tick(elapsed_ns, period_ns, due, missed)
    assert (number, missed[0]) == next_tick(elapsed_ns, period_ns, due)


def test_a_group_counts_while_its_leader_is_on(kernel: kernels.Kernel, counters: list[int]) -> None:
    touch(50)
    assert not read(kernel, counters)["value"].any()
    assert kernel.lib.counter_switch(counters[:1], 1, 1) == 0
    touch(50)
    assert kernel.lib.counter_switch(counters[:1], 1, 0) == 0
    faults, clock = read(kernel, counters)
    assert faults["value"] >= 50
    assert clock["value"] > 0
    assert 0 < clock["running_ns"] == clock["enabled_ns"]
    assert faults["id"] != clock["id"]
    assert faults["lost"] in (0, -1)
    touch(50)
    assert (read(kernel, counters) == np.array([faults, clock])).all()


def test_refusals_are_error_numbers(kernel: kernels.Kernel) -> None:
    assert open_(kernel, config=10**6, options=2) == -errno.ENOENT
    assert open_(kernel, config=PAGE_FAULTS, tid=2**30, options=2) == -errno.ESRCH
    assert open_(kernel, config=PAGE_FAULTS, leader=10**6, options=2) == -errno.EBADF
    one = kernel.ffi.new("counter_reading *")
    assert kernel.lib.counter_read([10**6], 1, one) == -errno.EBADF
    assert kernel.lib.counter_switch([10**6], 1, 1) == -errno.EBADF


def follow(counters: list[int], clock: int, stop: int) -> CounterFollower:
    one, leader = np.array(counters, dtype=np.int32), np.array(counters[:1], dtype=np.int32)
    clocks, sets = np.array([clock], dtype=np.int32), np.zeros(1, dtype=np.int32)
    long_ago = {"period_ns": 10_000_000, "start_ns": 0}  # every tick until now was missed
    return CounterFollower([one], [leader], clocks, sets, **long_ago, stop=stop, process=-1)


def test_following_ends_with_a_last_reading(kernel: kernels.Kernel, counters: list[int]) -> None:
    stop, clock = os.eventfd(1), open_(kernel, config=DUMMY, options=2)
    try:
        follower = follow(counters, clock, stop)
        assert follower.run() == STOPPED
        seen = follower.read()
        assert list(seen.ticks["due_ns"]) == [0]  # made at the end, not when it was due
        assert seen.ticks["missed"][0] > 0
        assert follower.ticks_due >= seen.ticks["missed"][0]
        assert (seen.clock["running_ns"] > 0).all()
    finally:
        os.close(stop)
        os.close(clock)


def test_following_a_closed_counter_is_an_error(kernel: kernels.Kernel) -> None:
    stop, clock = os.eventfd(1), open_(kernel, config=DUMMY, options=2)
    try:
        with pytest.raises(OSError, match="Bad file descriptor"):
            follow([10**6], clock, stop).run()
    finally:
        os.close(stop)
        os.close(clock)
