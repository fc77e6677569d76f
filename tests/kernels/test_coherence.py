"""coherence.c: every line once and in the order meant, data that prove who wrote, and its ends."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perflib.experiments.core_pairs.coherence.names import PROTOCOLS, STATES, WITH_THIRD
from perflib.kernels import Kernel
from tests.kernels.calls import room
from tests.kernels.here import CPUS, needs_two_cpus
from tests.processes import soon
from tests.reference import coherence as reference
from tests.reference.words import rotated_sum

three_cpus = pytest.mark.skipif(len(CPUS) < 3, reason="three processors are needed")

LONG_NS = 60_000_000_000
ARGUMENT, CPU, THIRD, LATE = 1, 2, 3, 6
KERNEL = "coherence"


def transfer(kernel: Kernel, **changed: Any) -> tuple[int, Any]:
    """What the call answers, and its samples."""
    given_: dict[str, Any] = {
        "owner": CPUS[-1], "requester": CPUS[0], "third": -1, "state": 1, "access": 0, "layout": 0,
        "lines": 48, "repeats": 5, "seed": 7, "timeout_ns": LONG_NS,
    }  # fmt: skip
    return called(kernel, kernel.lib.coherence_transfer, given_, changed, "repeats")


def exchange(kernel: Kernel, **changed: Any) -> tuple[int, Any]:
    given_: dict[str, Any] = {
        "protocol": 0, "cpu_a": CPUS[0], "cpu_b": CPUS[-1], "exchanges": 100, "samples": 4,
        "timeout_ns": LONG_NS,
    }  # fmt: skip
    return called(kernel, kernel.lib.coherence_exchange, given_, changed, "samples")


def called(
    kernel: Kernel, function: Any, usual: dict[str, Any], changed: dict[str, Any], count: str
) -> tuple[int, Any]:
    assert changed.keys() <= usual.keys()
    given_ = usual | changed
    samples, out = room(kernel, "coherence_sample", max(1, min(given_[count], 1000)))
    return function(*given_.values(), out), samples


def error(stage: int, number: int) -> int:
    return stage * 65536 + number


def plan(kernel: Kernel, layout: int, lines: int, seed: int, sample: int) -> list[int]:
    at = kernel.ffi.new("uint64_t[]", lines)
    assert kernel.lib.coherence_plan(layout, lines, seed, sample, at) == 0
    return list(at)


# --- where the lines lie -------------------------------------------------------------------------


@pytest.mark.arm64
@given(
    layout=st.integers(0, 3),
    lines=st.integers(1, 300),
    seed=st.integers(0, 2**64 - 1),
    sample=st.integers(0, 10**6),
)
@example(layout=0, lines=4096, seed=2**64 - 1, sample=0)
def test_order_is_the_reference_s(
    kernel: Kernel, layout: int, lines: int, seed: int, sample: int
) -> None:
    found = plan(kernel, layout, lines, seed, sample)
    assert found == reference.plan(layout, lines, seed, sample)


def test_spread_lines_use_all_sets_alike_and_no_stride(kernel: Kernel) -> None:
    found = plan(kernel, 0, 4 * 64, 3, 0)
    places = np.array(sorted(found)) % reference.PAGE // reference.LINE
    for quarter in places.reshape(4, 64):
        assert sorted(quarter) == list(range(64))
    _, counts = np.unique(np.diff(found), return_counts=True)
    assert counts.max() <= 4  # of 255
    assert found != plan(kernel, 0, 4 * 64, 3, 1)
    assert found != plan(kernel, 0, 4 * 64, 4, 0)


@pytest.mark.parametrize(
    ("wrong", "number"),
    [
        ((4, 1, 0), errno.EINVAL),
        ((-1, 1, 0), errno.EINVAL),
        ((0, 0, 0), errno.EINVAL),
        ((0, 1, -1), errno.EINVAL),
        ((0, 4097, 0), errno.ERANGE),
    ],
)
def test_no_plan_for_what_cannot_be(
    kernel: Kernel, wrong: tuple[int, int, int], number: int
) -> None:
    layout, lines, sample = wrong
    at = kernel.ffi.new("uint64_t[]", 4097)
    assert kernel.lib.coherence_plan(layout, lines, 0, sample, at) == error(ARGUMENT, number)


# --- transfers -----------------------------------------------------------------------------------


def check_transfer(samples: Any, layout: int, lines: int, seed: int) -> None:
    assert (samples["count"] == lines).all()
    assert (samples["proven"] == lines).all()
    for i, sample in enumerate(samples):
        assert sample["checksum"] == rotated_sum(reference.plan(layout, lines, seed, i))
    assert (samples["time_ns"] >= 0).all()
    assert (samples["empty_ns"] > 0).all()
    assert (samples["core_mhz"] > 0).all()
    assert (np.diff(samples["begin_ns"]) > 0).all()
    assert (samples["involuntary_switches"] >= 0).all()


@pytest.mark.arm64
@needs_two_cpus
@pytest.mark.parametrize("access", [0, 1], ids=["load", "exchange"])
@pytest.mark.parametrize("state", [s for s in STATES if s not in WITH_THIRD])
def test_each_line_is_taken_once_as_it_was_left(kernel: Kernel, state: str, access: int) -> None:
    number = STATES.index(state)
    assert kernel.lib.coherence_needs_third(number) == 0
    for layout, lines, seed in [(0, 48, 1), (1, 70, 2), (2, 1, 2**64 - 1), (3, 512, 0)]:
        answer, samples = transfer(
            kernel, state=number, access=access, layout=layout, lines=lines, seed=seed
        )
        assert answer == 0
        check_transfer(samples, layout, lines, seed)
        assert (samples["cpus"] == [CPUS[0], CPUS[-1], -1]).all()
        assert (samples["clocks_apart_ns"] == 0).all()


@three_cpus
@pytest.mark.parametrize("access", [0, 1], ids=["load", "exchange"])
@pytest.mark.parametrize("state", WITH_THIRD)
def test_a_third_reader(kernel: Kernel, state: str, access: int) -> None:
    answer, samples = transfer(kernel, state=STATES.index(state), access=access, third=CPUS[1])
    assert answer == 0
    check_transfer(samples, 0, 48, 7)
    assert (samples["cpus"] == [CPUS[0], CPUS[-1], CPUS[1]]).all()


@needs_two_cpus
@pytest.mark.parametrize("state", WITH_THIRD)
def test_a_third_that_is_missing_or_one_of_the_two(kernel: Kernel, state: str) -> None:
    number = STATES.index(state)
    assert transfer(kernel, state=number)[0] == error(THIRD, errno.EINVAL)
    for third in (CPUS[0], CPUS[-1], -2):
        assert transfer(kernel, state=number, third=third)[0] == error(CPU, errno.EINVAL)


ABSENT = max(CPUS) + 1 + (os.cpu_count() or 1)


@pytest.mark.parametrize("absent", [-1, ABSENT, 65535, 65536, 2**40])
def test_processors_that_cannot_be_used(kernel: Kernel, absent: int) -> None:
    # Whichever is missing, the threads that were already there go, and nothing is sampled.
    for wrong in ({"owner": absent}, {"requester": absent}):
        answer, samples = transfer(kernel, **wrong)
        assert answer == error(CPU, errno.EINVAL)
        assert (samples["count"] == 0).all()
    for wrong in ({"cpu_a": absent}, {"cpu_b": absent}):
        assert exchange(kernel, **wrong)[0] == error(CPU, errno.EINVAL)


@pytest.mark.arm64
@pytest.mark.parametrize(
    ("wrong", "number"),
    [
        ({"state": -1}, errno.EINVAL),
        ({"state": len(STATES)}, errno.EINVAL),
        ({"access": 2}, errno.EINVAL),
        ({"access": -1}, errno.EINVAL),
        ({"layout": 4}, errno.EINVAL),
        ({"layout": -1}, errno.EINVAL),
        ({"lines": 0}, errno.EINVAL),
        ({"lines": 4097}, errno.ERANGE),
        ({"repeats": 0}, errno.EINVAL),
        ({"repeats": 10**6 + 1}, errno.ERANGE),
        ({"timeout_ns": 0}, errno.EINVAL),
        ({"timeout_ns": 2**62}, errno.ERANGE),
    ],
    ids=str,
)
def test_transfers_that_there_are_not(kernel: Kernel, wrong: dict[str, int], number: int) -> None:
    assert transfer(kernel, **wrong)[0] == error(ARGUMENT, number)


# --- protocols -----------------------------------------------------------------------------------


@pytest.mark.arm64
@needs_two_cpus
@pytest.mark.parametrize("protocol", range(len(PROTOCOLS)), ids=PROTOCOLS)
@pytest.mark.parametrize("exchanges", [1, 1000])
def test_protocols_answer_every_exchange(kernel: Kernel, protocol: int, exchanges: int) -> None:
    one_way = [*PROTOCOLS][protocol] == "one_way_message"
    answer, samples = exchange(kernel, protocol=protocol, exchanges=exchanges)
    assert answer == 0
    assert len(samples) == 4
    assert (samples["proven"] == exchanges).all()
    assert (samples["count"] == (2 if one_way else 1) * exchanges).all()
    assert (samples["cpus"] == [CPUS[0], CPUS[-1], -1]).all()
    assert (np.diff(samples["begin_ns"]) > 0).all()
    assert (samples["core_mhz"] > 0).all()
    assert (samples["empty_ns"] > 0).all()
    if not one_way:
        assert (samples["clocks_apart_ns"] == 0).all()
        assert (samples["time_ns"] > 0).all()


@pytest.mark.parametrize(
    ("wrong", "number"),
    [
        ({"protocol": -1}, errno.EINVAL),
        ({"protocol": 3}, errno.EINVAL),
        ({"exchanges": 0}, errno.EINVAL),
        ({"exchanges": 10**9 + 1}, errno.ERANGE),
        ({"samples": 0}, errno.EINVAL),
        ({"samples": 10**6 + 1}, errno.ERANGE),
        ({"timeout_ns": -1}, errno.EINVAL),
        ({"timeout_ns": 2**62}, errno.ERANGE),
    ],
    ids=str,
)
def test_exchanges_that_there_are_not(kernel: Kernel, wrong: dict[str, int], number: int) -> None:
    assert exchange(kernel, **wrong)[0] == error(ARGUMENT, number)


# --- what never ends -----------------------------------------------------------------------------


@needs_two_cpus
def test_samples_that_were_complete_in_time_are_kept(kernel: Kernel) -> None:
    answer, samples = exchange(kernel, exchanges=10**9, samples=2, timeout_ns=30_000_000)
    assert answer == error(LATE, errno.ETIMEDOUT)  # no core makes 10^9 exchanges in 30 ms
    assert (samples["count"] == 0).all()
    many = 10**6
    samples, out = room(kernel, "coherence_sample", many)
    limit_ns = 100_000_000
    answer = kernel.lib.coherence_transfer(
        CPUS[-1], CPUS[0], -1, 1, 0, 0, 48, many, 7, limit_ns, out
    )
    assert answer == error(LATE, errno.ETIMEDOUT)  # 10^6 samples of 20 us at least: core_mhz
    taken = int((samples["count"] > 0).sum())
    assert taken < many
    check_transfer(samples[: min(taken, 20)], 0, 48, 7)
    assert not samples[taken:].view("u1").any()


HANGS = """
import sys
from perflib import kernels
kernel = kernels.load("coherence")
out = kernel.ffi.new("coherence_sample[]", 1)
cpu_a, cpu_b = int(sys.argv[1]), int(sys.argv[2])
print("begin", flush=True)
answer = kernel.lib.coherence_exchange(int(sys.argv[3]), cpu_a, cpu_b, 10**9, 1, 2 * 10**9, out)
print(answer, out[0].count, flush=True)
sys.stdin.read()
"""
PTRACE_INTERRUPT, PTRACE_SEIZE, PTRACE_DETACH = 0x4207, 0x4206, 17


def threads_of(process: int) -> set[int]:
    return {int(task.name) for task in Path(f"/proc/{process}/task").iterdir()} - {process}


@needs_two_cpus
@pytest.mark.parametrize("protocol", range(len(PROTOCOLS)), ids=PROTOCOLS)
def test_a_thread_that_is_stopped_does_not_stop_the_process(protocol: int) -> None:
    """A debugger holds the thread, as a processor that is taken away would."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long] * 4
    libc.ptrace.restype = ctypes.c_long
    arguments = [str(CPUS[0]), str(CPUS[-1]), str(protocol)]
    with subprocess.Popen(
        [sys.executable, "-c", HANGS, *arguments], stdin=-1, stdout=-1, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "begin\n"
        assert soon(lambda: len(threads_of(child.pid)) >= 2)
        held = max(threads_of(child.pid))
        if libc.ptrace(PTRACE_SEIZE, held, 0, 0) != 0:
            number = ctypes.get_errno()
            child.kill()
            pytest.skip(f"threads of a child cannot be traced here: {os.strerror(number)}")
        assert libc.ptrace(PTRACE_INTERRUPT, held, 0, 0) == 0
        os.waitpid(held, 0x40000000)  # __WALL: it stands still
        answer = [int(word) for word in child.stdout.readline().split()]
        still_there = threads_of(child.pid)
        libc.ptrace(PTRACE_DETACH, held, 0, 0)
        gone = soon(lambda: not threads_of(child.pid))  # it finds out, and goes
        child.stdin.close()
        assert child.wait() == 0  # also what it touched after the answer was its own
    assert answer == [error(LATE, errno.ETIMEDOUT), 0]
    assert still_there == {held}
    assert gone
