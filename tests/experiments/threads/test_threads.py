"""threads as its user meets it: what is planned, measured, kept, claimed and refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from perflib.experiments.threads import ThreadsParams, experiment, measure, points_of, trials
from perflib.experiments.threads.recordings import recordings
from perflib.experiments.threads.trials import ALONE, ONE, PROFILED
from perflib.framework.results import RESULTS
from perflib.instruments.threads import record
from perflib.instruments.threads.formats import STATES
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.settings import Settings
from perflib.measure.jobs import event_loop
from perflib.measure.process import WorkerError
from perflib.model.errors import MeasurementError, UserError
from perflib.store.run_files import runs_dir
from tests.experiments.threads.fake_event_loop import FakeLoop

SMALL: dict[str, Any] = {"budget_s": 0.2, "events": 5, "threads": 2, "versions": ["Final"]}


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> FakeLoop:
    fake = FakeLoop()
    monkeypatch.setattr(trials, "run_alone", fake.run_alone)
    monkeypatch.setattr(trials, "profile_job", fake.profile_job)
    monkeypatch.setattr(measure, "chosen", lambda backend, **_kind: backend)
    return fake


def plan(**given: Any) -> dict[str, Any]:
    return experiment.plan(experiment.params(given))


# --- parameters -----------------------------------------------------------------------------------


def test_versions_are_presets_or_lists_of_points() -> None:
    assert points_of("Initial") == tuple(event_loop.POINTS)
    assert points_of("queue+formula") == ("formula", "queue")
    assert points_of("none") == ()
    for wrong, near in (
        ("Initail", "'Initial'"),
        ("formula+queu", "'queue'"),
        ("final", "'Final'"),
    ):
        with pytest.raises(UserError, match=f"parameter 'versions': .*did you mean {near}"):
            ThreadsParams.make({"versions": wrong})


def test_what_is_recorded_is_what_was_asked_for() -> None:
    params = ThreadsParams.make(
        {
            "skip_s": 1, "duration_s": 5, "sample_period_us": 100, "call_graph": "dwarf",
            "keep_threads": "event-[0-3]$", "follow": False, "ignore": "ld-linux*,*.so",
            "max_data_mb": 7,
        }
    )  # fmt: skip
    recorded = params.recorded()
    assert (recorded.skip_s, recorded.duration_s, recorded.sample_period_us) == (1, 5, 100)
    assert recorded.ignore == ("ld-linux*", "*.so")
    assert (recorded.threads, recorded.follow, recorded.max_data_mb) == ("event-[0-3]$", False, 7)
    assert ThreadsParams.make({"call_graph": None}).recorded().call_graph == "none"
    assert ThreadsParams.make({}).recorded() == Settings()


# --- the plan -------------------------------------------------------------------------------------


def test_each_version_is_run_in_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "chosen", lambda _backend, **_kind: "preload")
    made = plan(versions="CMSSW I,none,CMSSW I", threads=4)
    assert made["backend"] == "preload"
    assert made["configurations"] == [
        ["CMSSW I", ONE, 1], ["CMSSW I", ALONE, 4], ["CMSSW I", PROFILED, 4],
        ["CMSSW I", "without:output", 4], ["CMSSW I", "without:queue", 4],
        ["none", ONE, 1], ["none", ALONE, 4], ["none", PROFILED, 4],
    ]  # fmt: skip
    assert len(plan(versions="CMSSW I", without=False)["configurations"]) == 3
    cores = sorted(os.sched_getaffinity(0))
    assert plan(cores=cores[:1])["configurations"][1] == ["Initial", ALONE, 1]
    assert plan(cores=cores[:1], threads=0)["cpus"] == cores[:1]


def test_other_jobs_have_no_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "chosen", lambda _backend, **_kind: "perf")
    made = plan(job="command", job_command="sleep 1")
    assert made["configurations"] == [["the job", ALONE, 1], ["the job", PROFILED, 1]]
    assert plan(job="running", job_pid=os.getpid())["configurations"] == [["the job", PROFILED, 1]]
    with pytest.raises(UserError, match="unknown placeholder 'evnets': did you mean 'events'"):
        plan(job="command", job_command="job {evnets}")


def test_a_backend_that_cannot_be_had_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def only(*there: str) -> None:
        kinds = {
            name: replace(one, unavailable=partial(str, "" if name in there else "not here"))
            for name, one in record.KINDS.items()
        }
        monkeypatch.setattr(record, "KINDS", kinds)

    only("states")
    assert experiment.unavailable() == ""
    assert plan(job="running", job_pid=os.getpid())["backend"] == "states"
    with pytest.raises(UserError, match="backend=perf cannot be used here: not here"):
        plan(backend="perf")
    with pytest.raises(UserError, match="a job that we start is recorded by perf or preload"):
        plan(backend="states")
    with pytest.raises(MeasurementError, match="no backend can record threads here: perf: not"):
        plan()
    only()
    assert experiment.unavailable().startswith("no backend can record threads here")
    with pytest.raises(UserError, match="no backend can record threads here: perf: not"):
        plan()


# --- measuring ------------------------------------------------------------------------------------


def test_a_point_that_is_switched_off_is_off_in_the_job() -> None:
    params = ThreadsParams.make({"versions": ["ROOT"], "spin": 9, "lock": "robust", "seed": 4})
    words = measure._argv(params, "ROOT", "without:formula", 3)
    said = dict(zip(words[1::2], words[2::2], strict=True))
    assert said["--points"] == "interface,output,queue"
    assert (said["--threads"], said["--spin"], said["--lock"], said["--seed"]) == (
        "3", "9", "robust", "4",
    )  # fmt: skip


@pytest.mark.usefixtures("loop")
def test_a_run_that_measured_nothing_leaves_no_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials.ThreadTrials, "take", Mock(side_effect=WorkerError("the job died")))
    with pytest.raises(MeasurementError, match="nothing was measured"):
        experiment.measure(experiment.params(SMALL))
    assert not list(runs_dir().glob("*.recordings"))


def test_a_killed_run_is_finished_with_its_rows_and_recordings(
    loop: FakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    profile = loop.profile_job
    taken: list[int] = []

    def dies(*args: Any, **options: Any) -> Any:
        if taken:
            raise Killed
        taken.append(1)
        return profile(*args, **options)

    monkeypatch.setattr(trials, "profile_job", dies)
    params = experiment.params({**SMALL, "versions": ["CMSSW I", "none"], "budget_s": 0.5})
    with pytest.raises(Killed):
        experiment.measure(params)
    (journal,) = runs_dir().glob("*.journal")
    monkeypatch.setattr(trials, "profile_job", profile)
    run = experiment.resume(journal.stem)
    found = recordings(run)
    assert set(found) == {"CMSSW I", "none"}
    assert all(isinstance(one, Recording) for one in found.values())
    wrong = {column.name for column in RESULTS}  # only where a result was wrong
    assert {column.name for column in experiment.columns} - wrong == set(run.samples)
    assert (run.samples.groupby(["round", "version", "configuration"]).size() == 1).all()
    kept = {path.name for path in (runs_dir() / f"{run.id}.recordings").iterdir()}
    assert kept == {"CMSSW_I", "none"}


# --- with real jobs -------------------------------------------------------------------------------


def needs_backend() -> None:
    try:
        record.chosen(None, running=False)
    except MeasurementError as error:
        pytest.skip(str(error))


def test_the_event_loop_is_measured() -> None:
    """All of it, once: waits that the profile finds are those that the job reports."""
    needs_backend()
    run = experiment.measure(experiment.params({**SMALL, "versions": ["formula"], "events": 40}))
    rows = run.samples[run.samples["ok"]].set_index("configuration")
    assert set(rows.index) == {ONE, ALONE, PROFILED, "without:formula"}
    assert (rows["job_time_s"] > 0).all()
    profiled = rows[rows.index == PROFILED].iloc[0]
    assert profiled["backend"] in ("perf", "preload")
    assert 0 < profiled["concurrency"] <= 2
    states = [f"{state}_s" for state in STATES]
    assert profiled[states].sum() == pytest.approx(2 * profiled["recorded_s"], rel=0.05)
    (recording,) = recordings(run).values()
    assert {"event-0", "event-1"} <= set(recording.threads["name"])
    assert experiment.figures(run)


def test_a_command_is_recorded_whatever_it_is() -> None:
    needs_backend()
    program = "import time; time.sleep(0.1)"
    command = f'{sys.executable} -I -S -c "{program}"'
    run = experiment.measure(
        experiment.params({"job": "command", "job_command": command, "budget_s": 0.2})
    )
    assert set(run.samples["configuration"]) == {ALONE, PROFILED}
    assert (run.samples["job_time_s"] > 0.1).all()
    subjects = {finding.subject for finding in experiment.analyse(run)}
    assert {"the job under the profile", "the job limiting lock", "the job concurrency"} <= subjects
    assert experiment.figures(run)


def test_a_running_job_is_recorded_once_in_segments() -> None:
    needs_backend()
    busy = (
        "import time\nend = time.monotonic() + 30\nwhile time.monotonic() < end: time.sleep(0.001)"
    )
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", busy]) as process:
        try:
            given: Mapping[str, Any] = {
                "job": "running", "job_pid": process.pid, "duration_s": 0.5, "budget_s": 1.0,
            }  # fmt: skip
            run = experiment.measure(experiment.params(given))
            assert process.poll() is None
        finally:
            process.kill()
    assert len(run.samples) == trials.SEGMENTS
    assert run.provenance["stopped"] in ("precise enough", "budget spent")
    assert set(run.samples["configuration"]) == {PROFILED}
    by_subject = {finding.subject: finding for finding in experiment.analyse(run)}
    # A process that sleeps nearly all the time could hardly have shown a wait.
    assert by_subject["the job limiting lock"].verdict == "inconclusive"
    assert experiment.figures(run)


def test_a_process_that_is_gone_is_the_users_mistake() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    with pytest.raises(UserError, match=f"there is no process {process.pid}"):
        experiment.measure(experiment.params({"job": "running", "job_pid": process.pid}))
