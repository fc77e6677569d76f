from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import subprocess
import sys

import numpy as np
import pytest

from perflib.measure.pages import placement
from perflib.measure.pages.placement import misplaced, pages_by_node
from perflib.model.errors import MeasurementError

PAGE = 4096


@pytest.fixture
def memory() -> tuple[mmap.mmap, int]:
    """Sixteen pages of which the first twelve were touched, and their address."""
    pages = mmap.mmap(-1, 16 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_NOHUGEPAGE)
    pages[: 12 * PAGE] = b"\x01" * (12 * PAGE)
    return pages, ctypes.addressof(ctypes.c_char.from_buffer(pages))


def test_pages_that_were_not_touched_are_not_in_memory(memory: tuple[mmap.mmap, int]) -> None:
    _, begin = memory
    assert pages_by_node(os.getpid(), begin, begin + 16 * PAGE)[-errno.ENOENT] == 4


def test_a_large_range_is_looked_at_in_places(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[np.ndarray] = []

    def kernel(_pid: int, pages: np.ndarray, status: np.ndarray) -> int:
        requested.append(pages)
        status[:] = pages // PAGE % 2  # every other page on node 1
        return 0

    monkeypatch.setattr(placement, "_move_pages", kernel)
    found = pages_by_node(1, 0, 1 << 30)
    assert sum(found.values()) == 4096
    assert set(found) == {0, 1}
    assert int(requested[0].min()) == 0
    assert int(requested[0].max()) == (1 << 30) - PAGE


def test_of_a_process_that_has_ended_nothing_is_known() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with pytest.raises(MeasurementError, match="cannot be seen: it has ended"):
        pages_by_node(child.pid, PAGE, 2 * PAGE)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EPERM, "--security-opt seccomp=unconfined"),
        (errno.ENOSYS, "this kernel has no move_pages"),
        (errno.EINVAL, "Invalid argument"),
    ],
)
def test_a_refusal_says_why(monkeypatch: pytest.MonkeyPatch, number: int, words: str) -> None:
    monkeypatch.setattr(placement, "_move_pages", lambda *_: number)
    with pytest.raises(MeasurementError, match=words):
        pages_by_node(1, 0, PAGE)


def test_another_processor_has_another_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(MeasurementError, match="no move_pages"):
        pages_by_node(os.getpid(), 0, PAGE)


def test_no_range_of_addresses() -> None:
    with pytest.raises(ValueError, match="no range of addresses: from 0x2 up to 0x1"):
        pages_by_node(1, 2, 1)


def test_what_is_elsewhere_is_said() -> None:
    assert misplaced({3: 7}, 3) == ""
    assert misplaced({-errno.ENOENT: 2, 0: 3, 1: 4, 2: 1}, 1) == (
        "only 4 of 10 pages are on node 1, and 3 on node 0, 1 on node 2, 2 not in memory"
    )
