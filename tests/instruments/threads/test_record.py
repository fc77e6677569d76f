"""Recording a job: which backend, from when to when, and that nothing is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest

from perflib.instruments.threads import record
from perflib.instruments.threads.preload.backend import States
from perflib.instruments.threads.record import backends, chosen, profile_job, run_alone
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.settings import Settings
from perflib.measure.conditions import Conditions
from perflib.model.errors import MeasurementError, UserError
from tests.instruments.threads.made import recording_of
from tests.processes import is_gone

PYTHON = [sys.executable, "-I", "-S", "-c"]


class Fake(States):
    """A backend that writes down its calls, and when."""

    variables: ClassVar[dict[str, str]] = {}
    last: Fake | None = None

    def __init__(self, folder: Path, settings: Settings) -> None:
        super().__init__(folder, settings)
        self.calls: list[str] = []
        self.at: list[float] = []
        Fake.last = self

    def _note(self, what: str) -> None:
        self.calls.append(what)
        self.at.append(time.monotonic())

    def __enter__(self) -> Self:
        assert self.folder.is_dir()
        self._note("entered")
        return self

    def __exit__(self, *_: object) -> None:
        self._note("left")

    def environment(self) -> dict[str, str]:
        return self.variables

    def started(self, pid: int) -> None:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        self._note(f"started {b'launch.py' not in words}")

    def enable(self) -> None:
        self._note("enabled")

    def disable(self) -> None:
        self._note("disabled")

    def recording(self, pid: int, out: Path) -> Recording:
        assert self.folder.is_dir()
        self._note("recorded")
        return recording_of(out, [[]], names=["job"], meta={"backend": "fake", "job_pid": pid})


def calls() -> list[str]:
    assert Fake.last is not None
    return Fake.last.calls


@pytest.fixture(autouse=True)
def _fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kinds = {
        "perf": record.Kind(None, lambda: "no perf here", Fake),
        "preload": record.Kind(False, lambda: "", Fake),
        "states": record.Kind(True, lambda: "", Fake),
    }
    monkeypatch.setattr(record, "KINDS", kinds)
    Fake.last = None
    yield
    Fake.variables = {}


def profile(
    tmp_path: Path, job: str | int, settings: Settings | None = None, **options: Any
) -> record.Profiled:
    """A program of Python, or a process."""
    argv = [*PYTHON, job] if isinstance(job, str) else job
    return profile_job(argv, settings or Settings(), tmp_path / "recording", **options)


# --- which backend --------------------------------------------------------------------------------


def test_the_best_backend_that_fits_is_chosen() -> None:
    assert backends() == {"perf": "no perf here", "preload": "", "states": ""}
    assert chosen("auto", running=False) == "preload"
    assert chosen(None, running=True) == "states"
    assert chosen("preload", running=False) == "preload"


def test_a_wrong_backend_is_refused_with_those_that_fit() -> None:
    with pytest.raises(UserError, match="did you mean 'preload'"):
        chosen("prelaod", running=False)
    with pytest.raises(UserError, match="a job that runs already is recorded by perf or states"):
        chosen("preload", running=True)
    with pytest.raises(UserError, match="a job that we start is recorded by perf or preload"):
        chosen("states", running=False)
    with pytest.raises(UserError, match="backend=perf cannot be used here: no perf here"):
        chosen("perf", running=False)


def test_without_any_backend_every_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {
        "perf": record.Kind(None, lambda: "no perf here", Fake),
        "preload": record.Kind(False, lambda: "no compiler here", Fake),
    }
    monkeypatch.setattr(record, "KINDS", kinds)
    with pytest.raises(MeasurementError, match="perf: no perf here; preload: no compiler here"):
        chosen(None, running=False)


# --- a job that we start --------------------------------------------------------------------------


def test_a_job_is_recorded_from_its_start_to_its_end(tmp_path: Path) -> None:
    done = profile(tmp_path, "import time; print('hello'); time.sleep(0.05)")
    assert (done.returncode, done.output, done.problem) == (0, "hello\n", "")
    assert done.wall_s >= 0.05
    assert calls() == ["entered", "enabled", "started True", "disabled", "left", "recorded"]
    assert done.recording.meta["backend"] == "fake"
    assert Recording.open(tmp_path / "recording").threads["name"].tolist() == ["job"]
    assert [path.name for path in tmp_path.iterdir()] == ["recording"]  # no raw data is left


def test_first_seconds_are_skipped_and_a_duration_ends_before_the_job(tmp_path: Path) -> None:
    before = time.monotonic()
    program = "import time; time.sleep(0.5); print('to the end')"
    done = profile(tmp_path, program, Settings(skip_s=0.1, duration_s=0.1))
    assert done.output == "to the end\n"
    assert calls() == ["entered", "started True", "enabled", "disabled", "left", "recorded"]
    assert Fake.last is not None
    _, _, enabled, disabled, left, _ = Fake.last.at
    assert enabled - before >= 0.1
    assert disabled - enabled >= 0.1
    assert left - before >= 0.5  # the job was not cut short


def test_a_job_that_ends_within_the_skipped_seconds_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match=r"all of it is in its first 5 s \(skip_s\)"):
        # It is still there when it is asked for.
        profile(tmp_path, "import time; time.sleep(1)", Settings(skip_s=5.0))
    assert calls() == ["entered", "started True", "left"]
    assert not (tmp_path / "recording").exists()


def test_a_job_that_does_not_end_is_killed(tmp_path: Path) -> None:
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    done = profile(tmp_path, program, timeout_s=3.0)
    assert done.problem == "did not end within 3 s and was killed"
    assert done.returncode == -signal.SIGKILL
    assert is_gone(int(done.output))
    assert calls()[-1] == "recorded"


def test_ctrl_c_ends_the_job_and_the_backend(tmp_path: Path) -> None:
    pids = []

    def interrupt(pid: int) -> None:
        pids.append(pid)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        profile(tmp_path, "import time; time.sleep(60)", seen=interrupt)
    assert is_gone(pids[0])
    assert calls()[-1] == "left"
    assert not list(tmp_path.iterdir())


def test_a_backend_that_fails_leaves_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = []

    def fails(_self: Fake, pid: int) -> None:
        pids.append(pid)
        msg = "perf has died"
        raise MeasurementError(msg)

    monkeypatch.setattr(Fake, "started", fails)
    with pytest.raises(MeasurementError, match="perf has died"):
        profile(tmp_path, "import time; time.sleep(60)")
    assert is_gone(pids[0])
    assert calls()[-1] == "left"


def test_a_job_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        MeasurementError, match=r"the job '.*nothing' cannot be started: No such file"
    ):
        profile_job([str(tmp_path / "nothing")], Settings(), tmp_path / "recording")
    with pytest.raises(UserError, match="its command line is empty"):
        profile_job([], Settings(), tmp_path / "recording")
    with pytest.raises(UserError, match="is set through the condition 'preload'"):
        run_alone(["true"], Conditions(environment={"LD_PRELOAD": "x.so"}))


def test_the_backends_variables_and_library_reach_the_job(tmp_path: Path) -> None:
    own, users = tmp_path / "own.so", tmp_path / "users.so"
    for path in (own, users):
        path.touch()
    Fake.variables = {"LD_PRELOAD": str(own), "WAITS": "here"}
    done = profile_job(
        ["env"], Settings(), tmp_path / "recording",
        conditions=Conditions(preload=(str(users),), environment={"MINE": "1"}),
    )  # fmt: skip
    lines = done.output.splitlines()
    assert {f"LD_PRELOAD={users}:{own}", "WAITS=here", "MINE=1"} <= set(lines)


def test_the_job_runs_on_its_cpus_and_ours_stay(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    wanted = max(before)
    done = profile(tmp_path, "import os; print(os.sched_getaffinity(0))", cpus=[wanted])
    assert done.output == f"{{{wanted}}}\n"
    assert os.sched_getaffinity(0) == before


def test_of_much_output_the_end_is_kept() -> None:
    done = run_alone([*PYTHON, "print('x' * 3_000_000); print('the account')"])
    assert len(done.output) == 1 << 20
    assert done.output.endswith("x\nthe account\n")


# --- a job that runs already ----------------------------------------------------------------------


@pytest.fixture
def running() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([*PYTHON, "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def test_a_running_job_is_recorded_for_a_time_and_goes_on(
    running: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    done = profile(tmp_path, running.pid, Settings(skip_s=0.1, duration_s=0.1))
    assert calls() == ["entered", "started True", "enabled", "disabled", "left", "recorded"]
    assert (done.returncode, done.problem) == (None, "")
    assert done.wall_s >= 0.1
    assert running.poll() is None


def test_a_running_job_is_recorded_until_it_ends(
    running: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    timer = threading.Timer(0.1, running.kill)
    timer.start()
    done = profile(tmp_path, running.pid)
    timer.join()
    assert done.wall_s < 30
    assert calls()[-1] == "recorded"


def test_ctrl_c_ends_the_recording_of_a_running_job_and_keeps_it(
    running: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    class Pressed(threading.Event):
        def wait(self, _timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    done = profile(tmp_path, running.pid, stop=Pressed())
    assert done.problem == "was recorded until it was interrupted by Ctrl-C"
    assert calls()[-2:] == ["left", "recorded"]
    assert running.poll() is None


def test_a_recording_without_an_end_ends_at_the_time_limit(
    running: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    done = profile(tmp_path, running.pid, timeout_s=0.2)
    assert done.problem == "was recorded for 0.2 s; it did not end by then"


def test_there_is_nothing_to_record_of_a_process_that_is_gone(
    running: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    running.kill()
    running.wait()
    with pytest.raises(UserError, match=f"there is no process {running.pid}"):
        profile(tmp_path, running.pid)
    assert Fake.last is None
