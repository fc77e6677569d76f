"""The companion: a process next to an open mystery, which does as ordered and puts all back.

`mystery.opened` starts it for every mystery, also for one that needs none, in the same way: its
command line says nothing. Its orders are a line of numbers on its standard input. It leaves its
parent (a measurement leaves out what the measuring process itself has started), and ends when the
input ends: however the process ends that opened the mystery, ``kill -9`` among the ways, the
kernel closes the other end of the pipe.

It imports nothing of perflib: it is started without installed packages.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import threading
import time

TYPE_CHECKING = False  # typing's would have to be imported
if TYPE_CHECKING:
    from collections.abc import Iterator

GROUPS = "/sys/fs/cgroup"
_PERIOD_US = 100_000
_SLICE_S = 0.001
_MOST_DEBT_S = 0.05  # of CPU time that could not be had, and is made up for
_STREAMED_BYTES, _PIECE_BYTES = 256 << 20, 4 << 20
_PR_SET_TIMERSLACK = 29
_LEAVING_S = 5.0


# --- a control group with a quota ----------------------------------------------------------------


def _top(root: str) -> tuple[str, bool]:
    """The folder of the hierarchy that has the CPU controller; whether it is of version 1."""
    first = os.path.join(root, "cpu")  # noqa: PTH118
    if os.path.exists(os.path.join(first, "cpu.cfs_period_us")):  # noqa: PTH110, PTH118
        return first, True
    return root, False


def _group(pid: int, root: str) -> str:
    return os.path.join(_top(root)[0], f"perflib-{pid}")  # noqa: PTH118


def _write(path: str, value: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123
        file.write(value)


def _read(path: str) -> str:
    with open(path) as file:  # noqa: PTH123
        return file.read()


def home_of(pid: int, root: str = GROUPS) -> str:
    """The group that a process is in now, as a folder."""
    top, first = _top(root)
    for line in _read(f"/proc/{pid}/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(",") if first else not controllers:
            folder = os.path.normpath(top + path)
            # A container may show a path that is outside of what it sees: its top is all it has.
            return folder if os.path.isdir(folder) else top  # noqa: PTH112
    return top


def limit(pid: int, thousandths: int, root: str = GROUPS) -> None:
    """Put a process into a group that has so much of one core's time; what it starts follows.

    Raises
    ------
    OSError
        It takes root, or the hierarchy cannot be written.
    """
    top, first = _top(root)
    group, home = _group(pid, root), home_of(pid, root)
    if not first and "cpu" not in _read(f"{top}/cgroup.subtree_control").split():
        _write(f"{top}/cgroup.subtree_control", "+cpu")
    os.mkdir(group)  # noqa: PTH102
    try:
        quota_us = _PERIOD_US * thousandths // 1000
        if first:
            _write(f"{group}/cpu.cfs_period_us", str(_PERIOD_US))
            _write(f"{group}/cpu.cfs_quota_us", str(quota_us))
        else:
            _write(f"{group}/cpu.max", f"{quota_us} {_PERIOD_US}")
        _write(f"{group}/cgroup.procs", str(pid))
    except OSError:
        lift(pid, home, root)
        raise


def lift(pid: int, home: str = "", root: str = GROUPS) -> bool:
    """Move all that is in the process's group elsewhere, and remove the group.

    Parameters
    ----------
    home
        The group to move it to: where the process was before; else the top.

    Returns
    -------
    Whether no such group is left.
    """
    top, _ = _top(root)
    group = _group(pid, root)
    end = time.monotonic() + _LEAVING_S
    while os.path.isdir(group):  # noqa: PTH112
        with contextlib.suppress(OSError):
            for member in _read(f"{group}/cgroup.procs").split():
                with contextlib.suppress(OSError):  # it has just ended
                    _write(f"{home or top}/cgroup.procs", member)
            os.rmdir(group)  # noqa: PTH106
            break
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def groups_left(root: str = GROUPS) -> Iterator[int]:
    """The processes that are gone, and whose groups are still there.

    A group with processes that cannot be seen from here (0) is another container's.
    """
    with contextlib.suppress(OSError):
        for name in os.listdir(_top(root)[0]):  # noqa: PTH208
            word = name.removeprefix("perflib-")
            if word == name or not word.isdecimal() or os.path.exists(f"/proc/{word}"):  # noqa: PTH110
                continue
            if "0" not in _read(f"{_group(int(word), root)}/cgroup.procs").split():
                yield int(word)


def can_limit(root: str = GROUPS) -> bool:
    """Whether a group with a quota can be made here: one is made and removed, empty."""
    top, first = _top(root)
    group = os.path.join(top, f"perflib-try-{os.getpid()}")  # noqa: PTH118
    try:
        if not first and "cpu" not in _read(f"{top}/cgroup.subtree_control").split():
            _write(f"{top}/cgroup.subtree_control", "+cpu")
        os.mkdir(group)  # noqa: PTH102
    except OSError:
        return False
    try:
        if first:
            _write(f"{group}/cpu.cfs_quota_us", str(_PERIOD_US))
        else:
            _write(f"{group}/cpu.max", f"{_PERIOD_US} {_PERIOD_US}")
    except OSError:
        return False
    else:
        return True
    finally:
        os.rmdir(group)  # noqa: PTH106


# --- shares of a core ----------------------------------------------------------------------------


class _Share:
    """A share of this thread's time on its core: exact in the mean, whoever else wants the core."""

    def __init__(self, thousandths: int) -> None:
        self._share = thousandths / 1000
        self._begin_s, self._begin_cpu_s = time.monotonic(), time.thread_time()
        self._forgiven_s = 0.0

    def wait(self) -> None:
        """Sleep until CPU time is due again."""
        wall_s = time.monotonic() - self._begin_s
        used_s = time.thread_time() - self._begin_cpu_s
        ahead_s = used_s + self._forgiven_s - self._share * wall_s
        if ahead_s > 0:
            time.sleep(ahead_s / self._share)
        elif ahead_s < -_MOST_DEBT_S:
            self._forgiven_s -= ahead_s + _MOST_DEBT_S


