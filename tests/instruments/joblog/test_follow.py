"""Logs that grow, are rotated, cut, removed, late, silent."""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import inotify_simple
import pytest

from perflib.instruments.joblog import follow
from perflib.instruments.joblog.follow import LogFollower
from perflib.instruments.joblog.joblog import parse
from perflib.instruments.joblog.logformat import LogFormat
from perflib.model.errors import MeasurementError, UserError


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def take(chunks: Iterator[tuple[int, bytes]], length: int) -> bytes:
    """Exactly so many bytes, however they are cut."""
    found = b""
    while len(found) < length:
        found += next(chunks)[1]
    assert len(found) == length, found
    return found


def rest(follower: LogFollower) -> bytes:
    return b"".join(chunk for _, chunk in follower)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_bytes(b"old\n")
    return path


# --- what is read ------------------------------------------------------------------------------


def test_only_new_bytes_are_read_and_half_lines_too(log: Path) -> None:
    before_ns = time.monotonic_ns()
    with LogFollower(log, timeout_s=30) as follower:
        append(log, b"begin 1")
        chunks = iter(follower)
        arrival_ns, chunk = next(chunks)
        assert chunk == b"begin 1"
        assert before_ns < arrival_ns <= time.monotonic_ns()
        append(log, b"\nend")
        assert take(chunks, 4) == b"\nend"
        assert follower.remarks == []


# --- rotation ----------------------------------------------------------------------------------


def test_renamed_log_is_read_until_something_stands_in_the_new_one(log: Path) -> None:
    with LogFollower(log, timeout_s=30) as follower:
        chunks = iter(follower)
        old = log.rename(log.with_name("log.1"))
        log.touch()
        append(old, b"still here\n")
        assert take(chunks, 11) == b"still here\n"
        append(old, b"last\n")
        append(log, b"new\n")
        assert take(chunks, 9) == b"last\nnew\n"
        append(old, b"nobody looks here\n")
        append(log, b"more\n")
        assert take(chunks, 5) == b"more\n"


def test_half_a_line_does_not_run_into_the_new_log(log: Path) -> None:
    with LogFollower(log, timeout_s=30) as follower:
        chunks = iter(follower)
        append(log, b"begin 7")
        assert take(chunks, 7) == b"begin 7"
        log.unlink()
        log.write_bytes(b"begin 1\n")
        assert take(chunks, 9) == b"\nbegin 1\n"


def test_truncated_log_is_read_from_its_start(log: Path) -> None:
    with LogFollower(log, timeout_s=30) as follower:
        chunks = iter(follower)
        append(log, b"a longer line\n")
        take(chunks, 14)
        os.truncate(log, 0)
        append(log, b"new\n")
        assert take(chunks, 4) == b"new\n"


@pytest.mark.parametrize("written", [3_000, 5_000_000])
def test_job_that_does_not_append_leaves_a_hole_which_is_skipped(log: Path, written: int) -> None:
    with log.open("wb") as job, LogFollower(log, timeout_s=30) as follower:
        chunks = iter(follower)
        job.write(b"." * written)
        job.flush()
        take(chunks, written)
        os.truncate(log, 0)

        def go_on() -> None:
            job.write(b"new\n")
            job.flush()

        threading.Timer(3 * follow.POLL_S, go_on).start()
        assert take(chunks, 5) == b"\nnew\n"  # the dots were half a line
        append(log, b"\0more\n")
        assert take(chunks, 6) == b"\0more\n"
    assert log.stat().st_size > written


# --- not there ---------------------------------------------------------------------------------


def test_log_and_its_folder_may_come_later(tmp_path: Path) -> None:
    log = tmp_path / "run" / "log"

    def come() -> None:
        log.parent.mkdir()
        log.write_bytes(b"first\n")

    with LogFollower(log, timeout_s=30) as follower:
        threading.Timer(0.1, come).start()
        assert take(iter(follower), 6) == b"first\n"


def test_log_that_never_comes(tmp_path: Path) -> None:
    with (
        LogFollower(tmp_path / "log", wait_s=0.1) as follower,
        pytest.raises(MeasurementError, match=r"no log .*/log after 0\.1 s"),
    ):
        rest(follower)


def test_what_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no ordinary file"):
        LogFollower(tmp_path)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(UserError, match="no ordinary file"):
        LogFollower(fifo)


def test_log_that_may_not_be_read(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr(os, "open", Mock(side_effect=refused))
    with pytest.raises(UserError, match="cannot be read: Permission denied"):
        LogFollower(log)


def test_log_that_fails_while_read(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = OSError(errno.EIO, "Input/output error")
    with LogFollower(log, timeout_s=30) as follower:
        monkeypatch.setattr(os, "pread", Mock(side_effect=failed))
        with pytest.raises(MeasurementError, match="cannot be read any more: Input/output error"):
            rest(follower)


# --- ends --------------------------------------------------------------------------------------


def test_what_the_job_wrote_before_it_ended_is_read(log: Path) -> None:
    script = "import sys, time; time.sleep(0.1); open(sys.argv[1], 'a').write('last words')"
    with subprocess.Popen([sys.executable, "-c", script, str(log)]) as job:
        with LogFollower(log, pid=job.pid, timeout_s=60) as follower:
            assert rest(follower) == b"last words"  # the job is not waited for: a zombie by now
        assert job.wait() == 0


def test_stop_event_ends_a_silent_log(log: Path) -> None:
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    with LogFollower(log, stop=stop) as follower:
        assert rest(follower) == b""


def test_time_limit_holds_while_the_job_writes_without_end(log: Path) -> None:
    with LogFollower(log, timeout_s=0.1) as follower:
        for _ in follower:
            append(log, b".")
        assert log.stat().st_size >= 4


def test_a_job_without_newline_is_read_and_costs_no_waiting(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = itertools.count(0, 0.5)  # a minute of it, by a clock of our own
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    named = LogFormat(r"begin (?P<event>\d+)", r"end (?P<event>\d+)")
    problems: list[str] = []

    def dots(follower: LogFollower) -> Iterator[tuple[int, bytes]]:
        for chunk in follower:
            append(log, b"." * 1000)
            yield chunk

    with LogFollower(log, timeout_s=60) as follower:
        append(log, b"begin 1\n")
        assert list(parse(dots(follower), named, problems)) == []
    assert problems[0] == "event 1 began at line 1 and never ended"
    assert "1 lines longer than 4096 bytes" in problems[1]


# --- where inotify is silent -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "number", "words"),
    [
        ("__init__", errno.EMFILE, "fs.inotify.max_user_instances"),
        ("__init__", errno.ENOSYS, "Function not implemented"),
        ("add_watch", errno.ENOSPC, "fs.inotify.max_user_watches"),
    ],
)
def test_without_inotify_the_log_is_looked_at(
    log: Path, monkeypatch: pytest.MonkeyPatch, method: str, number: int, words: str
) -> None:
    class Watcher(inotify_simple.INotify):  # type: ignore[misc]
        pass

    setattr(Watcher, method, Mock(side_effect=OSError(number, os.strerror(number))))
    monkeypatch.setattr(inotify_simple, "INotify", Watcher)
    with LogFollower(log, timeout_s=30) as follower:
        threading.Timer(0.1, append, (log, b"new\n")).start()
        assert take(iter(follower), 4) == b"new\n"
        assert words in follower.remarks[0]
        assert len(follower.remarks) == 1
