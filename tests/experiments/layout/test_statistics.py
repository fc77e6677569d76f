"""What random layouts say, by simulation: nulls are silent, intervals cover, effects are found."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.experiments import get
from perflib.experiments.layout.table import LayoutTable
from perflib.model.finding import Finding
from perflib.stats.layouts import (
    largest_difference,
    layout_variance,
    needed_pairs,
    permuted_p,
    shifted_correlations,
)
from tests.experiments.judged import by_claim, by_subject, made_run, supported
from tests.experiments.layout.simulated import trials

EXPERIMENT = get("layout")


def findings(samples: pd.DataFrame, **params: Any) -> list[Finding]:
    return EXPERIMENT.analyse(made_run(EXPERIMENT, samples, **params))


def found(samples: pd.DataFrame, **params: Any) -> dict[str, Finding]:
    return by_subject(findings(samples, **params))


def own(layout: Mapping[str, Any], spread: float) -> float:
    """A layout's own log time: it depends on all levels together, and on none by itself."""
    seed = zlib.crc32(repr(sorted(layout.items(), key=str)).encode())
    return spread * float(np.random.default_rng(seed).standard_normal())


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"bursts": 0.0},
        {"rounds": 16, "trial_s": 1.0, "fresh": 3},
        {"rounds": 8, "trial_s": 4.0, "fresh": 2},
    ],
)
def test_nothing_is_an_anomaly_where_layout_does_nothing(shape: dict[str, Any]) -> None:
    """Null: skewed noise that wanders, and cores that others slow in bursts of seconds."""
    alarms, silent = 0, []
    for seed in range(60):
        said = by_claim(findings(trials(seed, **shape)))
        alarms += bool(supported(said["layout_moves"]))
        (alone,) = said["layout_alone"]
        silent.append(not alone.low > 0)
    assert alarms <= 6  # of 60 at 5 %: more come about once in 80 times
    assert np.mean(silent) >= 0.9


def test_a_few_nulls_are_silent() -> None:
    for seed in range(5):
        said = by_claim(findings(trials(1000 + seed, rounds=24)))
        assert not supported(said["layout_moves"]), seed


def test_a_core_that_others_use_is_no_layout() -> None:
    tables = [LayoutTable(trials(seed, core=1)) for seed in range(12)]
    assert sum(table.alone.low > 0 for table in tables) <= 2
    table = LayoutTable(trials(3, core=1, rounds=60))
    effects = {one.factor.name: one for one in table.effects}
    assert effects["cpu"].largest.low > 0
    assert effects["cpu"].slowest == "cpu1"
    assert "kv_per_core" in found(trials(3, core=1, rounds=60))["the core"].reason


def test_five_percent_of_the_environment_are_found() -> None:
    hits = []
    for seed in range(10):
        samples = trials(seed, lambda layout, _: 0.05 * (layout["environment"] == 2080), bursts=0.1)
        one = found(samples)["the size of the environment"]
        hits.append(one.verdict == "supported" and one.facts["slowest"] == "2080 B larger")
        assert one.low <= 5.13 <= one.high
    assert np.mean(hits) >= 0.9


def test_what_a_large_factor_does_is_not_seen_in_others() -> None:
    for seed in range(8):
        samples = trials(
            seed, lambda layout, _: 0.8 * (layout["environment"] == 2080), rounds=11, fresh=2
        )
        moves = supported(by_claim(findings(samples))["layout_moves"])
        assert not [subject for subject in moves if "environment" not in subject]


def test_layout_alone_is_free_of_noise() -> None:
    hits = []
    for seed in range(30):
        table = LayoutTable(trials(seed, lambda layout, _: own(layout, 0.03), bursts=0.0))
        hits.append(table.alone.low <= 3.05 <= table.alone.high)
    assert np.mean(hits) >= 0.8
    said = found(trials(1, lambda layout, _: own(layout, 0.03), bursts=0.0))
    assert said["layout alone"].verdict == "supported"
    assert "says nothing" in said["layout alone"].plain
    assert said["the allocator"].verdict != "supported"


def test_random_addresses_scatter() -> None:
    generator = np.random.default_rng(5)

    def effect(layout: Mapping[str, Any], _number: int) -> float:
        return 0.05 * float(generator.standard_normal()) if layout["aslr"] == "on" else 0.0

    said = found(trials(5, effect, bursts=0.0))["random addresses"]
    assert said.verdict == "supported"
    assert 3 < said.effect < 5
    assert found(trials(5, bursts=0.0))["random addresses"].verdict == "refuted"


def test_two_builds_in_the_same_layouts() -> None:
    hits, wrong = [], 0
    for seed in range(20):
        samples = trials(seed, lambda layout, _: own(layout, 0.03), fresh=3, b_less=0.02)
        one = found(samples)["B against A"]
        assert one.verdict == "supported"
        hits.append(one.low <= 100 * (1 - np.exp(-0.02)) <= one.high)
        equal = found(trials(seed, fresh=3, b_less=0.0, rounds=24))["B against A"]
        wrong += equal.verdict != "inconclusive"
    assert np.mean(hits) >= 0.8
    assert wrong <= 4
    quiet = trials(1, lambda layout, _: own(layout, 0.03), fresh=3, b_less=0.02, bursts=0.0)
    assert "Layout moves more than that" in found(quiet)["B against A"].reason
    slower = found(trials(1, fresh=3, b_less=-0.05))["B against A"]
    assert slower.verdict == "refuted"
    assert "B is slower than A" in slower.plain
    assert slower.plain.endswith("more time")
    assert "−" not in slower.plain


