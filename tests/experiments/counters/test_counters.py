from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from perflib.experiments import get
from perflib.experiments.counters import CountersParams
from perflib.experiments.counters.analyse import CountersTable, subject_of
from perflib.experiments.counters.measure import (
    ALONE,
    NOTHING,
    ONE_SET,
    SAMPLED,
    arms_of,
    countable,
)
from perflib.instruments.counters.groups import in_domain
from perflib.instruments.counters.sets import events_of
from perflib.instruments.perf.tool import PerfUnavailableError
from perflib.lab import figures
from perflib.machine.hardware.pmu import Pmu
from perflib.model import store
from perflib.model.errors import MeasurementError, UserError
from perflib.model.finding import Finding
from perflib.model.run import Run

COUNTERS = get("counters")
MODES = (ALONE, ONE_SET, "rotated", "kernel", SAMPLED)
CALLS = "page-faults"
TICKS = "task-clock"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path))
    monkeypatch.setenv("PERFLIB_PROGRESS", "none")
    return tmp_path


# --- simulated machines --------------------------------------------------------------------------


def samples(
    seed: int = 1,
    *,
    rounds: int = 10,
    jobs: tuple[int, ...] = (1, 3),
    error: dict[str, float] | None = None,
    cost: dict[str, float] | None = None,
    missed: dict[str, float] | None = None,
    scatter: float = 0.005,
    noise: float = 0.002,
) -> pd.DataFrame:
    """Rows as the experiment makes them: of two events, the second of which never repeats.

    ``error``: by how much a mode's counts are wrong, up or down at random; ``cost``: how much
    longer it makes the job; ``missed``: the share of readings that it misses.
    """
    generator = np.random.default_rng(seed)
    error, cost, missed = error or {}, cost or {}, missed or {}
    rows = []
    for round_ in range(rounds):
        for count in jobs:
            level = 2e8 * (1 + 0.1 * generator.normal())  # of the whole round
            for mode in MODES:
                slower = (1 + cost.get(mode, 0.0)) * (1 + noise * generator.normal())
                turn = {
                    "round": round_,
                    "mode": mode,
                    "jobs": count,
                    "time_ns": 1.1 * level * slower * (1 + 0.05 * generator.normal()),
                    "cpu_time_ns": level * slower,
                    "due": 0 if mode == ALONE else 100,
                    "got": 0 if mode == ALONE else round(100 * (1 - missed.get(mode, 0.0))),
                }
                if mode == ALONE:
                    rows.append({**turn, "set": NOTHING, "event": NOTHING, "value": math.nan})
                    continue
                wrong = error.get(mode, 0.0) * generator.choice([-1, 1])
                for event, spread in ((CALLS, scatter), ("context-switches", 0.5)):
                    value = 1e3 * (1 + wrong) * math.exp(spread * generator.normal())
                    rows.append({**turn, "set": "software", "event": event, "value": value})
    return pd.DataFrame(rows)


def findings(table: pd.DataFrame, **params: object) -> dict[str, Finding]:
    made = CountersParams.make(params).model_dump(mode="json")
    return {f.subject: f for f in COUNTERS.analyse(Run("r", "counters", made, table))}


def test_null_nothing_is_wrong_nothing_is_dear_nothing_is_missed() -> None:
    found = findings(samples())
    assert {finding.verdict for finding in found.values()} == {"refuted"}
    assert len(found) == 2 * (3 + 4 + 4)  # the reference has no error against itself
    assert "Left out, as no two runs agree on them: context-switches." in found["kernel×1"].reason


@pytest.mark.parametrize("seed", range(5))
def test_null_a_scatter_from_run_to_run_is_no_error_of_the_turns(seed: int) -> None:
    found = findings(samples(seed, scatter=0.04))
    assert not [f for f in found.values() if f.verdict == "supported"]


def test_a_mode_that_is_wrong_is_named_and_no_other() -> None:
    found = findings(samples(error={"rotated": 0.3}))
    wrong = [subject for subject, f in found.items() if f.verdict == "supported"]
    assert wrong == ["rotated×1", "rotated×3"]
    assert found["rotated×1"].low < 30 < found["rotated×1"].high
    assert f"Farthest off: {CALLS}" in found["rotated×1"].reason
    evidence = found["rotated×1"].evidence["events"]
    assert {one["event"] for one in evidence} == {CALLS, "context-switches"}


def test_the_threshold_decides_what_is_wrong() -> None:
    table = samples(error={"rotated": 0.08})
    assert findings(table, error_percent=3.0)["rotated×3"].verdict == "supported"
    assert findings(table, error_percent=20.0)["rotated×3"].verdict == "refuted"


