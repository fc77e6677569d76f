"""`sensitivity`: what is named by simulation, what is refused, and short real runs."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from perflib.experiments import get
from perflib.experiments.sensitivity import measure
from perflib.experiments.sensitivity.table import DoseTable
from perflib.measure.pages import of_programs
from perflib.model.errors import MeasurementError, UserError
from perflib.model.finding import Finding
from tests.experiments.judged import by_subject, codes, made_run, supported
from tests.experiments.sensitivity.dose_samples import samples
from tests.processes import is_gone, soon

EXPERIMENT = get("sensitivity")
CPUS = sorted(os.sched_getaffinity(0))
needs_two_cores = pytest.mark.skipif(len(CPUS) < 2, reason="a competitor takes a second core")
LOGGED: dict[str, Any] = {"job": "command", "job_command": "sim {events}", "response": "event"}
BOUND_BY = {
    "memory bandwidth": {"traffic": 0.15},
    "cache capacity": {"occupied": 0.15},
    "address translation": {"small_pages": 0.15},
    "busy cores": {"busy": 0.15},
}


def found(
    seed: int = 1, longer: Mapping[str, float] | None = None, **shape: Any
) -> dict[str, Finding]:
    return by_subject(EXPERIMENT.analyse(made_run(EXPERIMENT, samples(seed, longer, **shape))))


# --- simulated -----------------------------------------------------------------------------------


def test_null_a_job_that_needs_nothing_is_bound_by_nothing() -> None:
    """Twenty runs with noise that is not the analysis's own; every second with slower clocks."""
    named = [supported(found(seed, everybody=0.1 * (seed % 2)).values()) for seed in range(20)]
    assert sum(map(bool, named)) <= 1
    quiet = found(3, bursts=0.0, rounds=40)
    assert {one.verdict for one in quiet.values()} == {"refuted"}
    assert "indifferent" in quiet["memory bandwidth"].plain.lower()


@pytest.mark.parametrize("subject", BOUND_BY)
def test_each_dose_is_named_and_no_other(subject: str) -> None:
    named = [supported(found(seed, BOUND_BY[subject]).values()) for seed in range(10)]
    assert sum(one == [subject] for one in named) >= 9


def test_the_slope_is_what_was_put_in() -> None:
    table = DoseTable(samples(4, {"traffic": 0.2}, rounds=40, bursts=0.0))
    slope = table.slope("traffic")
    assert slope.low < 100 * 0.2 / 9.75 * 1.03 < slope.high + 0.1
    assert slope.effect == pytest.approx(2.07, abs=0.1)


def test_the_start_of_a_job_dilutes_no_response_of_its_events() -> None:
    """The start is as long as all events, and varies; by the log the truth is within."""
    rows = samples(4, {"traffic": 0.2}, rounds=40, bursts=0.0, start_s=0.5)
    by_event, whole = (DoseTable(rows, one).longer("traffic") for one in ("event", "cpu"))
    truth = 100 * (math.exp(0.2) - 1)
    assert by_event.low < truth < by_event.high
    assert by_event.half_width < 1.5
    assert whole.effect < 0.7 * truth


def test_events_by_a_log_are_named_and_nulls_are_not() -> None:
    def named(seed: int, longer: Mapping[str, float]) -> list[str]:
        run = made_run(EXPERIMENT, samples(seed, longer, start_s=0.5), **LOGGED)
        return supported(EXPERIMENT.analyse(run))

    assert sum(map(bool, (named(seed, {}) for seed in range(20)))) <= 1
    assert sum(named(seed, {"traffic": 0.15}) == ["memory bandwidth"] for seed in range(10)) >= 9
    run = made_run(EXPERIMENT, samples(2, {"traffic": 0.15}, start_s=0.5), **LOGGED)
    assert (
        "more time for an event while"
        in by_subject(EXPERIMENT.analyse(run))["memory bandwidth"].claim
    )
    assert 0.08 < float(EXPERIMENT.levels(run)["value"].iloc[0]) < 0.15


