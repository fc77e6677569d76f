"""How wide and how heavy the tails of noise are, by noise whose distribution is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perflib.stats.discoveries import scale, tail_freedom


@pytest.mark.parametrize("freedom", [3, 5, 10])
def test_tails_are_as_heavy_as_those_of_the_noise(freedom: int) -> None:
    generator = np.random.default_rng(freedom)
    noise = 0.02 * generator.standard_t(freedom, 40_000)
    noise[::100] = math.nan
    assert tail_freedom(noise) == pytest.approx(freedom, rel=0.2)


def test_what_few_values_or_a_coarse_clock_do_not_show_is_taken_for_heavy_tails() -> None:
    normal = np.random.default_rng(1).normal(size=40_000)
    equal = np.where(np.arange(100) < 60, 0.0, 1.0)
    assert tail_freedom(normal) == 30
    assert tail_freedom(normal[:19]) == tail_freedom(equal) == tail_freedom(normal[:0]) == 5


def test_the_scale_is_that_of_most_of_the_noise() -> None:
    noise = np.random.default_rng(1).normal(scale=3.0, size=40_000)
    noise[::20] *= 100
    assert scale(noise) == pytest.approx(3.0, rel=0.1)
    coarse = np.where(np.arange(100) < 60, 0.0, 2.0)
    assert scale(coarse) == pytest.approx(0.7 * 2 / 1.645, rel=1e-3)
    assert math.isnan(scale(noise[:0]))
