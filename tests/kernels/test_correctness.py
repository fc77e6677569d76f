"""correctness.c: its software is right, its instructions agree, and a fault is found."""

from __future__ import annotations

import errno
import os
from typing import Any

import numpy as np
import pytest

from perflib import kernels
from perflib.experiments.correctness import CLASSES
from perflib.experiments.correctness.table import checksums
from perflib.kernels import Kernel
from tests.kernels.calls import room
from tests.reference import correctness as reference

KERNEL = "correctness"
NAMES = list(CLASSES)
BLOCK = 2**31 + 5
MS = 1_000_000


def run(
    kernel: Kernel,
    classes: list[int],
    block: int = BLOCK,
    load: int = 0,
    *,
    expected: int = 0,
    **times_ns: int,
) -> np.ndarray[Any, Any]:
    results, out = room(kernel, "correctness_result", len(classes))
    times = {"begin": 0, "class": MS // 10, "idle": 0, "burst": 0, "pause": 0} | times_ns
    answer = kernel.lib.correctness_run(classes, len(classes), block, *times.values(), load, out)
    assert answer == expected
    return results


@pytest.mark.arm64
def test_what_software_expects_is_the_reference(kernel: Kernel) -> None:
    """Of every class on every processor: what one has to give does not depend on it."""
    for number, name in enumerate(NAMES):
        found = np.zeros(reference.OPERATIONS, np.uint64)
        pointer = kernel.ffi.from_buffer("uint64_t *", found)
        checksum = kernel.lib.correctness_expected(number, BLOCK, pointer)
        expected = reference.expected(name, BLOCK)
        assert found.tolist() == expected, name
        assert checksum == reference.checksum(expected), name
    assert kernel.lib.correctness_expected(len(NAMES), 0, kernel.ffi.NULL) == 0


@pytest.mark.arm64
def test_the_table_is_what_software_expects(kernel: Kernel) -> None:
    assert list(checksums()) == NAMES
    for number, name in enumerate(NAMES):
        null = kernel.ffi.NULL
        found = [kernel.lib.correctness_expected(number, block, null) for block in range(8)]
        assert [f"{one:016x}" for one in found] == checksums()[name], name


@pytest.mark.arm64
@pytest.mark.parametrize("load", [0, 1, 2])
def test_null_what_is_executed_agrees(kernel: Kernel, load: int) -> None:
    classes = [n for n in range(len(NAMES)) if kernel.lib.correctness_available(n)]
    assert {NAMES[n] for n in classes} >= {name for name, needs in CLASSES.items() if not needs}
    for block in (0, BLOCK):
        results = run(kernel, classes, block, load, idle=1000, burst=1000, pause=1000)
        assert results["wrong"].tolist() == [0] * len(classes)
        assert (results["first_index"] == -1).all()
        assert (results["operations"] >= reference.OPERATIONS).all()


def test_a_fault_is_found_where_it_is() -> None:
    cpu, before = max(os.sched_getaffinity(0)), os.sched_getaffinity(0)
    define = {"FAULT_CLASS": NAMES.index("divide") + 2, "FAULT_CORE": cpu + 1, "FAULT_EVERY": 1000}
    broken = kernels.load("correctness", define=define)
    os.sched_setaffinity(0, {cpu})
    try:
        (fine, wrong) = run(broken, [NAMES.index("multiply"), NAMES.index("divide")])
    finally:
        os.sched_setaffinity(0, before)
    assert fine["wrong"] == 0
    assert wrong["wrong"] == wrong["operations"] // 1000
    assert wrong["first_index"] == 999
    assert wrong["expected"] ^ wrong["found"] == 1 << 17
    assert wrong["cpu"] == cpu


@pytest.mark.arm64
def test_what_is_no_class_is_refused(kernel: Kernel) -> None:
    for number in (-1, len(NAMES)):
        run(kernel, [number], expected=errno.EINVAL)
