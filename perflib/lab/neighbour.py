"""For exercises: what takes a known share of a core's time, a neighbour or a quota."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from perflib.model.errors import UserError

_SLICE_S = 0.001
_NEIGHBOUR = """
import ctypes, os, signal, sys, time
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: never outlives the notebook
cpu, share, slice_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
os.sched_setaffinity(0, {cpu})
if sys.argv[4] == "fifo":
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
print("ready", flush=True)
while True:
    end = time.thread_time() + slice_s
    while time.thread_time() < end:
        pass
    time.sleep(slice_s * (1 / share - 1))
"""


@contextmanager
def busy_neighbour(cpu: int | None, share: float, *, fifo: bool = False) -> Iterator[None]:
    """Keep a core busy for a share of its time, in slices of a millisecond, meanwhile.

    ``cpu=None`` starts nothing: where a recorded run is given, there is nothing to disturb.

    The share is what it asks for: on a core that it has to itself. A competitor that computes all
    the time leaves it a little less, because it also has to wait for its turn; with ``fifo`` (a
    real-time priority, which takes privileges) it does not wait.

    Raises
    ------
    UserError
        The share is not between 0 and 1, or no process can be started there in that way.
    """
    if not 0 < share < 1:
        msg = f"share: {share!r}: a part of the core's time, between 0 and 1"
        raise UserError(msg)
    if cpu is None:
        yield
        return
    priority = "fifo" if fifo else "normal"
    argv = [sys.executable, "-P", "-c", _NEIGHBOUR, str(cpu), str(share), str(_SLICE_S), priority]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                msg = f"no process can be started on cpu{cpu} with {priority} priority"
                raise UserError(msg)
            yield
        finally:
            process.kill()


@contextmanager
def cpu_quota(share: float | None, root: Path = Path("/sys/fs/cgroup")) -> Iterator[None]:
    """Allow this process, and what it starts meanwhile, a share of one core's time, by a quota.

    ``share=None`` sets none.

    That is what a container with ``--cpus`` has. It takes root, and a hierarchy of control groups
    that can be written. A killed process leaves an empty group behind, which limits nobody.

    Raises
    ------
    UserError
        The share is not between 0 and 1, or the groups cannot be made here.
    """
    if share is None:
        yield
        return
    if not 0 < share < 1:
        msg = f"share: {share!r}: a part of a core's time, between 0 and 1"
        raise UserError(msg)
    first = (root / "cpu" / "cpu.cfs_period_us").exists()
    top = root / "cpu" if first else root
    group = top / f"perflib-quota-{os.getpid()}"
    try:
        if not first:
            (top / "cgroup.subtree_control").write_text("+cpu")
        group.mkdir()
        limit = "cpu.cfs_quota_us" if first else "cpu.max"
        (group / limit).write_text(f"{round(1e5 * share)}" + ("" if first else " 100000"))
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        msg = f"no control group with a quota can be made in {top}: {error}. Run as root, or give "
        raise UserError(msg + "the job a quota from outside (docker --cpus, CPUQuota=)") from None
    try:
        yield
    finally:
        (top / "cgroup.procs").write_text(str(os.getpid()))
        for _ in range(20):  # a process that has just ended may still be in it
            with suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.05)
