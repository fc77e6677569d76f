"""Intervals of counts as a series of bounded length: neighbours are merged as it grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

if TYPE_CHECKING:
    from perflib.instruments.counters.counting import Counted

MOST_BINS = 240
_MAX_CELLS = 40_000
_MIN_BINS = 24
_FIELDS = ("value", "on_ns", "all_ns")


class Series:
    """`MOST_BINS` bins at most, fewer of very many counters; never below half of that.

    Attributes
    ----------
    intervals
        How many were added.
    """

    def __init__(self, counters: int) -> None:
        self.intervals = 0
        self._each = 1  # intervals in a bin
        self._filled = 0  # of the last bin
        self._counters = counters
        self._most = min(MOST_BINS, max(_MIN_BINS, _MAX_CELLS // max(1, counters) // 2 * 2))
        self._begin = np.zeros(self._most, dtype=np.int64)
        self._end = np.zeros(self._most, dtype=np.int64)
        self._elapsed = np.zeros(self._most, dtype=np.int64)
        self._sums = {name: np.zeros((self._most, counters)) for name in _FIELDS}
        self._bins = 0

    @property
    def elapsed_s(self) -> float:
        """How long was counted, gaps left out."""
        return float(self._elapsed[: self._bins].sum()) / 1e9

    def add(self, rows: NDArray[Any]) -> None:
        """One interval: records of `on_disk`; one that could not be read adds to no value."""
        if not len(rows):
            return
        if not self._bins or self._filled >= self._each:
            self._next(int(rows["time_ns"][0] - rows["elapsed_ns"][0]))
        last = self._bins - 1
        self._end[last] = rows["time_ns"][0]
        self._elapsed[last] += rows["elapsed_ns"][0]
        for name in _FIELDS:
            np.add.at(self._sums[name][last], rows["counter"], np.nan_to_num(rows[name]))
        self._filled += 1
        self.intervals += 1

    def replay(self, rows: NDArray[Any]) -> None:
        """Many intervals at once, in the order of their time; of other counters none is taken."""
        rows = rows[(rows["counter"] >= 0) & (rows["counter"] < self._counters)]
        cuts = np.flatnonzero(np.diff(rows["time_ns"])) + 1
        for part in np.split(rows, cuts):
            self.add(part)

    def _next(self, begin_ns: int) -> None:
        if self._bins == self._most:
            half = self._most // 2
            self._begin[:half] = self._begin[::2]
            self._end[:half] = self._end[1::2]
            self._elapsed[:half] = self._elapsed[::2] + self._elapsed[1::2]
            self._elapsed[half:] = 0
            for name, sums in self._sums.items():
                merged = sums[::2] + sums[1::2]
                self._sums[name] = np.vstack([merged, np.zeros_like(merged)])
            self._bins, self._each = half, 2 * self._each
        self._begin[self._bins] = begin_ns
        self._bins, self._filled = self._bins + 1, 0

    def table(self, counters: Sequence[Counted]) -> pd.DataFrame:
        """One row a bin and counter, as ``count`` keeps them; times since the first bin's begin."""
        count = len(counters)
        used = slice(0, self._bins)
        begin = self._begin[used]
        since = begin - begin[0] if self._bins else begin
        return pd.DataFrame(
            {
                "bin": np.repeat(np.arange(self._bins), count),
                "set": [one.set for one in counters] * self._bins,
                "event": [one.event for one in counters] * self._bins,
                "cpu": [one.cpu for one in counters] * self._bins,
                "unit": [one.unit for one in counters] * self._bins,
                "start_ns": np.repeat(since, count),
                "span_ns": np.repeat(self._end[used] - begin, count),
                "elapsed_ns": np.repeat(self._elapsed[used], count),
                **{name: self._sums[name][used].ravel() for name in _FIELDS},
            }
        )
