"""For exercises: a neighbour that takes a known share of a core's time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

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
