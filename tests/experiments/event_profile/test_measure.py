"""One trial: a job recorded during its event, or what its user reads instead."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from perflib.experiments.event_profile import measure
from perflib.experiments.event_profile import recorded as recorded_module
from perflib.experiments.event_profile import trials as trials_module
from perflib.experiments.event_profile.measure import repeats_for
from perflib.experiments.event_profile.trials import Events, ProfiledJobs, ProfiledRunning
from perflib.instruments.joblog.follow import LogFollower
from perflib.instruments.joblog.joblog import JobEvent
from perflib.instruments.joblog.jobrun import JobResult
from perflib.instruments.joblog.logformat import LogFormat
from perflib.instruments.perf.event_profile import Coverage, EventProfile, RecordedEvent, Sampling
from perflib.instruments.profile.annotate import annotate as real_annotate
from perflib.measure.conditions import Conditions
from perflib.measure.process import WorkerError
from perflib.measure.schedule import Columns
from perflib.model.errors import MeasurementError, UserError
from tests.instruments.perf.test_recorder import BURN, needs_perf

CPU = min(os.sched_getaffinity(0))
NAMED = LogFormat(r"begin (?P<event>\w+)", r"end (?P<event>\w+)")
OFTEN = Sampling(event="cpu-clock", frequency_hz=2000)


# --- how often the event is simulated ------------------------------------------------------------


def pilot(monkeypatch: pytest.MonkeyPatch, events: list[JobEvent]) -> list[list[str]]:
    """Pilot runs give these events; the command lines are noted."""
    commands: list[list[str]] = []

    def run_job(argv: list[str], _: object, conditions: Conditions, **__: object) -> JobResult:
        commands.append([f"cpu={conditions.cpu}", *argv])
        return JobResult(events, [], 0, ["kv: no", "such event"], 1.0)

    monkeypatch.setattr(measure, "run_job", run_job)
    return commands


@pytest.mark.parametrize(
    ("seconds", "event_ms", "repeats"), [(0.025, 500, 1000), (0.025, 0.6, 1), (600.0, 1, 1)]
)
def test_the_event_is_repeated_to_last_as_long_as_requested(
    monkeypatch: pytest.MonkeyPatch, seconds: float, event_ms: float, repeats: int
) -> None:
    commands = pilot(monkeypatch, [JobEvent(73, 0, 10**9, seconds, None)])
    assert repeats_for(Path("kv"), "73", 5, event_ms, Conditions(cpu=CPU)) == repeats
    (argv,) = commands
    words = ["kv", "--events", "1", "--first", "73", "--seed", "5", "--repeat", "73:50"]
    assert argv[-len(words) :] == words
    assert f"cpu={CPU}" in argv


@pytest.mark.parametrize("events", [[], [JobEvent(73, 0, 10**9, None, None)]])
def test_a_pilot_without_a_time_says_what_the_job_said(
    monkeypatch: pytest.MonkeyPatch, events: list[JobEvent]
) -> None:
    pilot(monkeypatch, events)
    with pytest.raises(MeasurementError, match="of event 73 gave no time: kv: no such event"):
        repeats_for(Path("kv"), "73", 5, 500, Conditions(cpu=CPU))


# --- a job that is started -----------------------------------------------------------------------


def jobs(tmp_path: Path, script: str, **options: Any) -> ProfiledJobs:
    path = tmp_path / "job.py"
    path.write_text(f"import os, signal, sys, time\n{BURN}\n{script}")
    given: dict[str, Any] = {
        "events": Events("abc", before=2),
        "timeout_s": 60.0,
        "sampling": OFTEN,
    }
    return ProfiledJobs(
        [f"{sys.executable} {path} {{first}} {{events}} {{seed}}"],
        NAMED,
        [Conditions(cpu=CPU)],
        seed=9,
        **given | options,
    )


def check_columns(columns: Columns) -> None:
    assert json.loads(json.dumps(columns)) == columns  # plain numbers and text, for the journal
    assert len({len(values) for values in columns.values()}) == 1
    begin_ns, took_ns = columns["begin_ns"][0], columns["event_time_ns"][0]
    assert all(begin_ns <= at <= begin_ns + took_ns for at in columns["time_ns"])
    assert set(columns["begin_ns"]) == {begin_ns}
    assert 0 <= columns["missed_begin_ns"][0] < took_ns
    assert columns["missed_end_ns"][0] == 0
    assert set(columns["event"]) == {"cpu-clock"}
    assert all(abs(ip) < 2**63 for ip in columns["ip"])


@needs_perf
def test_a_named_event_of_any_job(tmp_path: Path) -> None:
    script = "print('begin x'); burn(5); print('end x'); print('begin abc'); burn(60)\n"
    script += "print('end abc', *sys.argv[1:])"
    with jobs(tmp_path, script) as trials:
        columns = trials.take(0, None)
        again = trials.take(0, None)
    check_columns(columns)
    check_columns(again)
    assert set(columns["cpu"]) == {CPU}
    noted = trials.provenance()
    assert noted["sampled"] == "cpu-clock"
    assert noted["conditions"][0]["obtained"]["cpus"] == [CPU]
    assert json.loads(json.dumps(noted))["instructions"] == noted["instructions"]


@pytest.mark.parametrize(
    ("event", "first", "events"), [("73", "71", "4"), ("1", "0", "3"), ("0", "0", "2")]
)
def test_events_before_are_no_more_than_there_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, event: str, first: str, events: str
) -> None:
    commands: list[list[str]] = []

    def profile_job(argv: list[str], *_: object, **__: object) -> None:
        commands.append(argv)
        msg = "seen"
        raise MeasurementError(msg)

    monkeypatch.setattr(trials_module, "profile_job", profile_job)
    with pytest.raises(MeasurementError, match="seen"):
        jobs(tmp_path, "", events=Events(event, before=2)).take(0, None)
    assert commands[0][-3:] == [first, events, "9"]


@needs_perf
@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            "print('begin abc'); burn(30); os.kill(os.getpid(), signal.SIGSEGV)",
            r"abc was not recorded: .*abc began at line 1 and never ended; .* died of SIGSEGV",
        ),
        (
            "print('begin abc'); burn(30); print('no input file'); sys.exit(3)",
            "abc began at line 1 and never ended; the job ended with status 3; its last line: no i",
        ),
        (
            "print('begin abcd'); burn(5); print('end abcd')",
            "event abc was not recorded: event abc was not seen to begin while perf was attached",
        ),
        (
            "burn(40); sys.stdout.write('begin abc\\nend abc\\n'); sys.stdout.flush()",
            "no sample was taken during event abc, of 0 ms; .*the job holds its output back",
        ),
    ],
)
def test_a_job_whose_event_cannot_be_recorded(tmp_path: Path, script: str, says: str) -> None:
    with pytest.raises(MeasurementError, match=says) as caught:
        jobs(tmp_path, script).take(0, None)
    assert not isinstance(caught.value, WorkerError)  # which would start it twice more


@needs_perf
def test_an_event_that_never_ends_is_ended_by_the_time_limit(tmp_path: Path) -> None:
    trials = jobs(tmp_path, "print('begin abc'); time.sleep(60)", timeout_s=0.5)
    with pytest.raises(MeasurementError, match=r"did not end within 0\.5 s and was killed"):
        trials.take(0, None)


@needs_perf
def test_a_job_that_failed_once_costs_that_trial_only(tmp_path: Path) -> None:
    script = """
