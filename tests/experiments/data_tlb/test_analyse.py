"""data_tlb on simulated TLBs: entries and ways where they are, as surely as is said; else none."""

from __future__ import annotations

import functools
import math

import pandas as pd
import pytest

from perflib.experiments.data_tlb.analyse import findings, rise_of
from perflib.experiments.data_tlb.measure import numbers
from perflib.experiments.data_tlb.table import Entries, Rise
from perflib.experiments.data_tlb.ways import find_ways
from perflib.framework.knees import at_level
from perflib.model.finding import Finding
from perflib.stats.interval import Interval
from perflib.stats.knees import Knee
from tests.experiments.data_tlb.tlb_samples import Level, Machine, run_of, tlb
from tests.experiments.judged import by_subject

STRIDES = (4, 16, 32, 64)
FULL, SETS = Level(64, 64), Level(96, 6)
TREE = Level(64, 4, "plru")
SECOND, HASHED = Level(1536, 12), Level(1536, 12, hashed=True)
MACHINES = {
    "oldest of all": Machine(((FULL, 1.75), (Level(2048, 2048), 12.0))),
    "oldest of a set": Machine(((SETS, 1.75), (SECOND, 12.0))),
    "tree of bits": Machine(((TREE, 1.75), (Level(1024, 8, "plru"), 9.0))),
    "hashed second level": Machine(((TREE, 2.4), (HASHED, 20.0))),
    "random victims": Machine(((Level(64, 4, "random"), 1.75), (Level(1536, 12, "random"), 12.0))),
    "a costly second level": Machine(((FULL, 1.0), (SECOND, 60.0)), burst_share=0.3),
}
NONE = Machine(())


@functools.cache
def seen(machine: str, seed: int, reported: tuple[int, int] | None = None) -> dict[str, Finding]:
    """What is found of a machine that reports its own entries, or others."""
    made = MACHINES[machine]
    first, second = reported or (made.levels[0][0].entries, made.levels[1][0].entries)
    reports = tlb(1, first, made.levels[0][0].ways), tlb(2, second, 12)
    return by_subject(findings(run_of(made.samples(seed), *reports)))


# --- entries -------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", MACHINES)
def test_entries_are_found_and_their_intervals_cover(machine: str) -> None:
    runs = 6
    for subject, place in (("data TLB 4 KiB", 0), ("second-level TLB 4 KiB", 1)):
        entries = MACHINES[machine].levels[place][0].entries
        found = [seen(machine, seed)[subject] for seed in range(runs)]
        # A victim at random now and then hits: then half of the rise has come at 1.4 times as many.
        soft = MACHINES[machine].levels[place][0].policy == "random"
        assert sum(one.verdict == "supported" for one in found) >= runs - 1 - soft, subject
        assert not any(one.verdict == "refuted" for one in found)
        assert sum(one.low <= entries <= one.high for one in found) >= runs - 1, subject


def test_a_rise_that_begins_early_is_remarked() -> None:
    found = seen("hashed second level", 1)
    assert found["second-level TLB 4 KiB"].reasons[1].code == "early"
    assert "full before the others" in found["second-level TLB 4 KiB"].reason
    assert [reason.code for reason in found["data TLB 4 KiB"].reasons] == ["at_reach"]


@pytest.mark.parametrize("reported", [(32, 768), (128, 2900), (48, 2900)])
def test_other_entries_than_those_there_are_not_supported(reported: tuple[int, int]) -> None:
    for seed in range(2):
        found = seen("oldest of all", seed, reported)
        assert found["data TLB 4 KiB"].verdict == "refuted"
        assert found["second-level TLB 4 KiB"].verdict == "refuted"


@pytest.mark.slow
def test_without_misses_no_knee_is_found() -> None:
    runs, knees, supported = 240, 0, 0
    for seed in range(runs):
        found = findings(run_of(NONE.samples(1000 + seed), tlb(1, 64, 4), tlb(2, 1536, 12)))
        knees += any(one.evidence["begins_pages"] for one in found)
        supported += sum(one.verdict == "supported" for one in found)
    most = 0.05 * runs + 2 * math.sqrt(0.05 * 0.95 * runs)
    assert knees <= most
    assert supported == 0


def test_no_knee_is_a_refutation_where_one_would_have_been_seen() -> None:
    reports = tlb(1, 64, 4), tlb(2, 1536, 12)
    quiet = Machine((), noise=0.002, far=0.0, burst_share=0.0)
    found = by_subject(findings(run_of(quiet.samples(), *reports)))
    assert {one.verdict for one in found.values()} == {"refuted"}
    assert "There is no knee" in found["data TLB 4 KiB"].reason
    few = by_subject(findings(run_of(quiet.samples(rounds=1), *reports)))
    assert {one.reasons[0].code for one in few.values()} == {"too_few"}
    noisy = Machine((), noise=0.3)
    found = by_subject(findings(run_of(noisy.samples(rounds=8), *reports)))
    assert {one.reasons[0].code for one in found.values()} == {"no_knee_seen"}


