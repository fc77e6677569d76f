from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perflib.instruments.perf.recorder import CallGraph
from perflib.instruments.threads.concurrency import thread_states
from perflib.instruments.threads.formats import STATES, Flag, Lock, Selection, State
from perflib.instruments.threads.preload import backend as preload_backend
from perflib.instruments.threads.preload import files as preload_files
from perflib.instruments.threads.preload.backend import Preloaded, States, unavailable
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.settings import Settings
from perflib.instruments.threads.waits import lock_holders, lock_waits, longest_waits, wait_paths
from perflib.kernels import build
from perflib.model.errors import MeasurementError, UserError
from tests.instruments.threads.programs import compiled
from tests.users import needs_two_users

JOB = Path(__file__).with_name("waiting_job.c")
LATE = Path(__file__).with_name("late_library.c")
ALL = Settings(sample_period_us=1000)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    folder.chmod(0o755)
    return compiled(folder, JOB.read_text(), "-rdynamic", "-fno-omit-frame-pointer", name="job")


@dataclass
class Ran:
    recording: Recording
    said: str

    def each(self) -> list[tuple[Lock, int]]:
        """The lock of each wait, and the row of who held it.

        Each is one interval: `lock_waits` takes two with no time between them for one.
        """
        waiting = self.recording.intervals[self.recording.intervals["state"] == State.WAITING]
        return [(self.recording.locks[one["lock"]], int(one["other"])) for one in waiting]

    def waits(self) -> dict[tuple[str, str], int]:
        """How many there were for each lock, by its name and kind."""
        return dict(Counter((lock.name, lock.kind) for lock, _ in self.each()))

    def holders(self, name: str) -> dict[str, int]:
        """Who held a lock how many times when another wanted it; "": not known."""
        names = [*self.recording.threads["name"], ""]
        return dict(Counter(names[row] for lock, row in self.each() if lock.name == name))

    def by_process(self) -> dict[int, int]:
        """Waits for a mutex, by process."""
        return dict(Counter(lock.pid for lock, _ in self.each() if lock.kind == "mutex"))


