"""The ratio of two knees: covered as often as is said, with noise that is not Student's own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from perflib.stats.knee_ratio import SizeCurve, knee_ratio
from tests.stats.simulated import at_least

KIB = 1024.0
SIZES = KIB * np.array(
    [8, 32, 64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048]
)


def curve(
    generator: np.random.Generator,
    knee_kib: float,
    height: float,
    *,
    batches: int = 12,
    sharpness: float = 1.0,
    missing: float = 0.0,
) -> SizeCurve:
    """A curve with heavy tails; one batch in six is disturbed at all sizes, each differently."""
    rise = 1 - np.minimum(1, knee_kib * KIB / SIZES) ** sharpness
    noise = 0.008 * generator.standard_t(3, (batches, SIZES.size))
    noise *= np.where(generator.random((batches, 1)) < 1 / 6, 4, 1)
    noise += generator.normal(0, 0.03, (batches, 1))
    noise[generator.random(noise.shape) < missing] = np.nan
    return SizeCurve(SIZES, np.log1p(height * rise) + noise)


@pytest.mark.parametrize(
    ("second_kib", "height", "batches", "missing"),
    [(512.0, 0.3, 8, 0.0), (512.0, 0.3, 24, 0.1), (768.0, 0.2, 12, 0.0), (300.0, 0.4, 12, 0.05)],
)
def test_the_interval_covers_the_ratio(
    second_kib: float, height: float, batches: int, missing: float
) -> None:
    covered, trials = 0, 100
    for seed in range(trials):
        generator = np.random.default_rng(seed)
        first = curve(generator, 512, 0.3, batches=batches, missing=missing)
        second = curve(generator, second_kib, height, batches=batches, missing=missing)
        found = knee_ratio(first, second)
        covered += found.low <= math.log(second_kib / 512) <= found.high
    assert covered >= at_least(trials, 0.93)


def test_rises_that_are_not_of_the_shape_are_off_alike() -> None:
    """TLBs with other replacement rise more steeply: the ratio of two such knees stays."""
    generator = np.random.default_rng(3)
    first, second = (curve(generator, 512, 0.3, batches=24, sharpness=2.0) for _ in range(2))
    found = knee_ratio(first, second)
    assert found.low < 0 < found.high
    assert found.half_width < 0.2


def test_without_noise_the_ratio_is_exact() -> None:
    first, second = (
        SizeCurve(SIZES, np.tile(np.log1p(0.3 * np.maximum(0, 1 - knee * KIB / SIZES)), (4, 1)))
        for knee in (500.0, 600.0)
    )
    found = knee_ratio(first, second)
    assert found.effect == pytest.approx(math.log(1.2), abs=0.005)
    assert found.half_width == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("batches", "sizes"), [(2, 18), (0, 18), (8, 2)])
def test_too_little_has_no_interval(batches: int, sizes: int) -> None:
    values: NDArray[np.float64] = np.zeros((batches, sizes))
    few = SizeCurve(SIZES[:sizes], values)
    assert math.isnan(knee_ratio(few, few).effect)


def test_batches_that_do_not_correspond_are_refused() -> None:
    with pytest.raises(ValueError, match="the same batches, not 4 and 5"):
        knee_ratio(SizeCurve(SIZES, np.zeros((4, 18))), SizeCurve(SIZES, np.zeros((5, 18))))
