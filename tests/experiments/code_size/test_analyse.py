"""Claims about code and its pages, on samples of machines whose faults are known."""

from __future__ import annotations

import math
import shutil
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.experiments.code_size.analyse import (
    core_findings,
    knee_finding,
    page_finding,
    step_finding,
)
from perflib.experiments.code_size.claims import (
    KNEE,
    PAGES,
    SLOWER,
    SLOWER_HUGE_PAGES,
    SLOWER_L1I_MISSES,
    SLOWER_SMALL_CODE,
    STEP,
)
from perflib.experiments.code_size.reaches import Reaches
from perflib.experiments.code_size.table import CodeTable
from perflib.framework.page_control import PageControl
from perflib.instruments.simulators.cachegrind import cachegrind_counts
from perflib.instruments.simulators.geometry import CacheLevel, Geometry
from perflib.kernels import build
from perflib.model.finding import Finding
from perflib.stats.decide import Reason
from perflib.stats.interval import Interval
from perflib.stats.knees import Knee, Knees
from tests.experiments.code_size.code_samples import KIB, NO_CONTROL, NOT_BACKED, machine, samples
from tests.experiments.judged import by_subject, codes

HASWELL = Reaches.of(machine())
SIZES = (8, 32, 128, 512, 1024, 2048, 3072)
# 5/6 of the steps walk for 0.4 ns, of the time of a step on huge pages.
PAGES_PERCENT = 100 * 0.4 * (5 / 6) / (2 + 1.5 * (1 - 16 / 3072) + 1 - 32 / 3072 + 2.5 * 11 / 12)
FLAT = Interval(0.0, -0.001, 0.001)


# --- what a machine holds ------------------------------------------------------------------------


def test_reaches_are_those_of_code_on_small_pages() -> None:
    assert HASWELL.caches == {"L1i": 32 * KIB, "L2": 256 * KIB, "L3": 25600 * KIB}
    assert HASWELL.tlbs == {"iTLB": 512 * KIB, "second-level TLB": 4096 * KIB}
    assert Reaches.of({}) == Reaches({}, {})
    assert Reaches.of(machine(tlbs=False)).tlbs == {}


# --- cores ---------------------------------------------------------------------------------------


def test_a_core_that_lags_by_its_itlb_is_slow_with_large_code_on_small_pages_alone() -> None:
    table = CodeTable(samples(cores=range(6, 11), sizes_kib=SIZES, lags={8: 0.094}))
    where = {"cpus": [{"cpu": 8, "where": "package 0, core 8"}]}
    found = by_subject(core_findings(table, "random", HASWELL, 1.0, where))
    assert [name for name, f in found.items() if f.verdict == "supported"] == ["cpu8"]
    slow = found["cpu8"]
    assert slow.low < 8.7 < slow.high  # 9.4 % at 3 MiB, 8.0 % at 2 MiB
    assert slow.unit == "percent"
    assert (slow.of, slow.about) == (SLOWER, {"cpu": 8, "pattern": "random"})
    assert slow.kind == "anomaly"
    assert slow.claim == (
        "cpu8 is more than 1 % slower than the median of the other cores in code of 2 MiB and "
        "more on 4 KiB pages"
    )
    assert slow.evidence["where"] == "package 0, core 8"
    assert slow.evidence["backing"] == "4k"
    assert slow.evidence["p_holm"] < 0.05
    assert len(slow.evidence["segments_percent"]) == 3
    assert {f.verdict for name, f in found.items() if name != "cpu8"} == {"refuted"}
    assert found["cpu8 huge pages"].of is SLOWER_HUGE_PAGES
    assert found["cpu8 huge pages"].evidence["backing"] == "thp"
    assert found["cpu8 small code"].of is SLOWER_SMALL_CODE
    assert "code of 32 KiB at most on 4 KiB pages" in found["cpu8 small code"].claim


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="apt-get install valgrind")
def test_code_at_random_misses_the_l1i_as_the_counter_test_says() -> None:
    """Simulated: of the lines of 64 KiB every other one misses 32 KiB, of 128 KiB three in four."""
    program = str(build("code_segment", executable=True).library)
    cache = CacheLevel(32 << 10, 8)
    shape = Geometry("32 KiB", cache, cache, CacheLevel(8 << 20, 16))

    def misses(cases: int) -> float:
        def count(steps: int) -> int:
            argv = [program, "--steps", str(steps), str(cases)]
            found = cachegrind_counts(argv, shape)
            return int(found.loc[found["counter"] == "L1i misses", "simulated_count"].sum())

        return (count(40_000) - count(20_000)) / 20_000

    few, more = misses(512), misses(1024)  # of 128 bytes
    assert few / more == pytest.approx((1 - 32 / 64) / (1 - 32 / 128), rel=0.05)
    assert more == pytest.approx(2 * (1 - 32 / 128), rel=0.1)  # two lines a case, and the dispatch


