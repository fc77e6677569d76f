"""Threads recorded by perf: which lock, which kind, who held it and how often, not how long."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from perflib.instruments.perf.control import ControlledPerf
from perflib.instruments.perf.tool import PerfUnavailableError
from perflib.instruments.threads.concurrency import thread_states
from perflib.instruments.threads.formats import Flag, State
from perflib.instruments.threads.perf import backend as module
from perflib.instruments.threads.perf import tracepoints
from perflib.instruments.threads.perf.backend import PerfThreads, unavailable
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.settings import Settings
from perflib.instruments.threads.waits import lock_waits, wait_paths
from perflib.model.errors import MeasurementError
from tests.instruments.perf import perf_files
from tests.instruments.perf.perf_files import FileEvent, perf_file
from tests.instruments.threads.programs import TURNS, program

needs_perf = pytest.mark.skipif(bool(unavailable()), reason=f"perf cannot: {unavailable()}")
STATIC = {
    "plain": "mutex",
    "recursive": "mutex",
    "adaptive": "mutex",
    "robust": "mutex",
    "condition": "condition",
    "readers": "rwlock",
    "semaphore": "semaphore",
    "barrier": "barrier",
}


def again(recorder: PerfThreads, settings: Settings) -> PerfThreads:
    """The same data, to be converted with other settings."""
    recorder._settings = settings
    return recorder


# --- what is waited for --------------------------------------------------------------------------


def complete(folder: Path, *argv: str | Path) -> tuple[PerfThreads, int, Recording]:
    """A job recorded from its first instruction to its end.

    Some kernels hide a switch now and then: then once more.
    """
    for attempt in range(5):
        with PerfThreads(folder, Settings()) as recorder:
            recorder.enable()
            with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as job:
                recorder.started(job.pid)
                assert job.wait() == 0
            recorder.disable()
        recording = recorder.recording(job.pid, folder / f"recording-{attempt}")
        if not recording.meta["lost"]["events"]:
            break
    return recorder, job.pid, recording


@pytest.fixture(scope="module")
def locks(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return complete(tmp_path_factory.mktemp("locks"), program("locks"), str(TURNS))[2]


@needs_perf
@pytest.mark.parametrize(("name", "kind"), STATIC.items())
def test_locks_in_static_variables(locks: Recording, name: str, kind: str) -> None:
    waits = lock_waits(locks)
    (found,) = waits[waits["name"] == name].to_dict("records")
    assert [found[what] for what in ("kind", "waits", "threads")] == [kind, TURNS, 1]
    number = found["lock"]
    of_lock = locks.intervals[
        (locks.intervals["lock"] == number) & (locks.intervals["state"] == State.WAITING)
    ]
    assert {locks.threads["name"][row] for row in of_lock["other"]} == {
        "owner" if name == "robust" else "holder"
    }
    (path,) = wait_paths(locks, lock=number)["stack"]
    assert path.split(";")[2:4] == ["wait_for_it", "take"]


@needs_perf
def test_recording_says_what_it_is(locks: Recording) -> None:
    assert locks.meta["backend"] == "perf"
    assert locks.meta["clock"] == "CLOCK_MONOTONIC"
    assert locks.meta["cut"] == ""
    assert locks.meta["lost"]["samples"] == 0
    assert locks.meta["cpus"] == len(os.sched_getaffinity(0))
    assert locks.meta["sample_period_ns"] == 1_000_000
    assert set(locks.threads["name"]) >= {"holder", "waiter", "owner"}
    assert (locks.threads["pid"] == locks.meta["job_pid"]).all()


# --- whose threads -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> tuple[PerfThreads, int]:
    folder = tmp_path_factory.mktemp("family")
    other = folder / "a-program-with-a-long-name"
    shutil.copy(program("family"), other)
    return complete(folder, program("family"), other)[:2]


ODD = {"two words", "==> next_comm=x", "line\nend", "�� bytes", ""}
CHILDREN = {"forked", "daemon", "daemon's child"}


@needs_perf
def test_forked_executed_and_daemonised_processes(
    family: tuple[PerfThreads, int], tmp_path: Path
) -> None:
    recorder, pid = family
    found = again(recorder, Settings()).recording(pid, tmp_path / "all")
    threads = found.threads
    expected = ODD | CHILDREN | {"family", "a-program-with-"}
    assert set(threads["name"]) >= expected
    assert set(threads.loc[threads["pid"] == pid, "name"]) >= ODD | {"family"}
    assert not set(threads.loc[threads["pid"] == pid, "name"]) & CHILDREN
    states = thread_states(found)
    assert (states["running"] > 0).any()


@needs_perf
@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        (Settings(follow=False), CHILDREN | {"a-program-with-"}),
        (Settings(ignore=("family",)), set()),  # the job itself is never ignored
        (
            Settings(threads="^two|^family$"),
            CHILDREN | (ODD - {"two words"}) | {"a-program-with-"},
        ),
    ],
)
def test_what_is_left_out(
    family: tuple[PerfThreads, int], tmp_path: Path, settings: Settings, missing: set[str]
) -> None:
    recorder, pid = family
    found = again(recorder, settings).recording(pid, tmp_path / "some").threads["name"]
    everything = ODD | CHILDREN | {"family", "a-program-with-"}
    assert set(found) & everything == everything - missing


@needs_perf
@pytest.mark.parametrize("pattern", ["a-program-with-a-l*", "a-program-with-", "nothing*"])
def test_program_that_is_left_alone_ends_with_its_execution(
    family: tuple[PerfThreads, int], tmp_path: Path, pattern: str
) -> None:
    recorder, pid = family
    slept_s = []
    for ignore in ((), (pattern,)):
        found = again(recorder, Settings(ignore=ignore)).recording(pid, tmp_path / str(len(ignore)))
        states = thread_states(found)
        slept_s.append(dict(zip(states["name"], states["sleeping"], strict=True)))
    everything, some = slept_s
    # It sleeps for 5 ms once it is executed; before, it may have to wait for the file.
    left_out_s = everything["a-program-with-"] - some["a-program-with-"]
    assert (left_out_s > 0.0049) == (pattern != "nothing*")
    assert some["forked"] == everything["forked"] > 0


@needs_perf
def test_process_that_was_never_there(family: tuple[PerfThreads, int], tmp_path: Path) -> None:
    recorder, _ = family
    with pytest.raises(MeasurementError, match="nothing was recorded of process 4194303"):
        again(recorder, Settings()).recording(4_194_303, tmp_path / "none")


# --- a job that does what it is asked ------------------------------------------------------------


class Turning(NamedTuple):
    """A job, and what has it make so many turns between two threads."""

    pid: int
    turn: Callable[[int], None]


@pytest.fixture
def turning() -> Iterator[Turning]:
    with subprocess.Popen(
        program("turning"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout is not None
        said = job.stdout
        assert said.readline() == "ready\n"

        def turn(number: int) -> None:
            print(number, file=job.stdin, flush=True)
            assert said.readline() == "turned\n"

        yield Turning(job.pid, turn)
        job.kill()


def sleeps(pid: int) -> int:
    """How often a process's first thread has gone to sleep."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def perf_of(recorder: PerfThreads) -> int:
    assert recorder._process is not None
    return recorder._process.pid


