"""Two profiles compared, on simulated machines whose truth is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from perflib.instruments.profile.comparison import Comparison, compare
from perflib.instruments.profile.costs import costs_of
from perflib.instruments.profile.findings import comparison_findings
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from perflib.stats.excess import excesses
from tests.stats.two_profiles import DRIFT, SHARES, Profiled, at_least, simulated

Floats = NDArray[np.float64]
NAMES = [f"f{number:02d}" for number in range(len(SHARES))]
PERIOD_NS = 1_000_000


def table_of(first: Floats, second: Floats) -> pd.DataFrame:
    rounds, functions = first.shape
    counts = np.concatenate([first, second]).ravel()
    return pd.DataFrame(
        {
            "round": np.tile(np.repeat(np.arange(rounds), functions), 2),
            "configuration": np.repeat(["cpu0", "cpu8"], rounds * functions),
            "function": NAMES[:functions] * rounds * 2,
            "cost": counts * PERIOD_NS,
            "samples": counts,
        }
    )


def compared(machine: Profiled, seed: int = 1, **options: Any) -> Comparison:
    first, second = simulated(machine, np.random.default_rng(seed))
    return compare(table_of(first, second), "cpu0", "cpu8", **options)


def by_subject(comparison: Comparison) -> Mapping[str, Finding]:
    return {finding.subject: finding for finding in comparison_findings(comparison)}


def test_what_is_said_to_be_visible_is_seen_that_often() -> None:
    machine = Profiled(20, samples=1000)
    visible = float(compared(machine, seed=3).visible(power=0.8)["f01"])
    with_it = machine._replace(one=((1, 1 + visible / 100),))
    generator = np.random.default_rng(7)
    found = [excesses(*simulated(with_it, generator), alpha=0.05) for _ in range(150)]
    assert sum(1 in one.named for one in found) == pytest.approx(0.8 * 150, abs=20)


# --- the comparison ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "machine", [Profiled(5, factor=1.3), Profiled(20, factor=1.12), Profiled(10, one=((1, 2.0),))]
)
def test_times_and_shares_cover_the_truth(machine: Profiled) -> None:
    generator = np.random.default_rng(11)
    more = SHARES * (machine.growth - 1)
    truth = more * machine.samples * PERIOD_NS * math.exp(DRIFT**2 / 2)
    part = 100 * more / more.sum()
    total, additional, share = [], [], []
    for _ in range(30):
        comparison = compare(table_of(*simulated(machine, generator)), "cpu0", "cpu8")
        table = comparison.table.sort_values("function")
        total.append(comparison.total.low <= 100 * more.sum() <= comparison.total.high)
        additional.append(table["additional_low"].le(truth) & table["additional_high"].ge(truth))
        if table["share_percent_low"].notna().all():
            low, high = table["share_percent_low"], table["share_percent_high"]
            share.append(low.le(part) & high.ge(part))
            assert table["share_percent"].sum() == pytest.approx(100)
    assert sum(total) >= at_least(30, 0.94)
    assert np.mean(additional) >= 0.93
    assert len(share) >= 8
    assert np.mean(share) >= 0.91


def test_a_uniformly_slower_core_is_slower_and_no_function_stands_out() -> None:
    comparison = compared(Profiled(40, samples=2000, factor=1.12))
    found = by_subject(comparison)
    assert found["event time"].verdict == "supported"
    assert found["event time"].low < 12 < found["event time"].high
    assert found["standing out"].verdict == "refuted"
    assert [reason.code for reason in found["standing out"].reasons] == ["would_be_seen"]
    assert set(found) == {"event time", "standing out"}
    assert 0 < comparison.open_percent < 5
    table = comparison.table
    assert not table["stands_out"].any()
    # The costliest function heads the published table for all that, with its ordinary share.
    lead = table.nlargest(1, "share_percent").iloc[0]
    assert lead["function"] == "f00"
    assert lead["share_percent_low"] < 40 < lead["share_percent_high"]


def test_open_percent_is_a_bound_that_holds() -> None:
    """Where nothing is named, the truth is below ``open_percent``."""
    held = named = 0
    for seed in range(30):
        comparison = compared(Profiled(12, samples=1500, one=((1, 1.05),)), seed)
        named += bool(comparison.table["stands_out"].any())
        held += comparison.open_percent > 100 * 0.15 * 0.05
    assert named < 30
    assert held >= 28


def test_an_injected_difference_is_reported_with_its_numbers() -> None:
    comparison = compared(Profiled(30, samples=4000, factor=1.05, one=((1, 1.1),)))
    assert comparison.table["function"][0] == "f01"
    finding = by_subject(comparison)["f01"]
    assert finding.verdict == "supported"
    assert finding.low < 10 < finding.high
    assert finding.evidence["p_holm"] < 0.05
    assert finding.evidence["of_event_percent"] == pytest.approx(1.5, abs=0.7)
    overall = by_subject(comparison)["standing out"]
    assert overall.verdict == "supported"
    assert overall.evidence["named"] == ["f01"]
    assert comparison.common.low < 5 < comparison.common.high


def test_bursts_are_left_out_of_times_and_counted() -> None:
    first, second = simulated(Profiled(20, samples=5000, burst=0.0), np.random.default_rng(4))
    quiet = compare(table_of(first, second), "cpu0", "cpu8")
    second[[2, 9, 15]] *= 2
    hit = compare(table_of(first, second), "cpu0", "cpu8")
    assert quiet.outliers == 0
    assert hit.outliers == 3
    assert hit.total.effect == pytest.approx(quiet.total.effect, abs=0.3)
    assert hit.additional.low < 0 < hit.additional.high
    assert "3 rounds that are far from the others" in by_subject(hit)["event time"].reason


# --- few data ------------------------------------------------------------------------------------


def test_one_repetition_is_judged_by_counting_alone_and_says_so() -> None:
    comparison = compared(Profiled(1, samples=30_000, one=((1, 1.3),), burst=0))
    assert comparison.counting_only
    assert comparison.table["function"][0] == "f01"
    assert np.isinf(comparison.table["df"]).all()
    for finding in comparison_findings(comparison):
        assert finding.verdict == "inconclusive"
        assert "counting_only" in {reason.code for reason in finding.reasons}
        assert finding.low < finding.effect < finding.high
    assert "By counting alone, f01 would" in by_subject(comparison)["standing out"].reason


def test_too_few_samples_are_inconclusive_with_what_stays_open() -> None:
    finding = by_subject(compared(Profiled(5, samples=60)))["standing out"]
    assert finding.verdict == "inconclusive"
    assert finding.reasons[0].code in ("unseen", "unseen_any")


def test_two_functions_cannot_tell_which_is_odd() -> None:
    first = np.full((10, 2), 500.0)
    second = first * [1, 2]
    finding = by_subject(compare(table_of(first, second), "cpu0", "cpu8"))["standing out"]
    assert finding.verdict == "inconclusive"
    assert [reason.code for reason in finding.reasons] == ["too_few_functions"]


def test_rare_functions_are_not_tested_and_not_hidden() -> None:
    first, second = simulated(Profiled(8, samples=3000), np.random.default_rng(8))
    first[:, 17], second[:, 17] = 0, 0
    second[0, 17] = 4
    comparison = compare(table_of(first, second), "cpu0", "cpu8")
    row = comparison.table.iloc[-1]
    assert row["function"] == "f17"
    assert math.isnan(row["p_holm"])
    assert math.isnan(comparison.visible()["f17"])
    assert row["samples"] == 4


def test_without_the_number_of_samples_the_least_cost_is_one() -> None:
    first, second = simulated(Profiled(20, samples=2000, one=((1, 1.4),)), np.random.default_rng(3))
    table = table_of(first, second)
    bare = compare(table.drop(columns="samples"), "cpu0", "cpu8")
    assert bare.table["function"][0] == "f01"
    assert bare.table["samples"].sum() == pytest.approx(table["samples"].sum(), rel=0.2)


# --- what cannot be compared ---------------------------------------------------------------------


def small(**changes: Any) -> pd.DataFrame:
    table = table_of(np.full((4, 3), 100.0), np.full((4, 3), 110.0))
    for name, value in changes.items():
        table[name] = value
    return table


@pytest.mark.parametrize(
    ("table", "second", "sentence"),
    [
        (small(), "cpu9", "unknown configuration 'cpu9': did you mean .*'cpu8'"),
        (small(), "cpu0", "itself"),
        *(
            (small().drop(columns=name), "cpu8", f"lacks the column '{name}'")
            for name in ("round", "configuration", "function", "cost")
        ),
        (small(function=None), "cpu8", "of a named function"),
        (pd.concat([small(), small().iloc[:1]]), "cpu8", "several costs in round 0"),
        (small(cost=0.0), "cpu8", "all costs are zero"),
        (small(samples=0), "cpu8", "must count samples"),
        (
            small(round=[*range(12), *range(20, 32)]),
            "cpu8",
            "no round has costs of both 'cpu0' and 'cpu8'",
        ),
    ],
)
def test_what_cannot_be_compared_is_said(table: pd.DataFrame, second: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        compare(table, "cpu0", second)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_a_cost_that_is_none(value: float) -> None:
    table = small()
    table.loc[4, "cost"] = value
    with pytest.raises(UserError, match="'f01' in round 1 of 'cpu0'"):
        compare(table, "cpu0", "cpu8")


def test_rounds_that_one_configuration_lacks_are_dropped_and_counted() -> None:
    table = small()
    table.loc[(table["round"] == 2) & (table["configuration"] == "cpu8"), "cost"] = 0.0
    table = table[~((table["round"] == 0) & (table["configuration"] == "cpu0"))]
    comparison = compare(table, "cpu0", "cpu8")
    assert (comparison.rounds, comparison.dropped) == (2, 2)


@settings(max_examples=30)
@given(
    counts=st.lists(st.integers(0, 30), min_size=2, max_size=40),
    rounds=st.integers(1, 4),
    seed=st.integers(0, 9),
)
def test_any_counts_give_a_table_or_a_clear_error(
    counts: list[int], rounds: int, seed: int
) -> None:
    """Sparse tables with empty rounds and trials: never a warning, every finding has its words."""
    generator = np.random.default_rng(seed)
    functions = min(len(counts), len(NAMES))
    first = np.array([generator.permutation(counts)[:functions] for _ in range(rounds)], float)
    second = np.array([generator.permutation(counts)[:functions] for _ in range(rounds)], float)
    try:
        comparison = compare(table_of(first, second), "cpu0", "cpu8")
    except UserError as error:
        assert "zero" in str(error) or "of both" in str(error)  # noqa: PT017
        return
    table = comparison.table
    assert (table["additional_low"] <= table["additional_high"]).all()
    assert (table["excess_percent_low"] <= table["excess_percent_high"]).all()
    tested = table["p_holm"].dropna()
    assert tested.between(0, 1).all()
    assert all(found.reason and found.plain for found in comparison_findings(comparison))


# --- from samples --------------------------------------------------------------------------------


def samples() -> pd.DataFrame:
    table = pd.DataFrame(
        {
            "round": [0, 0, 0, 0, 1, 1],
            "configuration": ["cpu0", "cpu0", "cpu8", "cpu8", "cpu0", "cpu8"],
            "symbol": ["f", "g", "f", "[unknown]", "f", "f"],
            "object": ["a.so", "a.so", "a.so", "b.so", "a.so", "a.so"],
            "event": "cpu-clock",
            "period": [10, 10, 10, 10, 30, 20],
        }
    )
    return table.astype({"symbol": "category", "object": "category", "event": "category"})


def test_costs_are_periods_added_up_with_zeros_filled_in() -> None:
    costs = costs_of(samples())
    assert len(costs) == 4 * 3
    by = costs.set_index(["round", "configuration", "function"])
    assert by.loc[(0, "cpu0", "g"), "cost"] == 10
    assert by.loc[(1, "cpu0", "f"), "cost"] == 30
    assert by.loc[(1, "cpu0", "f"), "samples"] == 1
    assert by.loc[(1, "cpu8", "g"), "cost"] == 0
    assert by.loc[(0, "cpu8", "[unknown] in b.so"), "cost"] == 10
    assert costs["cost"].sum() == samples()["period"].sum()


def test_samples_of_several_events_are_not_added_up() -> None:
    table = samples().astype({"event": str})
    table.loc[0, "event"] = "cycles"
    with pytest.raises(UserError, match="several events"):
        costs_of(table)
    assert costs_of(table, "cycles")["samples"].sum() == 1
    with pytest.raises(UserError, match="did you mean 'cycles'"):
        costs_of(table, "cycle")


def test_samples_without_what_is_needed() -> None:
    with pytest.raises(UserError, match="lacks the column 'configuration'"):
        costs_of(samples().drop(columns="configuration"))
    with pytest.raises(UserError, match="no samples"):
        costs_of(samples().iloc[:0].drop(columns="event"))
