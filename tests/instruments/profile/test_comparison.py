"""Two profiles compared, on simulated machines whose truth is known."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom

from perflib.instruments.profile.comparison import Comparison, compare
from perflib.instruments.profile.costs import costs_of
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from perflib.stats.excess import Excesses, excesses

Floats = NDArray[np.float64]
SHARES = np.array([
    0.4, 0.15, 0.1, 0.08, 0.06, 0.05, 0.03, 0.03, 0.02, 0.02,
    0.01, 0.01, 0.01, 0.01, 0.005, 0.005, 0.005, 0.005,
])  # fmt: skip
NAMES = [f"f{number:02d}" for number in range(len(SHARES))]
PERIOD_NS = 1_000_000
DRIFT = 0.1


class Machine(NamedTuple):
    """Samples at 1 kHz of an event of ``samples`` ms, on two arms in each round.

    Each round drifts as a whole; a tenth of the arms is hit by a burst that doubles all. On the
    second arm every function costs ``factor`` times as much, and each of ``one`` its own factor
    more. ``own``: how much each function's cost varies by itself from event to event (log).
    """

    rounds: int
    samples: int = 500
    factor: float = 1.0
    one: tuple[tuple[int, float], ...] = ()
    own: float = 0.0
    burst: float = 0.1

    @property
    def growth(self) -> Floats:
        growth = np.full(SHARES.size, self.factor)
        for place, factor in self.one:
            growth[place] *= factor
        return growth


def arms(machine: Machine, generator: np.random.Generator) -> tuple[Floats, Floats]:
    shape = (machine.rounds, SHARES.size)
    drift = np.exp(generator.normal(0, DRIFT, (machine.rounds, 1)))
    counts = []
    for growth in (np.ones(SHARES.size), machine.growth):
        burst = np.where(generator.random((machine.rounds, 1)) < machine.burst, 2.0, 1.0)
        own = np.exp(generator.normal(0, machine.own, shape)) if machine.own else 1.0
        mean = machine.samples * SHARES * drift * burst * growth * own
        counts.append(generator.poisson(mean).astype(np.float64))
    return counts[0], counts[1]


def table_of(first: Floats, second: Floats) -> pd.DataFrame:
    parts = []
    for arm, counts in (("cpu0", first), ("cpu8", second)):
        rounds, functions = counts.shape
        parts.append(
            pd.DataFrame(
                {
                    "round": np.repeat(np.arange(rounds), functions),
                    "arm": arm,
                    "function": NAMES[:functions] * rounds,
                    "cost": counts.ravel() * PERIOD_NS,
                    "samples": counts.ravel(),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def compared(machine: Machine, seed: int = 1, **options: Any) -> Comparison:
    first, second = arms(machine, np.random.default_rng(seed))
    return compare(table_of(first, second), "cpu0", "cpu8", **options)


def by_subject(comparison: Comparison) -> Mapping[str, Finding]:
    return {finding.subject: finding for finding in comparison.findings()}


def at_least(runs: int, probability: float) -> int:
    """What a count of that probability falls below once in a thousand times."""
    return int(binom.ppf(1e-3, runs, probability))


def at_most(runs: int, probability: float) -> int:
    """What it exceeds once in a thousand times."""
    return int(binom.ppf(1 - 1e-3, runs, probability))


@functools.cache
def excesses_of(machine: Machine, runs: int) -> tuple[Excesses, ...]:
    generator = np.random.default_rng(7)
    return tuple(excesses(*arms(machine, generator), alpha=0.05) for _ in range(runs))


# --- the excess: false alarms, coverage, power ---------------------------------------------------

NULLS = {
    "5 rounds": Machine(5),
    "8 rounds, 12 % slower": Machine(8, factor=1.12),
    "40 rounds": Machine(40),
    "20 rounds, all 12 % slower": Machine(20, factor=1.12),
    "20 rounds, long events": Machine(20, samples=5000),
    "8 rounds, functions vary by 10 %": Machine(8, own=0.1),
    "20 rounds, functions vary by 10 %": Machine(20, own=0.1, factor=1.12),
}


@pytest.mark.parametrize("machine", NULLS.values(), ids=NULLS)
def test_null_no_function_is_named_more_often_than_stated(machine: Machine) -> None:
    runs = 300
    wrong = sum(bool(found.named) for found in excesses_of(machine, runs))
    assert wrong <= at_most(runs, 0.05)


def test_null_the_rate_is_not_far_below_what_is_stated_either() -> None:
    """A test that never fires would pass the one above."""
    wrong = [bool(found.named) for name in NULLS for found in excesses_of(NULLS[name], 300)]
    assert sum(wrong) >= at_least(len(wrong), 0.025)


def covered(machine: Machine, runs: int) -> Floats:
    """How often each function's interval covers the truth."""
    truth = np.log(machine.growth / machine.factor)
    hits = np.zeros(SHARES.size)
    for found in excesses_of(machine, runs):
        low, high = found.interval(0.95)
        hits += (low <= truth) & (truth <= high)
    return hits


