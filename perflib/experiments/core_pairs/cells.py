"""Samples of pairs of cores as matrices: one core holds something, the other asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.framework.samples import round_starts, usable
from perflib.stats.clusters import Groups, find_groups
from perflib.stats.compare import CoreComparison, compare_cores
from perflib.stats.intervals import block_means, t_interval, time_blocks

__all__ = ["Cells"]

Floats = NDArray[np.float64]
_CELLS_ASKED = 500


class Cells:
    """The samples of one run as ``[from, to]`` matrices; cells that were not measured are NaN.

    Rows whose ``ok`` is false are left out. Uncertainty comes from the scatter of blocks of time.

    Parameters
    ----------
    samples
        Rows of pairs of cores. ``round``, ``start_ns`` and ``ok`` may be missing; without
        ``round`` a cell's first row is of round 0, its second of round 1, and so on. Several rows
        of a cell in one round count as their median.
    from_, to
        The columns of the CPU that holds (allocates, owns), and of the one that asks.
    value
        The column of the latency, which must be positive.

    Raises
    ------
    UserError
        No row is usable, or a latency is not positive.

    Examples
    --------
    >>> table = pd.DataFrame({"alloc_cpu": [0, 0, 4], "load_cpu": [0, 4, 0], "cycles": [9, 8, 7]})
    >>> cells = Cells(table, "alloc_cpu", "load_cpu", "cycles")
    >>> cells.cpus, cells.matrix.round(1).tolist()
    ([0, 4], [[9.0, 8.0], [7.0, nan]])
    """

    def __init__(self, samples: pd.DataFrame, from_: str, to: str, value: str) -> None:
        samples = usable(samples, [value])
        if "round" not in samples:
            samples = samples.assign(round=samples.groupby([from_, to]).cumcount())
        self.samples = samples
        self.cpus = sorted({int(cpu) for cpu in pd.concat([samples[from_], samples[to]])})
        self.rounds = np.array(sorted(set(samples["round"])))
        self.start_s = round_starts(samples, self.rounds)
        self.blocks = time_blocks(self.start_s, len(self.rounds))
        self._columns = from_, to, value
        self._found: dict[tuple[float, float], Groups] = {}

    def ordered(self, matrix: Floats, order: Sequence[int]) -> Floats:
        """A matrix of ``cpus`` with its rows and columns in another order."""
        places = np.searchsorted(self.cpus, order)
        return np.asarray(matrix[np.ix_(places, places)])

    def known(self) -> NDArray[np.bool_]:
        """``[from, to]``: whether a cell was measured."""
        return np.isfinite(self.matrix)

    @cached_property
    def logs(self) -> Floats:
        """``[round, from, to]``: log of the latency."""
        from_, to, value = self._columns
        shape = len(self.rounds), len(self.cpus), len(self.cpus)
        places = np.ravel_multi_index(
            (
                np.searchsorted(self.rounds, self.samples["round"]),
                np.searchsorted(self.cpus, self.samples[from_]),
                np.searchsorted(self.cpus, self.samples[to]),
            ),
            shape,
        )
        medians = self.samples[value].astype(float).groupby(places).median()
        found = np.full(shape, np.nan)
        found.flat[medians.index.to_numpy()] = np.log(medians.to_numpy())
        return found

    @cached_property
    def by_block(self) -> Floats:
        """``[block, from, to]``: a cell's latency in each block of time."""
        return np.exp(block_means(self.logs, self.blocks))

    @cached_property
    def matrix(self) -> Floats:
        """``[from, to]``: the latency of each cell, over all blocks alike."""
        return np.exp(_mean(np.log(self.by_block), 0))

    @cached_property
    def intervals(self) -> tuple[Floats, Floats]:
        """``[from, to]``: the ends of each cell's interval; NaN from a single block."""
        blocks = np.log(self.by_block).reshape(len(self.by_block), -1)
        ends = np.array([t_interval(column)[1:] for column in blocks.T])
        low, high = np.exp(ends).T.reshape(2, *self.matrix.shape)
        return low, high

    @cached_property
    def half_width(self) -> float:
        """Percent: the median over cells of the half-width of a cell's interval.

        Of a large matrix, over some of the cells: it is asked for while measuring goes on.
        """
        blocks = np.log(self.by_block[:, self.known()])
        some = blocks[:, :: blocks.shape[1] // _CELLS_ASKED + 1]
        widths = np.array([100 * t_interval(column).half_width for column in some.T])
        return float(np.median(np.where(np.isfinite(widths), widths, np.inf)))

    def groups(self, confidence: float = 0.95, least: float = 0.02) -> Groups:
        """Groups and classes of distance, as ``perflib.stats.clusters.find_groups`` finds them."""
        key = confidence, least
        if key not in self._found:
            self._found[key] = find_groups(self.by_block, confidence, least)
        return self._found[key]

    def cores(self, side: Literal["from", "to"], groups: Groups) -> CoreComparison:
        """How much slower the cells of each core of ``cpus`` are, beside those of its group.

        Parameters
        ----------
        side
            ``to``: the cells in which a core asks; ``from``: those in which it holds.
        groups
            What is usual between two groups is taken out.
        """
        away = self.logs - _usual(np.log(self.matrix), groups.labels)
        return compare_cores(_mean(away, 1 if side == "to" else 2), self.start_s)


def _mean(values: Floats, axis: int) -> Floats:
    """The mean along an axis, NaN left out; NaN where there is nothing else."""
    seen = np.isfinite(values)
    count = seen.sum(axis=axis)
    total = np.where(seen, values, 0.0).sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _usual(logs: Floats, labels: NDArray[np.int64]) -> Floats:
    """``[from, to]``: the median of the cells between the two groups; a core's own are left out."""
    usual = np.full(logs.shape, np.nan)
    apart = np.where(np.eye(len(logs), dtype=bool), np.nan, logs)
    for one in range(labels.max(initial=-1) + 1):
        for other in range(labels.max() + 1):
            block = np.ix_(labels == one, labels == other)
            if np.isfinite(apart[block]).any():
                usual[block] = np.nanmedian(apart[block])
    np.fill_diagonal(usual, np.nan)
    return usual