fails = os.path.exists(sys.argv[0] + ".seen")
open(sys.argv[0] + ".seen", "w").close()
print("begin abc"); burn(30)
if fails: sys.exit(1)
print("end abc")
"""
    trials = jobs(tmp_path, script)
    check_columns(trials.take(0, None))
    with pytest.raises(WorkerError, match="the job ended with status 1"):
        trials.take(0, None)


def test_expressions_that_backtrack_are_the_users_mistake(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        trials_module, "profile_job", Mock(side_effect=UserError("the expression backtracks"))
    )
    with pytest.raises(UserError, match="backtracks"):
        jobs(tmp_path, "").take(0, None)


# --- problems, and functions' instructions -------------------------------------------------------


def sampled_text(path: Path, count: int, function: str = "kv_step", object_: str = "/gone") -> Path:
    place = [f"4f0{n % 10} {function}+0x{n % 10} ({object_})" for n in range(count)]
    path.write_text(
        "".join(
            f"kv 7/7 [000] 0.{n + 1:09d}: 500000 cpu-clock: {here}\n"
            for n, here in enumerate(place)
        )
    )
    return path


def recorded(samples: Path, covered_percent: float, missed_ns: int, *problems: str) -> EventProfile:
    event = JobEvent("abc", 0, 10**8, None, None)
    coverage = Coverage(missed_ns, 0, covered_percent, 60, 1, 60)
    return EventProfile(
        events=[RecordedEvent(event, coverage)],
        unfinished=[],
        samples=samples,
        data=samples,
        sampled="cpu-clock",
        lost=0,
        problems=list(problems),
        remarks=["The CPU clock is sampled."],
        job=None,
    )


def replayed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, profiles: list[EventProfile]
) -> ProfiledJobs:
    """Trials with these recordings."""
    left = iter(profiles)
    monkeypatch.setattr(trials_module, "profile_job", lambda *_, **__: next(left))
    trials = jobs(tmp_path, "")
    for _ in profiles:
        check_columns(trials.take(0, None))
    return trials


def test_a_problem_of_every_trial_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = sampled_text(tmp_path / "samples.txt", 60)
    with text.open("a") as file:
        file.write("kv 7/7 [000] what is this\n")
    lost = "perf lost {} samples, {}.5 % of all: ask for fewer"
    trials = replayed(
        monkeypatch,
        tmp_path,
        [
            recorded(text, 90 - n, 10_000_000 + n * 10**6, lost.format(100 + n, n), "odd end")
            for n in range(3)
        ]
        + [recorded(text, 99, 0)],
    )
    unread, poor, lost_some, odd = trials.problems
    assert unread.startswith("1 lines of perf's text could not be read, the first, line 61: ")
    assert unread.endswith(" (in 4 trials; the numbers are one's)")
    assert poor.startswith("only 90 % of an event was recorded: 10.0 ms are missed at its begin")
    assert "(in 3 trials;" in poor
    assert lost_some.startswith("perf lost 100 samples, 0.5 % of all: ask for fewer (in 3 trials;")
    assert odd.startswith("odd end (in 3 trials")
    assert trials.provenance()["remarks"][0] == "The CPU clock is sampled."


def test_one_problem_stands_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = sampled_text(tmp_path / "samples.txt", 60)
    trials = replayed(monkeypatch, tmp_path, [recorded(text, 100, 0, "odd end")])
    assert trials.problems == ["odd end"]


def test_a_functions_file_is_looked_into_once_and_only_if_it_matters(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands: list[str] = []

    def annotate(samples: Any, function: str) -> Any:
        commands.append(function)
        return real_annotate(samples, function)

    monkeypatch.setattr(recorded_module, "annotate", annotate)
    few = sampled_text(tmp_path / "few.txt", 30, "rare")
    many = sampled_text(tmp_path / "many.txt", 60, "kv_step_0007")
    nameless = sampled_text(tmp_path / "nameless.txt", 60, "[unknown]", "[unknown]")
    trials = replayed(
        monkeypatch,
        tmp_path,
        [recorded(path, 100, 0) for path in (few, many, many, nameless, few, few)],
    )
    assert commands == ["kv_step", "rare"]
    assert trials.provenance()["instructions"] == {}  # there is no such file


# --- a job that runs already ---------------------------------------------------------------------


def running(pid: int, log: Path, timeout_s: float = 60.0) -> ProfiledRunning:
    return ProfiledRunning(pid, str(log), NAMED, Events("7"), timeout_s, OFTEN)


@pytest.fixture
def idle() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


@needs_perf
def test_an_event_that_does_not_come(tmp_path: Path, idle: subprocess.Popen[bytes]) -> None:
    log = tmp_path / "log"
    log.touch()
    says = r"event 7 was not seen to begin while perf was attached; the log was followed for \S+ s$"
    with pytest.raises(MeasurementError, match=says):
        running(idle.pid, log, 0.3).take(0, None)


@needs_perf
def test_a_job_that_has_ended_and_a_log_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idle: subprocess.Popen[bytes]
) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with pytest.raises(MeasurementError, match=f"process {gone.pid} is gone"):
        running(gone.pid, tmp_path / "log").take(0, None)
    log = tmp_path / "lgo"
    with pytest.raises(MeasurementError, match=f"there is no log {log}$"):
        running(idle.pid, log, 0.2).take(0, None)
    impatient = functools.partial(LogFollower, wait_s=0.2)
    monkeypatch.setattr("perflib.instruments.perf.event_profile.LogFollower", impatient)
    with pytest.raises(MeasurementError, match=f"no log {log} after .* is its name right"):
        running(idle.pid, log).take(0, None)
