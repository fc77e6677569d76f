"""What contention says, by simulation: nulls are silent, effects are found, intervals cover.

The noise is one-sided with heavy tails; one core is slower in bursts of seconds, by itself; threads
lose their cores.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pandas as pd
import pytest

from perflib.experiments.contention import KINDS
from perflib.experiments.contention.table import ContentionTable, valid
from tests.experiments.contention.contention_samples import (
    ALONE_NS,
    SETS,
    SHARED_NS,
    findings,
    samples,
)

RUNS = 40
FOUR = (*SETS, ((0, 2), "node"), ((0, 1, 2, 3), "node"))


def verdicts(seeds: int = RUNS, **shape: Any) -> dict[str, Counter[str]]:
    """By claim, and for shares of locks by kind, too."""
    found: dict[str, Counter[str]] = {}
    for seed in range(seeds):
        for claim, mine in findings(samples(seed, **shape)).items():
            for one in mine:
                kind = f" {one.about['kind']}" if claim in ("unfair", "lock_slower") else ""
                found.setdefault(claim + kind, Counter())[one.verdict] += 1
    return found


# --- nulls ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"rounds": 10},
        {"rounds": 40, "bursts": 0.6, "preempted": 0.5},
        {"rounds": 12, "round_s": 1.5, "noise": 0.1},
        {"sets": FOUR, "kinds": ("own_lines", "one_line", "neighbour_lines", "fetch_add")},
    ],
)
def test_where_cores_do_not_disturb_each_other_nothing_is_claimed(shape: dict[str, Any]) -> None:
    """Also where one of them is slower by itself, for seconds: that is nobody's unfairness."""
    for claim, found in verdicts(**shape).items():
        assert found["supported"] <= 1, claim


def test_a_null_is_refuted_not_only_open() -> None:
    found = findings(samples(3, bursts=0.0))
    for claim in ("own_lines_slower", "false_sharing", "neighbour_lines", "unfair"):
        assert {one.verdict for one in found[claim]} == {"refuted"}, claim


@pytest.mark.slow
def test_a_lock_whose_holder_wins_for_a_while_is_not_unfair_in_the_long_run() -> None:
    found = verdicts(shared_ns=SHARED_NS, winner=2.0)
    assert all(found[f"unfair {kind}"]["supported"] <= 1 for kind in SHARED_NS)


# --- what is so ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_interval_of_false_sharing_covers_the_truth() -> None:
    truth, covered = 100 * math.expm1(0.3), 0
    for seed in range(2 * RUNS):
        (one,) = findings(samples(seed, one_line=0.3, kinds=("own_lines", "one_line")))[
            "false_sharing"
        ]
        assert one.verdict == "supported"
        covered += one.low <= truth <= one.high
    assert covered >= 0.88 * 2 * RUNS


def test_what_is_slower_is_found_and_only_that() -> None:
    found = findings(samples(5, one_line=0.6, shared_ns=SHARED_NS, bursts=0.0))
    assert [one.verdict for one in found["false_sharing"]] == ["supported"]
    assert [one.verdict for one in found["neighbour_lines"]] == ["refuted"]
    assert {one.about["kind"]: one.verdict for one in found["slower_together"]} == dict.fromkeys(
        SHARED_NS, "supported"
    )
    locks = {one.about["kind"]: one for one in found["lock_slower"]}
    truth = 100 * (SHARED_NS["mcs"] / SHARED_NS["pthread"] - 1)
    assert locks["mcs"].low < truth < locks["mcs"].high
    assert locks["futex"].verdict == "refuted"


def test_a_core_that_a_lock_neglects_is_named() -> None:
    found = findings(samples(6, shared_ns=SHARED_NS, favour={"pthread": 0.5}))["unfair"]
    by_kind = {one.about["kind"]: one for one in found}
    assert by_kind["pthread"].verdict == "supported"
    assert by_kind["pthread"].about["cpu"] == 1
    assert by_kind["ticket"].verdict != "supported"


def test_a_core_that_is_slow_by_itself_is_no_lock_s_victim() -> None:
    """Slower on its own lines as well."""
    found = findings(samples(7, bursts=0.0, favour=dict.fromkeys(KINDS, 0.5)))
    assert {one.verdict for one in found["unfair"]} == {"inconclusive"}
    assert "On lines of its own" in found["unfair"][0].reason
    assert found["own_lines_slower"][0].verdict == "refuted", "it is compared with itself"


# --- what is not there ---------------------------------------------------------------------------


def test_threads_that_lost_their_cores_do_not_count() -> None:
    rows = samples(9, preempted=0.5, noise=0.0, bursts=0.0)
    good = valid(rows)
    assert 0.4 < good.mean() < 0.6
    by_sample = rows.assign(good=good).groupby(["round", "kind", "cpus", "repeat"])["good"]
    assert (by_sample.nunique() == 1).all(), "a sample counts whole or not at all"
    table = ContentionTable(rows)
    assert table.gap_ns("own_lines", "0-1").effect == pytest.approx(ALONE_NS / 2, rel=0.02)


@pytest.mark.parametrize(
    ("column", "value"), [("run_delay_ns", 1e5), ("start_ns", -300_000), ("time_ns", 2e6)]
)
def test_a_thread_that_waits_or_comes_late_spoils_its_sample(column: str, value: float) -> None:
    rows = samples(10, rounds=2, preempted=0.0)
    here = rows.index[(rows["cpus"] == "0-1") & (rows["cpu"] == 1)][0]
    rows.loc[here, column] = rows.loc[here, column] + value if column == "start_ns" else value
    spoilt = rows[~valid(rows)]
    assert len(spoilt) == 2
    assert set(spoilt["cpu"]) == {0, 1}


def test_where_no_thread_had_its_core_that_is_said() -> None:
    (one,) = findings(samples(11, preempted=1.0))["false_sharing"]
    assert one.verdict == "inconclusive"
    assert one.reasons[0].code == "none_valid"


@pytest.mark.parametrize(
    ("kinds", "known"),
    [(KINDS, True), (("pthread", "mcs"), True), (("own_lines",), False), (("pthread",), False)],
)
def test_precision_is_of_a_comparison_or_never_reached(kinds: tuple[str, ...], known: bool) -> None:
    """A kind compared with itself differs by nothing, which is no precision."""
    width = ContentionTable(samples(17, kinds=kinds)).half_width
    assert 0 < width < math.inf if known else width == math.inf


def test_a_core_that_never_got_a_turn_is_no_error() -> None:
    rows = samples(16, preempted=0.0)
    starved = (rows["cpu"] == 1) & (rows["kind"] == "pthread")
    rows.loc[starved, "operations"] = 0
    by_kind = {one.about["kind"]: one for one in findings(rows)["unfair"]}
    assert by_kind["pthread"].about["cpu"] == 1
    nothing: pd.DataFrame = rows.assign(operations=0)
    assert {one.verdict for one in findings(nothing)["false_sharing"]} == {"inconclusive"}