@needs_perf
def test_only_what_happens_while_it_is_on(turning: Turning, tmp_path: Path) -> None:
    """A job that runs already; what it did before and afterwards is not there."""
    with PerfThreads(tmp_path, Settings()) as recorder:
        recorder.started(turning.pid)
        turning.turn(50)
        before_ns = time.monotonic_ns()
        recorder.enable()
        turning.turn(20)
        recorder.disable()
        after_ns = time.monotonic_ns()
        turning.turn(50)
    found = recorder.recording(turning.pid, tmp_path / "recording")
    assert before_ns < found.start_ns < found.end_ns < after_ns
    waits = lock_waits(found).groupby("name")["waits"].sum()
    # Who comes late waits; which of the two that is, is not known.
    assert waits.sum() > 0
    assert max(waits.get("ping", 0), waits.get("pong", 0)) <= 21
    assert {"turning", "answer"} <= set(found.threads["name"])


@needs_perf
def test_killed_perf_leaves_what_it_had(turning: Turning, tmp_path: Path) -> None:
    with PerfThreads(tmp_path, Settings()) as recorder:
        recorder.enable()
        begun = recorder.path.stat().st_size
        waited = 0
        while waited < 200 or recorder.path.stat().st_size < begun + 1_500_000:
            before = sleeps(turning.pid)
            turning.turn(1000)  # how often it waits is left to chance
            waited += sleeps(turning.pid) - before - 2  # for its input, and for the other's end
        for _ in range(4):  # perf answers an order, and then writes what it has
            ControlledPerf.enable(recorder)
        os.kill(perf_of(recorder), signal.SIGKILL)
        turning.turn(10)
        recorder.disable()
    found = recorder.recording(turning.pid, tmp_path / "recording")
    assert found.meta["cut"] == "perf was killed by signal 9: the recording ends there."
    assert {"turning", "answer"} <= set(found.threads["name"])
    assert (found.intervals["state"] == State.WAITING).sum() > 100
    assert any("answer" in stack for stack in found.stacks)
    data = recorder.path.read_bytes()
    for share in (0.75, 0.5):
        recorder.path.write_bytes(data[: begun + int(share * (len(data) - begun))])
        part = recorder.recording(turning.pid, tmp_path / f"cut-{share}")
        assert part.end_ns <= found.end_ns