@pytest.mark.parametrize("reaches", [Reaches({}, {"iTLB": 1 << 20}), Reaches({"L1i": 1 << 15}, {})])
def test_without_known_reaches_there_is_no_counter_test(reaches: Reaches) -> None:
    table = CodeTable(samples(rounds=4, cores=(0, 1), sizes_kib=SIZES))
    assert table.misses_only("random", reaches) == []
    found = core_findings(table, "random", reaches, 1.0, {})
    assert not [f for f in found if f.of is SLOWER_L1I_MISSES]


def test_without_one_kind_of_pages_the_rest_is_said() -> None:
    small = CodeTable(samples(cores=(0, 1), sizes_kib=SIZES, backings=["4k"]))
    found = core_findings(small, "random", HASWELL, 1.0, {})
    subjects = ["cpu0", "cpu1", "cpu0 small code", "cpu1 small code"]
    assert [f.subject for f in found] == [*subjects, "cpu0 L1i misses", "cpu1 L1i misses"]
    huge = CodeTable(samples(cores=(0, 1), sizes_kib=SIZES, backings=["hugetlb"]))
    found = core_findings(huge, "random", HASWELL, 1.0, {})
    assert [f.subject for f in found] == ["cpu0 huge pages", "cpu1 huge pages"]


BACKED = PageControl({**NOT_BACKED, "thp": [[1.0, 1.0], [1.1, 1.2]] * 5})


# --- pages, steps --------------------------------------------------------------------------------


def of_pages(
    made: pd.DataFrame, threshold: float = 1.0, control: PageControl = NO_CONTROL
) -> Finding:
    found = page_finding(CodeTable(made), "random", threshold, control)
    assert found is not None
    return found


def test_small_pages_cost_what_they_cost() -> None:
    finding = of_pages(samples(sizes_kib=SIZES, backings=("4k", "thp", "hugetlb")))
    assert finding.verdict == "supported"
    assert finding.effect == pytest.approx(PAGES_PERCENT, abs=0.5)
    assert (finding.of, finding.about) == (PAGES, {"pattern": "random"})
    assert "3 MiB" in finding.claim
    assert list(finding.evidence["percent_by_backing"]) == ["thp", "hugetlb"]
    assert finding.evidence["percent_by_backing"]["hugetlb"][0] == pytest.approx(4.9, abs=1)


def test_the_interval_of_what_pages_cost_covers_it() -> None:
    covered = 0
    for seed in range(12):
        found = of_pages(samples(seed, sizes_kib=(8, 3072), rounds=40))
        covered += found.low < PAGES_PERCENT < found.high
    assert covered >= 9  # of 95 %, with 99.9 % probability


def test_null_pages_that_cost_nothing_are_refuted() -> None:
    finding = of_pages(samples(sizes_kib=SIZES, walk_ns=0.0))
    assert finding.verdict == "refuted"
    assert [reason.code for reason in finding.reasons] == ["excluded"]
    assert of_pages(samples(sizes_kib=SIZES), 4.9).verdict == "inconclusive"


def test_pages_of_one_kind_or_one_round_compare_nothing() -> None:
    for backing in ("4k", "thp"):
        table = CodeTable(samples(sizes_kib=SIZES, backings=[backing]))
        assert page_finding(table, "random", 1.0, NO_CONTROL) is None
    once = of_pages(samples(sizes_kib=SIZES, rounds=1))
    assert once.verdict == "inconclusive"
    assert [reason.code for reason in once.reasons] == ["no_interval"]


@pytest.mark.parametrize(("walk_ns", "verdict"), [(0.4, "supported"), (0.0, "refuted")])
def test_huge_pages_that_the_host_does_not_back_compare_nothing(
    walk_ns: float, verdict: str
) -> None:
    """Whatever the comparison says: it is of walks, not of entries of the TLB."""
    made = samples(sizes_kib=SIZES, walk_ns=walk_ns)
    for control in (BACKED, NO_CONTROL):
        assert of_pages(made, control=control).verdict == verdict
    found = of_pages(made, control=PageControl(NOT_BACKED))
    assert found.verdict == "inconclusive"
    assert [(one.code, one.numbers["backing"]) for one in found.reasons] == [("not_backed", "thp")]
    assert math.isfinite(found.effect), "the estimate stays"
    assert "not backed by the host" in found.reason


def test_a_step_beyond_a_cache_costs_more() -> None:
    table = CodeTable(samples(sizes_kib=(8, 16, 64, 128, 512, 1024)))
    first = step_finding(STEP, table, "random", "L1i", 32 * KIB, 1.0)
    assert first is not None
    assert first.claim == (
        "a step in code of 64 KiB takes more than 1 % longer than in code of 16 KiB, which fits "
        "into L1i (32 KiB)"
    )
    assert first.verdict == "supported"
    assert (first.of, first.about) == (STEP, {"cache": "L1i"})
    assert first.low < 100 * (1.5 * 0.75 + 0.5) / 2 < first.high
    assert first.evidence == {"backing": "thp"}
    second = step_finding(STEP, table, "random", "L2", 256 * KIB, 1.0)
    assert second is not None
    assert second.effect == pytest.approx(100 * (0.25 * 0.75 + 1.25 + 1.5 * 3 / 32) / 4.06, rel=0.1)


