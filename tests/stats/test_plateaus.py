"""Levels of memory from simulated latency curves, and caches that claim them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from perflib.stats.interval import Interval
from perflib.stats.plateaus import Plateau, find_levels, match
from tests.slow import mostly_slow

Floats = NDArray[np.float64]
KIB, MIB = 1024.0, 1024.0**2
SIZES = 2 * KIB * 2 ** (np.arange(52) / 3)  # to 256 MiB
NEVER_HITS = 1e4  # a cache that evicts the oldest line


@dataclass(frozen=True)
class Machine:
    """Latencies of its levels, where caches end, and how their misses begin.

    ``sharpness``: the hit share beyond a cache of C is ``(C / s) ** sharpness``. ``blur``: the last
    cache is of any size between ``exp(-blur)`` and ``exp(blur)`` times its own, as others leave it.
    """

    latency: tuple[float, ...]
    ends: tuple[float, ...]
    sharpness: float = 1.0
    noise: float = 0.03
    blur: float = 0.0
    drift: float = 0.1
    batches: int = 8

    def curve(self) -> Floats:
        curve = np.full(SIZES.size, self.latency[0])
        for n, end in enumerate(self.ends):
            blur = self.blur if n == len(self.ends) - 1 else 0.0
            held = end * np.exp(np.linspace(-blur, blur, 41))
            hits = np.minimum(held[:, None] / SIZES, 1.0) ** self.sharpness
            curve += (self.latency[n + 1] - self.latency[n]) * (1 - hits.mean(axis=0))
        return np.asarray(curve)

    def data(self, generator: np.random.Generator) -> Floats:
        noise = self.noise * generator.standard_normal((self.batches, SIZES.size))
        drift = self.drift * np.linspace(-0.5, 0.5, self.batches)[:, None]
        return np.asarray(np.log(self.curve()) + drift + noise)


THREE = ((4.0, 14.0, 200.0), (32 * KIB, MIB))
FOUR = ((4.0, 14.0, 50.0, 250.0), (32 * KIB, MIB, 32 * MIB))
CLOSE = ((4.0, 12.0, 40.0, 250.0), (32 * KIB, 256 * KIB, 8 * MIB))
FIVE = ((4.0, 14.0, 30.0, 60.0, 250.0), (32 * KIB, 256 * KIB, 2 * MIB, 32 * MIB))
CLEAR = {
    f"{name}, sharpness {sharpness:g}, noise {noise:g}": Machine(*shape, sharpness, noise)
    for name, shape in {"three": THREE, "four": FOUR, "close": CLOSE, "five": FIVE}.items()
    for sharpness, noise in ((1.0, 0.01), (2.0, 0.05), (NEVER_HITS, 0.1))
}


QUICK = {
    "three, sharpness 1, noise 0.01", "close, sharpness 2, noise 0.05",
    "four, sharpness 10000, noise 0.1", "five, sharpness 1, noise 0.01",
}  # fmt: skip


@pytest.mark.parametrize("machine", mostly_slow(CLEAR, QUICK))
def test_clear_levels_are_counted_and_end_where_caches_do(machine: Machine) -> None:
    runs = 12
    generator = np.random.default_rng(1)
    seen = [find_levels(SIZES, machine.data(generator)) for _ in range(runs)]
    right = [levels for levels in seen if len(levels) == len(machine.latency)]
    assert len(right) >= 11
    for levels in right:
        assert levels[0].first_bytes == SIZES[0]
        assert levels[-1].end_bytes is None
        for level, end in zip(levels, machine.ends, strict=False):
            assert level.end_bytes is not None
            assert abs(math.log2(level.end_bytes / end)) <= 0.5
            assert level.first_bytes <= level.array_bytes <= level.last_bytes
            assert level.array_bytes in SIZES


@pytest.mark.parametrize("sharpness", [1.0, NEVER_HITS])
def test_shared_cache_whose_end_is_blurred_is_still_one_level(sharpness: float) -> None:
    """It ends where it begins to miss: at the least that the others leave."""
    machine = Machine(*FOUR, sharpness, noise=0.02, blur=0.7)
    generator = np.random.default_rng(3)
    seen = [find_levels(SIZES, machine.data(generator)) for _ in range(10)]
    ends = [levels[2].end_bytes for levels in seen if len(levels) == 4]
    assert len(ends) >= 9
    for end in ends:
        assert end is not None
        assert 0.3 * 32 * MIB < end < 1.1 * 32 * MIB


@pytest.mark.parametrize(("noise", "batches"), [(0.01, 8), (0.1, 8), (0.1, 1)])
def test_flat_curve_is_one_level(noise: float, batches: int) -> None:
    """One batch shows its noise from size to size."""
    generator = np.random.default_rng(4)
    machine = Machine((5.0,), (), noise=noise, batches=batches)
    for _ in range(8):
        (level,) = find_levels(SIZES, machine.data(generator))
        assert (level.first_bytes, level.last_bytes) == (SIZES[0], SIZES[-1])
        assert level.next_bytes is None


@pytest.mark.parametrize("a_doubling", [0.2, 0.3, 0.5])
def test_ramp_has_no_level(a_doubling: float) -> None:
    generator = np.random.default_rng(5)
    ramp = a_doubling * np.log2(SIZES / SIZES[0])
    none = 0
    for noise in (0.01, 0.03, 0.1):
        for _ in range(4):
            none += not find_levels(SIZES, ramp + noise * generator.standard_normal((8, 52)))
    assert none >= 11


def test_intervals_cover_the_mean_over_the_levels_sizes() -> None:
    machine = Machine(*FOUR, NEVER_HITS, noise=0.05, drift=0.0)
    generator = np.random.default_rng(6)
    covered = []
    for _ in range(30):
        levels = find_levels(SIZES, machine.data(generator))
        covered += [
            level.latency.low <= truth <= level.latency.high
            for level, truth in zip(levels, machine.latency, strict=False)
            if len(levels) == 4
        ]
    assert len(covered) >= 110
    assert np.mean(covered) >= 0.91


def test_slow_rise_of_memory_by_the_tlb_is_no_level_of_its_own() -> None:
    machine = Machine(*FOUR, 2.0, noise=0.01)
    rise = 0.06 * np.maximum(np.log2(SIZES / (64 * MIB)), 0)
    levels = find_levels(SIZES, machine.data(np.random.default_rng(7)) + rise)
    assert len(levels) == 4


# --- what it is given --------------------------------------------------------------------------


def test_missing_cells_sizes_and_batches_change_little() -> None:
    values = Machine(*FOUR).data(np.random.default_rng(9))
    whole = find_levels(SIZES, values)
    generator = np.random.default_rng(10)
    values[generator.random(values.shape) < 0.1] = np.nan
    values[3] = np.nan
    values[:, [2, 20]] = np.nan
    part = find_levels(SIZES, values)
    assert len(part) == len(whole) == 4
    for one, other in zip(whole, part, strict=True):
        assert one.latency.effect == pytest.approx(other.latency.effect, rel=0.1)


def test_one_batch_has_levels_without_intervals() -> None:
    values = Machine(*FOUR, 2.0, noise=0.01, batches=1).data(np.random.default_rng(12))
    levels = find_levels(SIZES, values[0])
    assert len(levels) == 4
    assert all(math.isnan(level.latency.low) for level in levels)


def test_too_little_gives_no_level() -> None:
    assert find_levels(SIZES, np.full((8, 52), np.nan)) == ()
    assert find_levels([1, 2, 3], np.zeros((8, 3))) == ()
    assert find_levels([], np.zeros((8, 0))) == ()


@pytest.mark.parametrize(
    ("sizes", "columns", "message"),
    [
        ([1.0, 3.0, 2.0], 3, "ascend"),
        ([0.0, 1.0, 2.0], 3, "positive"),
        ([1.0, math.nan, 2.0], 3, "ascend"),
        ([1.0, 2.0, 3.0], 4, "3 sizes"),
    ],
)
def test_wrong_arguments_are_refused(sizes: list[float], columns: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_levels(sizes, np.zeros((8, columns)))


# --- claims ------------------------------------------------------------------------------------

CLAIMED = {"L1d": 32 * KIB, "L2": MIB, "L3": 32 * MIB}


def levels_ending(*ends: float) -> list[Plateau]:
    """Levels without gaps between them, the last one open to 256 MiB."""
    latency = Interval(1.0, 0.9, 1.1)
    starts = [2 * KIB, *ends]
    return [
        Plateau(latency, start, end or 256 * MIB, start, None if end is None else end * 1.26)
        for start, end in zip(starts, [*ends, None], strict=True)
    ]


def test_levels_get_the_claims_that_they_end_at() -> None:
    levels = find_levels(SIZES, Machine(*FOUR, 2.0).data(np.random.default_rng(13)))
    found = match(levels, {"L3": 32 * MIB, "L1d": 32 * KIB, "L2": MIB})
    assert [(claim.name, claim.level) for claim in found.claims] == [
        ("L1d", 0), ("L2", 1), ("L3", 2),
    ]  # fmt: skip
    assert all(claim.agrees for claim in found.claims)
    assert (found.memory, found.unclaimed, found.unseen) == (3, (), ())


def test_cache_that_answers_like_memory_is_unseen() -> None:
    found = match(levels_ending(32 * KIB, MIB), CLAIMED)
    assert found.unseen == ("L3",)
    assert found.claims[2].ratio is None
    assert found.memory == 2


def test_shared_cache_may_end_early_but_does_not_agree() -> None:
    found = match(levels_ending(32 * KIB, 2 * MIB, 8 * MIB), {**CLAIMED, "L2": 2 * MIB})
    assert [claim.level for claim in found.claims] == [0, 1, 2]
    assert [claim.agrees for claim in found.claims] == [True, True, False]
    assert found.claims[2].ratio == pytest.approx(0.25, rel=0.2)


def test_level_that_nobody_claims_until_a_tlb_does() -> None:
    levels = levels_ending(32 * KIB, 288 * KIB, MIB, 32 * MIB)
    assert match(levels, CLAIMED).unclaimed == (1,)
    found = match(levels, {**CLAIMED, "dTLB": 288 * KIB})
    assert found.unclaimed == ()
    assert found.claims[1].name == "dTLB"
    assert found.claims[1].level == 1


def test_claim_of_a_tlb_that_does_not_show_takes_no_cache_away() -> None:
    found = match(levels_ending(32 * KIB, MIB, 32 * MIB), {**CLAIMED, "dTLB": 288 * KIB})
    assert found.unseen == ("dTLB",)
    assert [claim.level for claim in found.claims] == [0, None, 1, 2]


def test_sizes_that_do_not_go_beyond_the_largest_claim_show_no_memory() -> None:
    found = match(levels_ending(32 * KIB, MIB), {**CLAIMED, "L3": 512 * MIB})
    assert found.memory is None
    assert found.claims[2].level == 2
    assert found.claims[2].ratio is None
    assert not found.claims[2].agrees


def test_nothing_to_match() -> None:
    assert match([], CLAIMED).unseen == ("L1d", "L2", "L3")
    found = match(levels_ending(32 * KIB), {})
    assert (found.claims, found.memory, found.unclaimed) == ((), 1, (0,))
