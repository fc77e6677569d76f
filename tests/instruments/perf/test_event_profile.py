"""Events of a job, recorded from the line that begins one to the line that ends it."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from perflib.instruments.joblog.joblog import JobEvent, parse
from perflib.instruments.joblog.logformat import LogFormat
from perflib.instruments.perf.event_profile import (
    EventProfile,
    Sampling,
    profile_job,
    profile_running,
)
from perflib.instruments.perf.event_profile import _Switch as Switch
from perflib.instruments.perf.tool import PerfUnavailableError
from perflib.measure.conditions import Conditions
from perflib.model.errors import MeasurementError, UserError
from tests.instruments.perf.test_recorder import BURN, needs_perf
from tests.instruments.threads.programs import compiled

NAMED = LogFormat(r"begin (?P<event>\w+)", r"end (?P<event>\w+)")
ONE_AT_A_TIME = LogFormat(r"begin (?P<event>\w+)", "end")
OFTEN = Sampling(event="cpu-clock", frequency_hz=2000)


def python(script: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", f"import os, signal, sys, time\n{BURN}\n{script}", *arguments]


def profiled(script: str, folder: Path, *events: int | str) -> EventProfile:
    return profile_job(
        python(script), NAMED, events or None, folder=folder, timeout_s=60, sampling=OFTEN
    )


THREE = "for k in range(3): print('begin', k); burn(60); print('end', k); burn(60)"


# --- a job of ours -----------------------------------------------------------------------------


@needs_perf
def test_first_event_of_a_job_is_covered_and_nothing_between_events(tmp_path: Path) -> None:
    for _ in range(20):  # under load both lines of an event may be read at once
        profile = profiled(THREE, tmp_path)
        if not any("were read at once" in one for one in profile.problems):
            break
    assert [recorded.job_event.label for recorded in profile.events] == [0, 1, 2]
    assert profile.problems == []
    assert profile.unfinished == []
    assert profile.job is not None
    assert profile.job.returncode == 0
    for recorded in profile.events:
        coverage = recorded.coverage
        assert 0 < coverage.missed_begin_ns < recorded.job_event.time_ns
        assert coverage.missed_end_ns == 0
        expected = 100 * (1 - coverage.missed_begin_ns / recorded.job_event.time_ns)
        assert coverage.covered_percent == pytest.approx(expected)
        assert coverage.samples > 0
        assert coverage.first_sample_ns is not None
        assert coverage.last_sample_ns is not None
        assert recorded.job_event.begin_ns < coverage.first_sample_ns < recorded.job_event.end_ns
        assert coverage.first_sample_ns <= coverage.last_sample_ns < recorded.job_event.end_ns
    inside = sum(recorded.coverage.samples for recorded in profile.events)
    # The job burns as long outside of the events.
    assert profile.samples.read_text().count(" cpu-clock: ") < 1.5 * inside
    assert profile.sampled == "cpu-clock"
    assert profile.lost == 0


@needs_perf
def test_symbols_of_what_the_job_becomes_and_loads_after_perf_is_attached(tmp_path: Path) -> None:
    loop = "for (volatile long k = 0; k < n; k++) ;"
    source = f"void burn_in_library(long n) {{ {loop} }}\n"
    library = compiled(tmp_path, source, "-shared", "-fPIC", name="loaded.so")
    source = (
        "#include <dlfcn.h>\n#include <stdio.h>\n"
        f"__attribute__((noinline)) void burn_in_program(long n) {{ {loop} }}\n"
        "int main(int argc, char **argv) { (void)argc;\n"
        ' void (*burn)(long) = (void (*)(long))dlsym(dlopen(argv[1], 2), "burn_in_library");\n'
        ' puts("begin 0"); burn(30000000); burn_in_program(30000000); puts("end 0"); }\n'
    )
    program = compiled(tmp_path, source, name="job")
    profile = profile_job(
        [str(program), str(library)], NAMED, folder=tmp_path, timeout_s=60, sampling=OFTEN
    )
    text = profile.samples.read_text()
    assert re.search(r" burn_in_library\+0x[0-9a-f]+ \(\S+/loaded\.so\)", text)
    assert re.search(r" burn_in_program\+0x[0-9a-f]+ \(\S+/job\)", text)
    assert re.search(r"^\s*job\s+\d+/\d+", text, re.MULTILINE)  # its name is its own by then


@needs_perf
@pytest.mark.parametrize("at_once", [True, False])
def test_job_that_dies_inside_the_event(tmp_path: Path, at_once: bool) -> None:
    burn = "" if at_once else "burn(60);"
    script = f"print('begin 1'); {burn} os.kill(os.getpid(), signal.SIGKILL)"
    profile = profiled(script, tmp_path, 1)
    assert profile.events == []
    assert [begun.label for begun in profile.unfinished] == [1]
    assert profile.problems[0] == "event 1 began at line 1 and never ended"
    assert profile.problems[1] == "the job died of SIGKILL (Killed)"
    if not at_once:
        assert " cpu-clock: " in profile.samples.read_text()


@needs_perf
def test_job_that_fails(tmp_path: Path) -> None:
    profile = profiled("print('no input file'); sys.exit(3)", tmp_path)
    assert profile.events == []
    assert profile.problems == ["the job ended with status 3; its last line: no input file"]
    with pytest.raises(MeasurementError, match=r"'no-such-job' cannot be started: No such file"):
        profile_job(["no-such-job"], NAMED, folder=tmp_path, timeout_s=60)


def test_without_perf_the_job_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PerfUnavailableError, match="not installed"):
        profile_job(
            python("open(sys.argv[1], 'w')", str(mark)), NAMED, folder=tmp_path, timeout_s=60
        )
    assert not mark.exists()
    with pytest.raises(UserError, match="cpu=99999"):
        profile_job(["x"], NAMED, folder=tmp_path, timeout_s=1, conditions=Conditions(cpu=99999))


# --- a job that runs already -------------------------------------------------------------------

WRITING = """
log = open(sys.argv[1], "a", buffering=1)
while True:
    for k in range(1, 4):
        log.write(f"begin {k}\\n"); burn(40); log.write(f"end {k}\\n"); burn(10)
