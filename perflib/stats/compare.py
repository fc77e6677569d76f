"""How much slower is each core than the others: paired within rounds, batch means, permuted."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perflib.stats.decide import Decision, Reason, Witness, decide
from perflib.stats.interference import trials_with_interference
from perflib.stats.interval import NO_INTERVAL, Interval, percent, widest
from perflib.stats.intervals import (
    against_others,
    holm,
    robust_mean,
    share_interval,
    t_interval,
    time_batches,
    within_batch_p,
)

Floats = NDArray[np.float64]
_SEGMENTS = 3
_ALPHA = 0.05
_MIN_CLEAN_FRACTION = 0.2  # a batch counts when this share of its trials was free of interference


@dataclass(frozen=True)
class CoreEffect:
    """What one core does, compared with the median of the others.

    ``slowdown`` and ``segments`` (thirds of the run) are in percent and leave out the trials with
    interference; ``p_holm`` is the permutation test's, corrected for the number of cores;
    ``interference`` is the share of time in percent with it, where that was looked for.
    """

    slowdown: Interval
    segments: tuple[float, ...]
    p_holm: float
    interference: Interval = NO_INTERVAL

    def decide(
        self, threshold: float, remarks: Iterable[Reason] = (), prevented: Reason | None = None
    ) -> Decision:
        """Is the core more than ``threshold`` percent slower than the others?

        That takes three witnesses: the interval, a permutation test that exchanges the cores'
        names, and every third of the run. ``prevented``: why none of them can know.
        """
        apart = math.isfinite(self.slowdown.half_width)
        p, segments = {"p": self.p_holm}, {"segments": self.segments}
        return decide(
            self.slowdown,
            threshold,
            prevented=prevented or (None if apart else Reason("nothing_to_compare")),
            to_support=[
                Witness(self.p_holm < _ALPHA, Reason("chance", p)),
                Witness(
                    all(part > threshold for part in self.segments),
                    Reason("segments_disagree", segments),
                    Reason("every_segment", p),
                ),
            ],
            remarks=remarks,
        )


@dataclass(frozen=True)
class CoreComparison:
    """The effects of all cores (in the order of the columns), and which trials had interference.

    ``levels``: ``[batch, core]``, each core's log time relative to the others, no interference.
    """

    effects: tuple[CoreEffect, ...]
    levels: Floats
    interference: NDArray[np.bool_]
    batches: NDArray[np.int64]

    @property
    def half_width(self) -> float:
        """The widest half interval of any core's slowdown, in percentage points."""
        return widest((one.slowdown.half_width for one in self.effects), default=math.inf)


def _two_way_levels(rows: Floats) -> Floats:
    """The core terms of log time = round + core, fitted robustly to ``[round, core]``."""
    core = np.zeros(rows.shape[1])
    for _ in range(30):
        shared = np.nanmean(rows - core, axis=1, keepdims=True)
        moved = robust_mean(rows - shared)
        moved -= np.nanmean(moved)  # what cores have in common is the rounds': or it never settles
        settled = float(np.max(np.abs(moved - core))) < 1e-7
        core = moved
        if settled:
            break
    return core


def _batch_levels(log_time: Floats, clean: NDArray[np.bool_], batches: NDArray[np.int64]) -> Floats:
    """``[batch, core]``: each core's mean log time in each batch, free of what rounds share.

    Only clean trials count, so a round with interference on one core still compares the
    others, and a round with one core left compares nothing.
    """
    count = int(batches.max()) + 1 if batches.size else 0
    levels = np.full((count, log_time.shape[1]), np.nan)
    for batch in range(count):
        here = batches == batch
        rows = np.where(clean[here], log_time[here], np.nan)
        rows = rows[np.isfinite(rows).sum(axis=1) >= 2]
        enough = np.isfinite(rows).sum(axis=0) >= max(1.0, _MIN_CLEAN_FRACTION * int(here.sum()))
        rows = rows[:, enough]
        rows = rows[np.isfinite(rows).sum(axis=1) >= 2]
        if len(rows) and np.isfinite(rows).any(axis=0).all():
            levels[batch, enough] = _two_way_levels(rows)
    return levels


def _batch_effects(levels: Floats) -> Floats:
    """``[batch, core]``: each core's level minus the median of the others', centred for the run.

    The median of a few noisy values is off the median of the true ones (of two equal cores and a
    slow one it is the slower of the two). Over the whole run the noise is smaller, so the batches
    give the scatter and the run's mean levels the centre.
    """
    effects = against_others(levels)
    whole = np.isfinite(levels).all(axis=1)
    if whole.any() and levels.shape[1] > 2:
        effects += against_others(levels[whole].mean(axis=0)) - effects[whole].mean(axis=0)
    return effects


def effects_of(levels: Floats, confidence: float = 0.95) -> list[CoreEffect]:
    """How much slower each core is than the median of the others.

    Parameters
    ----------
    levels
        ``[batch, core]``: log time of the same work in successive batches; NaN: unknown.
    confidence
        What share of the intervals cover the truth.
    """
    effects = _batch_effects(levels)
    # A core that is hardly ever known would leave no batch in which all are.
    seen = np.isfinite(levels).sum(axis=0)
    known = seen > seen.max(initial=0) / 2
    p_holm = np.ones(levels.shape[1])
    p_holm[known] = holm(within_batch_p(levels[:, known]))
    found = []
    for core in range(levels.shape[1]):
        mine = effects[:, core]
        thirds = [part[np.isfinite(part)] for part in np.array_split(mine, _SEGMENTS)]
        segments = tuple(
            100 * math.expm1(float(part.mean())) if part.size else math.nan for part in thirds
        )
        slowdown = percent(t_interval(mine, confidence))
        found.append(CoreEffect(slowdown, segments, float(p_holm[core])))
    return found


def compare_cores(
    log_time: Floats, start_s: Floats | None = None, confidence: float = 0.95
) -> CoreComparison:
    """Compare cores that had one trial each in every round.

    Parameters
    ----------
    log_time
        ``[round, core]``: log of each trial's time; NaN where one is missing. The trials of a round
        did the same work.
    start_s
        When each round began, in seconds, ascending; ``None`` if unknown. Gives the batches of
        time and each round's weight in the share of time with interference.
    confidence
        What share of the intervals cover the truth.

    Returns
    -------
    One effect a core. Intervals come from the scatter of batches (see ``batches``), not of
    rounds; a core's effect is its log time minus the median of the others', batches averaged.
    """
    rounds = len(log_time)
    batches = time_batches(start_s, rounds)
    interference = trials_with_interference(log_time, start_s)
    present = np.isfinite(log_time)
    levels = _batch_levels(log_time, present & ~interference, batches)
    weight = np.ones(rounds)
    if start_s is not None and rounds > 1:
        spans = np.diff(start_s)
        typical = float(np.median(spans))
        if typical > 0:  # a pause of a resumed run is not its round's time
            weight = np.clip(np.append(spans, typical), 0, 10 * typical)
    result = []
    for core, effect in enumerate(effects_of(levels, confidence)):
        seen = present[:, core]
        hit, here = interference[seen, core], batches[seen]
        share = Interval(
            *(100 * value for value in share_interval(hit, weight[seen], here, confidence))
        )
        result.append(replace(effect, interference=share))
    return CoreComparison(tuple(result), levels, interference, batches)