@pytest.mark.parametrize(
    "machine",
    [*NULLS.values(), Machine(20, samples=3000, one=((1, 1.3),)), Machine(40, one=((17, 10.0),))],
    ids=[*NULLS, "one +30 %", "a small one tenfold"],
)
def test_intervals_cover_as_often_as_they_say(machine: Machine) -> None:
    runs = 300
    hits = covered(machine, runs)
    assert hits.mean() / runs == pytest.approx(0.95, abs=0.015)
    # A single function's interval: half of the noise of the functions may be their own.
    assert hits.min() >= at_least(runs, 0.93)


@pytest.mark.parametrize("rounds", [5, 10, 40])
def test_a_function_made_ten_percent_dearer_is_named_first(rounds: int) -> None:
    """Share 15 %, counted in 60 s of samples an arm, whatever the number of rounds."""
    machine = Machine(rounds, samples=90_000 // rounds, one=((1, 1.1),))
    found = excesses_of(machine, 60)
    assert sum(one.named[:1] == (1,) for one in found) >= at_least(60, 0.95)
    others = sum(len(one.named) > 1 for one in found)
    assert others <= at_most(60, 0.05)


def test_what_is_said_to_be_visible_is_seen_that_often() -> None:
    machine = Machine(20, samples=1000)
    visible = float(compared(machine, seed=3).visible(power=0.8)["f01"])
    with_it = machine._replace(one=((1, 1 + visible / 100),))
    found = excesses_of(with_it, 150)
    assert sum(1 in one.named for one in found) == pytest.approx(0.8 * 150, abs=20)


def test_more_rounds_make_more_visible() -> None:
    comparison = compared(Machine(10, samples=2000))
    now, later = comparison.visible(), comparison.visible(rounds=40)
    assert (later < now).all()
    assert math.log1p(later["f00"] / 100) == pytest.approx(math.log1p(now["f00"] / 100) / 2)
    assert comparison.visible(power=0.5)["f00"] < now["f00"]


def test_two_functions_are_both_named_and_the_others_are_not_said_to_have_shrunk() -> None:
    machine = Machine(20, samples=8000, one=((0, 1.3), (4, 1.5)))
    comparison = compared(machine)
    assert set(comparison.table["function"][:2]) == {"f00", "f04"}
    assert comparison.table["stands_out"].sum() == 2
    rest = comparison.table[~comparison.table["stands_out"]]
    assert rest["excess_percent"].abs().median() < 3
    assert comparison.common.low < 0 < comparison.common.high


def test_a_function_that_became_cheaper_stands_out_too() -> None:
    comparison = compared(Machine(20, samples=5000, factor=1.2, one=((1, 1 / 1.2),)))
    finding = by_subject(comparison)["f01"]
    assert finding.verdict == "supported"
    assert "takes less" in finding.claim
    assert finding.low < 100 * (1 / 1.2 - 1) < finding.high < 0


@pytest.mark.parametrize("seed", range(10))
def test_one_disturbed_round_names_nobody(seed: int) -> None:
    """In one round a function took ten times as long: page faults, a neighbour's cache."""
    first, second = arms(Machine(10, samples=2000), np.random.default_rng(seed))
    second[3, 6] *= 10
    assert excesses(first, second, 0.05).named == ()


def test_a_function_that_varies_much_is_judged_by_itself() -> None:
    """Of 18 functions two vary by a factor of two or so each event: they are not named for it."""
    generator = np.random.default_rng(5)
    own = np.zeros(SHARES.size)
    own[[3, 10]] = 0.7
    wrong = 0
    for _ in range(200):
        counts = [
            generator.poisson(3000 * SHARES * np.exp(generator.normal(0, 1, (10, 18)) * own))
            for _ in range(2)
        ]
        wrong += bool(excesses(counts[0].astype(float), counts[1].astype(float), 0.05).named)
    assert wrong <= at_most(200, 0.07)


def test_rounds_of_different_events_may_be_mixed() -> None:
    """Shares differ from round to round; only what differs within rounds counts."""
    generator = np.random.default_rng(2)
    shares = generator.dirichlet(20 * SHARES, 30)
    wrong = 0
    for _ in range(100):
        length = generator.lognormal(7, 1, (30, 1))
        first, second = generator.poisson(length * shares), generator.poisson(1.3 * length * shares)
        wrong += bool(excesses(first.astype(float), second.astype(float), 0.05).named)
    assert wrong <= at_most(100, 0.05)


# --- the comparison ------------------------------------------------------------------------------


class Coverage(NamedTuple):
    total: int
    additional: Floats
    share: Floats
    with_share: int


@functools.cache
def coverage(machine: Machine, runs: int = 30) -> Coverage:
    generator = np.random.default_rng(11)
    more = SHARES * (machine.growth - 1)
    truth = more * machine.samples * PERIOD_NS * math.exp(DRIFT**2 / 2)
    total = 0
    additional, share = np.zeros(SHARES.size), np.zeros(SHARES.size)
    with_share = 0
    for _ in range(runs):
        comparison = compare(table_of(*arms(machine, generator)), "cpu0", "cpu8")
        table = comparison.table.sort_values("function")
        total += comparison.total.low <= 100 * more.sum() <= comparison.total.high
        additional += table["additional_low"].le(truth) & table["additional_high"].ge(truth)
        if table["share_low"].notna().all():
            with_share += 1
            part = 100 * more / more.sum()
            share += table["share_low"].le(part) & table["share_high"].ge(part)
    return Coverage(total, additional, share, with_share)


@pytest.mark.parametrize(
    "machine", [Machine(5, factor=1.3), Machine(20, factor=1.12), Machine(10, one=((1, 2.0),))]
)
def test_times_and_shares_cover_the_truth(machine: Machine) -> None:
    seen = coverage(machine)
    assert seen.total >= at_least(30, 0.94)
    assert seen.additional.mean() >= 0.93 * 30
    assert seen.with_share >= 8
    assert seen.share.mean() >= 0.91 * seen.with_share


def test_a_uniformly_slower_core_is_slower_and_no_function_stands_out() -> None:
    comparison = compared(Machine(40, samples=2000, factor=1.12))
    found = by_subject(comparison)
    assert found["event time"].verdict == "supported"
    assert found["event time"].low < 12 < found["event time"].high
    assert found["standing out"].verdict == "refuted"
    assert "No function stands out" in found["standing out"].reason
    assert set(found) == {"event time", "standing out"}
    assert 0 < comparison.open_percent < 5
    table = comparison.table
    assert not table["stands_out"].any()
    # The costliest function heads the source's table for all that, with its ordinary share.
    lead = table.nlargest(1, "share_percent").iloc[0]
    assert lead["function"] == "f00"
    assert lead["share_low"] < 40 < lead["share_high"]


def test_open_percent_is_a_bound_that_holds() -> None:
    """Where nothing is named, the truth lies below what is said to be left open."""
    held = named = 0
    for seed in range(30):
        comparison = compared(Machine(12, samples=1500, one=((1, 1.05),)), seed)
        named += bool(comparison.table["stands_out"].any())
        held += comparison.open_percent > 100 * 0.15 * 0.05
    assert named < 30
    assert held >= 28


def test_rare_functions_leave_no_more_open_than_their_samples_allow() -> None:
    """Real profiles have hundreds of functions seen once or twice: kernel, loader, C library."""
    generator = np.random.default_rng(6)
    machine = Machine(20, samples=3000)
    first, second = arms(machine, generator)
    plain = compare(table_of(first, second), "cpu0", "cpu8")
    rare = [generator.poisson(0.1, (20, 200)).astype(float) for _ in range(2)]
    rare[0][:, 0], rare[1][:, 0] = 0, [6, *[0] * 19]
    tables = []
    for arm, counts in zip(("cpu0", "cpu8"), rare, strict=True):
        names = [f"rare{number}" for number in range(200)] * 20
        table = pd.DataFrame({"arm": arm, "function": names, "samples": counts.ravel()})
        table["round"] = np.repeat(np.arange(20), 200)
        tables.append(table.assign(cost=table["samples"] * PERIOD_NS))
    both = pd.concat([table_of(first, second), *tables])
    assert compare(both, "cpu0", "cpu8").open_percent < 1.3 * plain.open_percent < 5


def test_an_injected_difference_is_reported_with_its_numbers() -> None:
    comparison = compared(Machine(30, samples=4000, factor=1.05, one=((1, 1.1),)))
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
    first, second = arms(Machine(20, samples=5000, burst=0.0), np.random.default_rng(4))
    quiet = compare(table_of(first, second), "cpu0", "cpu8")
    second[[2, 9, 15]] *= 2
    hit = compare(table_of(first, second), "cpu0", "cpu8")
    assert quiet.disturbed == 0
    assert hit.disturbed == 3
    assert hit.total.effect == pytest.approx(quiet.total.effect, abs=0.3)
    assert hit.additional.low < 0 < hit.additional.high
    assert "3 disturbed rounds" in by_subject(hit)["event time"].reason


def test_order_of_rows_and_arms_does_not_matter() -> None:
    first, second = arms(Machine(10, samples=3000, one=((2, 1.5),)), np.random.default_rng(0))
    table = table_of(first, second)
    forth = compare(table, "cpu0", "cpu8")
    mixed = compare(table.sample(frac=1, random_state=1), "cpu0", "cpu8")
    pd.testing.assert_frame_equal(forth.table, mixed.table)
    back = compare(table, "cpu8", "cpu0")
    assert back.table["function"][0] == forth.table["function"][0] == "f02"
    assert back.table["log_odds"][0] == pytest.approx(-forth.table["log_odds"][0])
    assert back.additional.effect == pytest.approx(-forth.additional.effect)


# --- few data ------------------------------------------------------------------------------------


def test_one_repetition_is_judged_by_counting_alone_and_says_so() -> None:
    comparison = compared(Machine(1, samples=30_000, one=((1, 1.3),), burst=0))
    assert comparison.counting_only
    assert comparison.table["function"][0] == "f01"
    assert np.isinf(comparison.table["df"]).all()
    for finding in comparison.findings():
        assert finding.verdict == "inconclusive"
        assert "Counting only" in finding.reason
        assert finding.low < finding.effect < finding.high
    assert "By counting, f01 would" in by_subject(comparison)["standing out"].reason


def test_counting_alone_has_its_own_rate_and_coverage() -> None:
    """Without scatter of events, one round's intervals cover, and name nobody too often."""
    machine = Machine(1, samples=3000, burst=0)
    found = excesses_of(machine, 300)
    assert sum(bool(one.named) for one in found) <= at_most(300, 0.05)
    assert covered(machine, 300).mean() / 300 == pytest.approx(0.95, abs=0.015)


def test_two_rounds_are_too_few_for_a_verdict() -> None:
    found = compared(Machine(2, samples=5000, one=((1, 2.0),))).findings()
    assert {finding.verdict for finding in found} == {"inconclusive"}
    assert "2 repetitions" in found[0].reason


def test_too_few_samples_are_inconclusive_with_what_stays_open() -> None:
    finding = by_subject(compared(Machine(5, samples=60)))["standing out"]
    assert finding.verdict == "inconclusive"
    assert "could have stayed unseen" in finding.reason


def test_two_functions_cannot_tell_which_is_odd() -> None:
    first = np.full((10, 2), 500.0)
    second = first * [1, 2]
    finding = by_subject(compare(table_of(first, second), "cpu0", "cpu8"))["standing out"]
    assert finding.verdict == "inconclusive"
    assert "three" in finding.reason


def test_functions_of_one_arm_only() -> None:
    generator = np.random.default_rng(8)
    first, second = arms(Machine(10, samples=5000), generator)
    first[:, 2], second[:, 3] = 0, 0
    comparison = compare(table_of(first, second), "cpu0", "cpu8")
    table = comparison.table.set_index("function")
    assert set(comparison.table["function"][:2]) == {"f02", "f03"}
    assert table["excess_percent"]["f02"] == np.inf
    assert table["excess_low"]["f02"] > 1000
    assert table["excess_percent"]["f03"] == -100
    assert table["excess_high"]["f03"] < -90
    assert table["cost_first"]["f02"] == 0
    assert by_subject(comparison)["f02"].to_dict()["effect"] is None  # no number in JSON
    assert math.isfinite(table["of_event_percent"]["f02"])


def test_changes_of_large_functions_do_not_accuse_the_others() -> None:
    """One vanishes, one is new, at few rounds, with bursts: rarely is any other named."""
    generator = np.random.default_rng(9)
    right = 0
    for rounds in (3, 5, 10) * 40:
        first, second = arms(Machine(rounds, samples=5000), generator)
        first[:, 2], second[:, 3] = 0, 0
        right += set(excesses(first, second, 0.05).named) == {2, 3}
    assert right >= at_least(120, 0.94)


def test_rare_functions_are_not_tested_and_not_hidden() -> None:
    first, second = arms(Machine(8, samples=3000), np.random.default_rng(8))
    first[:, 17], second[:, 17] = 0, 0
    second[0, 17] = 4
    comparison = compare(table_of(first, second), "cpu0", "cpu8")
    row = comparison.table.iloc[-1]
    assert row["function"] == "f17"
    assert math.isnan(row["p_holm"])
    assert math.isnan(comparison.visible()["f17"])
    assert row["samples"] == 4


def test_shares_are_not_given_of_nothing() -> None:
    table = compared(Machine(20)).table
    assert table[["share_percent", "share_low", "share_high"]].isna().all(axis=None)


def test_without_the_number_of_samples_the_least_cost_is_one() -> None:
    first, second = arms(Machine(20, samples=2000, one=((1, 1.4),)), np.random.default_rng(3))
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


def test_equal_profiles_do_not_differ() -> None:
    table = table_of(np.full((4, 3), 100.0), np.full((4, 3), 100.0))
    comparison = compare(table, "cpu0", "cpu8")
    assert comparison.total.effect == 0
    assert not comparison.table["stands_out"].any()


def test_a_missing_arm_names_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown arm 'cpu9': did you mean") as caught:
        compare(small(), "cpu0", "cpu9")
    assert "'cpu8'" in str(caught.value)


def test_an_arm_against_itself() -> None:
    with pytest.raises(UserError, match="itself"):
        compare(small(), "cpu0", "cpu0")


def test_arms_may_be_numbers() -> None:
    table = small().replace({"cpu0": 0, "cpu8": 8}).infer_objects()
    assert compare(table, 0, 8).total.effect == pytest.approx(10)


@pytest.mark.parametrize("name", ["round", "arm", "function", "cost"])
def test_a_missing_column(name: str) -> None:
    with pytest.raises(UserError, match=f"lacks the column '{name}'"):
        compare(small().drop(columns=name), "cpu0", "cpu8")


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_a_cost_that_is_none(value: float) -> None:
    table = small()
    table.loc[4, "cost"] = value
    with pytest.raises(UserError, match="'f01' in round 1, arm 'cpu0'"):
        compare(table, "cpu0", "cpu8")


def test_a_function_without_a_name() -> None:
    table = small()
    table.loc[4, "function"] = None
    with pytest.raises(UserError, match="of a named function"):
        compare(table, "cpu0", "cpu8")


def test_a_cost_given_twice() -> None:
    table = small()
    with pytest.raises(UserError, match="several costs in round 0"):
        compare(pd.concat([table, table.iloc[:1]]), "cpu0", "cpu8")


def test_nothing_but_zeros() -> None:
    with pytest.raises(UserError, match="all costs are zero"):
        compare(small(cost=0.0), "cpu0", "cpu8")


def test_samples_that_are_no_number() -> None:
    with pytest.raises(UserError, match="must count samples"):
        compare(small(samples=0), "cpu0", "cpu8")


def test_rounds_that_one_arm_lacks_are_dropped_and_counted() -> None:
    table = small()
    table.loc[(table["round"] == 2) & (table["arm"] == "cpu8"), "cost"] = 0.0
    table = table[~((table["round"] == 0) & (table["arm"] == "cpu0"))]
    comparison = compare(table, "cpu0", "cpu8")
    assert (comparison.rounds, comparison.dropped) == (2, 2)


def test_no_round_in_common() -> None:
    table = small()
    table.loc[table["arm"] == "cpu8", "round"] += 10
    with pytest.raises(UserError, match="no round has costs on both arms"):
        compare(table, "cpu0", "cpu8")


@settings(max_examples=30)
@given(
    counts=st.lists(st.integers(0, 30), min_size=2, max_size=40),
    rounds=st.integers(1, 4),
    seed=st.integers(0, 9),
)
def test_any_counts_give_a_table_or_a_clear_error(
    counts: list[int], rounds: int, seed: int
) -> None:
    """Sparse tables with empty rounds and arms: never a warning, every finding has its words."""
    generator = np.random.default_rng(seed)
    functions = min(len(counts), len(NAMES))
    first = np.array([generator.permutation(counts)[:functions] for _ in range(rounds)], float)
    second = np.array([generator.permutation(counts)[:functions] for _ in range(rounds)], float)
    try:
        comparison = compare(table_of(first, second), "cpu0", "cpu8")
    except UserError as error:
        assert "zero" in str(error) or "both arms" in str(error)  # noqa: PT017
        return
    table = comparison.table
    assert (table["additional_low"] <= table["additional_high"]).all()
    assert (table["excess_low"] <= table["excess_high"]).all()
    tested = table["p_holm"].dropna()
    assert tested.between(0, 1).all()
    assert all(finding.reason for finding in comparison.findings())


# --- from samples --------------------------------------------------------------------------------


def samples() -> pd.DataFrame:
    table = pd.DataFrame(
        {
            "round": [0, 0, 0, 0, 1, 1],
            "arm": ["cpu0", "cpu0", "cpu8", "cpu8", "cpu0", "cpu8"],
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
    by = costs.set_index(["round", "arm", "function"])
    assert by.loc[(0, "cpu0", "g"), "cost"] == 10
    assert by.loc[(1, "cpu0", "f"), "cost"] == 30
    assert by.loc[(1, "cpu0", "f"), "samples"] == 1
    assert by.loc[(1, "cpu8", "g"), "cost"] == 0
    assert by.loc[(0, "cpu8", "[unknown] in b.so"), "cost"] == 10
    assert costs["cost"].sum() == samples()["period"].sum()


def test_missing_periods_count_samples() -> None:
    table = samples()
    table.loc[0, "period"] = -1
    assert costs_of(table)["cost"].sum() == len(table)


def test_single_profiles_need_no_round() -> None:
    costs = costs_of(samples().drop(columns="round"))
    assert set(costs["round"]) == {0}
    assert compare(costs, "cpu0", "cpu8").counting_only


def test_samples_of_several_events_are_not_added_up() -> None:
    table = samples().astype({"event": str})
    table.loc[0, "event"] = "cycles"
    with pytest.raises(UserError, match="several events"):
        costs_of(table)
    assert costs_of(table, "cycles")["samples"].sum() == 1
    with pytest.raises(UserError, match="did you mean 'cycles'"):
        costs_of(table, "cycle")


def test_samples_without_what_is_needed() -> None:
    with pytest.raises(UserError, match="lacks the column 'arm'"):
        costs_of(samples().drop(columns="arm"))
    with pytest.raises(UserError, match="no samples"):
        costs_of(samples().iloc[:0].drop(columns="event"))
