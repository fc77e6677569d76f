"""The best partition of a matrix explains what least squares over its known pairs says."""

from __future__ import annotations

import numpy as np
import pytest

from perflib.stats.partitions import best_split, freedom_of, residual_of, seen_of


@pytest.mark.parametrize("gaps", [0.0, 0.2])
@pytest.mark.parametrize("cores", [6, 9, 20])
def test_what_a_partition_explains_is_what_least_squares_says(cores: int, gaps: float) -> None:
    generator = np.random.default_rng(cores)
    above = np.triu_indices(cores, 1)
    for _ in range(20):
        pairs = np.full((cores, cores), np.nan)
        values = generator.standard_normal(above[0].size)
        pairs[above] = np.where(generator.random(values.size) < gaps, np.nan, values)
        pairs = np.where(np.isnan(pairs), pairs.T, pairs)
        split = best_split(pairs, error=0.0)
        if split is None:
            continue
        assert np.unique(split.labels, return_counts=True)[1].min() > 1
        known = np.isfinite(pairs[above])
        one, other = above[0][known], above[1][known]
        of_cores = np.eye(cores)[one] + np.eye(cores)[other]
        same = (split.labels[one] == split.labels[other]).astype(float)
        design = np.column_stack([of_cores, same])
        effect, left, *_ = np.linalg.lstsq(design, pairs[above][known])
        _, without, *_ = np.linalg.lstsq(of_cores, pairs[above][known])
        variance = float(left[0]) / freedom_of(seen_of(pairs))
        assert split.apart == pytest.approx(-effect[-1])
        assert split.variance == pytest.approx(variance)
        assert split.gain == pytest.approx(float(without[0] - left[0]) / variance)


def test_matrices_of_a_stack_are_treated_alike() -> None:
    pairs = np.random.default_rng(1).standard_normal((5, 7, 7))
    pairs += pairs.swapaxes(1, 2)
    seen = ~np.eye(7, dtype=bool)
    each = [residual_of(one, seen) for one in pairs]
    np.testing.assert_allclose(residual_of(pairs, seen), each, atol=1e-12)
    np.testing.assert_allclose(np.sum(each, axis=1), 0, atol=1e-12)
