"""What samples of one function at many offsets say, before anything is claimed."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments.aliasing.addresses import LINE_BYTES, PERIOD_BYTES, aliasing
from perflib.experiments.aliasing.alone import ALONE, State, log_times
from perflib.experiments.aliasing.offsets.functions import Configuration, Swept
from perflib.framework.samples import mean_of_known, round_starts, usable
from perflib.model.errors import UserError
from perflib.stats.interval import NO_INTERVAL, Interval, percent, percent_of
from perflib.stats.intervals import (
    Floats,
    against_others,
    batch_means,
    robust_mean,
    t_interval,
    time_batches,
)

_SEGMENTS = 3
_LEAST_BLOCKS = 4
_DRAWS = 200
_POLISHES = 5


def functions_in(
    samples: pd.DataFrame, plan: Mapping[str, Any] | None = None, state: State = ALONE
) -> list[tuple[Swept, OffsetTable]]:
    """What was swept, each with its samples; a function without a usable sample is left out.

    The probes of all functions together show in which samples the core was alone.

    Parameters
    ----------
    samples
        Columns as ``OffsetTable``'s, ``function``, and ``routine``, ``build``, ``n``, ``order``
        where they are known.
    plan
        The run's: that of an earlier version says what ran, since its samples do not.
    state
        Of the core, where probes show it: times in another one are left out.

    Raises
    ------
    UserError
        No sample is usable.
    """
    kept = usable(samples)
    kept = kept.assign(log_ns=log_times(kept, state, configuration=["function"]))
    measured = [Configuration(*one).swept for one in (plan or {}).get("arms", ())]
    planned = {swept.name: swept for swept in measured}
    found = [
        (planned.get(str(name)) or _described(str(name), mine.iloc[0].to_dict()), OffsetTable(mine))
        for name, mine in kept.groupby("function")
    ]
    return sorted(found, key=lambda pair: pair[0].place)


def _described(name: str, row: Mapping[Hashable, Any]) -> Swept:
    """A function as one of its samples describes it."""

    def text(column: str) -> str:
        return str(row[column]) if pd.notna(row.get(column)) else ""

    n = int(row["n"]) if pd.notna(row.get("n")) else 0
    return Swept(name, text("routine"), text("build"), n, text("order"))


@dataclass(frozen=True)
class Extreme:
    """The slowest (or fastest) of all offsets, compared with the median of the others.

    ``difference``: in percent. Its ends hold for all offsets at once, so that the choice of the
    extreme one does no harm. ``effect`` is the mean of two estimates, each of the offset that one
    half of the batches chose, in the other half, so that the choice does not flatter it; it stays
    within the ends.
    ``p``: how often chance alone makes any offset as extreme.
    ``segments``: of thirds of the run.
    """

    offset_bytes: int
    difference: Interval
    p: float
    segments: tuple[float, ...]


class OffsetTable:
    """The samples of one function as log time a call, ``[round, offset]``.

    Rows whose ``ok`` is false are left out, and those whose core was not alone, where probes show
    it; several of an offset in one round count as their median, which one sample with interference
    does not change. Everything is compared within rounds, and uncertainty comes from the scatter
    of batches.

    Parameters
    ----------
    samples
        Rows with ``round``, ``offset_bytes``, ``time_ns``, ``calls``; ``start_ns``, ``ok``, probes
        and ``log_ns`` (of ``functions_in``) may be missing.

    Raises
    ------
    UserError
        No row is usable, or a time is not positive.
    """

    def __init__(self, samples: pd.DataFrame) -> None:
        samples = usable(samples)
        self.offsets = np.array(sorted(set(samples["offset_bytes"])), dtype=np.int64)
        self.rounds = np.array(sorted(set(samples["round"])))
        times = samples["log_ns"] if "log_ns" in samples else log_times(samples)
        probes = samples.get("probe_before_ns", pd.Series(dtype=float))
        self._bracketed = bool(probes.notna().any())
        log_ns = times - np.log(samples["calls"].to_numpy(np.float64))
        self._cells = cells = pd.DataFrame(
            {"round": samples["round"], "offset": samples["offset_bytes"], "log_ns": log_ns}
        )
        table = cells.pivot_table(
            index="round", columns="offset", values="log_ns", aggfunc="median"
        )
        self.log_ns: Floats = table.reindex(self.rounds, columns=self.offsets).to_numpy(np.float64)
        self.start_s = round_starts(samples, self.rounds)
        self.blocks = time_batches(self.start_s, len(self.rounds))

    @cached_property
    def levels(self) -> Floats:
        """``[round, 1]``: the median log time over the offsets of each round.

        Rounds in which the core was alone at some offsets only are compared by those that they
        have, each compared with its own typical time (median polish).
        """
        found = np.full((len(self.rounds), 1), np.nan)
        seen = np.isfinite(self.log_ns).any(axis=1)
        if not seen.any():
            return found
        logs = self.log_ns[seen]
        levels = np.nanmedian(logs, axis=1, keepdims=True)
        for _ in range(_POLISHES if self._bracketed else 0):
            typical = robust_mean(logs - levels)
            typical -= np.median(typical[np.isfinite(typical)])
            levels = np.nanmedian(logs - typical, axis=1, keepdims=True)
        found[seen] = levels
        return found

    @property
    def relative(self) -> Floats:
        """``[round, offset]``: log time compared with its round's level."""
        return self.log_ns - self.levels

    @cached_property
    def by_block(self) -> Floats:
        """``[block, offset]`` of ``relative``: robust means over the rounds of each batch.

        Of samples between probes it is the median of all samples of the batch: a third of those as
        long as a quarter of a millisecond have a tick of the timer.
        """
        if not self._bracketed:
            return batch_means(self.relative, self.blocks)
        return self._medians(self.blocks)

    def _medians(self, blocks: NDArray[np.int64]) -> Floats:
        """``[block, offset]``: the medians of all samples of each batch."""
        place = np.searchsorted(self.rounds, self._cells["round"])
        relative = self._cells["log_ns"] - self.levels[place, 0]
        each = self._cells.assign(block=blocks[place], relative=relative)
        medians = each.groupby(["block", "offset"])["relative"].median().unstack("offset")
        return medians.reindex(columns=self.offsets).to_numpy(np.float64)

    def _complete(self) -> Floats:
        """``[block, offset]``: the batches in which every offset has a time.

        Where the core was rarely alone, of longer batches.
        """
        blocks, levels = self.blocks, self.by_block
        while True:
            complete = levels[np.isfinite(levels).all(axis=1)]
            few = len(complete) < _LEAST_BLOCKS <= (blocks.max() + 1) // 2
            if not (few and self._bracketed):
                return complete
            blocks = blocks // 2
            levels = self._medians(blocks)

    def curve(self) -> pd.DataFrame:
        """Time a call at each offset: ns, and percent above the median of the offsets.

        Columns ``offset_bytes``, ``time_ns``, ``percent``, ``percent_low``, ``percent_high``. The
        intervals are those of the percentage: how fast the machine is as a whole is left out.
        """
        rows = [tuple(percent(t_interval(column))) for column in self.by_block.T]
        table = pd.DataFrame(rows, columns=["percent", "percent_low", "percent_high"])
        seen = self.levels[np.isfinite(self.levels)]
        level = math.exp(float(np.median(seen))) if seen.size else math.nan
        table.insert(0, "time_ns", level * (1 + table["percent"] / 100))
        table.insert(0, "offset_bytes", self.offsets)
        return table

    # --- what was predicted ----------------------------------------------------------------------

    def predicted(self, period: int = PERIOD_BYTES) -> Interval:
        """How much longer calls take at the predicted offsets than far from them, in percent.

        Each is compared with the far offsets that have the same place within a cache line, so that
        nothing but the distance differs. NaN where there are none.
        """
        return percent(t_interval(self._predicted_by_block(period)))

    def _predicted_by_block(self, period: int) -> Floats:
        near, far = aliasing(self.offsets, period)
        differences = []
        for place in np.flatnonzero(near):
            alike = far & (self.offsets % LINE_BYTES == self.offsets[place] % LINE_BYTES)
            if alike.any():
                others = mean_of_known(self.by_block[:, alike])
                differences.append(self.by_block[:, place] - others)
        return mean_of_known(np.array(differences), axis=0) if differences else np.zeros(0)

    # --- what was not ----------------------------------------------------------------------------

    @cached_property
    def slowest(self) -> Extreme:
        """The offset with the longest calls, compared with the median of the others."""
        return self._extreme(1)

    @cached_property
    def fastest(self) -> Extreme:
        """The offset with the shortest calls, compared with the median of the others."""
        return self._extreme(-1)

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
        return percent(t_interval(self.by_block[:, places[0]] - self.by_block[:, places[1]]))

    def _extreme(self, sign: int, confidence: float = 0.95) -> Extreme:
        levels = sign * self._complete()
        if len(levels) < _LEAST_BLOCKS or len(self.offsets) < 2:
            return Extreme(int(self.offsets[0]), NO_INTERVAL, 1.0, ())
        means = robust_mean(levels)
        effects = against_others(means)
        place = int(effects.argmax())
        noise = _largest_by_chance(levels - means)
        half = float(np.quantile(noise, confidence))
        ends = effects[place] - half, effects[place] + half
        effect = min(max(_cross_estimate(levels), ends[0]), ends[1])
        thirds = [robust_mean(part) for part in np.array_split(levels, _SEGMENTS)]
        segments = [against_others(part)[place] for part in thirds]
        return Extreme(
            int(self.offsets[place]),
            percent(Interval(*(sign * value for value in (effect, *ends[::sign])))),
            float((1 + (noise >= effects[place]).sum()) / (1 + len(noise))),
            tuple(percent_of(sign * float(part)) for part in segments),
        )