def test_reads_that_occupy_a_cache_are_not_taken_for_capacity() -> None:
    """A triad feels the occupier's misses: as much as that traffic does, and no more."""
    triad = {"traffic": 0.2, "occupied": 0.2 * 0.4}
    named = [supported(found(seed, triad).values()) for seed in range(5)]
    assert named == [["memory bandwidth"]] * 5


@pytest.mark.parametrize("kind", ["read", "write"])
def test_traffic_that_fills_the_cache_is_said_to_be_both(kind: str) -> None:
    """A chase that suffers from it may lack the cache alone: no capacity is ruled out."""
    rows = samples(3, {"traffic": 0.2}, bursts=0.0, rounds=40)
    said = by_subject(EXPERIMENT.analyse(made_run(EXPERIMENT, rows, traffic_kind=kind)))
    assert f"cache that {kind}s fill" in said["memory bandwidth"].plain
    assert f"while others {kind} 9." in said["memory bandwidth"].claim
    assert codes(said["cache capacity"]) == ["fills"]
    axes = EXPERIMENT.figures(made_run(EXPERIMENT, rows, traffic_kind=kind))["doses"].axes
    assert kind in axes[0].get_xlabel()
    nothing = samples(3, bursts=0.0, rounds=40)
    found = EXPERIMENT.analyse(made_run(EXPERIMENT, nothing, traffic_kind=kind))
    assert {one.verdict for one in found} == {"refuted"}
    assert f"while others {kind} 9." in by_subject(found)["memory bandwidth"].plain


def test_what_the_machine_hides_is_not_called_indifference() -> None:
    hidden = {"traffic": 0.3, "occupied": 0.0, "small_pages": 0.4}
    said = found(5, witness=hidden, bursts=0.0, rounds=40)
    assert said["cache capacity"].verdict == "inconclusive"
    assert codes(said["cache capacity"])[0] == "unseen"
    assert "the machine hides" in said["cache capacity"].reason
    assert said["memory bandwidth"].verdict == "refuted"
    still = found(5, {"occupied": 0.2}, witness=hidden, bursts=0.0)
    assert still["cache capacity"].verdict == "supported"


def test_a_dose_that_there_is_not_says_why() -> None:
    rows = samples(6)
    rows = rows[rows["dose"] != "occupied"]
    run = made_run(EXPERIMENT, rows, {"absent": {"occupied": "No size is reported."}})
    said = by_subject(EXPERIMENT.analyse(run))["cache capacity"]
    assert (said.verdict, said.reason) == ("inconclusive", "No size is reported.")


def test_an_open_verdict_says_how_long_it_would_take() -> None:
    said = found(8, {"traffic": 0.025}, rounds=6, noise=0.05)["memory bandwidth"]
    assert said.verdict == "inconclusive"
    assert codes(said)[0] in ("wanted", "too_close")


# --- bad input -----------------------------------------------------------------------------------


_LOGGING = """import os, time; time.sleep(0.1)
assert len(os.sched_getaffinity(0)) == 1
for e in range({first}, {first} + {events}):
    print("begin", e); t = time.perf_counter(); sum(range(10**5))
    t = time.perf_counter() - t;print("end", e, "after", t)"""
_LOG = {
    "response": "event", "job_begin": r"begin (?P<event>\d+)",
    "job_end": r"end (?P<event>\d+) after (?P<seconds>\S+)",
}  # fmt: skip


def command(text: str, **more: Any) -> dict[str, Any]:
    line = f"{sys.executable} -c '{text}'"
    return {"job": "command", "job_command": line, "budget_s": 1.0, "trial_s": 0.02} | more


def piloted(**given: Any) -> dict[str, Any]:
    params = EXPERIMENT.params(given)
    return EXPERIMENT.pilot(params, EXPERIMENT.plan(params))


@pytest.fixture(autouse=True)
def _small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_LEAST_BYTES", 8 << 20)
    monkeypatch.setattr(measure, "_cache_bytes", lambda *_: 2 << 20)


