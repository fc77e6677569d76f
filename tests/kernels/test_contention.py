"""contention.c: what cores do at once is counted, each on its core, each lock a lock."""

from __future__ import annotations

import errno
import threading
from typing import Any

import numpy as np
import pytest

from perflib.experiments.contention import KINDS
from perflib.kernels import Kernel, record
from tests.kernels.here import CPUS, needs_two_cpus

ARGUMENT, CORE, LATE = 1 << 16, 3 << 16, 5 << 16
NO_CPU = 16383
SAMPLE_NS, SAMPLES = 200_000, 4
ACCOUNT = record("contention", "contention_account")

KERNEL = "contention"


def run(
    kernel: Kernel,
    kind: int = 4,
    cpus: list[int] = CPUS[:1],
    *,
    outside: int = 0,
    sample_ns: int = SAMPLE_NS,
    samples: int = SAMPLES,
) -> tuple[int, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The answer, the accounts ``[sample, core]``, and what was counted."""
    accounts = np.zeros(max(samples * len(cpus), 1), ACCOUNT)
    counted = np.zeros(max(samples, 1), np.int64)
    cores = np.asarray(cpus, dtype=np.int64)
    answer = kernel.lib.contention_run(
        kind,
        kernel.ffi.from_buffer("int64_t *", cores) if cpus else kernel.ffi.NULL,
        len(cpus),
        outside,
        sample_ns,
        samples,
        kernel.ffi.from_buffer("contention_account *", accounts),
        kernel.ffi.from_buffer("int64_t *", counted),
    )
    shape = (samples, len(cpus)) if answer == 0 else (-1, 1)
    return int(answer), accounts.reshape(shape), counted


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
    before = threading.active_count()
    assert run(kernel, **given)[0] == answer
    assert threading.active_count() == before
    assert run(kernel)[0] == 0, "and the next run works"
