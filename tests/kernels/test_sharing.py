"""sharing.c: states by turns, a chase that ends where it must, threads that end, and refusals."""

from __future__ import annotations

import errno
from typing import Any

import numpy as np
import pytest

from perflib.kernels import Kernel
from tests.kernels.calls import room
from tests.kernels.here import CPUS, needs_two_cpus, threads
from tests.processes import soon
from tests.reference.words import shuffled, splitmix

KERNEL = "sharing"
PORTS, CACHE, MEMORY = range(3)
ARGUMENT, CORE = 1 << 16, 3 << 16
LINES, NO_CPU = 256, 16383


def run(kernel: Kernel, **changed: Any) -> tuple[int, np.ndarray[Any, Any], Any]:
    """The answer, the alternations and the account."""
    given: dict[str, Any] = {
        "resource": CACHE, "cpus": CPUS[:2], "first": 1, "second": 0, "chase_bytes": 64 * LINES,
        "read_bytes": 1 << 16, "half_ns": 3_000_000, "alternations": 4, "seed": 7,
    }  # fmt: skip
    assert set(changed) <= set(given)
    given |= changed
    found, alternations = room(kernel, "sharing_alternation", max(1, given["alternations"]))
    account, totals = room(kernel, "sharing_account")
    answer = kernel.lib.sharing_run(*given.values(), alternations, totals)
    return int(answer), found, account[0]


@needs_two_cpus
@pytest.mark.arm64
def test_the_chase_ends_where_its_seed_and_steps_say(kernel: Kernel) -> None:
    for seed in (0, 7, 2**62):
        answer, found, account = run(kernel, seed=seed)
        assert answer == 0
        assert account["steps"] > 0
        order = shuffled(LINES, splitmix(seed))
        assert account["at_line"] == order[(order.index(0) + account["steps"]) % LINES]
        assert account["moved"] == 0
        assert (np.diff(found["start_ns"]) > 0).all()


@needs_two_cpus
@pytest.mark.parametrize("resource", [PORTS, CACHE, MEMORY])
def test_each_state_is_timed_where_nobody_keeps_the_cores(kernel: Kernel, resource: int) -> None:
    answer, found, account = run(kernel, resource=resource, alternations=10)
    assert answer == 0
    assert 0 <= account["held"] <= 1.01
    seen = found[(found["quiet_ns"] > 0) & (found["busy_ns"] > 0)]
    assert len(seen) > 0 or account["held"] < 0.9
    assert (account["steps"] > 0) == (resource == CACHE)
    assert (account["chunks"] > 0) == (resource != PORTS)
    assert account["wrong"] == 0


@pytest.mark.arm64
@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({"resource": -1}, ARGUMENT + errno.EINVAL),
        ({"resource": 3}, ARGUMENT + errno.EINVAL),
        ({"first": 0}, ARGUMENT + errno.EINVAL),
        ({"second": -1}, ARGUMENT + errno.EINVAL),
        ({"chase_bytes": 0}, ARGUMENT + errno.EINVAL),
        ({"read_bytes": 64}, ARGUMENT + errno.EINVAL),
        ({"resource": MEMORY, "chase_bytes": 64}, ARGUMENT + errno.EINVAL),
        ({"half_ns": 1000}, ARGUMENT + errno.EINVAL),
        ({"alternations": 0}, ARGUMENT + errno.EINVAL),
        ({"half_ns": 100_000_000}, ARGUMENT + errno.ERANGE),
        ({"chase_bytes": 1 << 40}, ARGUMENT + errno.ERANGE),
        ({"cpus": [CPUS[0], CPUS[0]]}, CORE + errno.EINVAL),
        ({"cpus": [CPUS[0], -1]}, CORE + errno.EINVAL),
        ({"cpus": [CPUS[0], NO_CPU]}, CORE + errno.EINVAL),
    ],
)
def test_what_cannot_be_done_is_refused(kernel: Kernel, given: dict[str, Any], answer: int) -> None:
    before = threads()
    assert run(kernel, **{"cpus": [CPUS[0], NO_CPU]} | given)[0] == answer
    assert soon(lambda: threads() == before)
