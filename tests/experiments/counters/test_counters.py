from __future__ import annotations

import functools
import math
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from perflib.experiments import get
from perflib.experiments.counters import CountersParams
from perflib.experiments.counters.analyse import CountersTable
from perflib.experiments.counters.claims import MISCOUNTS, MISSES
from perflib.experiments.counters.modes import (
    ALONE,
    KERNEL,
    NOTHING,
    ONE_SET,
    ROTATED,
    SAMPLED,
    configurations,
)
from perflib.experiments.counters.trials import CountedJobs
from perflib.instruments.counters.events import CounterEvent
from perflib.instruments.counters.groups import countable, in_domain
from perflib.instruments.counters.sets import events_of
from perflib.instruments.perf.tool import PerfUnavailableError
from perflib.machine.hardware.pmu import Pmu
from perflib.measure.supervised import Supervised
from perflib.model.errors import MeasurementError, UserError
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.store import run_files
from tests.counted import skip_unless_allowed
from tests.experiments.judged import by_subject, codes, made_run, supported

COUNTERS = get("counters")
MODES = (ALONE, ONE_SET, ROTATED, KERNEL, SAMPLED)
CALLS = "page-faults"
TICKS = "task-clock"


# --- simulated machines --------------------------------------------------------------------------


def samples(
    seed: int = 1,
    *,
    rounds: int = 10,
    error: dict[str, float] | None = None,
    cost: dict[str, float] | None = None,
    missed: dict[str, float] | None = None,
    scatter: float = 0.005,
) -> pd.DataFrame:
    """Rows as the experiment makes them: of two events, the second of which never repeats.

    ``error``: by how much a mode's counts are wrong, up or down at random; ``cost``: how much
    longer it makes the job; ``missed``: the share of readings that it misses.
    """
    generator = np.random.default_rng(seed)
    error, cost, missed = error or {}, cost or {}, missed or {}
    rows = []
    for round_ in range(rounds):
        for count in (1, 3):
            level = 2e8 * (1 + 0.1 * generator.normal())  # of the whole round
            for mode in MODES:
                slower = (1 + cost.get(mode, 0.0)) * (1 + 0.002 * generator.normal())
                trial = {
                    "round": round_,
                    "mode": mode,
                    "jobs": count,
                    "time_ns": 1.1 * level * slower * (1 + 0.05 * generator.normal()),
                    "cpu_time_ns": level * slower,
                    "due": 0 if mode == ALONE else 100,
                    "obtained": 0 if mode == ALONE else round(100 * (1 - missed.get(mode, 0.0))),
                }
                if mode == ALONE:
                    rows.append({**trial, "set": NOTHING, "event": NOTHING, "value": math.nan})
                    continue
                wrong = error.get(mode, 0.0) * generator.choice([-1, 1])
                for event, spread in ((CALLS, scatter), ("context-switches", 0.5)):
                    value = 1e3 * (1 + wrong) * math.exp(spread * generator.normal())
                    rows.append({**trial, "set": "software", "event": event, "value": value})
    return pd.DataFrame(rows)


run_of = functools.partial(made_run, COUNTERS)


def findings(table: pd.DataFrame, **params: Any) -> dict[str, Finding]:
    return by_subject(COUNTERS.analyse(run_of(table, **params)))


def test_null_nothing_is_wrong_nothing_is_costly_nothing_is_missed() -> None:
    found = findings(samples())
    assert {finding.verdict for finding in found.values()} == {"refuted"}
    assert len(found) == 2 * (3 + 4 + 4)  # the reference has no error against itself
    assert {finding.of for finding in found.values()} == set(COUNTERS.claims)
    assert {finding.kind for finding in found.values()} == {"anomaly"}
    left_out = [one for one in found["kernel×1"].reasons if one.code == "left_out"]
    assert [one.numbers for one in left_out] == [{"events": ["context-switches"]}]


@pytest.mark.parametrize("seed", range(5))
def test_null_a_scatter_from_run_to_run_is_no_error_of_the_mode(seed: int) -> None:
    assert not supported(findings(samples(seed, scatter=0.04)).values())


def test_a_mode_that_is_wrong_is_named_and_no_other() -> None:
    found = findings(samples(error={ROTATED: 0.3}))
    assert supported(found.values()) == ["rotated×1", "rotated×3"]
    wrong = found["rotated×1"]
    assert (wrong.of, wrong.about) == (MISCOUNTS, {"mode": ROTATED, "jobs": 1})
    assert wrong.low < 30 < wrong.high
    assert codes(wrong) == ["beyond_scatter", "left_out", "worst"]
    assert wrong.reasons[-1].numbers["event"] == CALLS
    assert {one["event"] for one in wrong.evidence["events"]} == {CALLS, "context-switches"}


