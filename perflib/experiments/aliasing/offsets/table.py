"""What samples of one function at many offsets say, before anything is claimed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.framework.samples import round_starts, usable
from perflib.model.errors import UserError
from perflib.stats.interval import Interval
from perflib.stats.intervals import (
    against_others,
    block_means,
    robust_mean,
    t_interval,
    time_blocks,
)

__all__ = ["AHEAD_BYTES", "LINE_BYTES", "PERIOD_BYTES", "Extreme", "OffsetTable", "aliasing"]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

PERIOD_BYTES = 4096  # what the low 12 bits of an address tell apart
AHEAD_BYTES = 128  # loads within two cache lines ahead of a store are in flight with it
LINE_BYTES = 64  # places in a line differ for reasons of their own: loads and stores across two
_STRETCHES = 3
_LEAST_BLOCKS = 4
_DRAWS = 200
_MOST_LOG = 700.0
# Beyond what the stores that a core holds can reach ahead (56 of 16 bytes), and as safely behind.
_BEYOND_BYTES, _BEHIND_BYTES = 1000, 256


def aliasing(
    offsets: Sequence[int] | NDArray[np.int64], period: int = PERIOD_BYTES
) -> tuple[Flags, Flags]:
    """Which offsets are predicted to alias, and which are far from it.

    A loop that reads at ``first + i`` and writes at ``second + i`` loads, soon after it stored at
    ``second + i``, what lies a little ahead of ``first + i``. Their low 12 bits agree where
    ``second - first`` is a little above a multiple of 4096. ``period`` is smaller where rows of a
    matrix that are in use together begin at several places of a page.

    Returns
    -------
    Two masks: 0 to 127 bytes above a multiple of ``period``; and 1000 or more above one and 256 or
    more below the next.
    """
    ahead = np.asarray(offsets, dtype=np.int64) % period
    return ahead < AHEAD_BYTES, (ahead >= _BEYOND_BYTES) & (ahead <= period - _BEHIND_BYTES)


@dataclass(frozen=True)
class Extreme:
    """The slowest (or fastest) of all offsets, beside the median of the others.

    ``difference``: in percent. Its ends hold for all offsets at once, so that the choice of the
    extreme one does no harm. ``effect`` is the mean of two estimates, each of the offset that one
    half of the blocks of time chose, in the other half, so that the choice does not flatter it; it
    is held within the ends.
    ``p``: how often chance alone makes any offset as extreme.
    ``segments``: of thirds of the run.
    """

    offset_bytes: int
    difference: Interval
    p: float
    segments: tuple[float, ...]


class OffsetTable:
    """The samples of one function as log time a call, ``[round, offset]``.

    Rows whose ``ok`` is false are left out; several of an offset in one round count as their
    median, which a sample that was disturbed does not move. Everything is compared
    within rounds, and uncertainty comes from the scatter of blocks of time.

    Parameters
    ----------
    samples
        Rows with ``round``, ``offset_bytes``, ``time_ns``, ``calls``; ``start_ns`` and ``ok`` may
        be missing.

    Raises
    ------
    UserError
        No row is usable, or a time is not positive.
    """

    def __init__(self, samples: pd.DataFrame) -> None:
        samples = usable(samples, ["time_ns", "calls"])
        self.offsets = np.array(sorted(set(samples["offset_bytes"])), dtype=np.int64)
        self.rounds = np.array(sorted(set(samples["round"])))
        log_ns = np.log(samples["time_ns"].to_numpy(np.float64) / samples["calls"])
        cells = pd.DataFrame(
            {"round": samples["round"], "offset": samples["offset_bytes"], "log_ns": log_ns}
        )
        table = cells.pivot_table(
            index="round", columns="offset", values="log_ns", aggfunc="median"
        )
        self.log_ns: Floats = table.reindex(self.rounds, columns=self.offsets).to_numpy(np.float64)
        self.start_s = round_starts(samples, self.rounds)
        self.blocks = time_blocks(self.start_s, len(self.rounds))

    @cached_property
    def relative(self) -> Floats:
        """``[round, offset]``: log time beside the median over the offsets of that round."""
        middle: Floats = np.nanmedian(self.log_ns, axis=1, keepdims=True)
        return self.log_ns - middle

    @cached_property
    def by_block(self) -> Floats:
        """``[block, offset]`` of ``relative``: robust means over the rounds of each block."""
        return block_means(self.relative, self.blocks)

    def curve(self) -> pd.DataFrame:
        """Time a call at each offset: ns, and percent above the median of the offsets.

        Columns ``offset_bytes``, ``time_ns``, ``percent``, ``low_percent``, ``high_percent``. The
        intervals are those of the percentage: how fast the machine is as a whole is left out.
        """
        rows = [tuple(_percent(t_interval(column))) for column in self.by_block.T]
        table = pd.DataFrame(rows, columns=["percent", "low_percent", "high_percent"])
        level = math.exp(float(np.nanmedian(self.log_ns - self.relative)))
        table.insert(0, "time_ns", level * (1 + table["percent"] / 100))
        table.insert(0, "offset_bytes", self.offsets)
        return table

    # --- what was predicted ----------------------------------------------------------------------

    def predicted(self, period: int = PERIOD_BYTES) -> Interval:
        """How much longer calls take at the predicted offsets than far from them, in percent.

        Each is compared with the far offsets that have the same place within a cache line, so that
        nothing but the distance differs. NaN where there are none.
        """
        return _percent(t_interval(self._predicted_by_block(period)))

    def _predicted_by_block(self, period: int) -> Floats:
        near, far = aliasing(self.offsets, period)
        differences = []
        for place in np.flatnonzero(near):
            alike = far & (self.offsets % LINE_BYTES == self.offsets[place] % LINE_BYTES)
            if alike.any():
                others = self.by_block[:, alike].mean(axis=1)
                differences.append(self.by_block[:, place] - others)
        return np.mean(differences, axis=0) if differences else np.zeros(0)

    # --- what was not ----------------------------------------------------------------------------

    def slowest(self, confidence: float = 0.95) -> Extreme:
        """The offset with the longest calls, beside the median of the others."""
        return self._extreme(1, confidence)

    def fastest(self, confidence: float = 0.95) -> Extreme:
        """The offset with the shortest calls, beside the median of the others."""
        return self._extreme(-1, confidence)

    def difference(self, one: int, other: int) -> Interval:
        """How much longer calls take at one offset than at another, in percent.

        Its ends hold for a pair that was chosen beforehand, not for the best of many.

        Raises
        ------
        UserError
            One of them was not measured.
        """
        places = []
        for offset in (one, other):
            if offset not in self.offsets:
                nearest = self.offsets[np.abs(self.offsets - offset).argmin()]
                msg = (
                    f"no sample is of the offset {offset}; the nearest that was measured: {nearest}"
                )
                raise UserError(msg)
            places.append(int(np.searchsorted(self.offsets, offset)))
        return _percent(t_interval(self.by_block[:, places[0]] - self.by_block[:, places[1]]))

    def _extreme(self, sign: int, confidence: float) -> Extreme:
        levels = sign * self.by_block[np.isfinite(self.by_block).all(axis=1)]
        if len(levels) < _LEAST_BLOCKS or len(self.offsets) < 2:
            return Extreme(int(self.offsets[0]), Interval(math.nan, math.nan, math.nan), 1.0, ())
        means = robust_mean(levels)
        effects = against_others(means)
        place = int(effects.argmax())
        noise = _largest_by_chance(levels - means)
        reach = float(np.quantile(noise, confidence))
        ends = effects[place] - reach, effects[place] + reach
        effect = min(max(_cross_estimate(levels), ends[0]), ends[1])
        thirds = [robust_mean(part) for part in np.array_split(levels, _STRETCHES)]
        segments = [against_others(part)[place] for part in thirds]
        return Extreme(
            int(self.offsets[place]),
            _percent(Interval(*(sign * value for value in (effect, *ends[::sign])))),
            float((1 + (noise >= effects[place]).sum()) / (1 + len(noise))),
            tuple(_percent_of(sign * float(part)) for part in segments),
        )


def _largest_by_chance(residuals: Floats) -> Floats:
    """How far the farthest of all offsets lies from the truth, by chance alone: draws of it.

    The residuals are ``[block, offset]``. What is left when each offset's mean is taken away is
    exchanged among the offsets of a block, since each visited the block's time in random order.
    That all offsets are asked for their largest is in it, and so is noise of any shape.
    """
    blocks, offsets = residuals.shape
    order = np.random.default_rng(0).random((_DRAWS, blocks, offsets)).argsort(axis=2)
    drawn = np.take_along_axis(np.broadcast_to(residuals, order.shape), order, axis=2)
    means = robust_mean(drawn.transpose(1, 0, 2).reshape(blocks, -1)).reshape(_DRAWS, offsets)
    away = np.abs(means - np.median(means, axis=1, keepdims=True)).max(axis=1)
    # Residuals are smaller than the noise: their mean was fitted to them.
    largest: Floats = away * math.sqrt(blocks / (blocks - 1))
    return largest


def _percent_of(log_ratio: float) -> float:
    """An interval from two blocks may end where a double cannot follow."""
    return math.inf if log_ratio > _MOST_LOG else 100 * math.expm1(log_ratio)


def _percent(log_ratio: Interval) -> Interval:
    return Interval(*map(_percent_of, log_ratio))


def _cross_estimate(levels: Floats) -> float:
    """The largest column over the median of the others: chosen in one half, measured in the other.

    The halves are every other block of time, so that drift is in both.
    """
    halves = robust_mean(levels[::2]), robust_mean(levels[1::2])
    found = []
    for choosing, measuring in (halves, halves[::-1]):
        place = int(choosing.argmax())
        found.append(measuring[place] - np.median(np.delete(measuring, place)))
    return float(np.mean(found))
