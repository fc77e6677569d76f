"""What is claimed of simulated machines: right claims, wrong ones, and null tests."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from perflib.experiments.memory_levels import experiment
from perflib.experiments.memory_levels.analyse import tables
from perflib.experiments.memory_levels.claims import UNCLAIMED, UNCLAIMED_NEXT
from perflib.model.finding import Finding
from tests.experiments.memory_levels.memory_samples import (
    CACHES,
    KIB,
    MEMORY_NS,
    MHZ,
    MIB,
    REQUIRED,
    SIZES,
    findings,
    machine,
    page_reach,
    run_of,
    samples,
)

UNKNOWN = (UNCLAIMED, UNCLAIMED_NEXT)
FEW = tuple(size for size in SIZES if size <= 16 * MIB)


def code(finding: Finding) -> str:
    return finding.reasons[0].code


# --- the caches ----------------------------------------------------------------------------------


def test_caches_that_claim_the_truth() -> None:
    found = findings(samples())
    for name, size in CACHES.items():
        assert found[name].verdict == "supported"
        assert found[name].unit == "KiB"
        assert found[name].low <= size / KIB <= found[name].high
        assert found[name].evidence["latency_cycles"][0] > 0
    assert found["memory"].verdict == "supported"
    assert found["memory"].low < MEMORY_NS * 1.05
    assert found["memory"].high > MEMORY_NS
    assert not [one for one in found.values() if one.of in UNKNOWN]
    assert json.dumps([one.to_dict() for one in found.values()], allow_nan=False)


@pytest.mark.parametrize("factor", [0.5, 2.0])
@pytest.mark.parametrize("name", ["L1d", "L2"])
def test_a_cache_that_claims_twice_or_half_is_refuted(name: str, factor: float) -> None:
    claims = CACHES | {name: int(factor * CACHES[name])}
    found = findings(samples(), provenance={"machine": machine(claims=claims)})
    assert found[name].verdict == "refuted"
    if factor > 1:
        assert found[name].effect < claims[name] / KIB
        assert code(found[name]) == "ends_earlier"
        assert "ends earlier" in found[name].reason
    else:
        assert code(found[name]) == "goes_on"
    others = CACHES.keys() - {name}
    assert {found[other].verdict for other in others} == {"supported"}


def test_a_last_level_that_others_use_ends_early_and_memory_begins_within_it() -> None:
    claims = CACHES | {"L3": 128 * MIB}
    found = findings(samples(), provenance={"machine": machine(claims=claims)})
    assert found["L3"].verdict == "inconclusive"
    assert code(found["L3"]) == "too_small"
    assert found["memory"].verdict == "inconclusive"
    assert code(found["memory"]) == "within_caches"
    larger = samples(array_bytes=[*SIZES, *(n * MIB for n in (161, 203, 256, 322, 406, 512))])
    found = findings(larger, provenance={"machine": machine(claims=claims)})
    assert found["L3"].verdict == "refuted"
    assert code(found["L3"]) == "ends_earlier"
    assert "virtual machine" in found["L3"].reason
    assert found["memory"].verdict == "supported"
    assert [one.code for one in found["memory"].reasons] == ["to_the_largest", "shared"]


def test_null_a_flat_curve_has_one_level_and_refutes_every_claim() -> None:
    for seed in range(2):
        found = findings(samples(seed, flat=True))
        assert {found[name].verdict for name in CACHES} == {"refuted"}
        assert found["memory"].verdict == "refuted"
        assert code(found["L2"]) == "goes_on"
        assert "unclaimed level" not in found
        assert found["prefetcher"].verdict == "refuted"
        for subject in ("TLB misses", "huge pages"):
            assert found[subject].verdict == "refuted" or found[subject].effect > 5


def test_a_level_that_nobody_claims() -> None:
    claims = {name: CACHES[name] for name in ("L1d", "L3")}
    found = findings(samples(), provenance={"machine": machine(claims=claims)})
    assert found["unclaimed level"].verdict == "supported"
    assert found["unclaimed level"].low <= CACHES["L2"] / KIB <= found["unclaimed level"].high
    assert {found[name].verdict for name in claims} == {"supported"}


def test_a_level_at_the_tlbs_reach_names_it() -> None:
    """Only random order on small pages was measured: the TLB's end looks like a cache's."""
    claims = {name: CACHES[name] for name in ("L1d", "L2")}
    made = samples(orders=["random"], backings=["4k"], walk_ns=300.0)
    found = findings(made, provenance={"machine": machine(claims=claims)})
    reasons = [reason for one in found.values() if one.of in UNKNOWN for reason in one.reasons]
    assert {"tlb": "second-level TLB"} in [one.numbers for one in reasons]


@pytest.mark.parametrize(
    ("sizes", "name", "why"),
    [
        (FEW, "L3", "too_small"),
        (tuple(size for size in SIZES if size >= 64 * KIB), "L1d", "too_large"),
    ],
)
def test_arrays_that_do_not_reach_say_nothing(sizes: tuple[int, ...], name: str, why: str) -> None:
    made = samples(array_bytes=sizes)
    found = findings(made)
    assert found[name].verdict == "inconclusive"
    assert code(found[name]) == why
    assert found["L2"].verdict == "supported"
    levels = tables(run_of(made))["levels"]()
    assert levels["level"][levels["latency_ns"].isna()].tolist() == ["L1d"] * (name == "L1d")


def test_too_coarse_sizes_leave_it_open() -> None:
    sizes = [2 * KIB << n for n in range(17)]
    found = findings(samples(array_bytes=sizes, rounds=16))
    assert found["L2"].verdict == "inconclusive"
    assert code(found["L2"]) == "ends_between"


def test_ascending_loads_alone_show_no_levels() -> None:
    found = findings(samples(orders=["sequential"]))
    assert {found[name].verdict for name in (*CACHES, "memory")} == {"inconclusive"}
    assert code(found["L1d"]) == "ascending_only"
    assert "prefetcher" not in found, "there is nothing to compare with"


def test_orders_that_were_never_usable_in_the_same_round_are_not_compared() -> None:
    table = samples()
    turn = {"window": 0, "random": 1, "sequential": 2}
    table["ok"] = table["round"] % 3 == table["order"].map(turn)
    run = run_of(table)
    assert set(tables(run)["ratios"]()["compared"]) == {"pages"}
    assert {"latency", "ratios"} <= experiment.figures(run).keys()
    assert experiment.analyse(run)
    table["ok"] &= table["backing"] == "4k"
    assert "ratios" not in experiment.figures(run_of(table))


def test_a_busy_machine_is_reported() -> None:
    found = findings(samples(noise=1.0, rounds=3))
    for name in (*CACHES, "memory"):
        assert found[name].verdict == "inconclusive"
    assert code(found["L1d"]) == "too_wide"


# --- orders and pages ----------------------------------------------------------------------------


@pytest.mark.parametrize("backed", [False, True])
def test_huge_pages_that_the_host_does_not_back_decide_nothing(backed: bool) -> None:
    """Whichever way the comparison of page sizes comes out."""
    reach = {"page_reach": page_reach(backed=False)}
    made = samples(backed=backed, rounds=12)
    assert findings(made)["huge pages"].verdict == ("supported" if backed else "refuted")
    found = findings(made, provenance={"machine": machine(), "plan": reach})
    assert found["huge pages thp"].verdict == "refuted"
    assert found["huge pages"].verdict == "inconclusive"
    assert code(found["huge pages"]) == "not_backed"
    assert found["TLB misses"].verdict == "supported"


def test_null_walks_that_cost_nothing() -> None:
    found = findings(samples(walk_ns=0.0, rounds=16))
    assert found["TLB misses"].verdict == "refuted"
    assert found["huge pages"].verdict == "refuted"


def test_false_claims_are_rare() -> None:
    """Windows against windows, under other names: eight machines."""
    wrong = 0
    for seed in range(8):
        made = samples(seed, orders=["window", "random"], walk_ns=0.0, rounds=6, array_bytes=FEW)
        found = findings(made)
        wrong += found["TLB misses"].verdict == "supported"
        wrong += found["huge pages"].verdict == "supported"
    assert wrong == 0


# --- cores ---------------------------------------------------------------------------------------


def test_one_core_is_compared_with_none() -> None:
    assert not [one for one in findings(samples()).values() if "cpu" in one.about]


def test_null_equal_cores() -> None:
    for seed in range(2):
        made = samples(seed, cores=range(3), orders=["window"], backings=["4k"], rounds=20)
        of_cores = [one for one in findings(made).values() if "cpu" in one.about]
        assert len(of_cores) == 6
        assert "supported" not in {one.verdict for one in of_cores}


def test_a_core_that_is_far_from_its_memory() -> None:
    made = samples(cores=range(3), orders=["window"], rounds=24, slow_memory={2: 0.3})
    found = findings(made)
    assert found["cpu2 memory"].verdict == "supported"
    assert found["cpu2 memory"].low < 30 < found["cpu2 memory"].high
    assert found["cpu2 memory"].evidence["where"] == "core 2"
    slow = [
        name for name, one in found.items() if one.verdict == "supported" and "cpu" in one.about
    ]
    assert slow == ["cpu2 memory"]


def test_a_core_with_a_low_clock_is_slow_in_ns_and_not_in_cycles() -> None:
    made = samples(
        cores=range(3), orders=["window"], backings=["4k"], rounds=24,
        clock=lambda _, cpu: MHZ / (2 if cpu == 1 else 1),
    )  # fmt: skip
    found = findings(made)
    first = found["cpu1 first level"]
    assert first.verdict == "supported"
    assert first.effect == pytest.approx(100, abs=5)
    assert abs(first.evidence["in_core_cycles_percent"][0]) < 3
    assert first.evidence["core_mhz"] == pytest.approx(MHZ / 2, rel=0.01)
    assert found["cpu1 memory"].verdict != "supported"


# --- tables of users -----------------------------------------------------------------------------


def test_required_columns_of_a_user_are_enough() -> None:
    made = samples(cores=(0, 1), rounds=12)[REQUIRED]
    experiment.check_samples(made)
    found = findings(made, provenance={})
    assert not CACHES.keys() & found.keys(), "nothing is claimed"
    ends = [one.effect for one in found.values() if one.of in UNKNOWN]
    assert np.log2(ends) == pytest.approx(np.log2([32, 1024, 32768]), abs=0.5)
    assert found["memory"].verdict == "supported"
    assert found["cpu0 memory"].verdict == "refuted"


@pytest.mark.parametrize(
    "made",
    [
        {"rounds": 1},
        {"rounds": 2},
        {"orders": ["random"]},
        {"orders": ["lmbench", "page"], "backings": ["thp"]},
        {"array_bytes": [64 * KIB]},
        {"array_bytes": [2 * KIB, 64 * MIB], "cores": (0, 1)},
        {"repeats": 1},
        {"backings": ["mine"], "orders": ["theirs"]},
        {"cores": (0, 1), "rounds": 1, "backings": ["4k"], "array_bytes": [4 * KIB]},
    ],
)
def test_little_is_analysed_as_far_as_it_goes(made: dict[str, Any]) -> None:
    table = samples(**{"rounds": 6, **made})
    for found in (findings(table), findings(table[REQUIRED], provenance={})):
        assert json.dumps([one.to_dict() for one in found.values()], allow_nan=False)
        if made.get("rounds") == 1:
            assert {one.verdict for one in found.values()} <= {"inconclusive"}
    assert len(experiment.derived(run_of(table))["levels"]()) >= len(CACHES)


def test_two_runs_of_one_machine_do_not_differ() -> None:
    first, second, slower = (
        run_of(samples(seed, slow_memory={0: by}, rounds=16))
        for seed, by in ((1, 0.0), (2, 0.0), (3, 0.5))
    )
    same = {one.subject: one for one in experiment.compare(first, second)}
    assert same["memory"].low < 0 < same["memory"].high
    assert same["L2"].verdict == "inconclusive"
    changed = {one.subject: one for one in experiment.compare(first, slower)}
    assert changed["memory"].verdict == "supported"
    assert changed["memory"].effect == pytest.approx(0.5 * MEMORY_NS, rel=0.2)


# --- declarations --------------------------------------------------------------------------------


def test_a_run_of_an_earlier_schema_is_read() -> None:
    run = run_of(samples(rounds=3))
    run.params["turn_ms"] = run.params.pop("trial_ms")
    assert experiment.current(run).params["trial_ms"] == 0.3
