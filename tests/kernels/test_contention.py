"""contention.c: what cores do at once is counted, each on its core, each lock a lock."""

from __future__ import annotations

import errno
import math
from typing import Any

import numpy as np
import pytest

from perflib.experiments.contention import KINDS
from perflib.kernels import Kernel
from tests.kernels.calls import room
from tests.kernels.here import CPUS, needs_two_cpus, threads
from tests.processes import soon

ARGUMENT, CORE, LATE = 1 << 16, 3 << 16, 5 << 16
NO_CPU = 16383
SAMPLE_NS, SAMPLES = 200_000, 4

KERNEL = "contention"


def run(
    kernel: Kernel, kind: int = 4, cpus: list[int] = CPUS[:1], **changed: int
) -> tuple[int, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The answer, the accounts ``[sample, core]``, and what was counted."""
    given = {"outside": 0, "sample_ns": SAMPLE_NS, "samples": SAMPLES} | changed
    shape = given["samples"], len(cpus)
    accounts, out = room(kernel, "contention_account", max(math.prod(shape), 1))
    counted = kernel.ffi.new("int64_t[]", max(shape[0], 1))
    answer = kernel.lib.contention_run(kind, cpus, len(cpus), *given.values(), out, counted)
    return answer, accounts.reshape(shape if answer == 0 else (-1, 1)), np.array(list(counted))


@pytest.mark.arm64
@pytest.mark.parametrize("cores", [1, pytest.param(2, marks=needs_two_cpus)])
@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS)
def test_what_was_done_is_what_the_counters_counted(kernel: Kernel, kind: int, cores: int) -> None:
    """Under a lock the addition is not atomic: a lock that is none would lose some."""
    own = KINDS[kind] in ("own_lines", "neighbour_lines", "one_line", "atomic_own")
    answer, accounts, counted = run(kernel, kind, CPUS[:cores], samples=8)
    assert answer == 0
    done = accounts["operations"].sum(axis=1)
    assert (done == counted).all()
    assert (done > 0).all()
    assert (accounts["operations"] > 0).all() or not own
    assert (accounts["cpu"] == CPUS[:cores]).all()
    assert (accounts["cpu_time_ns"] > 0).all()


@pytest.mark.arm64
@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({"kind": -1}, ARGUMENT + errno.EINVAL),
        ({"kind": len(KINDS)}, ARGUMENT + errno.EINVAL),
        ({"cpus": []}, ARGUMENT + errno.EINVAL),
        ({"outside": -1}, ARGUMENT + errno.EINVAL),
        ({"outside": 10**10}, ARGUMENT + errno.ERANGE),
        ({"sample_ns": 0}, ARGUMENT + errno.EINVAL),
        ({"sample_ns": 10**12}, ARGUMENT + errno.ERANGE),
        ({"samples": 0}, ARGUMENT + errno.EINVAL),
        ({"samples": 100_001}, ARGUMENT + errno.ERANGE),
        ({"cpus": [-1]}, CORE + errno.EINVAL),
        ({"cpus": [1 << 20]}, CORE + errno.EINVAL),
        ({"cpus": [NO_CPU]}, CORE + errno.EINVAL),
        ({"cpus": [CPUS[0], CPUS[0]]}, CORE + errno.EINVAL),
        ({"cpus": [CPUS[0], NO_CPU]}, CORE + errno.EINVAL),
    ],
)
def test_what_cannot_be_done_is_refused(kernel: Kernel, given: dict[str, Any], answer: int) -> None:
    before = threads()
    assert run(kernel, **given)[0] == answer
    assert soon(lambda: threads() == before)
    assert run(kernel)[0] == 0, "and the next run works"
