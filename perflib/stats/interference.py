"""Distinguish a core's baseline from interference, by the data alone: the one definition of it.

A core that computes slowly is slow in every trial. One with which something interferes (a neighbour
on the host, interrupts) is slow in some trials: far from its own baseline and in bursts.
The two have different causes and cures, so they are two numbers. Interference that takes a small
slice out of *every* trial is indistinguishable from a slow core by times alone, and counts as
slowness.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FLOOR = float(np.log(1.05))  # a single trial less far from the baseline is noise
_SMOOTH_FLOOR = float(np.log(1.03))  # and so is a series of trials less far than this
_SMOOTH_S = 1.5  # shorter than the bursts that it finds
_TOGETHER_FLOOR = float(np.log(1.3))  # all cores at once: drift is smaller, or slower
_SIGMAS = 6.0
_LOW_QUANTILE = 0.1
_MIN_ROUNDS = 8
_SHORT_RUN_FLOOR = float(np.log(1.5))  # a scale from a handful of rounds is itself uncertain


def common_level(excess: Floats) -> Floats:
    """What all cores share in a round: the lower median over the cores.

    Of two cores that is the faster one, so that a burst on one does not pass for a speed-up of
    the other.
    """
    ordered = np.sort(excess, axis=1)  # NaN last
    present = np.isfinite(excess).sum(axis=1)
    pick = np.maximum(present - 1, 0) // 2
    level: Floats = np.take_along_axis(ordered, pick[:, None], axis=1)[:, 0]
    return level


def _round_to_round_scale(log_time: Floats) -> float:
    """The spread of a pair's ratio within a state: from successive differences.

    A burst enters such differences only where it begins and ends, so bursts that last for many
    rounds do not widen it.
    """
    cores = log_time.shape[1]
    present = np.isfinite(log_time).all(axis=1)
    centred = log_time[present] - log_time[present].mean(axis=1, keepdims=True)
    steps = np.abs(np.diff(centred, axis=0))
    if steps.size == 0:
        return 0.0
    single = 1.4826 * float(np.median(steps)) / np.sqrt(2 * (cores - 1) / cores)
    return float(np.sqrt(2) * single)


def _smoothing_window(start_s: Floats | None, rounds: int) -> int:
    """How many rounds, an odd number, fall within ``_SMOOTH_S``; 1: none are to be joined."""
    if start_s is None or rounds < 3 * _MIN_ROUNDS:
        return 1
    period = float(start_s[-1] - start_s[0]) / (rounds - 1)
    fitting = int(_SMOOTH_S / period) if period > 0 else 1
    return max(1, min(fitting, rounds // _MIN_ROUNDS) - 1) | 1


def _running(values: Floats, window: int, quantile: float) -> Floats:
    """A running quantile along the rounds, NaN left out, the ends repeated."""
    half = window // 2
    padded = np.pad(values, ((half, window - 1 - half), (0, 0)), mode="edge")
    views = np.lib.stride_tricks.sliding_window_view(padded, window, axis=0)
    whole = np.where(np.isfinite(views).any(axis=-1, keepdims=True), views, 0.0)
    quantiles = np.nanquantile if np.isnan(whole).any() else np.quantile  # the latter is fast
    smooth: Floats = quantiles(whole, quantile, axis=-1)
    return smooth


def _baselines(log_time: Floats) -> Floats:
    """Each core's baseline relative to the others': where its running low quantile mostly is.

    The quantile runs over a third of the run, so that drift does not lift the baseline of a core
    whose clean trials happened to fall into the slow part of the run.
    """
    rounds = len(log_time)
    window = rounds // 3 if rounds >= 3 * _MIN_ROUNDS else rounds
    low = _running(log_time, window, _LOW_QUANTILE)
    states: Floats = np.median(low - np.median(low, axis=1, keepdims=True), axis=0)
    return states


def trials_with_interference(log_time: Floats, start_s: Floats | None = None) -> NDArray[np.bool_]:
    """Which trials had interference.

    Parameters
    ----------
    log_time
        ``[round, core]``: log of each trial's time over what its events cost; NaN: no such trial.
    start_s
        When each round began, in seconds; with it, weaker bursts are found by their duration.

    Returns
    -------
    ``[round, core]``: true where the trial is above its core's baseline, after what all cores
    share in the round (drift) is taken away, by more than 5 % and six times the round-to-round
    scale; or where the running median over 1.5 s does, by more than 3 % and six times *its* scale;
    or where all cores together are 30 % above what they shared in that third of the run.
    """
    rounds, cores = log_time.shape
    if rounds < 2 or cores < 2:
        return np.zeros_like(log_time, dtype=np.bool_)
    floor = FLOOR if rounds >= _MIN_ROUNDS else _SHORT_RUN_FLOOR
    scale = _SIGMAS * _round_to_round_scale(log_time)
    window = _smoothing_window(start_s, rounds)
    own = _baselines(log_time)
    interference = np.zeros_like(log_time, dtype=np.bool_)
    for _ in range(8):
        excess = log_time - own
        shared = common_level(excess)
        excess = excess - shared[:, None]
        found = excess > max(floor, scale)
        if window > 1:
            smooth = _running(excess, window, 0.5)
            found |= smooth > max(_SMOOTH_FLOOR, 1.25 * scale / np.sqrt(window))
        kept = np.where(found, np.nan, excess)
        has = np.isfinite(kept).any(axis=0)
        own = own + np.where(has, np.nanmedian(np.where(has, kept, 0.0), axis=0), 0.0)
        if (found == interference).all():
            break
        interference = found
    if rounds >= 3 * _MIN_ROUNDS:
        low = _running(shared[:, None], rounds // 3, _LOW_QUANTILE)[:, 0]
        interference |= ((shared - low) > max(_TOGETHER_FLOOR, scale))[:, None]
    return interference & np.isfinite(log_time)
