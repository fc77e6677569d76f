"""Many claims at once, by simulation: what is promised for a whole family holds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as distributions

from perflib.stats.decide import Direction, decide
from perflib.stats.family import family_p, p_of_interval
from perflib.stats.interval import NO_INTERVAL, Interval
from perflib.stats.intervals import p_above, t_interval


def test_p_is_that_of_the_t_test_the_interval_comes_from() -> None:
    rng = np.random.default_rng(1)
    for batches in (3, 8, 20):
        values = rng.normal(2, 1, batches)
        found = t_interval(values)
        assert p_of_interval(found, 1.0, batches=batches) == pytest.approx(p_above(values, 1.0))
        mirrored = Interval(-found.effect, -found.high, -found.low)
        below = p_of_interval(mirrored, -1.0, "below", batches=batches)
        assert below == pytest.approx(p_above(values, 1.0))
    wider = t_interval(values, 0.999)
    assert p_of_interval(wider, 1.0, confidence=0.999, batches=20) == pytest.approx(
        p_above(values, 1.0)
    )


def test_an_interval_of_more_batches_than_known_gives_no_smaller_p() -> None:
    values = np.random.default_rng(2).normal(3, 1, 24)
    found = t_interval(values)
    assert p_of_interval(found, 1.0) > p_of_interval(found, 1.0, batches=24)


@given(
    effect=st.floats(-20, 20),
    below=st.floats(0.01, 10),
    above=st.floats(0.01, 10),
    threshold=st.floats(0.1, 10),
    direction=st.sampled_from(["above", "below", "within", "beyond"]),
    confidence=st.sampled_from([0.9, 0.95, 0.999]),
)
def test_supported_is_what_has_a_small_p(
    effect: float,
    below: float,
    above: float,
    threshold: float,
    direction: Direction,
    confidence: float,
) -> None:
    found = Interval(effect, effect - below, effect + above)
    p = p_of_interval(found, threshold, direction, confidence=confidence)
    edge = (1 - confidence) / (1 if direction == "beyond" else 2)
    assert 0 <= p <= 1
    if decide(found, threshold, direction).verdict == "supported":
        assert p <= edge + 1e-9


def test_intervals_without_ends_or_without_width() -> None:
    assert math.isnan(p_of_interval(NO_INTERVAL, 1.0))
    assert math.isnan(p_of_interval(Interval(3.0, math.nan, math.nan), 1.0))
    assert p_of_interval(Interval(3.0, 3.0, 3.0), 1.0) == 0
    assert p_of_interval(Interval(0.0, 0.0, 0.0), 1.0) == 1
    assert p_of_interval(Interval(0.0, 0.0, 0.0), 1.0, "within") == 0


def test_a_family_of_one_of_none_and_of_what_cannot_be_counted() -> None:
    assert family_p(np.array([])).size == 0
    assert family_p(np.array([0.01])) == pytest.approx([0.02])
    found = family_p(np.array([0.01, np.nan, 0.9, 0.2]))
    assert found == pytest.approx([0.04, np.nan, 1.0, 0.4], nan_ok=True)


@pytest.mark.parametrize("truth", [0.0, -1.0, -5.0])
@pytest.mark.parametrize("count", [20, 140])
def test_where_no_claim_holds_one_family_in_twenty_has_any(truth: float, count: int) -> None:
    """``truth``: its distance from the threshold, in standard errors; 0 is the worst case."""
    rng = np.random.default_rng(3)
    families = 2000
    p = distributions.t.sf(rng.normal(truth, 1, (families, count)), math.inf)
    false = sum((family_p(one) < 0.05).any() for one in p)
    assert false <= distributions.binom.ppf(0.999, families, 0.05)


def test_claims_that_come_near_are_few_and_so_a_clear_one_is_seen() -> None:
    rng = np.random.default_rng(4)
    p = distributions.norm.sf(rng.normal(-4, 1, 140))
    p[17] = 0.002  # more than any correction over 140 would let pass
    assert family_p(p)[17] < 0.05
