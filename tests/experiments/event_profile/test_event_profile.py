"""The profile of one event: its parameters, its runs, and what it says of them."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perflib.experiments import get
from perflib.experiments.event_profile import measure
from perflib.framework.brackets import SIBLING_COLUMNS
from perflib.lab.theme import png, themed
from perflib.model.errors import UserError
from perflib.model.run import Run
from perflib.store.run_files import load, runs
from tests.cli.calling import call
from tests.experiments.event_profile.profiles import samples
from tests.experiments.judged import by_subject
from tests.instruments.perf.test_recorder import BURN, needs_perf
from tests.instruments.profile.tables import samples_of

EVENT = get("event_profile")
ROOT = Path(__file__).parents[3]
CORES = sorted(os.sched_getaffinity(0))[:2]
NAMED = {"job_begin": r"begin (?P<event>\w+)", "job_end": r"end (?P<event>\w+)"}
SHORT = {"budget_s": 1.0, "event_ms": 100.0, "code_kib": 100, "cores": CORES}


def make(**given: Any) -> Any:
    return EVENT.Params.make(given)


def run_of(table: pd.DataFrame, name: str = "r", **params: Any) -> Run:
    return Run(name, EVENT.name, make(**params).model_dump(mode="json"), table)


def command(tmp_path: Path, script: str) -> dict[str, Any]:
    """Parameters for a Python script as the job, whose event is 'abc'."""
    path = tmp_path / "job.py"
    path.write_text(f"import os, signal, sys, time\n{BURN}\n{script}")
    return {
        "job": "command",
        "job_command": f"{sys.executable} {path}",
        "event": "abc",
        "cores": CORES[:1],
        "budget_s": 0.1,
        **NAMED,
    }


# --- parameters ----------------------------------------------------------------------------------


def test_an_event_is_a_number_or_a_name() -> None:
    assert {make(event=event).event for event in (73, "73", "073")} == {"73"}
    assert EVENT.Params.parse(["event=73"]) == EVENT.Params.make({"event": 73})
    assert make(job="command", job_command="x", event="abc").event == "abc"
    again = EVENT.Params.make(make(event=8).model_dump(mode="json"))
    assert again == make(event=8)


# --- the plan ------------------------------------------------------------------------------------


@needs_perf
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"reference_core": 65535}, "unknown core in reference_core '65535'"),
        ({"costlier_core": 65535}, "unknown core in costlier_core '65535'"),
        ({"job": "command", "job_command": "x {frist}"}, "unknown placeholder 'frist': did you me"),
    ],
)
def test_a_plan_that_cannot_be_costs_nothing(given: dict[str, Any], says: str, home: Path) -> None:
    with pytest.raises(UserError, match=says):
        EVENT.measure(make(**given))
    assert not (home / "runs").exists()


# --- measuring, for real -------------------------------------------------------------------------


@needs_perf
def test_a_short_run_is_a_table_of_samples_in_the_event_and_is_saved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Under a load a second brings few samples of any function.
    monkeypatch.setattr("perflib.experiments.event_profile.recorded._MIN_SAMPLES", 5)
    run = EVENT.measure(make(**SHORT, frequency_hz=5000))
    table, provenance = run.samples, run.provenance
    siblings = {column.name for column in SIBLING_COLUMNS}  # where a core has one
    assert set(table) | siblings == {column.name for column in EVENT.columns}
    EVENT.check_samples(table)
    assert set(table["core"]) <= set(CORES)
    assert (table["cpu"] == table["core"]).all()
    since_ns = table["time_ns"] - table["begin_ns"]
    assert since_ns.between(0, table["event_time_ns"]).all()
    assert (table["period"] > 0).all()
    assert table["symbol"].str.startswith("kv_").any()
    assert (table["stack"].str.rpartition(";")[2] != "").all()
    assert table["comm"].str.startswith("kv").all()
    trials = table.groupby(["round", "core"])
    assert (trials[["begin_ns", "event_time_ns", "missed_begin_ns"]].nunique() == 1).all(axis=None)
    assert provenance["instructions"]
    assert all(offsets[0] == 0 for offsets in provenance["instructions"].values())
    assert provenance["sampled"] in ("cpu-clock", "cycles", "cpu-clock:u", "cycles:u")
    assert provenance["kernel"]["kernel"] == "kv"
    assert "-fno-omit-frame-pointer" in provenance["kernel"]["flags"]
    assert provenance["plan"]["repeats"] >= 1
    assert f"--repeat 73:{provenance['plan']['repeats']}" in provenance["job"]
    assert [entry.status for entry in runs()] == ["saved"]


@pytest.mark.slow
@needs_perf
@pytest.mark.skipif(len(CORES) < 2, reason="one core only")
def test_the_costlier_build_runs_on_its_core_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "repeats_for", lambda *_: 2000)
    run = EVENT.measure(make(**SHORT | {"budget_s": 0.1, "costlier_core": CORES[1]}))
    files = run.samples[run.samples["symbol"].str.startswith("kv_")].groupby("core")["object"]
    assert files.nunique().tolist() == [1, 1]
    assert (
        run.samples.groupby("core")["object"]
        .agg(lambda o: o[o.str.contains("kv")].iloc[0])
        .is_unique
    )


@needs_perf
def test_without_call_chains_a_stack_is_its_leaf(tmp_path: Path) -> None:
    script = "print('begin abc'); burn(60); print('end abc')"
    run = EVENT.measure(make(**command(tmp_path, script), call_graph="none"))
    assert not run.samples["stack"].str.contains(";").any()
    found = by_subject(EVENT.analyse(run))
    assert found["standing out"].verdict == "inconclusive"
    assert "nothing is compared" in found["standing out"].plain


# --- a job that runs already ---------------------------------------------------------------------

WRITING = """
log = open(sys.argv[1], "a", buffering=1)
while True:
    log.write("begin 7\\n"); burn(40); log.write("end 7\\n"); burn(10)
