"""Are there hardware counters, and if not, why not: found by counting cycles for a moment."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perflib import kernels
from perflib.machine.files import integer
from perflib.model.errors import PerflibError

_HARDWARE, _CPU_CYCLES, _WITHOUT_KERNEL = 0, 0, 2


@dataclass(frozen=True)
class Pmu:
    """Whether core cycles can be counted; ``None``: not known (a recorded machine, no compiler)."""

    available: bool | None
    reason: str


def count_cycles() -> int:
    """Cycles of a short loop of this thread's user code.

    Raises
    ------
    OSError
        The kernel refuses the counter; ``errno`` says why.
    PerflibError
        There is no compiler.
    """
    loaded = kernels.load("perf_counters")
    counter = loaded.lib.counter_open(_HARDWARE, _CPU_CYCLES, 0, 0, 0, -1, -1, _WITHOUT_KERNEL)
    if counter < 0:
        raise OSError(-counter, os.strerror(-counter))
    try:
        sum(range(1000))
        reading = loaded.ffi.new("counter_reading *")
        failed = loaded.lib.counter_read([counter], 1, reading)
        return 0 if failed else int(reading.value)
    finally:
        os.close(counter)


def pmu(
    root: Path = Path("/"), virtual: bool = False, count: Callable[[], int] = count_cycles
) -> Pmu:
    """Try to count cycles on this machine, and say in a sentence how that went.

    ``virtual``: the machine is a virtual one, which is then the likely reason.
    """
    if root != Path("/") and count is count_cycles:
        return Pmu(None, "not this machine: its counters cannot be tried")
    try:
        cycles = count()
    except PerflibError as error:
        return Pmu(None, f"counters cannot be tried: {error}")
    except OSError as error:
        return Pmu(False, _why(error, root, virtual))
    if cycles == 0:
        return Pmu(False, "the cycle counter opens but stays at zero: it is advertised, not there")
    return Pmu(True, "core cycles can be counted")


def _why(error: OSError, root: Path, virtual: bool) -> str:
    if error.errno in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV, errno.ENXIO):
        if virtual:
            return "no hardware counters: the hypervisor does not pass them on to this machine"
        return "no hardware counters: the kernel has no driver for this processor's"
    if error.errno in (errno.EACCES, errno.EPERM):
        paranoid = integer(root / "proc/sys/kernel/perf_event_paranoid")
        if paranoid is not None and paranoid > 2:
            return f"not allowed: kernel.perf_event_paranoid is {paranoid}"
        return "not allowed: a container's seccomp filter or a security module forbids it"
    if error.errno == errno.ENOSYS:
        return "this kernel has no perf_event_open"
    if error.errno == errno.EBUSY:
        return "all counters are taken, by another profiler or the NMI watchdog"
    return f"perf_event_open failed: {error.strerror}"