def test_an_error_within_the_scatter_is_none() -> None:
    plain = np.array([100, 100, 107.5])  # two runs differ by 4.8 % on average
    parts = [
        pd.DataFrame({"round": range(3), "mode": mode, "jobs": 1, "event": CALLS, "value": value})
        for mode, value in ((ONE_SET, plain), (ROTATED, 1.051 * plain))
    ]
    (error,) = findings(pd.concat(parts)).values()
    assert error.low > 5
    assert (error.verdict, codes(error)[0]) == ("inconclusive", "within_scatter")


def test_clocks_that_differ_from_run_to_run_are_no_wrong_counts() -> None:
    """Two references agree by chance, and the core was slower in between."""
    parts = [
        pd.DataFrame({"round": range(2), "mode": mode, "jobs": 1, "event": event, "value": value})
        for mode, event, value in (
            (ONE_SET, CALLS, [1000, 1000]),
            (ONE_SET, "task-clock (software)", [100, 100.1]),
            (ROTATED, CALLS, [1001, 1002]),
            (ROTATED, "task-clock (software)", [125.1, 125]),
        )
    ]
    (error,) = findings(pd.concat(parts)).values()
    assert error.low > 5
    assert (error.verdict, codes(error)[0]) == ("inconclusive", "only_clocks")
    assert error.evidence["batches"] == 2


def test_sentences_name_the_way_of_counting_and_the_load() -> None:
    found = findings(samples(error={ROTATED: 0.3}, cost={SAMPLED: 0.05}))
    assert found["rotated×1"].plain.startswith("Multiplexing by perflib miscounts with one job: ")
    assert found["sampled×3 cost"].plain.endswith(" of CPU time with 3 jobs at once")
    assert found["one-set×1 missed"].claim == "one-set×1 misses more than 5 % of its readings"
    assert found["one-set×1 missed"].about == {"mode": ONE_SET, "jobs": 1}


def test_the_threshold_decides_what_is_wrong() -> None:
    table = samples(error={ROTATED: 0.08})
    assert findings(table, error_percent=3.0)["rotated×3"].verdict == "supported"
    assert findings(table, error_percent=20.0)["rotated×3"].verdict == "refuted"


def test_missed_readings_are_reported() -> None:
    run = run_of(samples(missed={SAMPLED: 0.2}))
    found = {finding.subject: finding for finding in COUNTERS.analyse(run)}
    assert supported(found.values()) == ["sampled×1 missed", "sampled×3 missed"]
    assert found["sampled×1 missed"].of is MISSES
    assert found["sampled×1 missed"].effect == pytest.approx(20)
    assert found["sampled×1 missed"].facts["what"] == "samples"
    assert found["kernel×1 missed"].facts["what"] == "readings"
    table = COUNTERS.derived(run)["missed"]().set_index(["mode", "jobs"])
    assert table.loc[(SAMPLED, 3), "missed_percent"] == pytest.approx(20)
    assert table.loc[(KERNEL, 1), "missed_percent"] == 0


def test_one_round_says_nothing_yet() -> None:
    found = findings(samples(rounds=1))
    assert {finding.verdict for finding in found.values()} == {"inconclusive"}
    assert CountersTable(samples(rounds=1)).half_width == math.inf


def test_precision_is_that_of_the_cost_with_the_fewest_jobs() -> None:
    table = samples(rounds=20)
    costs = CountersTable(table).costs
    mine = costs[(costs["jobs"] == 1) & (costs["time"] == "CPU time")]
    widest = ((mine["cost_percent_high"] - mine["cost_percent_low"]) / 2).max()
    assert CountersTable(table).half_width == pytest.approx(widest)
    assert 0 < widest < 1


def test_rows_without_a_count_are_no_zero() -> None:
    table = samples(rounds=4)
    table["status"] = "counted"
    extra = table[table["mode"] == ONE_SET].drop_duplicates(["round", "jobs"])
    lost = extra.assign(event="cycles", value=math.nan, status="absent: no such counter")
    empty = extra.assign(set="branches", event=NOTHING, value=math.nan)
    found = CountersTable(pd.concat([table, lost, empty]))
    assert "cycles" not in set(found.errors["event"])
    pd.testing.assert_frame_equal(found.costs, CountersTable(table).costs)


def test_a_mode_that_never_scaled_says_so() -> None:
    table = samples(rounds=4)
    table["status"] = np.where(table["mode"] == "rotated", "scaled", "counted")
    found = findings(table)
    assert "never_scaled" in codes(found["kernel×1"])
    assert "never_scaled" not in codes(found["rotated×1"])


# --- tables that users bring ---------------------------------------------------------------------


