"""What notebooks 07 to 13, the farm and the investigation ask: answers that are right, and not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import perflib as pl
from perflib.course.items import Item
from perflib.course.lesson import declared
from perflib.model.errors import UserError

MACHINE = "intel-guest"


def item(lesson: str, name: str) -> Item:
    return declared(lesson).item(name)


def recorded(experiment: str, **given: Any) -> Any:
    one = pl.experiment(experiment)
    return one.run(preset="quick", recorded=MACHINE, **given)


@pytest.mark.parametrize(
    ("lesson", "name", "right"),
    [
        ("aliasing_environment", "1", (3280, "i-g")),
        ("aliasing_environment", "4", (0.8, 54)),
        ("aliasing_offsets", "2", 1),
        ("aliasing_offsets", "3", (1.28, 0.0)),
        ("aliasing_allocators", "1", (1.6, 3.1)),
        ("aliasing_allocators", "2", 0),
        ("erasure_coding", "4", (1, 2, 3)),
        ("threads", "Amdahl", (2, 3)),
        ("farm", "day", 17),
    ],
)
def test_answers_that_depend_on_no_run(lesson: str, name: str, right: Any) -> None:
    asked = item(lesson, name)
    assert asked.judge(right).share == 1
    for answer, _ in asked.wrong:
        assert asked.judge(answer).share < 1
    if isinstance(right, tuple):
        with pytest.raises(UserError, match="give "):  # of another shape
            asked.judge(1)


def test_a_published_matrix_is_read_off() -> None:
    asked = item("numa_heatmap", "1")
    groups = SimpleNamespace(effect=16)
    amd = SimpleNamespace(
        samples=pd.DataFrame({"load_cpu": range(48)}),
        findings={"groups": groups},
        table=lambda _: pd.DataFrame({"latency": range(5)}),
    )
    assert asked.judge((3, 5, 4), amd).share == 1
    assert asked.judge((3, 5, 1), amd).share == pytest.approx(2 / 3)
    for answer, _ in asked.wrong:
        assert asked.judge(answer, amd).share < 1


def test_lines_and_locks_follow_the_recorded_run() -> None:
    run = recorded("coherence")
    medians = run.table("latencies").set_index("what")["median_ns"]
    factor = medians["modified write"] / medians["local write"]
    asked = item("coherence", "2")
    assert asked.judge(factor, run).share == 1
    assert all(asked.judge(answer, run).share < 1 for answer, _ in asked.wrong)
    starts = run.samples.groupby(["round", "position"])["start_ns"].min().sort_values()
    each_s = starts.diff().median() / 1e9
    asked = item("coherence", "4")
    assert asked.judge((each_s * 128 * 127, each_s * 2 * 127), run).share == 1
    assert asked.judge((1.0, 1.0), run).share < 1
    by_lines = pd.DataFrame({"lines": [48, 512, 4096], "local load": [1.0, 1.2, 9.0]})
    asked = item("coherence", "3")
    assert [asked.judge(one, by_lines).share for one in (48, 512, 4096)] == [0, 0, 1]


def test_speeds_of_a_core_that_was_shared_now_and_then_are_those_alone() -> None:
    """Such a run has two rows for each implementation and layout."""
    costs = [
        {
            "implementation": "a",
            "layout": "aligned",
            "cost_percent": 1,
            "cost_percent_low": 0,
            "cost_percent_high": 2,
        }
    ]

    def run(alone: float, shared: float) -> Any:
        rows = [
            {"implementation": "a", "layout": "staggered", "state": state, "mb_per_s": speed}
            for state, speed in (("alone", alone), ("shared", shared))
        ]
        return SimpleNamespace(
            table={"speed": pd.DataFrame(rows), "layout_cost": pd.DataFrame(costs)}.get
        )

    judged = item("erasure_coding", "2").judge(
        ("faster", "open"), run(100.0, 90.0), run(200.0, 50.0)
    )
    assert judged.share == 1


@pytest.mark.parametrize(
    ("aligned", "chasing", "right"),
    [((20, 30), (1, 2), "sets"), ((1, 2), (20, 30), "aliases"), ((1, 9), (2, 8), "open")],
)
def test_intervals_that_are_apart_name_the_cause(
    aligned: tuple[float, float], chasing: tuple[float, float], right: str
) -> None:
    rows = [
        {"implementation": "ours_table", "layout": layout, "cost_percent": np.mean(ends)}
        | dict(zip(("cost_percent_low", "cost_percent_high"), ends, strict=True))
        for layout, ends in (("aligned", aligned), ("chasing", chasing))
    ]
    run = SimpleNamespace(table=lambda _: pd.DataFrame(rows))
    asked = item("erasure_coding", "cause")
    given = ("sets", "aliases", "open", "both")
    assert [asked.judge(one, run).share for one in given] == [float(one == right) for one in given]


def test_six_distances_contradict_no_interval() -> None:
    at = [0, 4, 64, 1028, 2052, 4100]
    ends = [(-30, -28), (8, 12), (-22, -19), (-1, 2), (0, 1), (9, 13)]
    six = pd.DataFrame(ends, columns=["percent_low", "percent_high"]).assign(
        offset_bytes=at, percent=0.0
    )
    asked = item("aliasing_offsets", "six")
    assert asked.judge([4, 4100], six).share == 1
    assert asked.judge([4, 4100, 1028], six).share == 1  # its interval holds zero
    assert asked.judge([4], six).share < 1
    assert asked.judge([0, 4, 4100], six).share < 1
    assert asked.judge([64, 3000], six).share == 0


def test_states_of_threads_follow_the_recorded_runs() -> None:
    run = recorded("threads")
    crowded = recorded("threads", versions=["Final"], threads=8, tag="exercise")
    asked = item("threads", "3")
    assert asked.judge("ready", run, crowded).share == 1
    assert asked.judge("waiting", run, crowded).share == 0
    options = {"versions": ["Initial"], "spin": 100_000, "without": False}
    spinning = recorded("threads", tag="exercise", **options)
    asked = item("threads", "4")
    assert asked.judge(("larger", "open"), run, spinning).share == 1
    assert asked.judge(("open", "larger"), run, spinning).share == 0
    share = item("threads", "1").judge(2.2, run)
    assert share.share == 1
    assert "formula_lock" in share.says


def test_what_a_run_cannot_tell_costs_no_points() -> None:
    empty = SimpleNamespace(table=lambda _: pd.DataFrame({"what": [], "median_ns": []}))
    assert item("coherence", "2").judge(3, empty).share == 1
    apart = item("numa_heatmap", "random order").judge(50, empty, None)
    assert apart.share == 1
    assert "measure the order 'random' first" in apart.says


def test_simulated_misses_follow_the_recorded_run() -> None:
    geometries = ["Haswell", "Haswell iTLB=32:4 L1i=16K:8", "Zen 2"]
    run = recorded("simulate", geometries=geometries, code_kib=512)
    for name in ("iTLB misses", "L1i misses"):
        measured = item("simulate", name).measured(run)  # type: ignore[attr-defined]
        assert 1 < measured.low <= measured.value <= measured.high
    one = run.table("functions").query("counter == 'L1d misses of stores'").iloc[0]["symbol"]
    assert item("simulate", "2").judge(one, run).share == 1
    rate = run.table("misses").set_index(["geometry", "counter"])["per_1000"]
    assert item("simulate", "3").judge(rate["Haswell", "L1i misses"], run).share == 1
    for name in ("2", "3"):
        for answer, _ in item("simulate", name).wrong:
            assert item("simulate", name).judge(answer, run).share < 1


def test_counts_over_time_follow_the_recorded_run() -> None:
    found = pl.recorded(MACHINE).query("experiment == 'count' and tag == 'exercise'")
    run = recorded("count", **found["parameters"].iloc[0], tag="exercise")
    faults = item("count", "page faults").measured(run)  # type: ignore[attr-defined]
    assert 80 * 256 <= faults.value <= 80 * 256 + 500  # 80 MiB were touched, and little else
    cpu = item("count", "CPU time").measured(run)  # type: ignore[attr-defined]
    assert cpu.low <= 1.0 + 0.5
    assert cpu.high >= 1.0
    rates = run.table("series").query("event == 'task-switches-voluntary'")
    often = rates[rates["per_s"] > rates["per_s"].max() / 2]
    phase = (often["time_s"].min(), often["time_s"].max() + 0.1)
    assert item("count", "1").judge(phase, run).share == 1
    assert item("count", "1").judge((phase[0], 0.0), run).share == 0.5
    faults = run.table("series").query("event == 'task-minor-faults'")
    seen = (faults["per_s"] * faults["elapsed_ns"]).to_numpy()
    error = 100 * (2 * seen[::2].sum() / seen.sum() - 1)
    assert abs(error) > 5  # a burst: every other interval is not a half of it
    assert item("count", "3").judge(error, run).share == 1
    (all_of_it, _), (one_time, _) = item("count", "1").wrong
    assert item("count", "1").judge(all_of_it, run).share < 1
    with pytest.raises(UserError, match="two times"):
        item("count", "1").judge(one_time, run)
    for answer, _ in item("count", "3").wrong:
        assert item("count", "3").judge(answer, run).share < 1
