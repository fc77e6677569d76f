"""A whole job, a process and CPUs are recorded without a log."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from perflib.instruments.perf import script
from perflib.instruments.perf.event_profile import Sampling
from perflib.instruments.perf.recorder import Recorder
from perflib.instruments.perf.whole import record_for, record_job
from perflib.model.errors import MeasurementError, UserError
from tests.instruments.perf.test_recorder import needs_perf

OFTEN = Sampling(event="cpu-clock", frequency_hz=2000)
BURN = "import time; t = time.process_time()\nwhile time.process_time() < t + {}: pass"


@needs_perf
def test_a_whole_job_is_one_event_without_a_name(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", BURN.format(0.15) + "\nprint('begin 7')"]
    profile = record_job(argv, folder=tmp_path, timeout_s=60, sampling=OFTEN)
    (one,) = profile.events
    assert (one.name, one.job_event.label) == ("", "")
    assert one.coverage.samples > 50
    assert profile.problems == []
    samples = script.read(profile.samples).samples
    assert samples["time_ns"].between(one.job_event.begin_ns, one.job_event.end_ns).mean() > 0.9


@needs_perf
def test_a_recording_may_end_before_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job ends, successfully, only after perf was switched off."""
    is_off, disable = tmp_path / "off", Recorder.disable

    def noted(recorder: Recorder) -> int:
        off_ns = disable(recorder)
        is_off.touch()
        return off_ns

    monkeypatch.setattr(Recorder, "disable", noted)
    waits = f"import os, time\nwhile not os.path.exists({str(is_off)!r}): time.sleep(0.01)"
    argv = [sys.executable, "-c", waits]
    profile = record_job(argv, folder=tmp_path, timeout_s=60, duration_s=0.1, sampling=OFTEN)
    (one,) = profile.events
    assert one.job_event.time_ns >= 0.1e9
    assert profile.problems == []


@needs_perf
def test_a_job_that_fails_or_dies_is_a_problem(tmp_path: Path) -> None:
    fails = [sys.executable, "-c", "print('no file'); raise SystemExit(3)"]
    profile = record_job(fails, folder=tmp_path, timeout_s=60, sampling=OFTEN)
    assert profile.problems == ["the job ended with status 3; its last line: no file"]
    dies = [sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"]
    profile = record_job(dies, folder=tmp_path, timeout_s=60, sampling=OFTEN)
    assert profile.problems == ["the job died of SIGSEGV (Segmentation fault)"]
    with pytest.raises(MeasurementError, match="cannot be started"):
        record_job(["/no/such/job"], folder=tmp_path, timeout_s=60, sampling=OFTEN)


@needs_perf
def test_a_process_is_recorded_for_a_while_and_goes_on(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as job:
        try:
            profile = record_for(0.2, pid=job.pid, folder=tmp_path, sampling=OFTEN)
            assert job.poll() is None
        finally:
            job.kill()
    (one,) = profile.events
    assert one.job_event.time_ns >= 0.2e9
    assert set(script.read(profile.samples).samples["pid"]) == {job.pid}


@needs_perf
def test_a_process_that_ends_or_a_stop_ends_the_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enable = Recorder.enable
    with subprocess.Popen(["sleep", "600"]) as job, monkeypatch.context() as patch:

        def then_ended(recorder: Recorder) -> int:
            on_ns = enable(recorder)
            job.kill()
            return on_ns

        patch.setattr(Recorder, "enable", then_ended)
        record_for(600, pid=job.pid, folder=tmp_path, sampling=OFTEN)
    stop = threading.Event()
    stop.set()
    record_for(600, pid=os.getpid(), folder=tmp_path, stop=stop, sampling=OFTEN)


@needs_perf
@pytest.mark.skipif(os.geteuid() != 0, reason="recording whole CPUs takes root")
def test_whole_cpus_are_recorded(tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    argv = ["taskset", "-c", str(cpu), sys.executable, "-c", "while True: pass"]
    with subprocess.Popen(argv) as job:
        try:
            profile = record_for(0.2, cpus=[cpu], folder=tmp_path, sampling=OFTEN)
        finally:
            job.kill()
    samples = script.read(profile.samples).samples
    assert set(samples["cpu"]) == {cpu}
    assert job.pid in set(samples["pid"])


@needs_perf
def test_either_a_process_or_cpus(tmp_path: Path) -> None:
    for pid, cpus in ((None, ()), (1, (0,))):
        with pytest.raises(UserError, match="one of the two is recorded"):
            Recorder(pid, folder=tmp_path, cpus=cpus)
