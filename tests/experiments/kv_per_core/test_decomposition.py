"""KV's time as a product of parts, on simulated machines whose parts are known."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.experiments import get
from perflib.model.finding import Finding
from tests.experiments.judged import by_subject, made_run, supported
from tests.experiments.simulated import bracketed

KV = get("kv_per_core")


run_of = functools.partial(made_run, KV)


def findings(table: pd.DataFrame, **provenance: Any) -> dict[str, Finding]:
    return by_subject(KV.analyse(run_of(table, provenance)))


def named(found: dict[str, Finding]) -> set[str]:
    """What is wrong with the machine itself."""
    return set(supported(one for one in found.values() if one.kind == "anomaly"))


@pytest.mark.parametrize("seed", range(4))
def test_null_equal_cores_whose_siblings_are_busy_to_different_shares(seed: int) -> None:
    found = findings(bracketed(seed, busy={0: 0.1, 1: 0.7}, taken={0: 0.02, 1: 0.3}))
    assert not named(found)
    assert found["cpu1"].verdict == "refuted"
    assert (found["cpu1"].high - found["cpu1"].low) / 2 < 1
    assert found["cpu1 shared"].effect > found["cpu0 shared"].effect > 1
    assert found["cpu1 total"].verdict == "supported"


def test_a_core_that_is_two_percent_slower_in_itself_beside_a_core_with_a_busier_sibling() -> None:
    covered, named_alone = 0, 0
    for seed in range(4):
        found = findings(bracketed(seed, slow={1: 0.02}, busy={0: 0.7, 1: 0.2}))
        named_alone += named(found) == {"cpu1"}
        covered += found["cpu1"].low < 2 < found["cpu1"].high
        assert found["cpu1 total"].effect < 0  # by wall time it is the faster one
    assert named_alone == 4
    assert covered >= 3


@pytest.mark.parametrize("share", [0.03, 0.07])
def test_what_other_tasks_take_is_not_slowness(share: float) -> None:
    table = bracketed(3, taken={1: share}, seconds=60)
    true = 100 * table[table["cpu"] == 1].pipe(
        lambda mine: mine["run_delay_ns"].sum() / mine["time_ns"].sum()
    )
    found = findings(table, tasks={"1": [{"name": "thief", "percent": 100 * share}]})
    assert not named(found)
    assert found["cpu1 taken"].verdict == "supported"
    assert found["cpu1 taken"].effect == pytest.approx(true, abs=0.2)
    assert "thief" in found["cpu1 taken"].reason
    assert found["cpu0 taken"].verdict == "refuted"


def test_bursts_that_no_probe_sees_are_no_slowness_and_hide_none() -> None:
    covered = 0
    for seed in range(2):
        assert not named(findings(bracketed(seed, unseen={seed % 2: 0.15})))
        slow = findings(bracketed(seed, slow={1: 0.02}, unseen={0: 0.15}))
        covered += slow["cpu1"].low < 2 < slow["cpu1"].high
    assert covered >= 1


def test_what_the_hypervisor_takes_is_neither_slowness_nor_another_task() -> None:
    found = findings(bracketed(4, stolen={0: 0.05}))
    assert not named(found)
    assert found["cpu0 stolen"].verdict == "supported"
    assert found["cpu0 stolen"].low < 5 < found["cpu0 stolen"].high
    assert found["cpu0 taken"].verdict == "refuted"


@pytest.mark.parametrize("within_delay", [True, False])
def test_a_quota_is_named_whether_or_not_the_kernel_counts_it_as_waiting(
    within_delay: bool,
) -> None:
    table = bracketed(5, stolen={0: 0.1, 1: 0.1}).assign(throttled_ns=0.0)
    stopped = table["time_ns"] - table["cpu_time_ns"] - table["run_delay_ns"]
    table["throttled_ns"] = stopped
    if within_delay:
        table["run_delay_ns"] = table["run_delay_ns"] + stopped
    found = findings(table)
    assert found["cpu1 quota"].low < 10 < found["cpu1 quota"].high
    assert found["cpu1 quota"].plain.startswith("A quota of CPU time")
    assert found["cpu1 taken"].verdict == "refuted"
    assert found["cpu1 stolen"].verdict == "refuted"


@pytest.mark.parametrize("chains", [True, False])
def test_a_lower_clock_is_distinguished_from_a_slow_core(chains: bool) -> None:
    table = bracketed(6, clock={1: 0.1}, slow={0: 0.03})
    if not chains:
        table = table.drop(columns=["chain_before_ns", "chain_after_ns"])
    found = findings(table)
    assert named(found) == {"cpu0", "cpu1 clock"}
    assert found["cpu1 clock"].effect == pytest.approx(10, abs=0.5)
    assert found["cpu0"].low < 3 < found["cpu0"].high


def test_without_siblings_a_lower_clock_shows_in_the_chains() -> None:
    found = findings(bracketed(7, clock={1: 0.1}, busy={0: 0, 1: 0}))
    assert named(found) == {"cpu1 clock"}
    assert found["cpu1 shared"].verdict == "inconclusive"
    assert "one state only" in found["cpu1 shared"].reason


def test_a_core_that_is_never_alone_is_not_called_slow() -> None:
    table = bracketed(8, cores=3, busy={2: 1.0})
    found = findings(table)
    assert not named(found)
    assert found["cpu2"].verdict == "inconclusive"
    assert [one.code for one in found["cpu2"].reasons] == ["never_alone"]
    assert found["cpu0"].verdict == "refuted"
    assert found["cpu2 total"].verdict == "supported"
    drawn = KV.figures(run_of(table[table["round"] < 3]))
    labels = drawn["parts"].axes[0].get_legend_handles_labels()[1]
    assert "own speed or sibling" in labels


def test_a_table_from_anywhere_without_slices_and_chains_is_decomposed() -> None:
    table = bracketed(9, slow={1: 0.03}, taken={0: 0.05})
    wanted = ["round", "cpu", "event", "start_ns", "time_ns", "cpu_time_ns", "run_delay_ns"]
    table["event"] = table["event"] * 100 + table["slice"]
    table = table[[*wanted, "probe_before_ns", "probe_after_ns"]]
    KV.check_samples(table)
    found = findings(table)
    assert named(found) == {"cpu1"}
    assert found["cpu1"].low < 3 < found["cpu1"].high
    assert found["cpu0 taken"].low < 5 < found["cpu0 taken"].high


def test_a_few_slow_events_are_seen_with_the_share_of_time_that_they_take() -> None:
    table = bracketed(10)
    slow = table["cpu"].eq(1) & table["event"].isin([2, 5])
    cost = table.groupby("event")["cpu_time_ns"].sum()
    table.loc[slow, ["time_ns", "cpu_time_ns"]] *= 1.3
    found = findings(table)
    expected = 30 * cost[[2, 5]].sum() / cost.sum()
    assert found["cpu1"].low < expected < found["cpu1"].high
    assert found["cpu1"].evidence["events_slower_share"] == pytest.approx(2 / 12)
    assert set(found["cpu1"].evidence["slowest_events"][:2]) == {2, 5}


def test_the_parts_multiply_to_the_whole_and_add_up_to_it() -> None:
    run = run_of(bracketed(11, slow={1: 0.02}, clock={0: 0.05}, taken={1: 0.1}, stolen={0: 0.02}))
    parts = KV.derived(run)["parts"]()
    for cpu, mine in parts.groupby("cpu"):
        factors = mine.set_index("part")["factor"]
        assert factors.drop("total").prod() == pytest.approx(factors["total"], rel=1e-6), cpu
        ms = mine.set_index("part")["ms_per_event"]
        assert ms.drop("total").sum() == pytest.approx(ms["total"], rel=1e-6)
        times = run.samples[run.samples["cpu"] == cpu]
        wall = times["time_ns"].sum() / times["cpu_time_ns"].sum()
        away = factors["other tasks"] * factors["hypervisor"]
        assert away == pytest.approx(wall, rel=0.02)


def test_the_time_of_an_event_is_within_its_interval_on_a_core_that_is_much_slower() -> None:
    run = run_of(bracketed(15, seconds=8, events=2, slices=200, slow={1: 0.3}))
    times = KV.derived(run)["seconds_per_event"]()
    assert (times["clean_s_low"] < times["clean_s"]).all()
    assert (times["clean_s"] < times["clean_s_high"]).all()


def test_without_run_delay_nothing_is_said_of_other_tasks() -> None:
    found = findings(bracketed(12, taken={1: 0.1}).assign(run_delay_ns=np.nan))
    assert found["cpu1 taken"].verdict == "inconclusive"
    assert found["cpu1 stolen"].verdict == "inconclusive"
    assert not named(found)


def test_two_runs_are_compared_by_their_times_when_alone() -> None:
    first = run_of(bracketed(14, busy={0: 0.1, 1: 0.1}))
    same = run_of(bracketed(14, busy={0: 0.6, 1: 0.6}))
    change = KV.compare(first, same)[0]
    assert change.verdict == "refuted"
    table = same.samples.copy()
    table[["time_ns", "cpu_time_ns"]] *= 1.2
    slower = KV.compare(first, run_of(table))[0]
    assert slower.verdict == "supported"
    assert slower.low < 20 < slower.high


def test_a_busy_sibling_raises_the_level_of_a_core_only_where_no_probe_shows_it() -> None:
    quiet, busy = (bracketed(14, seconds=12, busy={0: share, 1: share}) for share in (0.05, 0.6))
    for columns, low, high in (
        ([], 0.98, 1.02),
        ([*quiet.filter(regex="^(probe|chain)_")], 1.1, 2),
    ):
        before, after = (
            KV.levels(run_of(table.drop(columns=columns)))["value"].to_numpy()
            for table in (quiet, busy)
        )
        assert ((low < after / before) & (after / before < high)).all()


def test_events_that_no_two_cores_share_are_drawn_as_none() -> None:
    samples = bracketed(8, seconds=10)
    samples = samples[samples["round"] == 0]
    drawn = KV.figures(run_of(samples[samples["round"] == samples["cpu"]]))
    drawn["event_by_event"].draw_without_rendering()
    words = [text.get_text() for text in drawn["event_by_event"].axes[0].texts]
    assert words == ["no event was seen on two cores often enough"]