def test_a_command_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(UserError, match="no program 'no-such-job'"):
        EXPERIMENT.plan(EXPERIMENT.params({"job": "command", "job_command": "no-such-job"}))
    with pytest.raises(UserError, match="job_cpus"):
        EXPERIMENT.plan(EXPERIMENT.params({"job_cpus": 4096}))


def test_a_job_that_crashes_or_is_too_short_ends_the_pilot() -> None:
    with pytest.raises(MeasurementError, match=r"died of SIGABRT.*no terminal"):
        piloted(**command("import os; os.abort()"))
    with pytest.raises(MeasurementError, match="too little to compare"):
        piloted(job="command", job_command="true", trial_s=0.02)


def test_outputs_that_change_or_are_none_are_said_before_it_measures() -> None:
    changing = piloted(**command("import os; print(os.getpid())"))
    assert any("something else at each start" in one for one in changing["notes"])
    assert changing["output"] is None
    silent = piloted(**command("sum(range(10**5))"))
    assert any("writes nothing" in one for one in silent["notes"])


def test_a_log_without_the_events_ends_the_pilot() -> None:
    with pytest.raises(MeasurementError, match=r"logged 0 of the 2 events 0 to 1"):
        piloted(**command("print(sum(range(10**5)))", response="event"))
    unended = _LOGGING.replace(";print", "; e == {first} and print")
    with pytest.raises(MeasurementError, match=r"(?s)logged 1 of the 2 events 5 to 6.*never ended"):
        piloted(**command(unended, first_event=5, **_LOG))


def test_one_core_leaves_the_pages_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_programs, "levels", lambda: ([], "there are none"))
    made = EXPERIMENT.plan(EXPERIMENT.params({"cores": [CPUS[0]]}))
    assert made["cpus"] == []
    assert set(made["absent"]) == {"traffic", "occupied", "alone", "small_pages"}
    assert "there are none" in made["absent"]["small_pages"]


# --- real ----------------------------------------------------------------------------------------


@needs_two_cores
@pytest.mark.parametrize("kind", ["nt_write", "read", "write"])
def test_a_short_run_has_every_dose_and_leaves_nothing(kind: str) -> None:
    given = {"budget_s": 1.0, "trial_s": 0.02, "job": "compute", "traffic_kind": kind}
    params = EXPERIMENT.params(given)
    run = EXPERIMENT.measure(params)
    expected = {"control", "alone", "traffic", "occupied"}
    assert expected <= set(run.samples["dose"])
    used = run.samples[run.samples["ok"]]
    traffic = used[used["dose"] == "traffic"]
    assert (traffic["traffic_gb_s"] > 0).all()
    assert (run.samples.groupby("program")["output"].nunique() == 1).all()
    assert len(EXPERIMENT.analyse(run)) == 4 + ("sibling" in set(run.samples["dose"]))


@needs_two_cores
def test_events_of_a_real_job_are_timed_by_its_log() -> None:
    given = command(_LOGGING, events=3, first_event=4, traffic=[100], occupied=[100], **_LOG)
    run = EXPERIMENT.measure(EXPERIMENT.params(given))
    jobs = run.samples["program"] == "job"
    assert run.samples["event_s"].notna().equals(jobs)
    mine = run.samples[jobs]
    assert (mine["event_s"] + 0.1 < mine["wall_s"]).all()  # it sleeps before its first event
    assert (mine["start_ns"] > 0).all()
    assert any("not compared" in one for one in run.provenance["problems"])
    assert len(EXPERIMENT.analyse(run)) >= 4


def children_of(pid: int) -> Iterator[int]:
    for place in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, place.read_text().split()):
            yield child
            yield from children_of(child)


@needs_two_cores
def test_nothing_runs_on_after_a_kill() -> None:
    words = ["budget_s=60", "job=compute", "trial_s=1"]
    given = [one for word in words for one in ("-p", word)]
    argv = [sys.executable, "-m", "perflib", "run", "sensitivity", *given]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as started:
        assert soon(lambda: len(set(children_of(started.pid))) >= 3)
        below = set(children_of(started.pid))
        started.send_signal(signal.SIGKILL)
    assert below
    assert all(map(is_gone, below))