def test_a_cache_that_the_sizes_do_not_straddle_says_nothing() -> None:
    table = CodeTable(samples(rounds=2, sizes_kib=(64, 128, 512)))
    assert step_finding(STEP, table, "random", "L1i", 32 * KIB, 1.0) is None
    assert step_finding(STEP, table, "random", "L3", 25600 * KIB, 1.0) is None


# --- the knee ------------------------------------------------------------------------------------


def knees(*sizes_kib: tuple[float, float, float], bound: float = 0.2) -> Knees:
    height = Interval(0.1, 0.09, 0.11)
    found = tuple(Knee(Interval(*(KIB * end for end in size)), height, 0.01) for size in sizes_kib)
    return Knees(found, 0.01 if found else 0.5, bound, FLAT, (FLAT,))


def judged(found: Knees, known: Reaches = HASWELL) -> Any:
    return knee_finding(KNEE, found, known, pattern="chase", tolerance=20.0, visible=5.0)


@pytest.mark.parametrize(
    ("size_kib", "verdict"),
    [
        ((512, 448, 640), "supported"),
        ((430, 300, 640), "supported"),
        ((610, 512, 1000), "supported"),
        ((4000, 3072, 6000), "supported"),  # of the second level
        ((512, 200, 640), "inconclusive"),  # half of it is not excluded
        ((512, 448, 1024), "inconclusive"),  # nor twice of it
        ((700, 500, 900), "inconclusive"),
        ((1024, 800, 1500), "refuted"),
        ((128, 64, 256), "refuted"),
        ((1500, 300, 6000), "inconclusive"),
    ],
)
def test_a_knee_is_compared_with_the_reach(
    size_kib: tuple[float, float, float], verdict: str
) -> None:
    found = judged(knees(size_kib))
    assert found.verdict == verdict
    assert (found.effect, found.low, found.high) == size_kib
    assert found.unit == "KiB"
    assert found.evidence["reach_kib"] == {"iTLB": 512.0, "second-level TLB": 4096.0}


def test_a_knee_says_which_level_and_reports_a_second_knee() -> None:
    found = judged(knees((512, 448, 640), (3000, 2048, 4096)))
    assert codes(found) == ["at_reach", "second_knee"]
    assert "20 % of the reach of the iTLB" in found.reason
    assert "A second knee is at 2.93 MiB" in found.reason
    assert len(found.evidence["knees_kib"]) == len(found.evidence["heights_percent"]) == 2
    assert found.evidence["heights_percent"][0][0] == pytest.approx(100 * math.expm1(0.1))


def test_no_knee_is_refuted_with_its_bound_and_too_little_data_is_not() -> None:
    found = judged(knees(bound=0.04))
    assert found.verdict == "refuted"
    assert math.isnan(found.effect)
    assert f"{100 * math.expm1(0.04):.1f} %" in found.reason
    wide = judged(knees(bound=0.2))
    assert (wide.verdict, codes(wide)) == ("inconclusive", ["no_knee_seen"])
    assert f"{100 * math.expm1(0.2):.1f} %" in wide.reason
    few = judged(knees(bound=math.nan))
    assert (few.verdict, codes(few)) == ("inconclusive", ["too_few"])


def test_against_huge_pages_that_are_not_backed_no_knee_is_decided() -> None:
    prevented = Reason("not_backed", {"backing": "thp"})
    for known in (knees((512, 448, 640)), knees((128, 64, 256)), knees(bound=0.01)):
        assert judged(known).verdict in ("supported", "refuted")
        found = knee_finding(
            KNEE, known, HASWELL, pattern="chase", tolerance=20.0, visible=5.0,
            prevented=prevented,
        )  # fmt: skip
        assert (found.verdict, codes(found)) == ("inconclusive", ["not_backed"])
        assert found.effect == judged(known).effect or math.isnan(found.effect)
        assert "not backed by the host" in found.reason


def test_a_processor_that_does_not_report_its_reach_leaves_it_open() -> None:
    found = judged(knees((512, 448, 640)), Reaches({}, {}))
    assert (found.verdict, codes(found)) == ("inconclusive", ["reach_unknown"])
    assert "unknown" in found.claim


@pytest.mark.parametrize("pattern", ["random", "chase"])
def test_null_equal_pages_have_no_knee(pattern: str) -> None:
    verdicts = []
    for seed in range(20):
        made = samples(seed, patterns=[pattern], rounds=24, cores=(0,), walk_ns=0.0)
        verdicts.append(judged(CodeTable(made).knees(pattern, "thp")).verdict)
    assert verdicts.count("refuted") >= 17  # 5 % of 20, and its binomial error
    assert np.mean([verdict == "supported" for verdict in verdicts]) <= 0.1
