"""The suspects, each in a machine in which it is guilty, and in one in which nobody is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from perflib.experiments.code_size.analyse import core_findings
from perflib.experiments.code_size.claims import HYPOTHESES
from perflib.experiments.code_size.hypotheses import hypotheses
from perflib.experiments.code_size.reaches import Reaches
from perflib.experiments.code_size.table import CodeTable
from perflib.framework.page_control import PageControl
from perflib.model.finding import Finding
from tests.experiments.code_size.code_samples import (
    NO_CONTROL,
    NOT_BACKED,
    machine,
    samples,
    suspects,
)

REACHES = Reaches.of(machine())
SIZES = (8, 32, 128, 512, 1024, 2048, 3072)
CORES = range(6, 11)
LARGE_CODE = "extra time of large code"


def judged(table: pd.DataFrame, control: PageControl = NO_CONTROL) -> list[Finding]:
    return hypotheses(CodeTable(table), "random", REACHES, 1.0, control)


def verdicts(found: Sequence[Finding], what: str) -> list[str]:
    """Of iTLB, instruction caches, soft interrupts, frequency."""
    named = suspects(found, what)
    assert set(named) == set(HYPOTHESES)
    return [named[cause].verdict for cause in HYPOTHESES]


def story(pairs: Mapping[str, Any] | None = None, **faults: Any) -> list[Finding]:
    return judged(samples(cores=CORES, sizes_kib=SIZES, **faults), PageControl(pairs or {}))


# --- guilty --------------------------------------------------------------------------------------


def test_a_core_whose_itlb_misses_cost_more() -> None:
    found = story(lags={8: 0.094})
    assert verdicts(found, "cpu8") == ["supported", "refuted", "refuted", "refuted"]
    itlb = suspects(found, "cpu8")["iTLB misses"]
    assert itlb.low < 100 < itlb.high
    assert itlb.evidence["explains"] == "the extra time of cpu8 with large code"
    assert itlb.evidence["code"] == "2 MiB and more, compared with 32 KiB"
    assert "2 MiB pages" in itlb.reason
    extra = itlb.evidence["extra_percent"]
    assert extra[1] < 8.7 < extra[2]


@pytest.mark.parametrize(
    ("faults", "what", "guilty"),
    [
        ({"walk_ns": 40.0}, LARGE_CODE, 0),
        ({"slow": {8: 0.12}, "lags": {8: 0.094}}, "cpu8", 0),
        ({"slow_caches": {8: 0.2}}, "cpu8", 1),
        ({"slow_clock": {8: 0.08}}, "cpu8", 3),
    ],
)
def test_the_one_that_is_guilty_is_found(faults: dict[str, Any], what: str, guilty: int) -> None:
    expected = ["supported" if place == guilty else "refuted" for place in range(4)]
    assert verdicts(story(**faults), what) == expected


def test_a_core_that_is_slow_at_everything_has_no_extra_time_with_large_code() -> None:
    found = story(slow={8: 0.12})
    assert verdicts(found, "cpu8") == ["refuted"] * 4
    for finding in suspects(found, "cpu8").values():
        assert [reason.code for reason in finding.reasons] == ["nothing_to_explain"]


def test_a_core_with_a_storm_of_soft_interrupts() -> None:
    found = story(softirq_share={8: 0.08})
    itlb, caches, softirq, frequency = verdicts(found, "cpu8")
    assert (itlb, frequency) == ("refuted", "refuted")
    # What goes with them is known at most, which can acquit them and not convict them; and it
    # slows code on all pages, as caches do.
    assert (softirq, caches) == ("inconclusive", "inconclusive")
    finding = suspects(found, "cpu8")["softirq activity"]
    assert "upper bound" in finding.reason
    assert finding.evidence["contribution_percent"][0] > 8


def test_bursts_on_a_core_explain_nothing() -> None:
    found = story(burst_share={8: 0.2})
    for finding in found:
        if "cpu" in finding.evidence["explains"]:
            assert finding.verdict in ("refuted", "inconclusive")


def test_huge_pages_that_are_not_backed_acquit_no_itlb_and_convict_no_cache() -> None:
    found = story(NOT_BACKED)
    assert verdicts(found, LARGE_CODE) == ["inconclusive", "inconclusive", "refuted", "refuted"]
    found = story(NOT_BACKED, walk_ns=40.0)
    assert verdicts(found, LARGE_CODE) == ["supported", "refuted", "refuted", "refuted"]


# --- nobody --------------------------------------------------------------------------------------


def test_null_nobody_is_found_guilty_of_what_did_not_happen() -> None:
    """At a threshold of 0.01 % the tests are on their own: 5 % of the runs may name a core."""
    runs, slow, guilty = 30, 0, 0
    for seed in range(runs):
        table = CodeTable(samples(seed, cores=(0, 1), sizes_kib=(8, 1024), rounds=24))
        of_core = core_findings(table, "random", REACHES, 0.01, {})[:2]
        slow += any(finding.verdict == "supported" for finding in of_core)
        found = hypotheses(table, "random", REACHES, 0.01, NO_CONTROL)[: len(HYPOTHESES)]
        assert all("cpu" in finding.evidence["explains"] for finding in found)
        guilty += any(finding.verdict == "supported" for finding in found)
        if seed % 5 == 0:  # as it is used
            for finding in core_findings(table, "random", REACHES, 1.0, {}):
                assert finding.verdict in ("refuted", "inconclusive")
            for finding in hypotheses(table, "random", REACHES, 1.0, NO_CONTROL)[: len(HYPOTHESES)]:
                assert finding.verdict in ("refuted", "inconclusive")
    most = stats.binom.ppf(0.999, runs, 0.05)
    assert slow <= most
    assert guilty <= most


# --- what is not there ---------------------------------------------------------------------------


def test_without_huge_pages_two_suspects_cannot_be_distinguished() -> None:
    found = judged(samples(cores=CORES, sizes_kib=SIZES, lags={8: 0.094}, backings=["4k"]))
    assert verdicts(found, "cpu8") == ["inconclusive", "inconclusive", "refuted", "refuted"]
    assert "No huge pages were available" in suspects(found, "cpu8")["iTLB misses"].reason


def test_columns_that_were_not_measured_are_unseen() -> None:
    table = samples(cores=CORES, sizes_kib=SIZES, lags={8: 0.094})
    for gone in (
        table.drop(columns=["core_mhz", "softirqs"]),
        table.assign(core_mhz=np.nan, softirqs=np.nan),
    ):
        found = judged(gone)
        assert verdicts(found, "cpu8") == ["supported", "refuted", "inconclusive", "inconclusive"]
        assert "no counts" in suspects(found, "cpu8")["softirq activity"].reason
        assert "do not hold" in suspects(found, "cpu8")["frequency"].reason


def test_one_size_or_no_small_pages_pose_no_question() -> None:
    assert judged(samples(sizes_kib=[1024])) == []
    assert judged(samples(sizes_kib=SIZES, backings=["thp"])) == []


def test_sizes_that_are_all_small_leave_nothing_to_explain() -> None:
    found = judged(samples(cores=CORES, sizes_kib=(16, 24)))
    assert verdicts(found, LARGE_CODE) == ["refuted"] * 4


def test_a_core_that_never_gave_a_sample_of_large_code_does_not_hide_the_others() -> None:
    table = samples(cores=CORES, sizes_kib=SIZES)
    broken = table["cpu"].eq(7) & (table["n"] > table["n"].median())
    found = judged(table.assign(ok=~broken))
    assert verdicts(found, LARGE_CODE) == ["refuted", "supported", "refuted", "refuted"]
