"""The guard: a process that puts system settings back when the one that changed them has ended.

`settings.changes` starts ``python guard.py JOURNAL DESCRIPTOR`` before it changes anything.
The guard holds the read end of a pipe whose only write end is in the process that changes the
settings; however that process ends, ``kill -9`` among the ways, the kernel closes the write end,
the guard sees the end of its input and puts everything back. It is in a session of its own and
ignores the signals of terminals, log-outs and batch systems. If it is killed too, the journal
remains, and the next measurement does the work (`settings.changes.restore_leftovers`).

The journal has one JSON object a line: first who changes the settings (``pid``, ``host``), then one
per change (``path``, ``old``, ``new``), on disk before the change is made. A last line that is cut
off belongs to a change that was never made. Whoever may act on the journal holds a lock (flock) on
it; guard and process share one through the inherited descriptor.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any, NamedTuple

_IGNORED = ("SIGINT", "SIGHUP", "SIGTERM", "SIGQUIT", "SIGPIPE")


class Restored(NamedTuple):
    """What putting back came to, in sentences: what was done, and what was not and why."""

    done: list[str]
    problems: list[str]


def read_setting(path: str) -> str:
    """The value in force: the marked word of ``always [madvise] never``, else the whole text."""
    # No pathlib: the guard stays light.
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        text = file.read().strip()
    before, bracket, after = text.partition("[")
    return after.partition("]")[0] if bracket and "]" in after else before.strip()


def write_setting(path: str, value: str) -> None:
    """Write a value into a file that exists, in one piece, as the kernel wants it."""
    file = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(file, f"{value}\n".encode())
    finally:
        os.close(file)


def read_journal(file: int) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """The first line and the changes of a journal, without a line that was cut off."""
    raw = os.pread(file, os.fstat(file).st_size, 0)
    lines = []
    for line in raw[: raw.rfind(b"\n") + 1].splitlines():
        try:
            lines.append(json.loads(line))
        except (ValueError, RecursionError):  # blocks that never reached the disk
            break  # nothing after them was done
    return (lines[0], lines[1:]) if lines else ({}, [])


def put_back(file: int, journal: str) -> Restored:
    """Undo the changes of a journal that this process holds the lock of, and remove it.

    A setting that is neither what it was nor what we made it was changed by somebody else since,
    and is left alone. The journal stays where a setting should be put back and cannot.
    """
    settings: dict[str, tuple[str, set[str]]] = {}
    for change in read_journal(file)[1]:
        settings.setdefault(change["path"], (change["old"], set()))[1].add(change["new"])
    done: list[str] = []
    problems: list[str] = []
    failed = False
    for path, (old, ours) in reversed(settings.items()):
        try:
            now = read_setting(path)
            if now not in {old, *ours, ""}:  # empty: a write that was cut short
                problems.append(
                    f"left {path} alone: it is {now!r} now, which somebody else has set since "
                    f"(it was {old!r})"
                )
            elif now != old:
                write_setting(path, old)
                if read_setting(path) != old:
                    msg = f"it stays {read_setting(path)!r}"
                    raise OSError(msg)
                done.append(f"put {path} back to {old!r} (it was set to {now!r})")
        except FileNotFoundError:
            problems.append(f"{path} is gone: it cannot be put back to {old!r}")
        except OSError as error:
            failed = True
            problems.append(
                f"cannot put {path} back to {old!r}: {error.strerror or error}. "
                f"By hand: echo {old} | sudo tee {path}"
            )
    if not failed:
        try:
            os.unlink(journal)  # noqa: PTH108
        except OSError:  # its disk is gone or read-only: there is nothing left to put back
            os.ftruncate(file, 0)
    return Restored(done, problems)


def _say(line: str) -> bool:
    """Notify the process, if it is still there."""
    try:
        os.write(1, f"{line}\n".encode())
    except BrokenPipeError:
        return False
    return True


def _log(journal: str, sentences: list[str]) -> None:
    """Keep what nobody may be left to read."""
    when = time.strftime("%Y-%m-%d %H:%M:%S")
    lines = "".join(f"{when} {sentence}\n" for sentence in sentences)
    with open(os.path.join(os.path.dirname(journal), "log"), "a", encoding="utf-8") as log:  # noqa: PTH118, PTH120, PTH123
        log.write(lines)


def main(journal: str, file: int) -> None:
    """Wait for the end of the input; then put back, and say what came of it."""
    for number in (getattr(signal, name) for name in _IGNORED):
        signal.signal(number, signal.SIG_IGN)
    _say("ready")
    while os.read(0, 1):
        pass
    outcome = put_back(file, journal)
    if not _say(json.dumps(outcome)):
        _log(journal, [*outcome.done, *outcome.problems])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
