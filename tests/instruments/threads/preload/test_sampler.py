from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from perflib.instruments.threads.preload import sampler
from perflib.instruments.threads.preload.sampler import Sampler, unavailable
from perflib.model.errors import MeasurementError
from tests.processes import soon

SLEEP = "import sys, time; print(flush=True); time.sleep(100)"
LOCK = """
import ctypes, sys, threading
libc = ctypes.CDLL(None)
mutex = ctypes.create_string_buffer(64)
libc.pthread_mutex_lock(mutex)
threading.Thread(target=libc.pthread_mutex_lock, args=(mutex,), daemon=True).start()
print(ctypes.addressof(mutex), flush=True)
sys.stdin.read()
import os
os._exit(0)
"""
MANY = """
import sys, threading
done = threading.Event()
for _ in range(40):
    threading.Thread(target=done.wait, daemon=True).start()
print(threading.active_count(), flush=True)
sys.stdin.read()
"""
CHILD = """
import subprocess, sys
child = subprocess.Popen(["sleep", "100"], stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
sys.stdin.read()
child.kill()
"""


@contextmanager
def python(code: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def listed(one: Sampler) -> set[int]:
    return {thread.pid for thread in one._threads}


def test_a_thread_that_sleeps_is_read_once_and_not_written_again(tmp_path: Path) -> None:
    with python(SLEEP) as (process, _):
        assert soon(lambda: Path(f"/proc/{process.pid}/stat").read_text().split()[2] == "S")
        with Sampler(process.pid, tmp_path / "readings") as one:
            assert soon(lambda: one._threads[0].seen_ns > 0 and process.pid in one._maps)
            first = one._threads[0].seen_ns
            assert soon(lambda: one._threads[0].seen_ns > first + 50_000_000)
    sampled = one.sampled()
    (thread,) = sampled.threads
    assert (thread.pid, thread.tid) == (process.pid, process.pid)
    assert thread.name.startswith("python")
    assert thread.start_ns < thread.seen_ns <= time.monotonic_ns()
    (found,) = sampled.readings
    assert (found["thread"], found["state"], found["futex"]) == (0, b"S", 0)
    assert found["run_ns"] > 0
    assert os.path.realpath(sys.executable) in sampled.maps[process.pid]
    assert sampled.programs[process.pid] == os.path.realpath(sys.executable)


def test_children_are_followed_or_not(tmp_path: Path) -> None:
    with python(CHILD) as (process, child):
        with Sampler(process.pid, tmp_path / "a") as one:
            assert soon(lambda: int(child) in listed(one))
        with Sampler(process.pid, tmp_path / "b", follow=False) as one:
            assert soon(lambda: one._threads[0].seen_ns > 0)
            one._list()
        assert listed(one) == {process.pid}
        with Sampler(process.pid, tmp_path / "c", ignore=("sl*p",)) as one:
            one._list()
        assert listed(one) == {process.pid}
        process.communicate()  # it ends its child


def test_many_threads_take_no_more_files_than_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "_MAX_FILES", 9)
    monkeypatch.setattr(Sampler, "_run", lambda _: None)  # here we poll ourselves

    def files_of(pid: int) -> list[str]:
        found = []
        for file in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):  # what read this folder
                found.append(str(file.readlink()))
        return [name for name in found if name.startswith(f"/proc/{pid}/")]

    with python(MANY) as (process, number), Sampler(process.pid, tmp_path / "readings") as one:
        assert len(one._live) == int(number)
        assert len(files_of(process.pid)) == 9
        assert one._poll()
        assert len(files_of(process.pid)) == 9
        one.stop()
        assert files_of(process.pid) == []
    assert len(np.unique(one.sampled().readings["thread"])) == int(number)


def test_the_period_grows_with_what_polling_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    spent = iter(range(0, 1000, 3))  # each round takes three seconds
    one = Sampler(os.getpid(), tmp_path / "readings")
    monkeypatch.setattr(sampler, "_MAX_SHARE", 0.01)
    monkeypatch.setattr(time, "thread_time", lambda: next(spent))
    monkeypatch.setattr(one, "_poll", lambda: len(waited) < 2)
    monkeypatch.setattr(one._stop, "wait", waited.append)
    one._live[0, 0] = None  # type: ignore[assignment]
    one._run()
    assert waited == [300.0, 300.0]


def test_data_are_bounded(tmp_path: Path) -> None:
    most = 3 * sampler.READING.itemsize
    with Sampler(os.getpid(), tmp_path / "readings", most_bytes=most) as one:
        assert soon(lambda: bool(one._remarks))
    sampled = one.sampled()
    assert len(sampled.readings) <= 3
    assert "bound" in sampled.remarks[0]


def test_another_users_thread_is_seen_by_what_it_sleeps_in(tmp_path: Path) -> None:
    """Where /proc/TID/syscall may not be read, wchan shows a futex, though not which."""
    with python(LOCK) as (process, _):
        folder = Path(f"/proc/{process.pid}/task")
        assert soon(lambda: len(list(folder.iterdir())) == 2)
        other = next(one.name for one in folder.iterdir() if one.name != str(process.pid))
        assert soon(lambda: (folder / other / "wchan").read_text().startswith("futex"))
        with Sampler(process.pid, tmp_path / "readings") as one:
            one.stop()
        live = sampler._Live(one._threads[0], str(folder / other), keep=False)
        live._unreadable = True
        assert live._blocked(202) == (sampler.UNKNOWN_FUTEX, 0)


def test_what_goes_wrong_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Sampler(os.getpid(), tmp_path / "readings")
    monkeypatch.setattr(one, "_poll", Mock(side_effect=OSError("no space left")))
    with one:
        assert soon(lambda: one._problem is not None)
    with pytest.raises(MeasurementError, match="no space left"):
        one.sampled()


def test_a_kernel_that_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unavailable() == ""
    monkeypatch.setattr(Path, "read_text", lambda _: "0 0 0\n")
    assert "CONFIG_SCHED_INFO" in unavailable()