@needs_perf
def test_data_that_reaches_its_bound_ends_the_recording(turning: Turning, tmp_path: Path) -> None:
    with PerfThreads(tmp_path, Settings(max_data_mb=12)) as recorder:
        recorder.enable()
        assert recorder._process is not None
        while recorder._process.poll() is None:
            turning.turn(1000)
        recorder.disable()
    found = recorder.recording(turning.pid, tmp_path / "recording")
    assert found.meta["cut"] == "Its data on disk reached max_data_mb=12: the recording ends there."
    assert lock_waits(found)["waits"].sum() > 0


MAPPINGS = """
import ctypes, sys
file = open(sys.executable, "rb")
mmap = ctypes.CDLL(None).mmap  # Python's own keeps a file open for each
mmap.argtypes = [ctypes.c_void_p, *[ctypes.c_long] * 5]
for at in range(20_000):  # every second one elsewhere in the file: no two become one
    mmap(None, 4096, 1, 2, file.fileno(), at % 2 * 8192)  # to read, private
print(flush=True)
sys.stdin.read()
"""


@needs_perf
def test_bound_that_a_list_of_processes_reaches(tmp_path: Path) -> None:
    """perf lists what runs before it is switched on; then or afterwards it ends by itself."""
    with subprocess.Popen(
        [sys.executable, "-c", MAPPINGS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as large:
        assert large.stdout is not None
        large.stdout.readline()
        with (
            pytest.raises(MeasurementError, match="max_data_mb=1 is too little"),
            PerfThreads(tmp_path, Settings(max_data_mb=1)) as recorder,
        ):
            recorder.enable()
        large.kill()


@needs_perf
def test_lost_events_are_counted_and_what_they_touch_is_marked(
    turning: Turning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_buffer_pages", lambda: 8)
    with PerfThreads(tmp_path, Settings()) as recorder:
        recorder.enable()
        os.kill(perf_of(recorder), signal.SIGSTOP)  # nobody empties the buffers
        turning.turn(4000)
        os.kill(perf_of(recorder), signal.SIGCONT)
        turning.turn(4000)
        recorder.disable()
    found = recorder.recording(turning.pid, tmp_path / "recording")
    assert found.meta["lost"]["events"] > 0
    assert found.lost["number"].sum() > 0
    assert (found.intervals["flags"] & Flag.LOST).any()
    assert (found.lost["start_ns"] <= found.lost["end_ns"]).all()


@needs_perf
def test_file_with_another_clock_says_so(tmp_path: Path) -> None:
    recorder = PerfThreads(tmp_path, Settings())
    tracepoints = recorder._tracepoints
    event = FileEvent(
        ids=(1,),
        sample_type=perf_files.USUAL | perf_files.RAW,
        type=2,
        config=tracepoints.ids["sched:sched_switch"],
        clock=0,
    )
    records = []
    for time_ns, leaves, comes in ((5000, 0, 77), (6000, 77, 0), (9000, 0, 77)):
        raw = bytearray(64)
        values = (comes, 1, leaves)
        for field, value in zip(tracepoints.fields["sched:sched_switch"], values, strict=True):
            end = field.offset + field.size
            raw[field.offset : end] = value.to_bytes(field.size, "little")
        records.append(
            perf_files.sample(event, 1, time_ns=time_ns, pid=leaves, tid=leaves, raw=bytes(raw))
        )
    recorder.path = tmp_path / "made.data"
    recorder.path.write_bytes(perf_file([event], records))
    recorder._on_ns = 10**15  # of a clock that does not line up
    found = recorder.recording(77, tmp_path / "recording")
    assert found.meta["clock"] == "CLOCK_REALTIME"
    assert any("of CLOCK_REALTIME, not of CLOCK_MONOTONIC" in one for one in found.meta["remarks"])
    assert (found.start_ns, found.end_ns) == (5000, 9000)
    assert thread_states(found)["running"].sum() > 0


# --- where perf cannot ---------------------------------------------------------------------------


def false_perf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    monkeypatch.setattr(module, "_INITIAL_PIDS", str(Path("/proc/self/ns/pid").readlink()))
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "perf").write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
    (folder / "perf").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_no_perf_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "perf is not installed" in unavailable()
    with pytest.raises(PerfUnavailableError, match="not installed"):
        PerfThreads(tmp_path, Settings())


def test_perf_that_is_not_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    false_perf(tmp_path, monkeypatch, "sys.exit(255)")
    assert "perf is not allowed" in unavailable()


def test_kernel_without_tracepoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    false_perf(tmp_path, monkeypatch, "sys.exit(0)")
    monkeypatch.setattr(tracepoints, "tracefs", lambda _root: None)
    assert "tracefs is not there" in unavailable()


def test_container_with_numbers_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    false_perf(tmp_path, monkeypatch, "sys.exit(0)")
    monkeypatch.setattr(module, "_INITIAL_PIDS", "pid:[1]")
    assert "In a container" in unavailable()


@needs_perf
def test_perf_that_refuses_to_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "Error:\\nNo permission to enable sched:sched_switch event."
    false_perf(tmp_path, monkeypatch, f"print('{said}', file=sys.stderr); sys.exit(255)")
    with (
        pytest.raises(PerfUnavailableError, match=r"(?s)not allowed.*No permission"),
        PerfThreads(tmp_path, Settings()),
    ):
        pass


@needs_perf
def test_what_perf_is_asked_to_do(tmp_path: Path) -> None:
    settings = Settings(sample_period_us=100.0, stack_bytes=4096, call_graph="dwarf", max_data_mb=7)
    options = " ".join(PerfThreads(tmp_path, settings)._options())
    assert "cpu-clock/period=100000,call-graph=dwarf,stack-size=4096,name=cpu/I" in options
    assert "sys_enter_futex/call-graph=dwarf,stack-size=4096/ --filter op==0||op==128" in options
    assert options.endswith("--max-size 7M")
    none = PerfThreads(tmp_path, Settings(call_graph="none"))._options()
    assert "cpu-clock/period=1000000,call-graph=no,name=cpu/I" in none


@needs_perf
def test_stacks_that_cannot_be_found_are_said(
    family: tuple[PerfThreads, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, pid = family
    false_perf(tmp_path, monkeypatch, "print('no such thing', file=sys.stderr); sys.exit(3)")
    monkeypatch.setattr(recorder, "_perf", tmp_path / "bin/perf")
    found = again(recorder, Settings()).recording(pid, tmp_path / "recording")
    assert any("It reported: no such thing" in remark for remark in found.meta["remarks"])
    assert found.stacks == []
    assert (found.intervals["stack"] == -1).all()
    assert np.isin(found.intervals["state"], list(State)).all()
    with contextlib.suppress(FileNotFoundError):
        assert not list(recorder.path.parent.glob("*.job"))