def test_costs_go_by_cpu_time_and_tell_the_wall_time_too() -> None:
    found = findings(samples(cost={"rotated": 0.03, SAMPLED: 0.01}))
    dear = [subject for subject, f in found.items() if f.verdict == "supported"]
    assert dear == ["rotated×1 cost", "rotated×3 cost"]
    assert found["rotated×1 cost"].low < 3 < found["rotated×1 cost"].high
    evidence = found["rotated×1 cost"].evidence
    assert set(evidence) == {"CPU time, percent", "wall time, percent"}
    low, high = evidence["wall time, percent"][1:]
    assert high - low > 3 * (found["rotated×1 cost"].high - found["rotated×1 cost"].low)
    assert found["sampled×1 cost"].verdict == "refuted"
    strict = findings(samples(cost={SAMPLED: 0.01}), sampling_percent=0.5)
    assert strict["sampled×1 cost"].verdict == "supported"


def test_missed_readings_are_told() -> None:
    found = findings(samples(missed={SAMPLED: 0.2}))
    assert [s for s, f in found.items() if f.verdict == "supported"] == [
        "sampled×1 missed",
        "sampled×3 missed",
    ]
    assert found["sampled×1 missed"].effect == pytest.approx(20)
    assert "of its samples" in found["sampled×1 missed"].claim
    assert "of its readings" in found["kernel×1 missed"].claim


def test_one_round_says_nothing_yet() -> None:
    found = findings(samples(rounds=1))
    assert {finding.verdict for finding in found.values()} == {"inconclusive"}
    assert CountersTable(samples(rounds=1)).half_width == math.inf


def test_precision_is_that_of_the_cost_with_the_fewest_jobs() -> None:
    table = samples(rounds=20)
    costs = CountersTable(table).costs
    mine = costs[(costs["jobs"] == 1) & (costs["time"] == "CPU time")]
    widest = ((mine["cost_high_percent"] - mine["cost_low_percent"]) / 2).max()
    assert CountersTable(table).half_width == pytest.approx(widest)
    assert 0 < widest < 1


def test_an_event_of_two_sets_is_two_events() -> None:
    table = samples(rounds=3)
    again = table[table["event"] == CALLS].assign(set="faults")
    both = CountersTable(pd.concat([table, again]))
    assert {f"{CALLS} (software)", f"{CALLS} (faults)"} < set(both.errors["event"])
    with pytest.raises(UserError, match="more than once"):
        _ = CountersTable(pd.concat([table, table])).errors


def test_rows_without_a_count_are_no_zero() -> None:
    table = samples(rounds=4)
    table["status"] = "counted"
    extra = table[table["mode"] == ONE_SET].drop_duplicates(["round", "jobs"])
    lost = extra.assign(event="cycles", value=math.nan, status="absent: no such counter")
    empty = extra.assign(set="branches", event=NOTHING, value=math.nan)
    found = CountersTable(pd.concat([table, lost, empty]))
    assert "cycles" not in set(found.errors["event"])
    row = found.accuracy[found.accuracy["event"] == "cycles"].iloc[0]
    assert row["verdict"] == "not counted"
    pd.testing.assert_frame_equal(found.costs, CountersTable(table).costs)


def test_a_mode_that_never_scaled_says_so() -> None:
    table = samples(rounds=4)
    table["status"] = np.where(table["mode"] == "rotated", "scaled", "counted")
    found = findings(table)
    assert "Nothing had to be scaled" in found["kernel×1"].reason
    assert "Nothing had to be scaled" not in found["rotated×1"].reason


# --- tables that users bring ---------------------------------------------------------------------


def test_the_least_table_is_enough() -> None:
    table = samples()[["round", "mode", "jobs", "event", "value"]]
    COUNTERS.check_samples(table)
    assert {f.subject for f in findings(table).values()} == {
        subject_of(mode, jobs) for mode in MODES[2:] for jobs in (1, 3)
    }
    times = samples().drop(columns=["value", "got", "due", "set", "cpu_time_ns"])
    found = findings(times)
    assert {subject.split()[-1] for subject in found} == {"cost"}
    assert "of wall time" in found["rotated×1 cost"].claim


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.rename(columns={"mode": "mod"}), "did you mean 'mod'"),
        (lambda t: t.assign(jobs="one"), "'jobs' holds no numbers"),
        (lambda t: t[t["mode"] == "rotated"], "nothing to compare with"),
        (lambda t: t.drop(columns=["value", "time_ns", "cpu_time_ns"]), "nothing to compare with"),
    ],
)
def test_a_table_that_cannot_be_analysed_is_refused(
    change: Callable[[pd.DataFrame], pd.DataFrame], says: str
) -> None:
    table = change(samples(rounds=2))

    def analyse() -> None:
        COUNTERS.check_samples(table)
        findings(table)

    with pytest.raises(UserError, match=says):
        analyse()