def _spin(thousandths: int) -> None:
    share = _Share(thousandths)
    while True:
        end = time.thread_time() + _SLICE_S
        while time.thread_time() < end:
            pass
        share.wait()


def _stream(thousandths: int) -> None:
    memory = ctypes.create_string_buffer(_STREAMED_BYTES)
    start, half = ctypes.addressof(memory), _STREAMED_BYTES // 2
    ctypes.memset(start, 1, _STREAMED_BYTES)  # what nobody wrote is one page of zeros
    share = _Share(thousandths)
    place = 0
    while True:
        ctypes.memmove(start + place, start + half + place, _PIECE_BYTES)
        place = (place + _PIECE_BYTES) % half
        share.wait()


# --- the process ---------------------------------------------------------------------------------


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # nobody is left to read it
        os.write(1, f"{line}\n".encode())


def _serve(owner: int, home: str) -> None:
    """Answer each line with the share that was used so far; put all back when there is no more."""
    begin_s, begin_cpu_s = time.monotonic(), time.process_time()
    while os.read(0, 1):
        used = (time.process_time() - begin_cpu_s) / (time.monotonic() - begin_s)
        _say(f"{used:.9f}")
    if home:
        lift(owner, home)
    _say("done")
    os._exit(0)


def main() -> None:
    """Read the orders, leave the parent, and carry them out."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            return
        line += piece
    share, streams, cpu, quota, owner = json.loads(line)
    if os.fork():
        os._exit(0)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends with the mystery
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), *[ctypes.c_ulong(0)] * 3)
    home = ""
    try:
        if quota:
            home = home_of(owner)
            limit(owner, quota)
        if share:
            os.sched_setaffinity(0, {cpu})
    except OSError as error:
        _say(f"failed {error}")
        return
    _say(f"ready {os.getpid()}")
    threading.Thread(target=_serve, args=(owner, home)).start()
    if streams:
        _stream(share)
    elif share:
        _spin(share)


if __name__ == "__main__":
    main()
