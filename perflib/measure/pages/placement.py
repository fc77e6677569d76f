"""On which NUMA node are a process's pages? The kernel says it page by page, by move_pages(2).

First touch puts a page on the node of the core that touches it, if that node has room and the
process's memory policy and control group allow it; if not, on another node, without any message.
/proc/PID/numa_maps counts whole mappings, and the kernel joins neighbouring ones: two arrays that
were touched from two nodes can be one line of it. So pages are requested one by one.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
from collections import Counter

import numpy as np

from perflib.model.errors import MeasurementError

_PAGE_BYTES = mmap.PAGESIZE
_MAX_PAGES = 4096  # that are requested: a millisecond
_NUMBERS = {"x86_64": 279, "aarch64": 239}  # of the system call


def pages_by_node(pid: int, begin: int, end: int) -> dict[int, int]:
    """How many of a range's pages are on each node, of 4096 that are evenly spaced at most.

    A key below zero is an errno: ``-errno.ENOENT`` counts pages that are not in memory.

    Raises
    ------
    MeasurementError
        The kernel does not say, and why; or the process has ended.
    """
    if not 0 <= begin < end:
        msg = f"no range of addresses: from {begin:#x} up to {end:#x}"
        raise ValueError(msg)
    pages = -(-(end - begin) // _PAGE_BYTES)
    chosen = np.unique(np.linspace(0, pages - 1, min(pages, _MAX_PAGES)).astype(np.uint64))
    wanted = np.uint64(begin) + chosen * np.uint64(_PAGE_BYTES)
    status = np.zeros(len(wanted), dtype=np.int32)
    error = _move_pages(pid, wanted, status)
    if error:
        why = {
            errno.ESRCH: "it has ended",
            errno.EPERM: "a security policy forbids move_pages(2): a container needs "
            "'--security-opt seccomp=unconfined'",
            errno.ENOSYS: "this kernel has no move_pages(2)",
        }.get(error, os.strerror(error))
        msg = f"the nodes of process {pid}'s pages cannot be seen: {why}"
        raise MeasurementError(msg)
    return {int(node): count for node, count in sorted(Counter(status.tolist()).items())}


def _move_pages(pid: int, pages: np.ndarray, status: np.ndarray) -> int:
    """Query without moving anything: 0, or errno."""
    number = _NUMBERS.get(platform.machine())
    if number is None:
        return errno.ENOSYS
    libc = ctypes.CDLL(None, use_errno=True)
    answer = libc.syscall(
        ctypes.c_long(number),
        ctypes.c_int(pid),
        ctypes.c_ulong(len(pages)),
        ctypes.c_void_p(pages.ctypes.data),
        ctypes.c_void_p(None),
        ctypes.c_void_p(status.ctypes.data),
        ctypes.c_int(0),
    )
    return ctypes.get_errno() if answer < 0 else 0


def misplaced(found: dict[int, int], node: int) -> str:
    """Say that pages are not all on the node that they should be on; empty: they are.

    Examples
    --------
    >>> misplaced({0: 3072, 1: 1024}, 1)
    'only 1024 of 4096 pages are on node 1, and 3072 on node 0'
    """
    pages = sum(found.values())
    right = found.get(node, 0)
    if right == pages:
        return ""
    others = [f"{count} on node {other}" for other, count in found.items() if other != node >= 0]
    others = [text for text in others if " -" not in text]
    absent = sum(count for other, count in found.items() if other < 0)
    others += [f"{absent} not in memory"] if absent else []
    return f"only {right} of {pages} pages are on node {node}, and {', '.join(others)}"
