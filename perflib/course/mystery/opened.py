"""An open mystery's hold on the machine: a lock, the companion, a mark on runs; all put back."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import subprocess
import sys
import time
import weakref
from pathlib import Path

from perflib.course.mystery import companion
from perflib.course.mystery.draw import Trouble
from perflib.model.errors import MeasurementError, UserError
from perflib.store.paths import data_dir

_TAG = "PERFLIB_TAG"  # runs with the mark "exercise" count in no trend
_PATIENCE_S = 30.0
_LEAST_S = 5.0  # a share of less time says little


class Opened:
    """A companion with its orders, from its making until `close`, or this process's end.

    Parameters
    ----------
    trouble
        What is to be wrong. Nothing of it is kept.

    Raises
    ------
    UserError
        Another mystery is open.
    MeasurementError
        The companion does not start, or what is to be wrong cannot be made.
    """

    def __init__(self, trouble: Trouble) -> None:
        for gone in companion.groups_left():
            companion.lift(gone)
        self._lock = _locked()
        self._pid = os.getpid()
        self._home = companion.home_of(self._pid)
        self._tag = os.environ.get(_TAG)
        self._process: subprocess.Popen[bytes] | None = None
        self.companion = 0
        self.close = weakref.finalize(self, self._end, self.__dict__)
        try:
            self._start(_orders(trouble, self._pid))
        except BaseException:
            self.close()
            raise
        self._began_s = time.monotonic()
        if not self._tag:
            os.environ[_TAG] = "exercise"

    @property
    def is_open(self) -> bool:
        """Whether it is in force."""
        return self.close.alive

    def _start(self, orders: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", companion.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(self._lock,),  # another mystery waits until all is put back
            start_new_session=True,
            bufsize=0,
            cwd="/",
        )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it did not start
            self._process.stdin.write(orders.encode())
        self._process.wait()  # it continues as a child of its own, which is nobody's here
        word, _, rest = _line(self._process).partition(" ")
        if word != "ready":
            msg = f"the mystery cannot be made: {rest or 'its companion did not start'}. "
            raise MeasurementError(msg + "Try another seed; all is as it was.")
        self.companion = int(rest)

    def share_percent(self) -> float | None:
        """What the companion used of a core so far; ``None`` too soon, or without an answer."""
        if not self.is_open or time.monotonic() < self._began_s + _LEAST_S:
            return None
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"?")
            return 100 * float(_line(self._process))
        except (OSError, ValueError):  # it was killed
            return None

    @staticmethod
    def _end(kept: dict[str, object]) -> None:
        """Have everything put back by the companion; where it was killed, by this process."""
        if kept["_pid"] != os.getpid():  # a fork of the process that opened it
            return
        process, home = kept["_process"], kept["_home"]
        if isinstance(process, subprocess.Popen):
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            while _line(process):
                pass
            process.stdout.close()
            process.wait()
        companion.lift(os.getpid(), str(home))
        if kept["_tag"] is None and os.environ.get(_TAG) == "exercise":
            del os.environ[_TAG]
        os.close(int(str(kept["_lock"])))


def _orders(trouble: Trouble, owner: int) -> str:
    """The companion's line of numbers."""
    share, cpu = trouble.decoy, trouble.decoy_cpu
    if trouble.cause in ("thief", "hog"):
        share, cpu = trouble.thousandths, trouble.cpu
    quota = 1000 - trouble.thousandths if trouble.cause == "quota" else 0
    return json.dumps([share, trouble.cause == "hog", cpu, quota, owner]) + "\n"


def _line(process: subprocess.Popen[bytes]) -> str:
    """The companion's next line; empty where there is none any more, or none in time."""
    assert process.stdout is not None
    poller = select.poll()
    poller.register(process.stdout, select.POLLIN)
    limit, line = time.monotonic() + _PATIENCE_S, b""
    while not line.endswith(b"\n"):
        if not poller.poll(1000 * max(0.0, limit - time.monotonic())):
            return ""
        piece = process.stdout.read(1)
        if not piece:
            return ""
        line += piece
    return line.decode().strip()


def _locked() -> int:
    """The lock of the one mystery that may be open; the file says who has it."""
    path = data_dir() / "mystery.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        msg = f"no mystery can be opened: {path}: {error.strerror}"
        raise UserError(msg) from error
    limit = time.monotonic() + _PATIENCE_S
    while not _taken(file):
        owner = os.pread(file, 20, 0).decode(errors="replace").strip()
        if time.monotonic() < limit and not Path(f"/proc/{owner}/fd").exists():
            time.sleep(0.05)  # its owner has ended: what it left is being put back
            continue
        os.close(file)
        where = "in this process" if owner == str(os.getpid()) else f"in process {owner}"
        msg = f"a mystery is open already, {where}: two would hide each other. End it first: "
        raise UserError(msg + "machine.close(), or restart that kernel")
    os.ftruncate(file, 0)
    os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
    return file


def _taken(file: int) -> bool:
    """Whether the lock is ours now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