"""


@needs_perf
def test_a_running_job_is_profiled_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    argv = [sys.executable, "-c", f"import sys\n{BURN}\n{WRITING}", str(log)]
    with subprocess.Popen(argv) as job:
        try:
            given = {"job": "running", "job_pid": job.pid, "job_log": str(log), "event": 7}
            run = EVENT.measure(make(**given, **NAMED))
            assert job.poll() is None
        finally:
            job.kill()
    assert run.provenance["plan"] == {"cores": [-1], "reference": -1}
    assert (run.provenance["trials"], run.provenance["stopped"]) == (1, "recorded once")
    assert run.provenance["job"] == f"process {job.pid}, log log"
    assert set(run.samples["core"]) == {-1}
    assert set(run.samples["pid"]) == {job.pid}
    assert by_subject(EVENT.analyse(run))["standing out"].verdict == "inconclusive"
    assert list(EVENT.figures(run))[::-1][0] == "time_line"


# --- interrupted, and without perf ---------------------------------------------------------------


def with_argument(word: str) -> list[int]:
    """The processes in whose command line this stands."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
        except OSError:  # it has ended
            continue
    return found


@pytest.mark.slow
@needs_perf
def test_ctrl_c_in_a_trial_keeps_the_trials_before_and_leaves_no_process(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    script = f"""
starts = open({str(tmp_path / "starts")!r}, "a+")
starts.write("x"); starts.flush(); starts.seek(0)
print("begin abc")
if len(starts.read()) == 3:
    open({str(tmp_path / "third")!r}, "w").close()
    burn(60_000)
burn(40); print("end abc")
"""
    given = command(tmp_path, script) | {"cores": CORES[0], "budget_s": 60}
    argv = [sys.executable, "-m", "perflib", "run", EVENT.name]
    argv += [word for name, value in given.items() for word in ("-p", f"{name}={value}")]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen(
        argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        while not (tmp_path / "third").exists():
            assert process.poll() is None
            time.sleep(0.01)
        assert len(with_argument(str(scratch))) == 1  # perf, whose data file is there
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "interrupted" in said
    assert with_argument(str(scratch)) == []
    assert with_argument(str(tmp_path / "job.py")) == []
    assert list(scratch.iterdir()) == []
    (saved,) = runs()
    assert (saved.status, saved.stopped) == ("saved", "interrupted")
    assert sorted(load(saved.id).samples["round"].unique()) == [0, 1]


# --- analysis ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_null_two_equal_cores_no_function_stands_out(seed: int) -> None:
    found = by_subject(EVENT.analyse(run_of(samples(seed))))
    assert set(found) == {"event time", "standing out"}
    assert found["standing out"].verdict != "supported"
    assert found["event time"].verdict != "supported"


def test_null_a_slower_core_is_slower_in_all_functions_alike() -> None:
    found = by_subject(EVENT.analyse(run_of(samples(5, slow={1: 0.12}))))
    assert found["event time"].verdict == "supported"
    assert found["event time"].low < 12 < found["event time"].high
    assert found["standing out"].verdict == "refuted"
    low, common, high = (found["standing out"].evidence["common_percent"][n] for n in (1, 0, 2))
    assert low < common < high
    assert low < 12 < high


@pytest.mark.parametrize(("core", "grew"), [(1, "more"), (0, "less")])
def test_a_function_made_costlier_on_one_core_is_named(core: int, grew: str) -> None:
    table = samples(6, costlier={(core, "kv_runge_kutta"): 0.15}, slow={1: 0.05})
    every = by_subject(EVENT.analyse(run_of(table)))
    assert every["standing out"].verdict == "supported"
    assert every["standing out"].evidence["named"] == ["kv_runge_kutta"]
    found = every["kv_runge_kutta"]
    assert found.verdict == "supported"
    assert f"kv_runge_kutta takes {grew} on cpu1" in found.plain
    assert found.low < 100 * (1.15 if core else 1 / 1.15) - 100 < found.high
    assert found.evidence["additional_unit"] == "ns"


def test_two_runs_are_compared_whatever_their_cores() -> None:
    first = run_of(samples(8, cores=2), "first")
    same = run_of(samples(9, cores=1, rounds=30), "same")
    found = by_subject(EVENT.compare(first, same))
    assert found["standing out"].verdict != "supported"
    assert abs(found["event time"].effect) < 20  # one core's event is no half of two cores'
    assert found["event time"].about == {"core": "", "first": "first", "second": "same"}
    costlier = {(core, "kv_locate"): 0.3 for core in (0, 1)}
    changed = run_of(samples(10, costlier=costlier), "changed")
    found = by_subject(EVENT.compare(first, changed))
    assert found["standing out"].evidence["named"] == ["kv_locate"]
    assert found["kv_locate"].low < 30 < found["kv_locate"].high


def test_runs_that_cannot_be_compared_say_why() -> None:
    first = run_of(samples(rounds=3), "first")
    other = run_of(samples(rounds=3).assign(event="cycles:u"), "other")
    with pytest.raises(UserError, match="first has samples of cpu-clock, other of cycles:u"):
        EVENT.compare(first, other)
    with pytest.raises(UserError, match="cannot be compared with itself"):
        EVENT.compare(first, first)


# --- tables that a user brings -------------------------------------------------------------------

MINIMAL = pd.DataFrame({"symbol": ["f_0001", "f_0002", "g"] * 10, "period": 1000})


@pytest.mark.parametrize(
    ("table", "exit_code", "says"),
    [
        (MINIMAL, 0, r"nothing is compared; most of the time is in f and g \(66\.7 and 33\.3 %\)"),
        (samples(6, costlier={(1, "kv_locate"): 0.2}), 0, "kv_locate takes more on cpu1 than"),
        (samples(1, rounds=1).drop(columns="round"), 0, "Whether a function stands out on cpu1 st"),
        (MINIMAL.drop(columns="period"), 2, "lack the column 'period'; .*needs symbol"),
    ],
)
def test_tables_of_users_through_the_command_line(
    table: pd.DataFrame,
    exit_code: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    table.to_csv(tmp_path / "x.csv", index=False)
    assert call("analyse", EVENT.name, "--samples", str(tmp_path / "x.csv")) == exit_code
    said = capsys.readouterr()
    text = " ".join((said.out + said.err).split())
    assert re.search(says, text), text


@pytest.mark.parametrize(
    ("table", "names"),
    [
        (MINIMAL, ["cost"]),
        (samples(rounds=4), ["additional_time_cpu1", "cost_cpu1", "time_line"]),
        (samples(rounds=4, cores=1), ["cost", "time_line"]),
        (
            samples(rounds=4, cores=3).drop(columns="begin_ns"),
            ["additional_time_cpu1", "cost_cpu1", "additional_time_cpu2", "cost_cpu2"],
        ),
        (samples(rounds=4).drop(columns=["round"]), ["additional_time_cpu1", "cost_cpu1"]),
        (
            samples(rounds=2).assign(begin_ns=math.nan, event_time_ns=math.nan),
            ["additional_time_cpu1", "cost_cpu1"],
        ),
        (samples_of({"main;f": 60, "main;g": 30}), ["cost"]),
    ],
)
def test_every_table_has_figures_with_labels(table: pd.DataFrame, names: list[str]) -> None:
    with themed():
        figures = EVENT.figures(run_of(table))
        for figure in figures.values():
            assert png(figure).startswith(b"\x89PNG")
    assert list(figures) == ["modules", *names]
    if "cost" in figures:
        axes = figures["cost"].axes[0]
        assert axes.get_xlabel() == "share of the event (%), 95 % interval (counting only)"
        assert axes.get_yticklabels()[-1].get_text() in ("f", "kv_runge_kutta"), "the largest"


def test_a_run_that_has_only_begun_can_be_drawn_and_analysed() -> None:
    table = samples(rounds=4, count=300)
    for trials in (1, 2, 3, 7):
        count = int((table["round"] * 2 + table["position"] < trials).sum())
        run = run_of(table[:count], "unfinished")
        assert list(EVENT.figures(run))[-1] == "time_line"
        compared = trials > 1
        assert ("event time" in by_subject(EVENT.analyse(run))) == compared
