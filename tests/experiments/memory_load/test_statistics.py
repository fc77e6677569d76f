"""What memory under load says, by simulation: nulls are silent, intervals cover, rises are found.

The noise has heavy tails and a skew, memory is slower in bursts of seconds, and latency drifts.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from perflib.experiments.memory_load.analyse import peak_gb_s
from perflib.experiments.memory_load.table import LoadTable
from tests.experiments.memory_load.load_samples import (
    MOST_GB_S,
    findings,
    nothing,
    queue,
    samples,
)

RUNS = 40


# --- nulls ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"rounds": 12},
        {"rounds": 12, "round_s": 1.5, "bursts": 0.5},
        {"rounds": 40, "round_s": 0.5, "bursts": 0.6, "drift": 0.6},
        {"busy": 0.2},
        {"starved": 0.5},
        {"starved": 0.97},
        {"probes": "alone"},
        {"probes": "sibling"},
    ],
)
def test_where_load_does_nothing_nothing_is_claimed(shape: dict[str, Any]) -> None:
    """Also where busy cores slow the clock, and where others take the cores that stream."""
    found: dict[str, Counter[str]] = {}
    for seed in range(RUNS):
        for claim, mine in findings(samples(seed, **shape)).items():
            found.setdefault(claim, Counter()).update(one.verdict for one in mine)
    for claim in ("latency_rises", "knee", "core_moves_less"):
        assert found[claim]["supported"] <= 1, claim


def test_a_null_is_refuted_not_only_open() -> None:
    found = findings(samples(3, probes="alone"))
    assert [one.verdict for one in found["latency_rises"]] == ["refuted"]
    assert [one.verdict for one in found["core_moves_less"]] == ["refuted", "refuted"]


def test_what_busy_cores_do_without_memory_is_not_memorys() -> None:
    """A lower clock under load: against idle cores latency rises, against busy ones it does not."""
    (one,) = findings(samples(4, busy=0.2))["latency_rises"]
    assert one.verdict == "refuted"
    assert "control" in [reason.code for reason in one.reasons]
    assert one.evidence["cache_over_idle_percent"][1] > 10


# --- what is so ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("curve", [nothing, queue])
def test_the_interval_of_the_rise_covers_the_truth(curve: Any) -> None:
    truth = 100 * math.expm1(curve(MOST_GB_S))
    covered = 0
    for seed in range(2 * RUNS):
        (one,) = findings(samples(seed, curve))["latency_rises"]
        covered += one.low <= truth <= one.high
    assert covered >= 0.88 * 2 * RUNS


@pytest.mark.slow
def test_a_rise_and_its_knee_are_found() -> None:
    truth = next(gb_s for gb_s in np.linspace(0, MOST_GB_S, 2001) if math.exp(queue(gb_s)) > 1.1)
    risen = inside = 0
    for seed in range(RUNS):
        found = findings(samples(seed, queue))
        risen += found["latency_rises"][0].verdict == "supported"
        (knee,) = found["knee"]
        inside += knee.verdict == "supported" and knee.low <= truth <= knee.high
    assert risen >= 0.95 * RUNS
    assert inside >= 0.95 * RUNS


def test_a_rise_from_the_lowest_rate_on_has_a_knee_that_begins_at_nothing() -> None:
    (knee,) = findings(samples(5, lambda gb_s: 0.5 if gb_s > 0 else 0.0))["knee"]
    assert knee.verdict == "supported"
    assert knee.low == 0
    assert "from_start" in [reason.code for reason in knee.reasons]


def test_cores_that_stream_beside_a_hidden_thread_are_no_reason_to_drop_their_samples() -> None:
    table = LoadTable(samples(6, queue, probes="sibling"))
    (curve,) = table.curves.values()
    assert curve.state == "all"
    assert curve.rise(curve.top, curve.reference).low > 10


def test_a_slow_core_is_found() -> None:
    by_cpu = {one.about["cpu"]: one for one in findings(samples(7, slow={1: 0.3}))[
        "core_moves_less"]}  # fmt: skip
    assert by_cpu[1].verdict == "supported"
    assert by_cpu[0].verdict == "refuted"


def test_all_cores_together_are_compared_with_the_fastest_alone() -> None:
    (one,) = findings(samples(8, extra=1.7))["more_together"]
    assert one.verdict == "supported"
    assert one.low < 70 < one.high
    (none,) = findings(samples(8, extra=1.0, rounds=40))["more_together"]
    assert none.verdict == "refuted"


# --- what is not there ---------------------------------------------------------------------------


def test_starved_cores_make_no_point() -> None:
    (one,) = findings(samples(9, queue, starved=1.0))["latency_rises"]
    assert one.verdict == "inconclusive"
    assert one.reasons[0].code == "no_valid"
    assert "Hardly any sample under load is valid" in one.reason


def test_one_core_is_a_clear_sentence() -> None:
    found = findings(samples(10, cores=1))
    (rise,), (knee,) = found["latency_rises"], found["knee"]
    assert (rise.verdict, knee.verdict) == ("inconclusive", "inconclusive")
    assert "no other core that could load memory" in rise.reason
    assert "core_moves_less" not in found


# --- the peak ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("modules", "peak"),
    [
        ("8 x 32 GiB DDR5 4800 MT/s, 8 empty", 307.2),
        ("2 x 16 GiB DDR4 3200 MT/s, 2 x 8 GiB DDR4 2666 MT/s", 93.856),
        ("1 x 512 MiB DDR3 1600 MT/s", 12.8),
        ("1 x module of unknown size", None),
        ("2 x 16 GiB DDR4 3200 MT/s, 1 x 16 GiB DDR4", None),
        ("", None),
        (None, None),
    ],
)
def test_the_peak_is_that_of_the_modules(modules: str | None, peak: float | None) -> None:
    assert peak_gb_s(modules) == (None if peak is None else pytest.approx(peak))


def test_what_is_measured_is_compared_with_the_peak() -> None:
    machine: dict[str, Any] = {"firmware": {"memory_modules": "2 x 16 GiB DDR4 3200 MT/s"}}
    (one,) = findings(samples(14), {"machine": machine})["below_peak"]
    assert one.verdict == "supported"
    assert one.effect == pytest.approx(100 * MOST_GB_S * 1.7 / 51.2, rel=0.4)
    for other, code in (({}, "unknown"), ({**machine, "hypervisor": "KVM"}, "virtual")):
        (one,) = findings(samples(14), {"machine": other})["below_peak"]
        assert (one.verdict, one.reasons[0].code) == ("inconclusive", code)
