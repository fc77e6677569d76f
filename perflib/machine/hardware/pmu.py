"""Are there hardware counters, and if not, why not: asked by counting cycles for a moment."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perflib.machine.files import integer

__all__ = ["Pmu", "pmu"]

_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_HARDWARE, _CPU_CYCLES = 0, 0
_EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 5, 1 << 6
_FLAG_CLOSE_ON_EXEC = 8


@dataclass(frozen=True)
class Pmu:
    """Whether core cycles can be counted; ``None``: not asked (a recorded machine)."""

    available: bool | None
    reason: str


def count_cycles() -> int:
    """Cycles of a short loop of this thread's user code.

    Raises
    ------
    OSError
        The kernel refuses the counter; ``errno`` says why.
    """
    number = _PERF_EVENT_OPEN.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    flags = _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR
    # struct perf_event_attr, first version: type, size, config, sample_period, sample_type,
    # read_format, flags, wakeup_events, bp_type, config1
    attributes = struct.pack("IIQQQQQIIQ", _HARDWARE, 64, _CPU_CYCLES, 0, 0, 0, flags, 0, 0, 0)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    libc = ctypes.CDLL(None, use_errno=True)
    this_thread, any_cpu, no_group = 0, -1, -1
    descriptor = libc.syscall(
        ctypes.c_long(number), buffer, this_thread, any_cpu, no_group, _FLAG_CLOSE_ON_EXEC
    )
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    try:
        sum(range(1000))
        return int.from_bytes(os.read(descriptor, 8), "little")
    finally:
        os.close(descriptor)


def pmu(
    root: Path = Path("/"), virtual: bool = False, count: Callable[[], int] = count_cycles
) -> Pmu:
    """Try to count cycles on this machine, and say in a sentence how that went.

    ``virtual``: the machine is a virtual one, which is then the likely reason.
    """
    if root != Path("/") and count is count_cycles:
        return Pmu(None, "not this machine: its counters cannot be asked")
    try:
        cycles = count()
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
