"""A neighbour for exercises: a process that takes a known share of one core."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from perflib.model.errors import UserError

__all__ = ["busy_neighbour"]

_SLICE_S = 0.001
_NEIGHBOUR = """
import ctypes, os, signal, sys, time
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: never outlives the notebook
cpu, share, slice_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
os.sched_setaffinity(0, {cpu})
print("ready", flush=True)
while True:
    end = time.thread_time() + slice_s
    while time.thread_time() < end:
        pass
    time.sleep(slice_s * (1 / share - 1))
"""


@contextmanager
def busy_neighbour(cpu: int, share: float) -> Iterator[None]:
    """Keep a core busy for a share of its time, in slices of a millisecond, meanwhile.

    The share is what it asks for: on a core that it has to itself. A competitor that computes all
    the time leaves it a little less, because it also has to wait for its turn.

    Raises
    ------
    UserError
        The share is not between 0 and 1.
    """
    if not 0 < share < 1:
        msg = f"share: {share!r}: a part of the core's time, between 0 and 1"
        raise UserError(msg)
    argv = [sys.executable, "-c", _NEIGHBOUR, str(cpu), str(share), str(_SLICE_S)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                msg = f"no process can be started on cpu{cpu}"
                raise UserError(msg)
            yield
        finally:
            process.kill()