def test_control_against_control_shows_no_knee() -> None:
    """Packed lines stand for those spread, too: noise of the control, beyond the cache as well."""
    made = MACHINES["oldest of a set"].samples(3, rounds=48)
    packed = made[made["lines"] == "packed"]
    even = packed[packed["round"] % 2 == 0].assign(lines="spread", round=lambda t: t["round"] // 2)
    odd = packed[packed["round"] % 2 == 1].assign(round=lambda t: t["round"] // 2)
    found = findings(run_of(pd.concat([even, odd]), tlb(1, 96, 6), tlb(2, 1536, 12)))
    assert not any(one.evidence["begins_pages"] for one in found)
    assert all(one.verdict != "supported" for one in found)


def test_what_is_not_reported_stays_open_and_what_is_published_is_marked() -> None:
    made = MACHINES["oldest of all"].samples()
    unknown = by_subject(findings(run_of(made)))
    assert {one.verdict for one in unknown.values()} == {"inconclusive"}
    assert unknown["data TLB 4 KiB"].low <= 64 <= unknown["data TLB 4 KiB"].high
    assert "is not known" in unknown["data TLB 4 KiB"].reason
    run = run_of(made, tlb(1, 64, 64), tlb(2, 2048, 16))
    run.provenance["machine"]["tlbs_origin"] = "published for Zen 2"
    found = by_subject(findings(run))
    assert found["data TLB 4 KiB"].verdict == "supported"
    assert "published for Zen 2" in found["data TLB 4 KiB"].reason


def test_too_few_pages_decide_nothing() -> None:
    made = Machine(((FULL, 1.75),), pages={"4k": numbers(16, 512, 6)})
    found = by_subject(findings(run_of(made.samples(), tlb(1, 64, 64), tlb(2, 1536, 12))))
    assert found["data TLB 4 KiB"].verdict == "supported"
    second = found["second-level TLB 4 KiB"]
    assert (second.verdict, second.reasons[0].code) == ("inconclusive", "too_small")
    assert "512, are too few" in second.reason


def test_one_knee_is_one_levels() -> None:
    made = Machine(((SECOND, 12.0),))  # a first level whose misses cost nothing
    found = by_subject(findings(run_of(made.samples(), tlb(1, 64, 64), tlb(2, 1536, 12))))
    assert found["data TLB 4 KiB"].reasons[0].code == "one_knee"
    assert found["second-level TLB 4 KiB"].verdict == "supported"


def test_huge_pages_have_entries_of_their_own() -> None:
    made = Machine(((Level(32, 4), 1.75),), pages={"thp": numbers(8, 128, 6)})
    own = tlb(1, 32, 4, 2 << 20)
    (found,) = findings(run_of(made.samples(), tlb(1, 64, 64), own))
    assert (found.subject, found.verdict) == ("data TLB 2 MiB", "supported")
    small, huge = [[1.2, 2.9]] * 9, [[1.2, 2.91], [1.2, 2.9], [1.2, 2.89]] * 3
    control = {"page_reach": {"4k": small, "thp": huge}}
    refuted, prevented = findings(run_of(made.samples(), own, plan=control))
    assert (refuted.subject, refuted.verdict) == ("huge pages thp", "refuted")
    assert (prevented.verdict, prevented.reasons[0].code) == ("inconclusive", "not_backed")


def rise(pages: float, half: float = 0.0) -> Rise:
    here = Interval(pages, pages * 0.9, pages * 1.1)
    middle = half or pages
    return Rise(
        Knee(here, Interval(1, 1, 1), 0.01), Interval(middle, pages * 0.9, middle * 1.1)
    )  # fmt: skip


def test_a_knee_belongs_to_the_nearest_level() -> None:
    both, one = Entries({1: 64, 2: 2048}), Entries({1: 64})
    first, second = rise(70), rise(1300, 2000)
    assert rise_of(1, [first, second], both) == first
    assert rise_of(2, [first, second], both) == second
    assert rise_of(1, [second], both) is None
    assert rise_of(2, [first], both) is None
    assert rise_of(2, [first, second], one) == second
    assert rise_of(2, [first], one) is None
    assert rise_of(1, [first, second], Entries({})) == first
    assert rise_of(2, [first, second], Entries({})) == second
    assert rise_of(1, [], both) is None


# --- a knee and a level --------------------------------------------------------------------------


def test_a_size_between_where_a_rise_begins_and_its_half_is_near() -> None:
    found = Interval(2000, 1200, 2300)
    assert at_level(found, {"L2": 2048}, 20)[0].verdict == "supported"
    assert at_level(found, {"L2": 1536}, 20)[0].verdict == "inconclusive"
    decision, name = at_level(found, {"L2": 1536}, 20, begins=1300)
    assert (decision.verdict, name) == ("supported", "L2")
    assert at_level(found, {"L2": 1000}, 20, begins=1300)[0].verdict == "inconclusive"
    assert at_level(found, {"L2": 512}, 20, begins=1300)[0].verdict == "refuted"
    assert at_level(found, {"L2": 4096}, 20, begins=1300)[0].verdict == "refuted"
    assert at_level(Interval(2000, 900, 4200), {"L2": 2048}, 20)[0].reasons[0].code == "open"


# --- ways ----------------------------------------------------------------------------------------


@functools.cache
def ways_seen(level: Level, second: Level, reported: int | None, seed: int) -> Finding:
    made = Machine(
        ((level, 1.75), (second, 12.0)),
        pages={"4k": numbers(16, 4608, 6)},
        strides=STRIDES,
        few=(*range(2, 16), *numbers(16, 160, 6)),
    )
    reports = [tlb(1, level.entries, reported)] if reported else []
    return by_subject(findings(run_of(made.samples(seed), *reports)))["data TLB ways"]


@pytest.mark.parametrize(
    ("level", "second"),
    [
        (SETS, SECOND),
        (SETS, HASHED),
        (TREE, HASHED),
        (Level(64, 16), HASHED),
        (FULL, Level(2048, 8, hashed=True)),
    ],
    ids=["96/6", "96/6 before a hash", "64/4 by a tree", "64/16", "any page in any entry"],
)
def test_ways_are_found(level: Level, second: Level) -> None:
    found = [ways_seen(level, second, level.ways, seed) for seed in range(4)]
    assert sum(one.verdict == "supported" for one in found) >= 3
    assert not any(one.verdict == "refuted" for one in found)
    assert sum(one.low <= level.ways < one.high for one in found) >= 3
    if level.ways < level.entries:
        sets = level.entries // level.ways
        assert sum(one.evidence["sets"] == sets for one in found) >= 3


def test_other_ways_are_not_supported_and_unknown_ones_stay_open() -> None:
    for seed in range(3):
        assert ways_seen(SETS, HASHED, 12, seed).verdict == "refuted"
        assert ways_seen(SETS, HASHED, 3, seed).verdict == "refuted"
    unknown = ways_seen(SETS, HASHED, None, 0)
    assert (unknown.verdict, unknown.low) == ("inconclusive", 6)
    assert "16 sets" in unknown.reason


def test_ways_behind_a_hash_are_open_not_false() -> None:
    hashed = Level(64, 4, hashed=True)
    for seed in range(6):
        found = ways_seen(hashed, HASHED, 4, seed)
        assert (found.verdict, found.reasons[0].code) == ("inconclusive", "hashed")


def fits(**pages: tuple[float, float]) -> dict[int, Interval | None]:
    return {int(name[1:]): Interval(low, low, high) for name, (low, high) in pages.items()}


def test_ways_from_what_fits() -> None:
    entries = Interval(64, 64, 72)
    plain = find_ways(entries, fits(_4=(16, 18), _16=(4, 5), _32=(4, 5), _64=(3, 5)))
    assert (plain.sets, plain.fit.low, plain.fit.high) == (16, 4, 5)
    assert (plain.widest.low, plain.widest.high) == (3, 5)
    assert plain.decide(4).verdict == "supported"
    assert plain.decide(3).verdict == "inconclusive"
    assert plain.decide(8).verdict == "refuted"
    assert plain.decide(None).reasons[1].code == "reach_unknown"
    # A hash by exclusive or spreads pages that are a power of two apart, too.
    spread = find_ways(entries, fits(_4=(64, 72), _16=(64, 72), _64=(64, 72)))
    assert (spread.sets, spread.why.code) == (1, "no_sets")
    assert spread.decide(64).verdict == "supported"
    assert spread.decide(4).verdict == "inconclusive"
    partly = find_ways(entries, fits(_4=(64, 72), _16=(64, 72), _32=(32, 36), _64=(16, 18)))
    assert partly.why.code == "hashed"
    falling = find_ways(entries, fits(_4=(16, 18), _16=(4, 5)))
    assert falling.why.code == "farther"
    assert find_ways(entries, {4: None}).why.code == "no_knee_apart"
    assert find_ways(None, fits(_4=(16, 18))).why.code == "no_entries"
    assert find_ways(entries, fits(_4=(64, 72)), blurred=True).why.code == "hashed"
    assert partly.decide(4).verdict == falling.decide(4).verdict == "inconclusive"


# --- tables and what is refused ------------------------------------------------------------------


def test_pages_of_4_kib_that_are_far_apart_only_say_nothing_of_ways() -> None:
    table = MACHINES["oldest of all"].samples(rounds=2)
    packed = table["lines"] == "packed"
    table.loc[~packed, "stride"] = 2
    huge = table[table["stride"] != 2].assign(backing="madvise", stride=1)
    huge = pd.concat([huge, huge.assign(lines="spread")])
    found = by_subject(findings(run_of(pd.concat([table, huge]))))
    assert "data TLB ways" not in found
    assert not [subject for subject in found if "4 KiB" in subject]