def record(
    folder: Path,
    *argv: str | Path,
    settings: Settings = ALL,
    environment: Mapping[str, str] | None = None,
    code: int = 0,
    quiet: bool = True,
) -> Ran:
    """Record a job that ends with this status, and says nothing where it is ``quiet``."""
    own = {**os.environ, **(environment or {})}
    before = [own["LD_PRELOAD"]] if "LD_PRELOAD" in own else []
    words = [str(word) for word in argv]
    with (
        Preloaded(folder / "data", settings) as backend,
        subprocess.Popen(
            words,
            env=own
            | (ours := backend.environment())
            | {"LD_PRELOAD": ":".join([*before, ours["LD_PRELOAD"]])},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process,
    ):
        try:
            backend.started(process.pid)
            said = process.communicate(timeout=60)[0]
        finally:
            process.kill()
    assert process.returncode == code, said
    assert not (quiet and said)
    recording = backend.recording(process.pid, folder / "recording")
    check(recording)
    return Ran(recording, said)


def check(recording: Recording) -> None:
    """What holds for every recording."""
    for row in range(len(recording.threads)):
        own = recording.intervals[recording.first[row] : recording.first[row + 1]]
        assert (own["start_ns"] < own["end_ns"]).all()
        assert (own["end_ns"][:-1] <= own["start_ns"][1:]).all()
        waiting = own["state"] == State.WAITING
        assert (own["lock"][waiting] >= 0).all()
        life = recording.threads.loc[row]
        if len(own):
            assert own["start_ns"][0] >= life["start_ns"]
            assert own["end_ns"][-1] <= life["end_ns"]


# --- every kind of lock --------------------------------------------------------------------------

MUTEX, CONDITION = ("the_mutex", "mutex"), ("the_condition", "condition")
EXPECTED: dict[str, tuple[dict[tuple[str, str], int], dict[str, int]]] = {
    # Waits that the job must have had, and who held the lock named first.
    "mutex": ({MUTEX: 6, ("other_mutex", "mutex"): 1}, {"holder": 6}),
    "recursive": ({MUTEX: 1}, {"holder": 1}),
    "errorcheck": ({MUTEX: 1}, {"holder": 1}),
    "adaptive": ({MUTEX: 1}, {"holder": 1}),
    "inheriting": ({MUTEX: 1}, {"holder": 1}),
    "robust": ({MUTEX: 1}, {"dying": 1}),
    "condition": ({CONDITION: 3}, {"": 3}),
    "rwlock": ({("the_rwlock", "rwlock"): 2}, {"": 1, "holder": 1}),
    "semaphore": ({("the_semaphore", "semaphore"): 2}, {"": 2}),
    "barrier": ({("the_barrier", "barrier"): 1}, {"": 1}),
    "cancelled": ({CONDITION: 1, MUTEX: 1}, {"": 1}),
}


@pytest.mark.parametrize("mode", EXPECTED)
def test_every_wait_is_stamped_and_the_job_notices_nothing(
    tmp_path: Path, job: Path, mode: str
) -> None:
    ran = record(tmp_path, job, mode)
    waits, holders = EXPECTED[mode]
    assert ran.waits() == waits
    assert ran.holders(next(iter(waits))[0]) == holders
    assert ran.recording.meta["backend"] == "preload"
    assert ran.recording.meta["cut"] == ""


def test_who_waits_for_a_thread_s_end_sleeps(tmp_path: Path, job: Path) -> None:
    ran = record(tmp_path, job, "joining")
    assert ran.waits() == {}
    assert ("pthread_join", "join") in {(lock.name, lock.kind) for lock in ran.recording.locks}
    assert thread_states(ran.recording)["sleeping"].sum() > 0


def test_a_spinlock_is_spun_for(tmp_path: Path, job: Path) -> None:
    ran = record(tmp_path, job, "spin")
    spun = ran.recording.intervals[ran.recording.intervals["state"] == State.SPINNING]
    locks = {ran.recording.locks[number].name for number in spun["lock"][spun["lock"] >= 0]}
    assert locks == {"the_spinlock"}
    assert (spun["end_ns"] - spun["start_ns"]).sum() >= 20_000_000  # as the job made sure of


def test_a_thread_that_died_with_a_lock_is_its_holder_for_ever(tmp_path: Path, job: Path) -> None:
    ran = record(tmp_path, job, "orphaned")
    assert ran.waits() == {MUTEX: 1}
    assert ran.holders("the_mutex") == {"waiter": 1}  # the one that ended
    row = int(longest_waits(ran.recording, n=1)["row"].iloc[0])
    holder = int(lock_holders(ran.recording)["holder"].iloc[0])
    threads = ran.recording.threads
    assert threads["end_ns"][holder] < threads["start_ns"][row] <= threads["end_ns"][row]


# --- processes -----------------------------------------------------------------------------------


def test_programs_that_it_becomes_and_starts(tmp_path: Path, job: Path) -> None:
    ran = record(tmp_path, job, "executed")
    counts = ran.by_process()
    assert counts.pop(ran.recording.meta["job_pid"]) == 2  # one before and one after exec
    assert list(counts.values()) == [7]
    mains = ran.recording.threads
    mains = mains[mains["tid"] == mains["pid"]]
    assert len(mains) == 2  # a process that becomes another program stays one


def test_a_daemon_that_closed_every_file_and_left_without_exit(tmp_path: Path, job: Path) -> None:
    ran = record(tmp_path, job, "daemonised")
    counts = ran.by_process()
    assert list(counts.values()) == [1]
    assert ran.recording.meta["job_pid"] not in counts


def test_a_robust_mutex_between_processes(tmp_path: Path, job: Path) -> None:
    ran = record(tmp_path, job, "shared")
    assert ran.waits() == {("lock in shared", "mutex"): 1}
    pid = ran.recording.meta["job_pid"]
    holder = int(lock_holders(ran.recording)["holder"].iloc[0])
    assert ran.recording.threads["pid"][holder] != pid  # which died with it


def test_children_are_left_alone_if_not_followed(tmp_path: Path, job: Path) -> None:
    settings = replace(ALL, follow=False)
    for mode, own in (("forked", 2), ("executed", 2)):
        ran = record(tmp_path / mode, job, mode, settings=settings)
        assert ran.by_process() == {ran.recording.meta["job_pid"]: own}
        assert set(ran.recording.threads["pid"]) == {ran.recording.meta["job_pid"]}


def test_programs_are_left_alone_by_pattern(tmp_path: Path, job: Path) -> None:
    shutil.copy(job, tmp_path / "other")
    (tmp_path / "run.sh").write_text(f"{tmp_path}/other forked\n{job} adaptive\n{job} barrier\n")
    settings = replace(ALL, ignore=("nothing", "oth*"))
    ran = record(tmp_path, "sh", tmp_path / "run.sh", settings=settings)
    assert ran.waits() == {MUTEX: 1, ("the_barrier", "barrier"): 1}
    with pytest.raises(MeasurementError, match="ignore"):
        record(tmp_path / "all", job, "mutex", settings=replace(ALL, ignore=("job",)))


def test_kill_9_loses_nothing(tmp_path: Path, job: Path) -> None:
    ran = record(tmp_path, job, "killed", code=-signal.SIGKILL)
    assert ran.waits() == {MUTEX: 2}  # the second had not ended
    assert ran.holders("the_mutex") == {"holder": 2}
    assert ran.recording.meta["cut"] == ""


def test_the_environment_is_otherwise_unchanged(tmp_path: Path) -> None:
    own = compiled(tmp_path, "int own_loaded;", "-shared", "-fPIC", name="own.so")
    environment = {"LD_PRELOAD": str(own), "ODD": "a b\nc"}
    code = "import os,json; print(json.dumps(dict(os.environ)))"
    argv = [sys.executable, "-I", "-S", "-c", code]
    ran = record(tmp_path, *argv, environment=environment, quiet=False)
    got = json.loads(ran.said)
    first, ours = got.pop("LD_PRELOAD").split(":")
    assert first == str(own)
    assert Path(ours).name == "thread_waits.so"
    del got["PERFLIB_THREAD_WAITS"]
    wanted = {**os.environ, "ODD": "a b\nc"}
    for name in ("LC_CTYPE", "LD_PRELOAD"):  # Python adds the first itself
        got.pop(name, None)
        wanted.pop(name, None)
    assert got == wanted


def test_a_job_that_goes_on_as_another_user_without_privileges(job: Path) -> None:
    needs_two_users()
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copy(job, folder / "job")
        user = ("--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all")
        ran = record(folder, "setpriv", *user, folder / "job", "recursive")
        assert ran.waits() == {MUTEX: 1}
        owners = {path.stat().st_uid for path in (folder / "data").glob("waits.*")}
        assert owners == {0, 65534}


# --- odd jobs ------------------------------------------------------------------------------------


def test_odd_names_of_threads(tmp_path: Path, job: Path) -> None:
    ran = record(tmp_path, job, "odd")
    assert "a;b \n\udcff\xe9 (c)" in set(ran.recording.threads["name"])


def test_a_job_without_symbols(tmp_path: Path) -> None:
    program = compiled(tmp_path, JOB.read_text(), "-s", name="job")
    ran = record(tmp_path, program, "errorcheck")
    ((name, kind),) = ran.waits()
    assert kind == "mutex"
    assert name.startswith("lock in job+0x")
    assert wait_paths(ran.recording)["stack"][0].count("job+0x") == 2


def test_a_library_that_comes_later_and_goes(tmp_path: Path, job: Path) -> None:
    late = compiled(tmp_path, LATE.read_text(), "-shared", "-fPIC", name="late.so")
    ran = record(tmp_path, job, "opened", environment={"LATE_LIBRARY": str(late)})
    table = wait_paths(ran.recording)
    table = table[table["name"] == "late_mutex"]
    assert list(table["stack"]) == ["work"]


def test_a_job_that_uses_every_signal_itself(tmp_path: Path, job: Path) -> None:
    ran = record(tmp_path, job, "signals")
    assert any("the signal of the samples" in remark for remark in ran.recording.meta["remarks"])
    last = ran.recording.threads.index[-1]
    assert last not in ran.recording.samples["thread"]


def test_samples_stand_for_the_cpu_time(tmp_path: Path, job: Path) -> None:
    graphs: tuple[CallGraph, ...] = ("none", "fp", "dwarf")
    for graph in graphs:
        settings = Settings(call_graph=graph)
        ran = record(tmp_path / graph, job, "burning", settings=settings)
        samples = ran.recording.samples
        names = ran.recording.threads["name"][samples["thread"]]
        assert set(names) <= {"waiter", "holder"}
        assert 0 < samples["weight_ns"].sum() <= 70_000_000
        assert (np.diff(samples["time_ns"]) >= 0).all()
        stacks = {ran.recording.stacks[number] for number in samples["stack"]}
        assert ("burn" if graph == "none" else "waiter;burn") in stacks


def test_only_a_part_of_the_time(tmp_path: Path, job: Path) -> None:
    with pytest.raises(MeasurementError, match="nothing was recorded"):
        record(tmp_path / "late", job, "mutex", settings=replace(ALL, skip_s=1000.0))
    for duration_s in (0.02 * 1.5**n for n in range(12)):  # under load none may have waited yet
        settings = replace(ALL, duration_s=duration_s)
        with contextlib.suppress(MeasurementError):
            ran = record(tmp_path / f"{duration_s}", job, "many", settings=settings)
            break
    else:
        pytest.fail("nothing was recorded in any of these times")
    assert 0 < ran.recording.end_ns - ran.recording.start_ns <= round(duration_s * 1e9)
    assert sum(ran.waits().values()) < 6000


def test_recording_can_be_ended_before_the_job_does(tmp_path: Path, job: Path) -> None:
    with Preloaded(tmp_path / "data", ALL) as backend:
        backend.disable()  # before it begins
        environment = {**os.environ, **backend.environment()}
        with subprocess.Popen([job, "mutex"], env=environment) as process:
            backend.started(process.pid)
        assert process.returncode == 0
    with pytest.raises(MeasurementError, match="nothing was recorded"):
        backend.recording(process.pid, tmp_path / "recording")


# --- data that are too many, cut off, or not there -----------------------------------------------


def test_when_the_data_are_full_the_rest_is_counted(
    tmp_path: Path, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preload_backend, "_MB", 300_000)
    ran = record(tmp_path, job, "many", settings=replace(ALL, max_data_mb=1))
    kept = sum(ran.waits().values())
    assert 0 < kept < 6000
    assert kept + ran.recording.meta["lost"]["events"] == 6000
    assert ran.recording.meta["cut"] == "the data reached their bound of 1 MB"
    (lost,) = ran.recording.lost
    assert lost["start_ns"] <= lost["end_ns"] <= ran.recording.end_ns
    touched = ran.recording.intervals["flags"] & Flag.LOST > 0
    assert touched.any()
    assert not touched[ran.recording.intervals["end_ns"] <= lost["start_ns"]].any()


def test_a_file_that_was_cut_off(tmp_path: Path, job: Path) -> None:
    whole = record(tmp_path, job, "many")
    (path,) = (tmp_path / "data").glob("waits.*")
    size = path.stat().st_size
    counts = []
    for left in (size - 5, size // 2 + 3, 20_000, 5000):
        os.truncate(path, left)
        (process,) = preload_files.read_processes(tmp_path / "data")
        counts.append(sum(len(thread.records().waits) for thread in process.threads))
    assert sum(whole.waits().values()) == 6000
    assert 6000 >= counts[0] > counts[1] > counts[2] > counts[3] == 0
    os.truncate(path, 100)
    assert preload_files.read_processes(tmp_path / "data") == []
    path.write_bytes(bytes(50_000))
    assert preload_files.read_processes(tmp_path / "data") == []


def test_a_job_that_cannot_be_preloaded(tmp_path: Path) -> None:
    program = compiled(tmp_path, "int main(void) { return 0; }", "-static", name="static")
    with pytest.raises(MeasurementError, match="did not load the library") as raised:
        record(tmp_path, program)
    assert "backend=states" in str(raised.value)


def test_a_child_that_cannot_be_preloaded_is_named(tmp_path: Path) -> None:
    source = '#include <unistd.h>\nint main(void) { return read(0, "", 0) + usleep(800000); }'
    program = compiled(tmp_path, source, "-static", name="static")
    ran = record(tmp_path, "sh", "-c", f"{program}; true")
    assert any("(static) did not load" in remark for remark in ran.recording.meta["remarks"])


def test_a_folder_that_cannot_be_named_in_ld_preload(
    tmp_path: Path, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = record(tmp_path / "a b", job, "errorcheck")  # the library of the cache is used
    assert ran.waits() == {MUTEX: 1}
    monkeypatch.setenv("PERFLIB_CACHE", str(tmp_path / "c:d"))
    with pytest.raises(UserError, match="space or a colon"):
        Preloaded(tmp_path / "a b", ALL).__enter__()
    with (
        pytest.raises(UserError, match="too long"),
        Preloaded(tmp_path, replace(ALL, ignore=("x" * 3000, "y" * 3000))),
    ):
        pass


def test_clocks_that_do_not_line_up(tmp_path: Path, job: Path) -> None:
    """As in a time namespace: the job's clock is hours ahead."""
    with Preloaded(tmp_path / "data", ALL) as backend:
        environment = {**os.environ, **backend.environment()}
        with subprocess.Popen([job, "errorcheck"], env=environment) as process:
            backend.started(process.pid)
        shared = np.memmap(tmp_path / "data" / "shared", preload_files.SHARED, mode="r+")
        shared["start_ns"] += np.uint64(10**13)
        shared.flush()
    with pytest.raises(MeasurementError, match="clock is not ours"):
        backend.recording(process.pid, tmp_path / "recording")


def test_where_it_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unavailable() == Preloaded.unavailable() == States.unavailable() == ""
    monkeypatch.setenv("PERFLIB_CC", "no-such-compiler")
    assert "no-such-compiler" in unavailable()
    monkeypatch.setattr("platform.libc_ver", lambda: ("musl", "1.2"))
    assert "GNU C library" in unavailable()


def test_it_compiles_without_a_warning(tmp_path: Path) -> None:
    path = build("thread_waits").provenance["compiler"]
    source = Path(preload_backend.__file__).parents[4] / "kernels_c"
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-fPIC", "-c", "-O2"]
    where = ["-I", str(source), "-o", str(tmp_path / "waits.o")]
    subprocess.run([path, *flags, *where, str(source / "tools" / "thread_waits.c")], check=True)


def test_the_library_alone_changes_nothing(job: Path) -> None:
    """Preloaded without the variable, it leaves the job alone."""
    library = str(build("thread_waits").library)
    for mode in ("cancelled", "robust", "signals"):
        answer = subprocess.run(
            [job, mode], env={**os.environ, "LD_PRELOAD": library}, capture_output=True, check=False
        )
        assert (answer.returncode, answer.stderr) == (0, b"")
    assert ctypes.CDLL(library).pthread_mutex_lock is not None


# --- against the job's own account ---------------------------------------------------------------


def account(folder: Path, *words: str) -> tuple[Ran, dict[str, Any]]:
    program = build("event_loop", executable=True).library
    ran = record(folder, program, *words, quiet=False)
    return ran, json.loads(ran.said.splitlines()[-1])


@pytest.mark.parametrize("lock", ["mutex", "adaptive", "recursive", "robust"])
def test_waits_are_those_of_the_jobs_own_account(tmp_path: Path, lock: str) -> None:
    ran, own = account(tmp_path, "--threads", "4", "--events", "80", "--lock", lock)
    table = lock_waits(ran.recording)
    said = {one["name"]: one for one in own["locks"] if one["waits"]}
    assert {name for name, _ in ran.waits()} <= set(said)
    for name, one in said.items():
        # Ours lie within the job's own. How near they come, when threads are not interrupted just
        # between the two clocks, is for a benchmark.
        total_s = table["total_s"][table["name"] == name].sum()
        assert total_s * 1e9 <= one["waiting_ns"] * 1.001 + 1000
        if one["waiting_ns"] > 50_000_000:
            assert total_s * 1e9 >= one["waiting_ns"] * 0.7
    for one in own["per_thread"]:
        (row,) = np.flatnonzero(ran.recording.threads["tid"] == one["tid"])
        assert ran.recording.threads["name"][row] == one["name"]
        states = thread_states(ran.recording, Selection(rows=[int(row)])).iloc[0]
        running = states["running"] + states["spinning"]
        assert running * 1e9 == pytest.approx(one["cpu_ns"], rel=0.1, abs=3e7)


def test_a_job_without_locks_waits_for_none(tmp_path: Path) -> None:
    ran, _ = account(tmp_path, "--threads", "3", "--events", "20", "--points", "none")
    assert ran.waits() == {}


# --- a job that runs already ---------------------------------------------------------------------


def test_states_of_a_job_that_runs_already(tmp_path: Path) -> None:
    program = build("event_loop", executable=True).library
    words = ["--threads", "3", "--events", "1000000", "--points", "formula", "--jets", "16"]
    words += ["--formula-work", "4096", "--queue-work", "0", "--output-work", "0"]  # all wait
    with subprocess.Popen([program, *words], stdout=subprocess.DEVNULL) as process:
        try:
            with States(tmp_path / "data", Settings()) as backend:
                assert backend.environment() == {}
                backend.started(process.pid)
                backend.enable()
                try:
                    process.wait(timeout=3)
                except subprocess.TimeoutExpired:
                    backend.disable()
        finally:
            process.kill()
    recording = backend.recording(process.pid, tmp_path / "recording")
    check(recording)
    assert recording.meta["backend"] == "states"
    assert recording.meta["sample_period_ns"] == 0
    assert "sampled" in recording.meta["remarks"][0]
    assert {"event-0", "event-1", "event-2"} <= set(recording.threads["name"])
    names = {lock.name for lock in recording.locks}
    assert names & {"formula_lock", "pthread_join"}
    waiting = recording.threads["name"].str.startswith("event-").to_numpy()
    sums = thread_states(recording)[list(STATES)][waiting].sum()
    assert sums["running"] > 0
    assert sums["waiting"] > 0  # how much of it is seen depends on when the sampler has a core