def test_the_command_line_takes_a_table(tmp_path: Path) -> None:
    samples(error={"rotated": 0.3}).to_csv(tmp_path / "counts.csv", index=False)
    argv = [sys.executable, "-m", "perflib", "analyse", "counters", "--samples"]
    done = subprocess.run(
        [*argv, str(tmp_path / "counts.csv")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "rotated×1" in done.stdout
    assert "supported" in done.stdout


# --- figures -------------------------------------------------------------------------------------


def test_figures_show_modes_and_jobs_with_units() -> None:
    params = CountersParams.make({}).model_dump(mode="json")
    drawn = figures(Run("r", "counters", params, samples(error={"rotated": 0.3})))
    assert list(drawn) == ["errors", "costs"]  # no series without provenance
    assert [axes.get_title(loc="left") for axes in drawn["errors"].axes] == ["1 job", "3 jobs"]
    axes = drawn["errors"].axes[0]
    assert {label.get_text() for label in axes.get_yticklabels()} == {CALLS, "context-switches"}
    assert "%" in axes.get_xlabel()
    _, labels = axes.get_legend_handles_labels()
    assert {"rotated", "kernel", SAMPLED, "two runs of one set at a time"} < set(labels)
    costs = drawn["costs"].axes
    assert [panel.get_title(loc="left") for panel in costs] == ["CPU time", "wall time"]
    assert [t.get_text() for t in costs[0].get_xticklabels()] == list(MODES[1:])


def test_one_round_can_be_drawn() -> None:
    params = CountersParams.make({}).model_dump(mode="json")
    assert figures(Run("r", "counters", params, samples(rounds=1)))


# --- the schedule --------------------------------------------------------------------------------


def test_every_mode_meets_every_number_of_jobs_and_one_set_comes_with_each_set() -> None:
    arms = arms_of([1, 3], ["software", "faults"], sampled=True)
    assert len(arms) == len(set(arms)) == 2 * 6
    assert {arm.set for arm in arms if arm.mode == ONE_SET} == {"software", "faults"}
    assert SAMPLED not in {arm.mode for arm in arms_of([1], ["software"], sampled=False)}


def test_only_sets_of_which_nothing_is_counted_are_left_out() -> None:
    asked = {"software": events_of("software"), "none": in_domain(events_of("software"), "user")}
    asked["none"] = [one for one in asked["none"] if one.name.startswith("context")]
    found, absent = countable(asked)
    assert found == ["software"]
    assert absent == {"none": "absent in user space: only the kernel makes this event"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"jobs": "0,1"}, "greater than or equal to 1"),
        ({"jobs": ""}, "at least 1 item"),
        ({"jobs": "two"}, "valid integer"),
        ({"sets": "sofware"}, "did you mean 'software'"),
        ({"period_ms": 5}, "greater than or equal to 10"),
        ({"domain": "usr"}, "'all', 'user' or 'kernel'"),
        ({"job": "command"}, "go together"),
        ({"job_begin": "("}, "job_begin"),
    ],
)
def test_wrong_parameters_are_sentences(given: dict[str, object], says: str) -> None:
    with pytest.raises(UserError, match=says):
        CountersParams.make(given)


def test_lists_are_written_with_commas() -> None:
    made = CountersParams.parse(["jobs=1,3", "sets=software, faults"])
    assert (made.jobs, made.sets) == ([1, 3], ["software", "faults"])
    assert CountersParams.make({"jobs": 2}).jobs == [2]


# --- measuring, for real -------------------------------------------------------------------------

SMALL = {"budget_s": 0.5, "events": 40, "period_ms": 10.0, "jobs": [1, 2]}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One short run, of which the counters of this machine are part."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFLIB_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("PERFLIB_PROGRESS", "none")
        run = COUNTERS.measure(CountersParams.make(SMALL))
        again = store.load(run.id)
    pd.testing.assert_frame_equal(again.samples, run.samples, check_dtype=False)
    return again


def test_a_short_run_counts_in_every_mode(measured: Run) -> None:
    table = measured.samples
    plan = measured.provenance["plan"]
    done = {tuple(pair) for pair in table[["mode", "jobs"]].drop_duplicates().to_numpy()}
    assert done == {(mode, jobs) for mode, jobs, _ in plan["arms"]}
    assert {ALONE, ONE_SET, "rotated", "kernel"} <= {mode for mode, _ in done}
    assert (table["time_ns"] > 0).all()
    assert (table["cpu_time_ns"] > 0).all()
    whole = table[(table["mode"] == ONE_SET) & (table["event"] == TICKS)]
    assert (whole["status"] == "counted").all()
    assert (whole["value"] > 0).all()
    turns = table[(table["mode"] == "rotated") & (table["event"] == TICKS)]
    assert turns["status"].eq("scaled").any()
    shared = turns.groupby(["round", "jobs"])[["running_ns", "cpu_time_ns"]].sum()
    sets = turns.groupby(["round", "jobs"])["set"].nunique()
    assert (shared["running_ns"] < 1.2 * shared["cpu_time_ns"] / sets).all()
    read = table[table["mode"].isin([ONE_SET, "rotated", "kernel"])]
    assert (read["got"] <= read["due"]).all()
    assert measured.provenance["conditions"][0]["unmet"] == []