def _largest_by_chance(residuals: Floats) -> Floats:
    """How far the farthest of all offsets is from the truth, by chance alone: draws of it.

    The residuals are ``[block, offset]``. What is left when each offset's mean is taken away is
    exchanged among the offsets of a batch, since each visited the batch's time in random order.
    That the largest is of all offsets is in it, and so is noise of any shape.
    """
    blocks, offsets = residuals.shape
    order = np.random.default_rng(0).random((_DRAWS, blocks, offsets)).argsort(axis=2)
    drawn = np.take_along_axis(np.broadcast_to(residuals, order.shape), order, axis=2)
    means = robust_mean(drawn.transpose(1, 0, 2).reshape(blocks, -1)).reshape(_DRAWS, offsets)
    away = np.abs(means - np.median(means, axis=1, keepdims=True)).max(axis=1)
    # Residuals are smaller than the noise: their mean was fitted to them.
    largest: Floats = away * math.sqrt(blocks / (blocks - 1))
    return largest


def _cross_estimate(levels: Floats) -> float:
    """The largest column over the median of the others: chosen in one half, measured in the other.

    The halves are every other batch, so that drift is in both.
    """
    halves = robust_mean(levels[::2]), robust_mean(levels[1::2])
    found = []
    for choosing, measuring in (halves, halves[::-1]):
        place = int(choosing.argmax())
        found.append(measuring[place] - np.median(np.delete(measuring, place)))
    return float(np.mean(found))
