"""One trial of threads: what is run, and what a recording and a self-report become."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perflib.experiments.threads import trials as threads_trials
from perflib.experiments.threads.trials import (
    ALONE,
    COLUMNS,
    ONE,
    PROFILED,
    SEGMENTS,
    WITHOUT,
    Configuration,
    ThreadTrials,
    summary,
)
from perflib.instruments.threads.formats import Lock
from perflib.instruments.threads.record import Profiled
from perflib.instruments.threads.settings import Settings
from perflib.measure.conditions import Conditions
from perflib.measure.jobs.event_loop import Account
from perflib.measure.process import WorkerError
from perflib.model.errors import MeasurementError
from tests.experiments.threads.fake_event_loop import FakeLoop, recording
from tests.instruments.threads.made import recording_of

MS = 1_000_000


def argv(threads: int, points: str, events: int = 100) -> list[str]:
    return ["loop", "--threads", str(threads), "--events", str(events), "--points", points]


CONFIGURATIONS = [
    Configuration("Final", ONE, 1, argv(1, "output")),
    Configuration("Final", ALONE, 2, argv(2, "output")),
    Configuration("Final", PROFILED, 2, argv(2, "output")),
    Configuration("Final", WITHOUT + "output", 2, argv(2, "none")),
    Configuration("CMSSW I", PROFILED, 2, argv(2, "output,queue")),
]


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> FakeLoop:
    fake = FakeLoop(noise=0.0)
    monkeypatch.setattr(threads_trials, "run_alone", fake.run_alone)
    monkeypatch.setattr(threads_trials, "profile_job", fake.profile_job)
    return fake


def trials(
    folder: Path, configurations: list[Configuration] = CONFIGURATIONS, **given: Any
) -> ThreadTrials:
    options: dict[str, Any] = {
        "reports": True, "conditions": Conditions(), "cpus": [0], "settings": Settings(),
        "backend": "perf", "folder": folder / "recordings", "timeout_s": 5.0,
    }  # fmt: skip
    return ThreadTrials(configurations, **{**options, **given})


def row(columns: dict[str, list[Any]]) -> dict[str, Any]:
    assert set(columns) - {"expected", "found"} == set(COLUMNS)
    (count,) = {len(values) for values in columns.values()}
    assert count == 1
    json.dumps(columns)  # what a journal must hold
    return {name: values[0] for name, values in columns.items()}


# --- what a recording says ------------------------------------------------------------------------


def test_a_recording_is_summed_up(tmp_path: Path) -> None:
    """Two threads and a helper: run, wait, ready with the lock, ready without, sleep, spin."""
    locks = (
        Lock("module[0]", "mutex", 1, 1), Lock("module[1]+0x28", "mutex", 2, 1),
        Lock("pthread_join", "join", 3, 1),
    )  # fmt: skip
    made = recording_of(
        tmp_path,
        [
            [(0, 4 * MS, 0), (4 * MS, 7 * MS, 2, 0, -1, 0), (7 * MS, 8 * MS, 1, 0, -1, 0),
             (8 * MS, 10 * MS, 0)],
            [(0, 1 * MS, 2, 0, -1, 1), (1 * MS, 3 * MS, 1), (3 * MS, 8 * MS, 0),
             (8 * MS, 9 * MS, 3),
             (9 * MS, 10 * MS, 4)],
            [(0, 10 * MS, 2, 0, -1, 2)],
        ],
        locks=locks,
    )  # fmt: skip
    found = summary(made, 0, 10 * MS)
    assert found["recorded_s"] == pytest.approx(0.01)
    assert found["running_s"] == pytest.approx(0.011)
    assert found["spinning_s"] == pytest.approx(0.001)
    assert found["sleeping_s"] == pytest.approx(0.011)  # for the end of another thread, too
    assert found["ready_s"] == pytest.approx(0.003)
    assert found["free_ready_s"] == pytest.approx(0.002)
    assert found["concurrency"] == pytest.approx(1.2)
    assert json.loads(found["concurrency_s"]) == pytest.approx([0, 0.008, 0.002])
    locks_found = json.loads(found["locks"])
    assert locks_found["module"] == {
        "kind": "mutex", "waits": 2, "waiting_s": pytest.approx(0.004),
        "ready_s": pytest.approx(0.001), "longest_ms": pytest.approx(4.0),
        "gain_s": pytest.approx(0.003),
    }  # fmt: skip
    assert found["limiting"] == "module"
    assert summary(made, 0, 10 * MS, rows=[2])["limiting"] == ""
    assert summary(made, 0, 4 * MS, rows=[0])["running_s"] == pytest.approx(0.004)


def test_the_rows_of_one_version(tmp_path: Path, loop: FakeLoop) -> None:
    taken = trials(tmp_path)
    one, alone, profiled, without, _ = (
        row(taken.take(0, place)) for place in range(len(CONFIGURATIONS))
    )
    assert (one["threads"], alone["threads"], profiled["threads"]) == (1, 2, 2)
    assert one["job_time_s"] == pytest.approx(0.1)
    assert alone["job_time_s"] == pytest.approx(0.05 / 0.9)
    assert without["job_time_s"] == pytest.approx(0.05)
    assert without["configuration"] == "without:output"
    assert alone["locks"] is None
    assert json.loads(alone["self_report"])["output_module"]["point"] == "output"

    share = 0.1 * 2 * profiled["job_time_s"]
    reported, locks = (json.loads(profiled[name]) for name in ("self_report", "locks"))
    assert reported["output_module"]["waiting_s"] == pytest.approx(share, rel=1e-6)
    assert locks["output_module"]["waiting_s"] == pytest.approx(0.9 * share, rel=1e-6)
    assert locks["output_module"]["ready_s"] == pytest.approx(0.1 * share, rel=1e-6)
    assert "pthread_join" not in locks  # of the thread that is not the loop's
    assert profiled["free_ready_s"] == pytest.approx(0, abs=1e-9)
    assert profiled["recorded_s"] == pytest.approx(profiled["job_time_s"])
    assert profiled["whole_s"] == pytest.approx(profiled["job_time_s"] + 0.03)
    assert (profiled["serial_begin_s"], profiled["serial_end_s"]) == pytest.approx((0.02, 0.01))
    assert profiled["backend"] == "fake"
    assert profiled["limiting"] == "output_module"
    assert [bool(requested.get("backend")) for requested in loop.requested] == [
        False,
        False,
        True,
        False,
        True,
    ]
    assert all(requested["cpus"] == [0] for requested in loop.requested)


def test_a_profile_of_a_part_speaks_of_that_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: FakeLoop
) -> None:
    def part(*args: Any, **options: Any) -> Profiled:
        done = loop.profile_job(*args, **options)
        begin, end = Account.parse(done.output).begin_ns, Account.parse(done.output).end_ns
        start = end + 1 if nothing else (begin + end) // 2
        later = {**done.recording.meta, "start_ns": start, "end_ns": end + 5}
        return replace(done, recording=replace(done.recording, meta=later))

    nothing = False
    monkeypatch.setattr(threads_trials, "profile_job", part)
    found = row(trials(tmp_path).take(0, 2))
    assert found["recorded_s"] == pytest.approx(found["job_time_s"] / 2, rel=1e-6)
    assert found["running_s"] == pytest.approx(2 * found["recorded_s"], rel=1e-6)
    nothing = True
    with pytest.raises(MeasurementError, match="is skip_s too long"):
        trials(tmp_path).take(0, 2)


# --- what goes wrong ------------------------------------------------------------------------------


def test_a_job_that_fails_costs_its_trial_and_at_first_the_run(
    tmp_path: Path, loop: FakeLoop
) -> None:
    loop.problem = "died of SIGSEGV (Segmentation fault)"
    taken = trials(tmp_path)
    with pytest.raises(MeasurementError, match="Final, alone: the job died of SIGSEGV") as caught:
        taken.take(0, 1)
    assert not isinstance(caught.value, WorkerError)
    loop.problem = ""
    taken.take(0, 1)
    loop.problem = "did not end within 5 s and was killed"
    with pytest.raises(WorkerError, match="Final, profiled: the job did not end"):
        taken.take(0, 2)


def test_a_wrong_result_is_not_used_and_said(tmp_path: Path, loop: FakeLoop) -> None:
    taken = trials(tmp_path)
    first = row(taken.take(0, 1))
    assert first["ok"]
    assert "found" not in first
    loop.checksum = "other"
    second = row(taken.take(0, 1))
    assert not second["ok"]
    assert second["found"] == "0xother"
    assert taken.problems == ["the job's result differs from trial to trial"]


def test_lost_events_and_cuts_are_said_once(tmp_path: Path, loop: FakeLoop) -> None:
    taken = trials(tmp_path)
    loop.meta = {"lost": {"events": 7, "samples": 0}, "remarks": ["Only user code is seen."],
                 "cut": "max_data_mb=1 was reached"}  # fmt: skip
    found = [row(taken.take(round_, 2)) for round_ in range(3)]
    loop.meta = {"remarks": ["9 samples were thinned out."]}
    taken.take(3, 2)
    loop.meta = {"remarks": ["12 samples were thinned out."]}
    taken.take(4, 2)
    assert [one["lost_events"] for one in found] == [7, 7, 7]
    assert taken.problems == [
        "a recording ends early: max_data_mb=1 was reached",
        "events lost: 21 (recordings: 3); what they touch is marked there",
    ]
    assert taken.provenance()["remarks"] == [
        "Only user code is seen. (so or alike in 3 recordings)",
        "9 samples were thinned out. (so or alike in 2 recordings)",
    ]


# --- other jobs -----------------------------------------------------------------------------------


def test_a_command_reports_no_waits_and_its_end_is_only_noted(
    tmp_path: Path, loop: FakeLoop
) -> None:
    jobs = [Configuration("command", way, 1, argv(2, "output")) for way in (ALONE, PROFILED)]
    taken = trials(tmp_path, jobs, reports=False)
    loop.problem = "ended with status 3; its last line: x"
    alone, profiled = (row(taken.take(0, place)) for place in range(2))
    assert alone["job_time_s"] == alone["wall_s"]
    assert (alone["self_report"], profiled["self_report"]) == (None, None)
    assert profiled["recorded_s"] == profiled["whole_s"]
    assert profiled["threads"] == 3  # all that the recording has
    assert "pthread_join" not in json.loads(profiled["locks"])
    assert profiled["limiting"] == "output_module"
    assert taken.problems == ["the job ended with status 3; its last line: x"]


def test_a_running_jobs_recording_is_cut_into_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: list[Any] = []

    def attached(pid: int, *args: Any, **options: Any) -> Profiled:
        requested.append((pid, args, options))
        account = Account.parse(FakeLoop(noise=0.0).account(argv(2, "output")))
        return Profiled(None, "", 1.0, "", recording(args[1], account))

    monkeypatch.setattr(threads_trials, "profile_job", attached)
    taken = trials(tmp_path, [Configuration("running", PROFILED, 1, [])], reports=False, pid=77)
    columns = taken.take(0, 0)
    assert requested[0][0] == 77
    assert len(columns["version"]) == SEGMENTS
    assert sum(columns["recorded_s"]) == pytest.approx(columns["whole_s"][0])
    assert columns["start_ns"] == sorted(set(columns["start_ns"]))
    assert taken.provenance()["job"] == "process 77"
    assert columns["threads"] == [3] * SEGMENTS
    assert columns["serial_begin_s"] == [None] * SEGMENTS  # of the recording, not of the job


def test_threads_that_were_left_out_leave_no_self_report(tmp_path: Path, loop: FakeLoop) -> None:
    def kept(*args: Any, **options: Any) -> Profiled:
        done = loop.profile_job(*args, **options)
        threads = done.recording.threads.assign(tid=[500, 501, 9])
        return replace(done, recording=replace(done.recording, threads=threads))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads_trials, "profile_job", kept)
        taken = trials(tmp_path)
        found = row(taken.take(0, 2))
    assert found["self_report"] is None
    assert found["running_s"] == pytest.approx(0.9 * found["recorded_s"])
    assert taken.problems[0].startswith("not all threads of the loop are in the recording")


def test_what_a_killed_run_left_half_written_is_removed(tmp_path: Path, loop: FakeLoop) -> None:
    left = tmp_path / "recordings" / ".Final"
    left.mkdir(parents=True)
    (tmp_path / "recordings" / "CMSSW_I").mkdir()
    taken = trials(tmp_path)
    assert not left.exists()
    assert taken.provenance()["recordings"] == {"CMSSW I": "CMSSW_I"}
    assert loop.requested == []