def test_a_table_without_anything_to_compare_is_refused() -> None:
    table = samples(rounds=2)
    for lacking in (
        table[table["mode"] == ROTATED],
        table.drop(columns=["value", "time_ns", "cpu_time_ns"]),
    ):
        with pytest.raises(UserError, match="nothing to compare with"):
            findings(lacking)


# --- the schedule --------------------------------------------------------------------------------


def test_every_mode_meets_every_number_of_jobs_and_one_set_comes_with_each_set() -> None:
    found = configurations([1, 3], ["software", "faults"], sampled=True)
    assert len(found) == len(set(found)) == 2 * 6
    assert {one.set for one in found if one.mode == ONE_SET} == {"software", "faults"}
    assert SAMPLED not in {one.mode for one in configurations([1], ["software"], sampled=False)}


def test_only_sets_of_which_nothing_is_counted_are_left_out() -> None:
    skip_unless_allowed()
    asked = {"software": events_of("software"), "none": in_domain(events_of("software"), "user")}
    asked["none"] = [one for one in asked["none"] if one.name.startswith("context")]
    found, absent = countable(asked)
    assert found == ["software"]
    assert absent == {"none": "absent in user space: only the kernel makes this event"}


# --- measuring, for real -------------------------------------------------------------------------

SMALL = {"budget_s": 0.5, "events": 40, "period_ms": 10.0, "jobs": [1, 2]}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One short run, of which the counters of this machine are part."""
    skip_unless_allowed()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFLIB_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("PERFLIB_PROGRESS", "none")
        return run_files.load(COUNTERS.measure(CountersParams.make(SMALL)).id)


def test_a_short_run_counts_in_every_mode(measured: Run) -> None:
    table = measured.samples
    plan = measured.provenance["plan"]
    done = {tuple(pair) for pair in table[["mode", "jobs"]].drop_duplicates().to_numpy()}
    assert done == {(mode, jobs) for mode, jobs, _ in plan["configurations"]}
    assert {ONE_SET, ROTATED, KERNEL} <= {mode for mode, _ in done}
    assert (table["time_ns"] > 0).all()
    assert (table["cpu_time_ns"] > 0).all()
    whole = table[(table["mode"] == ONE_SET) & (table["event"] == TICKS)]
    assert (whole["status"] == "counted").all()
    assert (whole["value"] > 0).all()
    scaled = table[(table["mode"] == ROTATED) & (table["event"] == TICKS)]
    assert scaled["status"].eq("scaled").any()
    shared = scaled.groupby(["round", "jobs"])[["running_ns", "cpu_time_ns"]].sum()
    sets = scaled.groupby(["round", "jobs"])["set"].nunique()
    assert (shared["running_ns"] < 1.2 * shared["cpu_time_ns"] / sets).all()
    slices = table[table["slice"].notna()]
    assert set(slices["counted"]) == {0, 1}
    pairs = slices.groupby(["round", "mode", "jobs", "pair", "job_event", "slice"]).size()
    assert (pairs == 2).all()
    read = table[table["mode"].isin([ONE_SET, ROTATED, KERNEL])]
    assert (read["obtained"] <= read["due"]).all()
    assert measured.provenance["conditions"][0]["violated"] == []


def test_the_clock_agrees_with_the_time_that_the_job_had(measured: Run) -> None:
    """The counter is the kernel's, the CPU time comes from wait4: the two know the same job."""
    table = measured.samples
    clock = table[(table["mode"] == ONE_SET) & (table["event"] == TICKS)]
    # What the hypervisor takes counts as the counter's time, and not as CPU time: the sample from
    # which it took least must agree, and none may be short.
    assert (clock["value"] / clock["cpu_time_ns"]).min() == pytest.approx(1, rel=0.2)


def test_sets_that_this_machine_lacks_are_rows_that_say_so(measured: Run) -> None:
    assert COUNTERS.unavailable() == ""
    absent = measured.provenance["plan"]["absent"]
    left_out = COUNTERS.derived(measured)["not_counted"]()
    assert set(left_out["set"]) - {"(sampling)"} == set(absent)
    rows = measured.samples[measured.samples["set"].isin(list(absent))]
    assert set(rows["set"]) == set(absent)
    assert rows["value"].isna().all()
    assert rows["status"].str.len().gt(10).all()


def test_the_series_of_one_job_is_kept_and_drawn(measured: Run) -> None:
    series = measured.provenance["series"]
    assert {one["mode"] for one in series} >= {ONE_SET, ROTATED, KERNEL}
    assert {one["jobs"] for one in series} == {1}
    drawn = COUNTERS.figures(measured)
    costs = COUNTERS.derived(measured)["costs"]()  # none where the core was never alone
    assert [*drawn] == [name for name in COUNTERS.plots if name != "costs" or len(costs)]
    assert "(ms)" in drawn["over_time"].axes[-1].get_xlabel()