"""


@needs_perf
def test_running_job_is_recorded_until_the_wanted_events_have_ended(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with subprocess.Popen(python(WRITING, str(log))) as job:
        try:
            profile = profile_running(
                job.pid, log, NAMED, {1, 3}, folder=tmp_path, timeout_s=60, sampling=OFTEN
            )
            assert job.poll() is None
        finally:
            job.kill()
    assert {recorded.job_event.label for recorded in profile.events} == {1, 3}
    assert all(recorded.coverage.samples > 0 for recorded in profile.events)
    assert profile.unfinished == []
    assert profile.job is None


@needs_perf
def test_running_job_is_left_when_asked_to_stop(tmp_path: Path) -> None:
    log = tmp_path / "log"
    stop = threading.Event()
    with subprocess.Popen(python("burn(60_000)")) as job:
        log.touch()
        threading.Timer(0.5, stop.set).start()
        profile = profile_running(
            job.pid, log, NAMED, {1}, folder=tmp_path, timeout_s=60, stop=stop, sampling=OFTEN
        )
        job.kill()
    assert profile.events == []
    assert profile.problems == ["event 1 was not seen to begin while perf was attached"]


# --- on and off, by a false recorder -----------------------------------------------------------


class FalseRecorder:
    """Acknowledges 10 ns after an order; time passes as the test says."""

    def __init__(self, now: list[int]) -> None:
        self.now = now
        self.orders: list[str] = []

    def enable(self) -> int:
        self.orders.append("enable")
        return self.now[0] + 10

    def disable(self) -> int:
        self.orders.append("disable")
        return self.now[0] + 10


def replayed(
    monkeypatch: pytest.MonkeyPatch,
    log: str,
    *events: int | str,
    log_format: LogFormat = NAMED,
    job: str | None = None,
) -> tuple[Switch, list[str]]:
    """What is switched by a log whose lines are 100 ns apart."""
    now = [0]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])
    switch = Switch(log_format, events or None, job)
    recorder = FalseRecorder(now)
    switch.recorder = recorder  # type: ignore[assignment]

    def chunks() -> Iterator[tuple[int, bytes]]:
        for at, line in enumerate(log.split(";")):
            now[0] = 100 * at
            yield now[0], f"{line}\n".encode()

    for event in parse(chunks(), log_format, [], switch.begin):
        switch.end(event)
    return switch, recorder.orders


def covered(switch: Switch, *times: int) -> list[tuple[int, int, float, int]]:
    samples = np.array(times, dtype=np.int64)
    found = [switch._coverage(event, samples) for event in switch.ended]
    return [
        (one.missed_begin_ns, one.missed_end_ns, one.covered_percent, one.samples) for one in found
    ]


def test_coverage_is_the_time_between_acknowledgement_and_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    switch, orders = replayed(monkeypatch, "begin 1;x;end 1;begin 2;end 2")
    assert orders == ["enable", "disable"] * 2
    assert covered(switch, 5, 15, 199, 250, 350) == [(10, 0, 95.0, 3), (10, 0, 90.0, 1)]


def test_overlapping_events_keep_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    switch, orders = replayed(monkeypatch, "begin 1;begin 2;end 1;end 2")
    assert orders == ["enable", "disable"]
    assert covered(switch) == [(10, 0, 95.0, 0), (0, 0, 100.0, 0)]


def test_event_of_another_job_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = LogFormat(r"(?P<job>\w)> begin (?P<event>\d)", r"(?P<job>\w)> end (?P<event>\d)")
    log = "b> begin 1;a> begin 1;b> end 1;a> end 1"
    switch, orders = replayed(monkeypatch, log, 1, log_format=jobs, job="a")
    assert orders == ["enable", "disable"]
    assert switch.ended == [JobEvent(1, 100, 300, None, "a")]


@pytest.mark.parametrize("wanted", [(1,), (1, 2)])
def test_event_that_never_ended_is_over_when_the_next_begins(
    monkeypatch: pytest.MonkeyPatch, wanted: tuple[int, ...]
) -> None:
    log = "begin 1;begin 2;end;begin 3;end"
    switch, orders = replayed(monkeypatch, log, *wanted, log_format=ONE_AT_A_TIME)
    assert orders == ["enable", "disable"]
    assert [event.label for event in switch.ended] == ([2] if 2 in wanted else [])
    assert not switch.open


def test_lines_that_came_together_are_not_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    switch, _ = replayed(monkeypatch, "begin 1\nend 1")
    assert covered(switch) == [(0, 0, 0.0, 0)]
