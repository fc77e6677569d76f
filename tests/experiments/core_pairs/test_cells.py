"""Matrices of cores from samples: what is measured, missing, marked, or a user's."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from perflib.experiments.core_pairs.cells import Cells
from perflib.model.errors import UserError
from tests.experiments.core_pairs.cell_samples import INTEL, flat, samples


def cells_of(table: pd.DataFrame) -> Cells:
    return Cells(table, "alloc_cpu", "load_cpu", "latency_cycles")


def test_rows_are_the_core_that_holds_and_columns_the_one_that_asks() -> None:
    cycles = np.array([[100.0, 200.0], [300.0, 400.0]])
    cells = cells_of(samples(cycles, noise=0.0, cpus=(3, 11)))
    assert cells.cpus == [3, 11]
    assert cells.matrix == pytest.approx(cycles)
    assert cells.known().all()
    assert cells.ordered(cells.matrix, [11, 3]) == pytest.approx(cycles[::-1, ::-1])


def test_any_columns() -> None:
    table = samples(flat(3), names=("owner_cpu", "requester_cpu"))
    table = table.rename(columns={"latency_cycles": "one_way_ns"})
    cells = Cells(table, "owner_cpu", "requester_cpu", "one_way_ns")
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


@pytest.mark.parametrize("wrong", [0.0, -3.0, np.nan])
def test_a_latency_is_positive(wrong: float) -> None:
    table = samples(flat(2))
    table.loc[3, "latency_cycles"] = wrong
    with pytest.raises(UserError, match="latency_cycles must be positive; row 4"):
        cells_of(table)


def test_blocks_of_time_and_cells_that_come_late() -> None:
    """The coarse rounds know some cells only."""
    table = samples(flat(4), rounds=10, noise=0.0)
    early = (table["round"] < 2) & ((table["alloc_cpu"] > 1) | (table["load_cpu"] > 1))
    cells = cells_of(table[~early])
    assert cells.by_block.shape == (8, 4, 4)
    assert np.isnan(cells.by_block[0, 3, 3])
    assert cells.matrix == pytest.approx(flat(4))


def test_intervals_cover() -> None:
    """100 matrices of 16 cells; 95 % of the intervals should hold the truth."""
    covered = []
    for seed in range(100):
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


def test_groups_are_found_once() -> None:
    cells = cells_of(samples(INTEL))
    assert cells.groups().count == 2
    assert cells.groups() is cells.groups()
    assert cells.groups(least=1.0).count == 1


def test_a_slow_core_is_seen_where_it_asks() -> None:
    """Beside its own group: the other socket is farther for all."""
    cells = cells_of(samples(INTEL, rounds=24, noise=0.03, slow={5: 0.1}))
    asks = [one.slowdown for one in cells.cores("to", cells.groups()).effects]
    holds = [one.slowdown for one in cells.cores("from", cells.groups()).effects]
    assert asks[5].low < 10 < asks[5].high
    assert asks[5].half_width < 2
    assert max(abs(one.effect) for cpu, one in enumerate(asks) if cpu != 5) < 2
    assert max(abs(one.effect) for one in holds) < 2
