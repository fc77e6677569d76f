"""Samples of pairs of cores as matrices: one core has something, the other requests it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.framework.samples import mean_of_known, round_starts, usable
from perflib.framework.schema import check_cells
from perflib.stats.clusters import Groups, find_groups
from perflib.stats.compare import CoreComparison, compare_cores
from perflib.stats.intervals import Floats, batch_means, medians, t_interval, time_batches

_CELLS_CHECKED = 500


@dataclass(frozen=True)
class PairColumns:
    """What a table calls the two cores of a pair, and in which unit it has their latency.

    ``from_`` has what ``to`` requests: memory, a line. The latency must be positive.

    >>> PairColumns("alloc", "load", "cycles").names
    ('alloc_cpu', 'load_cpu', 'latency_cycles')
    """

    from_: str
    to: str
    unit: str

    @property
    def names(self) -> tuple[str, str, str]:
        """The columns of the two CPUs and of the latency."""
        return f"{self.from_}_cpu", f"{self.to}_cpu", f"latency_{self.unit}"


class Cells:
    """The samples of one run as ``[from, to]`` matrices; cells that were not measured are NaN.

    Rows whose ``ok`` is false are left out. Uncertainty comes from the scatter of batch means.

    Parameters
    ----------
    samples
        Rows of pairs of cores. ``round``, ``start_ns`` and ``ok`` may be missing; without
        ``round`` a cell's first row is of round 0, its second of round 1, and so on. Several rows
        of a cell in one round count as their median.
    columns
        What the columns are called.

    Raises
    ------
    UserError
        No row is usable, or the cores and rounds are far more than the rows.

    Examples
    --------
    >>> columns = PairColumns("alloc", "load", "ns")
    >>> rows = [(0, 0, 9.0), (0, 4, 8.0), (4, 0, 7.0)]
    >>> cells = Cells(pd.DataFrame(rows, columns=columns.names), columns)
    >>> cells.cpus, cells.matrix.round(1).tolist()
    ([0, 4], [[9.0, 8.0], [7.0, nan]])
    """

    def __init__(self, samples: pd.DataFrame, columns: PairColumns) -> None:
        from_, to, _ = columns.names
        samples = usable(samples)
        if "round" not in samples:
            samples = samples.assign(round=samples.groupby([from_, to]).cumcount())
        self.columns = columns
        self.samples = samples
        self.cpus = sorted({int(cpu) for cpu in pd.concat([samples[from_], samples[to]])})
        self.rounds = np.array(sorted(set(samples["round"])))
        cores = len(self.cpus)
        check_cells(
            {"rounds": len(self.rounds), "cores": cores, "cores again": cores}, len(samples)
        )
        self.start_s = round_starts(samples, self.rounds)
        self._batches = time_batches(self.start_s, len(self.rounds))
        self._found: dict[tuple[float, float], Groups] = {}

    def known(self) -> NDArray[np.bool_]:
        """``[from, to]``: whether a cell was measured."""
        return np.isfinite(self.matrix)

    @cached_property
    def logs(self) -> Floats:
        """``[round, from, to]``: log of the latency."""
        from_, to, value = self.columns.names
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
    def by_batch(self) -> Floats:
        """``[batch, from, to]``: a cell's latency in each batch of rounds."""
        return np.exp(batch_means(self.logs, self._batches))

    @cached_property
    def matrix(self) -> Floats:
        """``[from, to]``: the latency of each cell, over all batches alike."""
        return np.exp(mean_of_known(np.log(self.by_batch), 0))

    @cached_property
    def intervals(self) -> tuple[Floats, Floats]:
        """``[from, to]``: the ends of each cell's interval; NaN from a single batch."""
        batches = np.log(self.by_batch).reshape(len(self.by_batch), -1)
        ends = np.array([t_interval(column)[1:] for column in batches.T])
        low, high = np.exp(ends).T.reshape(2, *self.matrix.shape)
        return low, high

    @cached_property
    def half_width(self) -> float:
        """Percent: the median over cells of the half-width of a cell's interval.

        Of a large matrix, over some of the cells: it is computed while the run continues.
        """
        batches = np.log(self.by_batch[:, self.known()])
        some = batches[:, :: batches.shape[1] // _CELLS_CHECKED + 1]
        widths = np.array([100 * t_interval(column).half_width for column in some.T])
        return float(np.median(np.where(np.isfinite(widths), widths, np.inf)))

    def groups(self, confidence: float = 0.95, least: float = 0.02) -> Groups:
        """Groups and classes of distance, as ``perflib.stats.clusters.find_groups`` finds them."""
        key = confidence, least
        if key not in self._found:
            self._found[key] = find_groups(self.by_batch, confidence, least)
        return self._found[key]

    def cores(self, groups: Groups, *, both: bool = False) -> tuple[CoreComparison, Floats]:
        """How much slower the cells are in which a core requests, compared with those of its group.

        What is usual between two of the groups is taken out: of each cell the median over rounds,
        which one sample does not move. Two cores of a group are compared by two cells.

        Parameters
        ----------
        groups
            The groups of the cores.
        both
            A cell counts for both its cores where only one of the two directions is known: it is a
            round trip, of which half a matrix says all.

        Returns
        -------
        The comparison, and ``[from, to]``: by how much each cell is away from usual, as a log.
        """
        there = self.known()
        once = both & ~there & there.T
        logs = np.where(once, self.logs.transpose(0, 2, 1), self.logs)
        cells = medians(logs.reshape(len(logs), -1)).reshape(there.shape)
        usual = _usual(cells, groups.labels)
        return compare_cores(mean_of_known(logs - usual), self.start_s), cells - usual


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
