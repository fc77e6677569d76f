"""Matrices of cores from samples: what is measured, missing, marked, or a user's."""

from __future__ import annotations

import numpy as np
import pytest

from perflib.experiments.core_pairs.numa.analyse import cells_of
from tests.experiments.core_pairs.cell_samples import INTEL, flat, samples


def test_without_rounds_a_cells_rows_are_counted() -> None:
    table = samples(INTEL, rounds=3)
    plain = table[["alloc_cpu", "load_cpu", "latency_cycles"]]
    counted = cells_of(plain)
    assert counted.rounds.tolist() == [0, 1, 2]
    assert counted.start_s is None
    assert counted.matrix == pytest.approx(cells_of(table).matrix)


def test_intervals_cover() -> None:
    """50 matrices of 16 cells; 95 % of the intervals should hold the truth."""
    covered = []
    for seed in range(50):
        low, high = cells_of(samples(flat(4), rounds=12, seed=seed)).intervals
        covered += ((low < 200) & (high > 200)).ravel().tolist()
    assert 0.92 < np.mean(covered) < 0.98