def test_the_clock_agrees_with_the_time_that_the_job_had(measured: Run) -> None:
    """The counter is the kernel's, the CPU time comes from wait4: the two know the same job."""
    table = measured.samples
    clock = table[(table["mode"] == ONE_SET) & (table["event"] == TICKS)]
    assert clock["value"].to_numpy() == pytest.approx(clock["cpu_time_ns"].to_numpy(), rel=0.2)


def test_sets_that_this_machine_lacks_are_rows_that_say_so(measured: Run) -> None:
    assert COUNTERS.unavailable() == ""
    absent = measured.provenance["plan"]["absent"]
    rows = measured.samples[measured.samples["set"].isin(list(absent))]
    assert set(rows["set"]) == set(absent)
    assert rows["value"].isna().all()
    assert rows["status"].str.len().gt(10).all()


def test_the_series_of_one_job_is_kept_and_drawn(measured: Run) -> None:
    series = measured.provenance["series"]
    assert {one["mode"] for one in series} >= {ONE_SET, "rotated", "kernel"}
    assert {one["jobs"] for one in series} == {1}
    drawn = figures(measured)
    assert "over_time" in drawn
    assert "(ms)" in drawn["over_time"].axes[-1].get_xlabel()


def test_a_run_has_findings_and_leaves_no_process(measured: Run) -> None:
    found = COUNTERS.analyse(measured)
    assert {subject_of("rotated", 1), subject_of("kernel", 2)} <= {f.subject for f in found}
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    names = [Path(f"/proc/{child}/comm").read_text().strip() for child in children]
    assert "kv" not in names


def test_a_command_without_a_log_is_counted_too() -> None:
    given = {"job": "command", "job_command": "sh -c 'for i in 1 2 3; do :; done'", "events": 1}
    given |= {"budget_s": 0.1, "jobs": [2], "sets": ["software"]}
    run = COUNTERS.measure(CountersParams.make(given))
    assert (run.samples["time_ns"] > 0).all()
    with pytest.raises(MeasurementError, match="length cannot be chosen"):
        COUNTERS.measure(CountersParams.make(given | {"events": None}))


def test_a_job_that_fails_says_so() -> None:
    given = {"job": "command", "job_command": "sh -c 'echo sorry; exit 3'", "events": 1}
    with pytest.raises(MeasurementError, match=r"status 3(.|\n)*sorry"):
        COUNTERS.measure(CountersParams.make(given | {"budget_s": 5.0, "jobs": [1]}))


def test_without_perf_counters_are_held_against_each_other_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_perf() -> Path:
        msg = "perf is not installed (or not on PATH)"
        raise PerfUnavailableError(msg)

    monkeypatch.setattr("perflib.instruments.perf.control.find_perf", no_perf)
    given = SMALL | {"budget_s": 0.1, "jobs": [1], "sets": ["software"]}
    run = COUNTERS.measure(CountersParams.make(given))
    assert SAMPLED not in set(run.samples["mode"])
    assert any("perf is not installed" in text for text in run.provenance["problems"])


def test_nothing_to_count_is_an_error_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(sets: dict[str, object]) -> tuple[list[str], dict[str, str]]:
        return [], dict.fromkeys(sets, "not allowed: kernel.perf_event_paranoid is 4")

    monkeypatch.setattr("perflib.experiments.counters.countable", nothing)
    with pytest.raises(MeasurementError, match=r"nothing can be counted here: .* is 4$"):
        COUNTERS.measure(CountersParams.make(SMALL))
    assert COUNTERS.unavailable().endswith("is 4")


@pytest.mark.parametrize(("available", "event"), [(True, "cycles:u"), (False, "cpu-clock:u")])
def test_what_is_sampled_follows_the_machine_and_the_domain(
    available: bool, event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perflib.experiments.counters.pmu", lambda: Pmu(available, "said"))
    monkeypatch.setattr("perflib.experiments.counters.why_not_sampled", lambda *_: "not here")
    plan = COUNTERS.plan(CountersParams.make(SMALL | {"domain": "user"}))
    assert plan["sampled"] == event
