"""Matrices of cores as tidy tables: what the figures draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.core_pairs.cells import Cells
from perflib.stats.clusters import Groups
from perflib.stats.interval import NO_INTERVAL, columns


def cells_frame(
    cells: Cells, order: Sequence[int] = (), **places: Mapping[int, Any]
) -> pd.DataFrame:
    """One row for each cell: its two CPUs, its latency, and the ends of its 95 % interval.

    Parameters
    ----------
    cells
        The matrix. What was not measured is NaN.
    order
        The CPUs, as rows and columns follow each other; by number if it is not given.
    places
        By name, where each CPU is: ``node={0: 0, 4: 1}`` makes a column for either CPU.
    """
    order = list(order or cells.cpus)
    chosen = np.ix_(*2 * [np.searchsorted(cells.cpus, order)])
    low, high = cells.intervals
    from_, to, latency = cells.columns.names
    rows = pd.DataFrame(
        {
            from_: np.repeat(order, len(order)),
            to: np.tile(order, len(order)),
            latency: cells.matrix[chosen].ravel(),
            f"{latency}_low": low[chosen].ravel(),
            f"{latency}_high": high[chosen].ravel(),
        }
    )
    for name, place in places.items():
        for side in (cells.columns.from_, cells.columns.to):
            rows[f"{side}_{name}"] = rows[f"{side}_cpu"].map(place)
    return rows


def classes_frame(cells: Cells, found: Groups) -> pd.DataFrame:
    """As ``cells_frame``, with each cell's class of distance, and the latency of that class.

    The cores are put together by their groups. A cell of a core and itself is of the class of its
    group's pairs; NaN where there is no class.
    """
    levels = [*reversed(found.hierarchy), found.labels]
    chosen = sorted(range(len(cells.cpus)), key=lambda place: [level[place] for level in levels])
    order = [cells.cpus[place] for place in chosen]
    group = dict(zip(cells.cpus, found.labels.tolist(), strict=True))
    rows = cells_frame(cells, order, group=group)
    kinds = found.membership[np.ix_(chosen, chosen)].ravel()
    known = np.array([*found.classes, NO_INTERVAL])  # the last one: of no class
    rows["class"] = np.where(kinds < 0, np.nan, kinds)
    rows[list(columns(f"class_{cells.columns.unit}", NO_INTERVAL))] = known[kinds]
    return rows