def test_ratios_are_those_of_one_set_at_a_time(measured: Run) -> None:
    ratios = COUNTERS.derived(measured)["ratios"]().set_index(["ratio", "set"])
    rows = measured.samples
    rows = rows[(rows["mode"] == ONE_SET) & (rows["jobs"] == 1) & (rows["set"] == "software")]
    counted = rows.pivot_table(index="round", columns="event", values="value")
    value = ratios["value"].loc[("page-faults-per-ms", "software")]
    assert value == pytest.approx((1e6 * counted[CALLS] / counted[TICKS]).mean())


def test_a_run_has_findings_and_leaves_no_process(measured: Run) -> None:
    found = COUNTERS.analyse(measured)
    assert {"rotated×1", "kernel×2"} <= {finding.subject for finding in found}
    assert {finding.of for finding in found} == set(COUNTERS.claims)
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    names = [Path(f"/proc/{child}/comm").read_text().strip() for child in children]
    assert "kv" not in names


def test_a_command_without_a_log_is_counted_too() -> None:
    skip_unless_allowed()
    given = {"job": "command", "job_command": "sh -c 'for i in 1 2 3; do :; done'", "events": 1}
    given |= {"budget_s": 0.1, "jobs": [2], "sets": ["software"]}
    run = COUNTERS.measure(CountersParams.make(given))
    assert (run.samples["time_ns"] > 0).all()
    with pytest.raises(MeasurementError, match="length cannot be chosen"):
        COUNTERS.measure(CountersParams.make(given | {"events": None}))


def test_two_jobs_at_once_are_the_counted_one_and_another(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Mock(wraps=Supervised)
    monkeypatch.setattr("perflib.experiments.counters.trials.Supervised", other)
    params = CountersParams.make({"job": "command", "job_command": "true", "events": 1})
    plan: dict[str, Any] = {"copies": None, "events": 1, "sets": [], "absent": {}, "sampled": ""}
    plan |= {"cores": [*os.sched_getaffinity(0)], "configurations": [[ALONE, 2, NOTHING]]}
    with CountedJobs(params, plan) as jobs:
        assert jobs.take(0, 0)["jobs"] == [2]
    assert other.call_count == 1


def test_without_perf_counters_are_compared_with_each_other_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    skip_unless_allowed()

    monkeypatch.setattr(
        "perflib.instruments.perf.control.find_perf",
        Mock(side_effect=PerfUnavailableError("perf is not installed (or not on PATH)")),
    )
    given = SMALL | {"budget_s": 0.1, "jobs": [1], "sets": ["software"]}
    run = COUNTERS.measure(CountersParams.make(given))
    assert SAMPLED not in set(run.samples["mode"])
    assert any("perf is not installed" in text for text in run.provenance["problems"])


def test_nothing_to_count_is_an_error_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(sets: dict[str, object]) -> tuple[list[str], dict[str, str]]:
        return [], dict.fromkeys(sets, "not allowed: kernel.perf_event_paranoid is 4")

    for module in ("experiments.counters.measure", "instruments.counters.groups"):
        monkeypatch.setattr(f"perflib.{module}.countable", nothing)
    params = CountersParams.make(SMALL)
    with pytest.raises(UserError, match=r"nothing can be counted here: .* is 4$"):
        COUNTERS.measure(params)
    with pytest.raises(MeasurementError, match=r"nothing can be counted here: .* is 4$"):
        COUNTERS.pilot(params, {"cores": [0], "copies": 1})
    assert COUNTERS.unavailable().endswith("is 4")


def test_user_space_alone_may_be_counted_where_the_kernel_may_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def paranoid(sets: dict[str, list[CounterEvent]]) -> tuple[list[str], dict[str, str]]:
        user = all(one.name.endswith(":u") for events in sets.values() for one in events)
        return (list(sets), {}) if user else ([], dict.fromkeys(sets, "not allowed"))

    monkeypatch.setattr("perflib.instruments.counters.groups.countable", paranoid)
    assert COUNTERS.unavailable() == ""


@pytest.mark.parametrize(("available", "event"), [(True, "cycles:u"), (False, "cpu-clock:u")])
def test_what_is_sampled_follows_the_machine_and_the_domain(
    available: bool, event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = "perflib.experiments.counters.measure"
    monkeypatch.setattr(f"{measure}.pmu", lambda: Pmu(available, "reported"))
    monkeypatch.setattr(f"{measure}._why_not_sampled", lambda *_: "not here")
    params = CountersParams.make(SMALL | {"domain": "user"})
    found = COUNTERS.pilot(params, COUNTERS.plan(params))
    assert found["sampled"] == event
    assert SAMPLED not in {mode for mode, _, _ in found["configurations"]}
