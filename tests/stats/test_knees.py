"""Knees on simulated curves: found where they are, as surely as is said, and nowhere else."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from perflib.stats.knees import Knees, find_knees, half_rises
from tests.slow import mostly_slow
from tests.stats.simulated import at_least, at_most, resembling

Floats = NDArray[np.float64]
KIB, MIB = 1024, 1024**2
SIZES = np.geomspace(64 * KIB, 8 * MIB, 14)


@dataclass(frozen=True)
class Curve:
    """Batches of a made-up machine: ``knees`` are pairs of size and height (0.1: 10 % slower).

    ``form``: the rise is 1 - K/s, a step, a step that takes the share ``blur`` of K to rise, or one
    that is blurred to both sides. ``noise``: the standard deviation of a cell, ``correlated``
    between sizes. Whole batches are shifted by about ``shift``, and drift by as much.
    """

    knees: tuple[tuple[float, float], ...] = ()
    form: Literal["random", "step", "ramp", "both sides"] = "step"
    blur: float = 0.12
    batches: int = 12
    noise: float = 0.01
    correlated: float = 0.0
    shift: float = 0.05
    offset: float = 0.0
    missing: float = 0.0

    def rise(self, sizes: Floats, knee: float) -> Floats:
        if self.form == "random":
            return np.maximum(0, 1 - knee / sizes)
        if self.form == "ramp":
            return np.clip((sizes - knee) / (self.blur * knee), 0, 1)
        if self.form == "both sides":
            return np.asarray(1 / (1 + (knee / sizes) ** (1 / self.blur)))
        return (sizes > knee).astype(np.float64)

    def data(self, generator: np.random.Generator, sizes: Floats = SIZES) -> Floats:
        shape = (self.batches, sizes.size)
        noise = resembling(generator.standard_t(3, shape) / math.sqrt(3), self.correlated)
        slower = np.zeros(sizes.size)
        for knee, height in self.knees:
            slower += height * self.rise(sizes, knee)
        cycles = np.linspace(0, generator.uniform(0.3, 1.5), self.batches) + generator.uniform()
        shared = generator.standard_t(3, self.batches) + np.sin(2 * np.pi * cycles)
        values = np.log1p(slower) + self.offset + self.noise * noise + self.shift * shared[:, None]
        values[generator.random(shape) < self.missing] = np.nan
        return np.asarray(values)


@functools.cache
def found(curve: Curve, runs: int) -> list[Knees]:
    generator = np.random.default_rng(1)
    shape: Literal["random", "cyclic"] = "random" if curve.form == "random" else "cyclic"
    return [find_knees(SIZES, curve.data(generator), shape) for _ in range(runs)]


# --- no knee -----------------------------------------------------------------------------------

FLAT = {
    "5 batches": Curve(batches=5, noise=0.03, form="random"),
    "8 batches, correlated, offset": Curve(batches=8, noise=0.03, correlated=0.8, offset=0.02),
}


@pytest.mark.parametrize("curve", mostly_slow(FLAT, {"5 batches"}))
def test_no_knee_is_found_in_flat_curves(curve: Curve) -> None:
    runs = 150
    seen = found(curve, runs)
    assert sum(bool(knees.knees) for knees in seen) <= at_most(runs, 0.05)
    assert sum(knees.p <= 0.05 for knees in seen) <= at_most(runs, 0.05)
    assert sum(knees.p <= 0.5 for knees in seen) <= at_most(runs, 0.5)
    assert sum(knees.bound >= 0 for knees in seen) >= at_least(runs, 0.95)
    assert sum(knees.offset.low <= curve.offset <= knees.offset.high for knees in seen) >= (
        at_least(runs, 0.92)  # batches that drift in phase
    )


def test_bound_covers_a_rise_too_small_to_be_seen() -> None:
    runs = 25
    for form in ("random", "step"):
        curve = Curve(knees=((MIB, 0.02),), form=form, batches=8, noise=0.05)
        top = math.log1p(0.02 * curve.rise(SIZES, MIB)[-1])
        assert sum(knees.bound >= top for knees in found(curve, runs)) >= at_least(runs, 0.95)


def test_meaningless_rise_is_no_knee_however_certain() -> None:
    values = Curve(knees=((MIB, 0.001),), noise=1e-4).data(np.random.default_rng(1))
    seen = find_knees(SIZES, values, "cyclic")
    assert seen.p < 0.001
    assert seen.knees == ()
    assert seen.bound < 0.002
    (knee,) = find_knees(SIZES, values, "cyclic", least=0.0005).knees
    assert knee.size.low <= MIB <= knee.size.high


def test_beyond_the_sizes_there_is_no_knee_but_an_offset() -> None:
    generator = np.random.default_rng(2)
    for knee in (SIZES[0] / 3, SIZES[-1] * 1.1):
        curve = Curve(knees=((knee, 0.2),), shift=0.002)
        seen = find_knees(SIZES, curve.data(generator), "cyclic")
        assert seen.knees == ()
        assert seen.p > 0.05
        assert seen.bound < 0.05
        expected = math.log(1.2) if knee < SIZES[0] else 0.0
        assert seen.offset.effect == pytest.approx(expected, abs=0.01)


# --- one knee ----------------------------------------------------------------------------------

ONE = {
    "random 10 %": Curve(knees=((0.7 * MIB, 0.1),), form="random"),
    "random 200 %": Curve(knees=((0.9 * MIB, 2.0),), form="random", noise=0.005),
    "random 50 %, much noise": Curve(knees=((0.5 * MIB, 0.5),), form="random", noise=0.05),
    "step 10 %, 8 batches": Curve(knees=((1.1 * MIB, 0.1),), noise=0.03, batches=8),
    "step 200 % at a size": Curve(knees=((float(SIZES[6]), 2.0),), noise=0.005),
    "step 5 %, missing": Curve(knees=((0.4 * MIB, 0.05),), missing=0.05),
    "ramp 100 %": Curve(knees=((0.8 * MIB, 1.0),), form="ramp", noise=0.02),
    "ramp 20 %, 24 batches": Curve(knees=((0.8 * MIB, 0.2),), form="ramp", batches=24),
    "correlated sizes": Curve(knees=((1.3 * MIB, 0.3),), correlated=0.8, noise=0.03),
}
QUICK = {"random 200 %", "step 10 %, 8 batches", "step 200 % at a size", "ramp 100 %"}
RUNS = 20


@pytest.mark.parametrize("curve", mostly_slow(ONE, QUICK))
def test_knee_is_found_and_its_intervals_cover(curve: Curve) -> None:
    size, height = curve.knees[0]
    top = math.log1p(height * curve.rise(SIZES, size)[-1])
    seen = found(curve, RUNS)
    single = [knees.knees[0] for knees in seen if len(knees.knees) == 1]
    assert len(single) >= at_least(RUNS, 0.95)
    assert sum(knee.size.low <= size <= knee.size.high for knee in single) >= (
        at_least(len(single), 0.95)
    )
    assert sum(knee.height.low <= top <= knee.height.high for knee in single) >= (
        at_least(len(single), 0.9)  # sampled curves are not exactly the family's
    )
    for knee in single:
        assert knee.p <= 0.05
        ends = {0.0, *SIZES.tolist()}
        assert {knee.size.low, knee.size.high} <= ends
        assert knee.size.low < knee.size.effect < knee.size.high
    ratios = [knee.size.effect / size for knee in single]
    assert 0.8 < float(np.median(ratios)) < 1.25


def test_interval_is_not_the_whole_range_where_the_knee_is_plain() -> None:
    for name in ("random 200 %", "step 200 % at a size", "ramp 100 %"):
        widths = [
            knee.size.high / max(knee.size.low, 1) for knees in found(ONE[name], RUNS)
            for knee in knees.knees
        ]  # fmt: skip
        assert float(np.median(widths)) < 2.5, name


@pytest.mark.parametrize("blur", [0.05, 0.08])
def test_step_blurred_to_both_sides_is_one_knee(blur: float) -> None:
    """Where it *begins* to rise is a little below its middle."""
    sizes = np.geomspace(128 * KIB, 8 * MIB, 24)
    curve = Curve(knees=((MIB, 1.0),), form="both sides", blur=blur)
    generator = np.random.default_rng(4)
    for _ in range(3):
        (knee,) = find_knees(sizes, curve.data(generator, sizes), "cyclic").knees
        assert 0.75 * MIB < knee.size.effect < 1.05 * MIB


def test_curve_that_rises_and_falls_again_has_its_knee_at_the_rise() -> None:
    """From some size on both ways wait for the same memory, and the ratio goes back to 1."""
    generator = np.random.default_rng(5)
    values = Curve().data(generator)
    values[:, 5:8] += 1.1
    values[:, 8:10] += 0.5
    knees = find_knees(SIZES, values, "cyclic").knees
    assert knees
    assert (knees[0].size.low, knees[0].size.high) == (SIZES[4], SIZES[5])


# --- two knees ---------------------------------------------------------------------------------

TWO = {
    "step": Curve(knees=((0.2 * MIB, 0.1), (1.7 * MIB, 0.3))),
    "step, small second": Curve(knees=((0.2 * MIB, 0.5), (1.7 * MIB, 0.1))),
    "random": Curve(knees=((0.2 * MIB, 0.2), (1.7 * MIB, 0.3)), form="random"),
    "ramp": Curve(knees=((0.2 * MIB, 0.1), (1.2 * MIB, 0.1)), form="ramp", noise=0.02),
}


@pytest.mark.parametrize("curve", mostly_slow(TWO, {"step, small second", "random"}))
def test_two_knees_are_found(curve: Curve) -> None:
    runs = 12
    both = [knees.knees for knees in found(curve, runs) if len(knees.knees) == 2]
    assert len(both) >= at_least(runs, 0.95)
    for n, (size, _) in enumerate(curve.knees):
        covered = sum(knees[n].size.low <= size <= knees[n].size.high for knees in both)
        assert covered >= at_least(len(both), 0.93), n
    for first, second in both:
        assert first.size.effect < second.size.effect
        assert max(first.p, second.p) <= 0.05


# --- what it is given --------------------------------------------------------------------------


def test_excess_is_reported_for_each_size() -> None:
    values = Curve(knees=((MIB, 0.5),), shift=0).data(np.random.default_rng(8))
    values[:, 3] = np.nan
    seen = find_knees(SIZES, values, "cyclic")
    assert len(seen.excess) == SIZES.size
    assert math.isnan(seen.excess[3].effect)
    assert seen.excess[0].effect == pytest.approx(0, abs=0.02)
    assert seen.excess[-1].effect == pytest.approx(math.log(1.5), abs=0.02)
    assert len(seen.knees) == 1


def test_missing_batch_and_missing_size_change_little() -> None:
    values = Curve(knees=((MIB, 0.3),)).data(np.random.default_rng(10))
    (whole,) = find_knees(SIZES, values, "cyclic").knees
    values[2] = np.nan
    values[3, :6] = np.nan
    values[:, 0] = np.nan
    (part,) = find_knees(SIZES, values, "cyclic").knees
    assert part.size.low <= whole.size.effect <= part.size.high
    assert part.height.effect == pytest.approx(whole.height.effect, abs=0.02)


@pytest.mark.parametrize(
    "values", [np.zeros((0, 14)), np.ones((1, 14)), np.full((8, 14), np.nan)], ids=str
)
def test_too_few_batches_give_no_verdict(values: Floats) -> None:
    seen = find_knees(SIZES, values, "cyclic")
    assert (seen.knees, seen.p) == ((), 1.0)
    assert math.isnan(seen.bound)
    assert len(seen.excess) == 14


def test_too_few_sizes_give_no_verdict() -> None:
    values = np.tile([0.0, 1.0], (8, 1))
    seen = find_knees([1, 2], values, "random")
    assert (seen.knees, seen.p) == ((), 1.0)
    assert seen.excess[1].effect == 1.0


def test_cells_that_compare_nothing_are_left_out() -> None:
    values = np.tile(np.where(SIZES > MIB, 0.5, 0.0), (8, 1))
    lone = np.full((2, 14), np.nan)
    lone[:, 3] = 0.1
    values[:, 3] = np.nan
    (knee,) = find_knees(SIZES, np.vstack([values, lone]), "cyclic").knees
    assert knee.size.low <= MIB <= knee.size.high
    scattered = np.where(np.eye(14, dtype=np.bool_), 1.0, np.nan)
    assert find_knees(SIZES, scattered, "random").p == 1.0


def test_four_batches_are_too_few_for_any_knee_and_no_noise_is_none() -> None:
    step = np.where(SIZES > MIB, 0.5, 0.0)
    assert find_knees(SIZES, np.tile(step, (4, 1)), "cyclic").p == 1 / 16
    assert find_knees(SIZES, np.zeros((8, 14)), "cyclic").p == 1.0
    (knee,) = find_knees(SIZES, np.tile(step, (8, 1)), "cyclic").knees
    assert knee.size.low <= MIB <= knee.size.high
    assert knee.height.effect == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("sizes", "columns", "shape", "message"),
    [
        ([1.0, 3.0, 2.0], 3, "random", "ascend"),
        ([1.0, 2.0, 2.0], 3, "random", "ascend"),
        ([0.0, 1.0, 2.0], 3, "random", "positive"),
        ([1.0, math.nan, 2.0], 3, "random", "ascend"),
        ([1.0, 2.0, 3.0], 4, "random", "3 sizes"),
        ([1.0, 2.0, 3.0], 3, "ring", "random, cyclic"),
    ],
)
def test_wrong_arguments_are_refused(
    sizes: list[float], columns: int, shape: Literal["random", "cyclic"], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        find_knees(sizes, np.zeros((8, columns)), shape)


# --- where half of a rise has come ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "blur", "half"), [("step", 0.0, 1.0), ("ramp", 0.6, 1.3), ("both sides", 0.1, 1.0)]
)
def test_half_of_a_rise_is_where_it_is(
    form: Literal["step", "ramp", "both sides"], blur: float, half: float
) -> None:
    runs, place = 12, 0.9 * MIB
    curve = Curve(knees=((place, 1.0),), form=form, blur=blur, noise=0.02)
    covered = 0
    for seen in found(curve, runs):
        (knee,), (middle,) = seen.knees, half_rises(SIZES, seen)
        covered += middle.low <= half * place <= middle.high
        assert middle.low <= middle.effect <= middle.high
        assert middle.low == knee.size.low
    assert covered >= at_least(runs, 0.95)


def test_halves_of_two_rises_are_between_their_own_levels() -> None:
    curve = Curve(knees=((200 * KIB, 1.5), (3 * MIB, 6.0)), noise=0.02)
    for seen in found(curve, 4):
        first, second = half_rises(SIZES, seen)
        assert first.low <= 200 * KIB <= first.high < second.low <= 3 * MIB <= second.high
    assert half_rises(SIZES, found(Curve(), 1)[0]) == ()
