"""bound_job.c: its checksums, as a library and as a program."""

from __future__ import annotations

import pytest

from perflib import kernels
from perflib.kernels import Kernel
from tests.kernels.here import launched
from tests.reference import bound_job as reference

KERNEL = "bound_job"
_BYTES = 96 * 4096


@pytest.mark.arm64
def test_checksums_are_the_references(kernel: Kernel) -> None:
    expected = [
        reference.compute(2),
        reference.chased(_BYTES, 3, walk=False),
        reference.triad(_BYTES, 3),
        reference.chased(_BYTES, 3, walk=True),
    ]
    passes = [2, 3, 3, 3]
    found = [kernel.lib.bound_job(kind, _BYTES, passes[kind]) for kind in range(4)]
    assert found == expected
    assert kernel.lib.bound_job(4, _BYTES, 1) == 0
    assert kernel.lib.bound_job(1, 0, 1) == 0


def test_the_program_prints_its_checksum_and_refuses_what_it_does_not_know() -> None:
    program = kernels.build(KERNEL, executable=True).library
    done = launched(program, "walk", str(_BYTES), "2", check=True)
    expected = reference.chased(_BYTES, 2, walk=True)
    assert done.stdout == f"checksum {expected:016x}\n"
    for words in (["walk"], ["run", "4096", "1"]):
        wrong = launched(program, *words)
        assert (wrong.returncode, wrong.stdout) == (2, "")
        assert "usage" in wrong.stderr
