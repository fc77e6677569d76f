"""A job that misbehaves: ``python hostile_job.py MODE NOTE``.

It says "start processing event #0" and "done processing event #0" where it can. It adds to the
file NOTE the number of each process that must not outlive it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

MODE, NOTE = sys.argv[1], Path(sys.argv[2])


def note(pid: int | None = None) -> None:
    with NOTE.open("a") as file:
        file.write(f"{pid or os.getpid()}\n")


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def event() -> None:
    say("start processing event #0")
    time.sleep(0.02)
    say("done processing event #0")


def for_ever() -> None:
    while True:
        time.sleep(60)


def child(what: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        note()
        what()
        os._exit(0)
    return pid


def closed() -> None:
    for descriptor in range(256):
        try:  # noqa: SIM105
            os.close(descriptor)
        except OSError:
            pass


def noted(count: int) -> None:
    while not NOTE.exists() or len(NOTE.read_text().split()) < count:
        time.sleep(0.005)


def forks() -> None:
    for _ in range(3):
        child(for_ever)
    noted(3)
    event()


def daemon() -> None:
    """Twice forked, in a session of its own, without its files, its environment and its name."""

    def second() -> None:
        os.setsid()
        if os.fork():
            os._exit(0)
        note()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        closed()
        os.execve("/bin/sleep", ["[kworker/0:0]", "600"], {})

    child(second)
    noted(2)
    event()


def daemon_and_on() -> None:
    daemon()
    for_ever()


def keeps_the_pipe() -> None:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        note(process.pid)
        event()
        os._exit(0)


def ignores() -> None:
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        signal.signal(number, signal.SIG_IGN)
    event()
    for_ever()


def stops() -> None:
    event()
    os.kill(os.getpid(), signal.SIGSTOP)


def stops_its_parent() -> None:
    os.kill(os.getppid(), signal.SIGSTOP)
    event()
    for_ever()


def prints_for_ever() -> None:
    lines = b"".join(b"done processing event #%d\n" % number for number in range(2000))
    while True:
        os.write(1, lines)


def begins_for_ever() -> None:
    number = 0
    while True:
        number += 1
        say(f"start processing event #{number}")


def events_for_ever() -> None:
    number = 0
    while True:
        number += 1
        say(f"start processing event #{number}\ndone processing event #{number}")


def binary() -> None:
    os.write(1, bytes(range(256)) * 40 + b"\xff\xfe\x00\x1b[31m\x1b]0;title\x07\x1bc\n")
    event()
    os.write(1, b"\x00\x1b[2J\xf0\x9f" * 1000)


def one_line() -> None:
    piece = b"x" * (1 << 20)
    for _ in range(300):
        os.write(1, piece)
    os.write(1, b"\n")
    event()


def closes() -> None:
    event()
    closed()
    time.sleep(0.3)
    os._exit(0)


def many_children() -> None:
    for _ in range(400):
        child(for_ever)
    noted(400)
    event()


def many_threads() -> None:
    threading.stack_size(64 * 1024)
    for _ in range(1000):
        threading.Thread(target=for_ever, daemon=True).start()
    event()
    os._exit(0)


def comet() -> None:
    """Each process starts the next and ends: whoever looks for it is late."""
    if os.fork() == 0:
        os.setsid()
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            if os.fork():
                os._exit(0)
        os._exit(0)
    event()


def renames() -> None:
    ctypes.CDLL(None).prctl(15, b"a) R 1 (\n\xff)", 0, 0, 0)
    event()


def leaves_its_folder() -> None:
    folder = Path.cwd()
    event()
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def eats_input() -> None:
    say(repr(sys.stdin.read()))
    event()


def nothing() -> None:
    pass


def fails() -> None:
    event()
    sys.exit(3)


def dies() -> None:
    event()
    os.kill(os.getpid(), signal.SIGSEGV)


def kills_its_parent() -> None:
    event()
    os.kill(os.getppid(), signal.SIGKILL)
    for_ever()


if __name__ == "__main__":
    note()
    globals()[MODE]()
