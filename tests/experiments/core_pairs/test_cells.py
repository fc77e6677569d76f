"""Matrices of cores from samples: what is measured, missing, marked, or a user's."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from perflib.experiments.core_pairs.cells import Cells, PairColumns
from perflib.experiments.core_pairs.numa.analyse import cells_of
from perflib.experiments.core_pairs.tables import cells_frame, classes_frame
from perflib.model.errors import UserError
from tests.experiments.core_pairs.cell_samples import INTEL, flat, samples


def test_rows_are_the_core_that_is_asked_and_columns_the_one_that_asks() -> None:
    cycles = np.array([[100.0, 200.0], [300.0, 400.0]])
    cells = cells_of(samples(cycles, noise=0.0, cpus=(3, 11)))
    assert cells.cpus == [3, 11]
    assert cells.matrix == pytest.approx(cycles)
    assert cells.known().all()


def test_any_columns() -> None:
    table = samples(flat(3), names=("owner_cpu", "requester_cpu"))
    cells = Cells(table, PairColumns("owner", "requester", "ns"))
    assert cells.matrix.shape == (3, 3)


def test_a_cpu_that_occurs_on_one_side_only() -> None:
    table = pd.DataFrame({"alloc_cpu": [0, 0], "load_cpu": [5, 7], "latency_cycles": [2.0, 3.0]})
    cells = cells_of(table)
    assert cells.cpus == [0, 5, 7]
    assert cells.known().tolist() == [[False, True, True], [False] * 3, [False] * 3]
    assert cells.half_width == np.inf


def test_without_rounds_a_cells_rows_are_counted() -> None:
    table = samples(INTEL, rounds=3)
    plain = table[["alloc_cpu", "load_cpu", "latency_cycles"]]
    counted = cells_of(plain)
    assert counted.rounds.tolist() == [0, 1, 2]
    assert counted.start_s is None
    assert counted.matrix == pytest.approx(cells_of(table).matrix)


def test_repeats_of_a_round_count_as_their_median() -> None:
    table = samples(flat(2, 100.0), rounds=1, noise=0.0, repeats=3)
    table.loc[table["repeat"] == 1, "latency_cycles"] = 9000.0
    table.loc[table["repeat"] == 2, "latency_cycles"] = 101.0
    assert cells_of(table).matrix == pytest.approx(np.full((2, 2), 101.0))


def test_rows_that_are_not_ok_are_left_out() -> None:
    table = samples(flat(2), noise=0.0)
    bad = table["load_cpu"] == 1
    table["ok"] = ~bad
    table.loc[bad, "latency_cycles"] = np.nan
    assert cells_of(table).cpus == [0, 1]
    assert cells_of(table).known().tolist() == [[True, False], [True, False]]
    with pytest.raises(UserError, match="no sample is usable"):
        cells_of(table.assign(ok=False))


def test_batches_and_cells_that_come_late() -> None:
    """The coarse rounds know some cells only."""
    table = samples(flat(4), rounds=10, noise=0.0)
    early = (table["round"] < 2) & ((table["alloc_cpu"] > 1) | (table["load_cpu"] > 1))
    cells = cells_of(table[~early])
    assert cells.by_batch.shape == (8, 4, 4)
    assert np.isnan(cells.by_batch[0, 3, 3])
    assert cells.matrix == pytest.approx(flat(4))


def test_intervals_cover() -> None:
    """50 matrices of 16 cells; 95 % of the intervals should hold the truth."""
    covered = []
    for seed in range(50):
        low, high = cells_of(samples(flat(4), rounds=12, seed=seed)).intervals
        covered += ((low < 200) & (high > 200)).ravel().tolist()
    assert 0.92 < np.mean(covered) < 0.98


def test_half_width_is_the_median_cells() -> None:
    cells = cells_of(samples(INTEL, rounds=12, missing=[(0, 5)]))
    low, high = cells.intervals
    assert np.isnan(low[0, 5])
    assert cells.half_width == pytest.approx(50 * np.nanmedian(np.log(high / low)))
    assert cells_of(samples(INTEL, rounds=1)).half_width == np.inf
    large = cells_of(samples(flat(40), rounds=8))
    low, high = large.intervals
    assert large.half_width == pytest.approx(50 * np.median(np.log(high / low)), rel=0.1)


def test_drift_draws_no_pattern() -> None:
    """The machine gets half as slow again; rounds in random order spread that over all cells."""
    cells = cells_of(samples(flat(8), rounds=24, noise=0.02, drift=0.5))
    rows, columns = cells.matrix.mean(axis=1), cells.matrix.mean(axis=0)
    assert np.ptp(rows) / rows.mean() < 0.02
    assert np.ptp(columns) / columns.mean() < 0.02
    assert cells.groups().count == 1


# --- as tables -----------------------------------------------------------------------------------


def test_a_table_has_each_cell_in_order_with_its_interval_and_place() -> None:
    cycles = np.array([[100.0, 200.0], [300.0, 400.0]])
    cells = cells_of(samples(cycles, noise=0.02, cpus=(3, 11), rounds=10, missing=[(0, 1)]))
    rows = cells_frame(cells, [11, 3], node={3: 0, 11: 1})
    assert rows[["alloc_cpu", "load_cpu"]].to_numpy().tolist() == [
        [11, 11], [11, 3], [3, 11], [3, 3],
    ]  # fmt: skip
    assert rows["latency_cycles"].tolist() == pytest.approx(
        [400, 300, np.nan, 100], rel=0.05, nan_ok=True
    )
    known = rows.dropna()
    assert (known["latency_cycles_low"] < known["latency_cycles"]).all()
    assert (known["latency_cycles"] < known["latency_cycles_high"]).all()
    assert rows["alloc_node"].tolist() == [1, 1, 0, 0]
    assert rows["load_node"].tolist() == [1, 0, 1, 0]


def test_a_table_of_classes_puts_cores_together_by_their_groups() -> None:
    parts = np.arange(8) % 2
    cells = cells_of(samples(np.where(parts[:, None] == parts, 220.0, 360.0)))
    rows = classes_frame(cells, cells.groups())
    assert rows["alloc_cpu"].unique().tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    far = rows[rows["alloc_group"] != rows["load_group"]]
    assert set(far["class"]) == {1.0}
    assert far["class_cycles"].to_numpy() == pytest.approx(360, rel=0.05)
    assert (far["class_cycles_low"] < far["class_cycles_high"]).all()
    assert set(rows[rows["alloc_group"] == rows["load_group"]]["class"]) == {0.0}


def test_of_one_core_of_each_group_only_the_cells_between_them_have_a_class() -> None:
    cells = cells_of(samples(INTEL[np.ix_([0, 8], [0, 8])], noise=0.02))
    rows = classes_frame(cells, cells.groups())
    assert rows["class"].isna().tolist() == [True, False, False, True]
