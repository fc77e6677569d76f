"""One array of a run's samples with named axes, from which tables of experiments are made.

``[round, core, configuration]``: a configuration is named by the values of some columns (its
keys), such as a backing and a number of pages. Only configurations that were measured have a
place. Two arrays of one run are compared within rounds and cores; uncertainty comes from the
scatter of batches of rounds (see ``perflib.stats.intervals``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype

from perflib.framework.samples import mean_of_known, round_starts
from perflib.framework.schema import check_cells
from perflib.stats.interval import Interval
from perflib.stats.intervals import batch_means, t_intervals, time_batches

Floats = NDArray[np.float64]
Label = tuple[Any, ...]  # the values of a configuration's keys


@dataclass(frozen=True)
class SampleArray:
    """Values of one column by round, core and configuration; NaN where there is none.

    Parameters
    ----------
    values
        ``[round, core, configuration]``.
    rounds, cores
        The numbers of rounds and of CPUs, ascending.
    keys
        The columns whose values name a configuration.
    labels
        The values of the keys, of each configuration; ascending.
    start_s
        When each round began, in s; ``None`` where it is not known.
    batches
        The batch of each round.

    Example
    -------
    >>> rows = [(r, 0, pages, 2.0 * pages) for r in range(9) for pages in (1, 8)]
    >>> table = pd.DataFrame(rows, columns=["round", "cpu", "pages", "load_ns"])
    >>> loads = SampleArray.of(table, "load_ns", ["pages"])
    >>> (loads.select(pages=8) / loads.select(pages=1)).intervals()[0].effect
    8.0
    """

    values: Floats
    rounds: NDArray[np.int64]
    cores: tuple[int, ...]
    keys: tuple[str, ...]
    labels: tuple[Label, ...]
    start_s: Floats | None
    batches: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        samples: pd.DataFrame,
        column: str,
        keys: Sequence[str],
        statistic: Literal["median", "min"] = "median",
    ) -> SampleArray:
        """That of a table; ``statistic``: of several samples of one cell.

        Raises
        ------
        UserError
            The table would leave nearly all cells empty: a column is no key.
        """
        rounds = np.array(sorted(set(samples["round"])))
        cores = tuple(sorted({int(cpu) for cpu in samples["cpu"]}))
        texts = [key for key in keys if not is_numeric_dtype(samples[key])]
        samples = samples.astype(dict.fromkeys(texts, str))
        cells = getattr(samples.groupby(["round", "cpu", *keys])[column], statistic)()
        level = cells.index.get_level_values
        places, labels = pd.MultiIndex.from_arrays([level(key) for key in keys]).factorize(
            sort=True
        )
        shape = {"rounds": len(rounds), "cores": len(cores), "configurations": len(labels)}
        check_cells(shape, len(samples))
        values = np.full(list(shape.values()), np.nan)
        at = np.searchsorted(rounds, level("round")), np.searchsorted(cores, level("cpu"))
        values[*at, places] = cells.to_numpy(np.float64, na_value=np.nan)
        names = tuple(tuple(label) for label in labels)
        start_s = round_starts(samples, rounds)
        batches = time_batches(start_s, len(rounds))
        return cls(values, rounds, cores, tuple(keys), names, start_s, batches)

    # --- selection -------------------------------------------------------------------------------

    def distinct(self, key: str) -> list[Any]:
        """The values of a key, ascending."""
        place = self.keys.index(key)
        return sorted({label[place] for label in self.labels})

    def select(self, **chosen: Any) -> SampleArray:
        """The configurations whose keys have these values; they are no keys any more.

        Of a value for every key: that one configuration, NaN where it was not measured.
        """
        places = [self.keys.index(key) for key in chosen]
        wanted = tuple(chosen.values())
        kept = [place for place in range(len(self.keys)) if place not in places]
        mine = [
            number
            for number, label in enumerate(self.labels)
            if tuple(label[place] for place in places) == wanted
        ]
        values = self.values[:, :, mine]
        labels = tuple(tuple(self.labels[number][place] for place in kept) for number in mine)
        if not kept and not mine:
            values, labels = np.full((*self.values.shape[:2], 1), np.nan), ((),)
        return replace(
            self, values=values, keys=tuple(self.keys[place] for place in kept), labels=labels
        )

    def among(self, labels: Iterable[Label]) -> SampleArray:
        """The configurations that are among some others."""
        wanted = set(labels)
        return self._at([place for place, label in enumerate(self.labels) if label in wanted])

    def first(self, count: int) -> SampleArray:
        """The configurations with the smallest labels."""
        return self._at(range(len(self.labels))[:count])

    def _at(self, places: Sequence[int]) -> SampleArray:
        labels = tuple(self.labels[place] for place in places)
        return replace(self, values=self.values[:, :, list(places)], labels=labels)

    def on(self, cpu: int | None) -> SampleArray:
        """The values on one core; ``None``: on all."""
        if cpu is None:
            return self
        return replace(self, values=self.values[:, [self.cores.index(cpu)]], cores=(cpu,))

    # --- arithmetic ------------------------------------------------------------------------------

    def log(self) -> SampleArray:
        """The logarithms of all values."""
        return replace(self, values=np.log(self.values))

    def __sub__(self, other: SampleArray) -> SampleArray:
        """Differences within rounds and cores, of the configurations that both have.

        ``other`` may be one configuration without keys, with which all are compared.
        """
        return self._with(np.subtract, other)

    def __truediv__(self, other: SampleArray) -> SampleArray:
        """Ratios, as differences."""
        return self._with(np.divide, other)

    def _with(self, combine: Callable[[Floats, Floats], Floats], other: SampleArray) -> SampleArray:
        mine = self
        if other.keys:
            mine, other = self.among(other.labels), other.among(self.labels)
        return replace(mine, values=combine(mine.values, other.values))

    # --- means and intervals ---------------------------------------------------------------------

    def mean_configuration(self) -> SampleArray:
        """The mean of all configurations, of those known, as one without keys."""
        means = mean_of_known(self.values, axis=2)[:, :, None]
        return replace(self, values=means, keys=(), labels=((),))

    def over_cores(self) -> Floats:
        """``[round, configuration]``: the mean of the cores that are known."""
        return mean_of_known(self.values)

    def by_batch(self) -> Floats:
        """``[batch, core, configuration]``: robust means over the rounds of each batch."""
        return batch_means(self.values, self.batches)

    def over_all_cores(self) -> Floats:
        """``[batch, configuration]``: the mean of the cores, NaN where one of them has no value."""
        return np.asarray(self.by_batch().mean(axis=1))

    def by_core_and_batch(self) -> Floats:
        """``[batch of a core, configuration]``: where each core's scatter is its own."""
        return np.asarray(self.by_batch().swapaxes(0, 1).reshape(-1, len(self.labels)))

    def intervals(self, confidence: float = 0.95) -> list[Interval]:
        """Of each configuration: the mean of the cores, from batches."""
        return t_intervals(batch_means(self.over_cores(), self.batches), confidence)


def median_half_width(batches: Floats) -> float:
    """Of the intervals of all columns of ``[batch, column]``; NaN without any."""
    widths = [found.half_width for found in t_intervals(batches)]
    return float(np.median(widths)) if widths else math.nan
