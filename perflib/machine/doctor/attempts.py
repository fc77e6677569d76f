"""What this process may do, each tried for a moment: a program that prints errno by name, as JSON.

Started by `permissions.attempt`, isolated and in a process of its own, so that nothing of it stays.
0 is allowed. It imports nothing that is installed: it is also tried as other users and without
capabilities.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import runpy
import struct
import sys
import time
from pathlib import Path

# by machine: perf_event_open, set_mempolicy, move_pages
_NUMBERS = {"x86_64": (298, 238, 279), "aarch64": (241, 237, 239)}
_SOFTWARE, _TASK_CLOCK, _WITHOUT_KERNEL = 1, 1, 0b11 << 5
_ADDR_NO_RANDOMIZE, _ASK_PERSONALITY = 0x0040000, 0xFFFFFFFF
_PR_GET_THP_DISABLE = 42
_FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO
_FILES = str(Path(__file__).parents[1] / "files.py")
_SWITCH = "/proc/sys/kernel/randomize_va_space"

_libc = ctypes.CDLL(None, use_errno=True)


def _call(function: str, *arguments: object) -> int:
    words = [ctypes.c_ulong(one) if isinstance(one, int) else one for one in arguments]
    _libc[function].restype = ctypes.c_long
    return -ctypes.get_errno() if (answer := _libc[function](*words)) == -1 else answer


def _system_call(which: int, *arguments: object) -> int:
    numbers = _NUMBERS.get(platform.machine())
    return -errno.ENOSYS if numbers is None else _call("syscall", numbers[which], *arguments)


def _perf(flags: int, pid: int, cpu: int) -> int:
    event = struct.pack("<IIQQQQQ", _SOFTWARE, 64, _TASK_CLOCK, 0, 0, 0, flags).ljust(64, b"\0")
    minus_one = (1 << 64) - 1
    file = _system_call(0, event, pid % (1 << 64), cpu % (1 << 64), minus_one, 0)
    if file >= 0:
        os.close(file)
    return min(file, 0)


def _host_processes() -> int:
    namespace = str(Path("/proc/self/ns/pid").readlink())
    return 0 if namespace == _FIRST_PID_NAMESPACE else -errno.ESRCH


def _fifo_priority() -> int:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    return 0


def _page_nodes() -> int:
    here = ctypes.create_string_buffer(1)
    page = (ctypes.c_void_p * 1)(ctypes.addressof(here))
    return _system_call(2, 0, 1, page, None, (ctypes.c_int * 1)(), 0)


def _aslr_off() -> int:
    now = _call("personality", _ASK_PERSONALITY)
    return min(0, _call("personality", now | _ADDR_NO_RANDOMIZE)) if now >= 0 else now


def _huge_pages() -> int:
    return -errno.EACCES if _call("prctl", _PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1 else 0


def _trace() -> int:
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    try:
        Path(f"/proc/{child}/syscall").read_bytes()
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    return 0


def _control_groups() -> int:
    files = runpy.run_path(_FILES)  # of the standard library alone
    found = [at[4] for at, system in files["mounts"](Path("/")) if system[0].startswith("cgroup")]
    if not found:
        return -errno.ENOENT
    return 0 if any(os.access(folder, os.W_OK) for folder in found) else -errno.EACCES


def _settings() -> int:
    os.close(os.open(_SWITCH, os.O_WRONLY))
    return 0


def attempts() -> dict[str, str]:
    """By name: an empty text where it is allowed, or what the kernel answers (``EPERM``)."""
    found = {}
    for name, attempt in _ATTEMPTS.items():
        try:
            answer = -attempt()
        except OSError as error:
            answer = error.errno or errno.EIO
        found[name] = errno.errorcode.get(answer, str(answer)) if answer else ""
    return found


_ATTEMPTS = {
    "perf_events": lambda: _perf(_WITHOUT_KERNEL, 0, -1),
    "perf_system": lambda: _perf(0, -1, min(os.sched_getaffinity(0))),
    "host_processes": _host_processes,
    "fifo_priority": _fifo_priority,
    "numa_policy": lambda: _system_call(1, 0, None, 0),  # MPOL_DEFAULT
    "page_nodes": _page_nodes,
    "aslr_off": _aslr_off,
    "huge_pages": _huge_pages,
    "trace": _trace,
    "control_groups": _control_groups,
    "settings": _settings,
}

if __name__ == "__main__":
    json.dump(attempts(), sys.stdout)