def test_outputs_that_depend_on_the_layout() -> None:
    samples = trials(1, rounds=12)
    assert found(samples)["output"].verdict == "supported"
    depends = samples.assign(output=samples["allocator"])
    assert found(depends)["output"].verdict == "refuted"
    always = samples.assign(output=[str(row) for row in range(len(samples))])
    assert found(always)["output"].verdict == "inconclusive"


def test_a_run_of_one_round_says_that_it_takes_more() -> None:
    said = found(trials(1, rounds=1))
    assert said["layout alone"].verdict == "inconclusive"
    assert "No layout was started in two rounds" in said["layout alone"].reason


def test_the_largest_difference_covers_and_begins_at_nothing() -> None:
    generator = np.random.default_rng(1)
    hits = [largest_difference(generator.normal([0, 0, 1.0], 0.5, (12, 3)))[0] for _ in range(200)]
    assert np.mean([one.low <= 1 <= one.high for one in hits]) >= 0.94
    interval, (fastest, slowest) = largest_difference(
        np.array([[0.0, 2.0, 1.0]] * 2 + [[0, 2.1, 1]])
    )
    assert (fastest, slowest) == (0, 1)
    assert interval.low >= 0


def test_permutations_hold_for_all_factors_together() -> None:
    generator = np.random.default_rng(2)
    least = [
        permuted_p([generator.standard_t(3, (12, levels)) for levels in (2, 3, 4, 4)]).min()
        for _ in range(60)
    ]
    assert np.mean(np.array(least) < 0.05) <= 0.15
    shown = generator.normal([0.0, 0.0, 4.0], 1, (12, 3))
    p = permuted_p([generator.normal(0, 1, (12, 3)), shown])
    assert p[1] < 0.01 < p[0]


def test_the_variance_between_layouts_of_made_values() -> None:
    layouts = np.repeat(np.arange(400), 2)
    rounds = np.array([[2 * (one // 8), 2 * (one // 8) + 1] for one in range(400)]).ravel()
    generator = np.random.default_rng(3)
    values = np.repeat(generator.normal(0, 2.0, 400), 2) + generator.normal(0, 3.0, 800)
    mean = np.bincount(rounds, weights=values) / np.bincount(rounds)
    found_ = layout_variance(values - mean[rounds], layouts, rounds, rounds // 5)
    assert found_.low <= 4.0 <= found_.high
    assert found_.half_width < 3


def test_needed_pairs() -> None:
    assert needed_pairs(np.array([0.01, 0.02]), 1.0) == ()
    likely, least, most = needed_pairs(np.random.default_rng(1).normal(0, 0.05, 6), 0.5)
    assert least < likely < most
    assert needed_pairs(np.full(6, 0.01), 0.5) == (2, 2, 2)


def test_counters_are_ranked_by_what_goes_with_the_time() -> None:
    found = trials(3, lambda layout, _: 0.05 * (layout["environment"] == 2080))
    generator = np.random.default_rng(3)
    near = 1000.0 * (found["padding_bytes"] == 2080) + generator.gamma(1.0, 300.0, len(found))
    found["aliases"] = near.where(found["round"] % 2 == 0)  # another set is on in other rounds
    found["others"] = generator.gamma(1.0, 300.0, len(found))
    found["constant"] = 7.0
    ranked = LayoutTable(found).counters()
    assert ranked["counter"].tolist() == ["aliases", "others", "constant"]
    assert ranked["correlation"][0] > 0.3
    assert ranked["p"][0] < 0.01 < ranked["p"][1]
    assert math.isnan(ranked["correlation"][2])
    assert LayoutTable(found.drop(columns=["aliases", "others", "constant"])).counters().empty


def test_counters_that_have_nothing_to_do_with_the_time_rarely_look_like_it() -> None:
    alarms = 0
    for seed in range(60):
        found = trials(seed, rounds=12)
        generator = np.random.default_rng(seed)
        for name in "abcd":  # they wander, as the time does, each by itself
            found[name] = np.cumsum(generator.standard_normal(len(found)))
        alarms += bool((LayoutTable(found).counters()["p"] < 0.05).any())
    assert alarms <= 9  # of 60 at 5 %: 9 or more have a chance of one in 500


def test_correlations_at_all_shifts_are_those_of_the_shifted_series() -> None:
    generator = np.random.default_rng(5)
    counts, times = generator.standard_normal((2, 31)), generator.standard_normal(31)
    found, p = shifted_correlations(counts, times)
    shifted = np.array([[np.corrcoef(one, np.roll(times, by))[0, 1] for by in range(31)]
                        for one in counts])  # fmt: skip
    assert found == pytest.approx(shifted[:, 0])
    largest = np.abs(shifted[:, 1:]).max(axis=0)
    assert p == pytest.approx([(1 + (largest >= abs(one)).sum()) / 31 for one in found])
