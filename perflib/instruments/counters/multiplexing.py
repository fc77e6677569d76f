"""What a count is worth that was seen for a part of the time only.

A processor has a few counters. More events than that are rotated, and each is seen in a sample of
the time slices; its total is an estimate, and the slices it was not seen in are its uncertainty.

In slices ``i = 1 .. n`` the counts ``y_i`` were seen while the program ran for ``x_i``; in all it
ran for ``X``. The estimate is the ratio estimator of survey sampling (W. G. Cochran, *Sampling
Techniques*, 3rd edition 1977, chapter 6)::

    R = sum(y) / sum(x)        total = R X        share seen f = sum(x) / X
    variance(total) = (1 - f) n s^2 (X / sum(x))^2

where ``s^2`` is the variance of the residuals ``e_i = y_i - R x_i``, taken from the differences
of successive ones, ``sum((e_{i+1} - e_i)^2) / 2 (n - 1)``: a rate that drifts slowly is sampled
evenly by the slices and must not count as their error. ``1 - f`` is the finite population
correction: what was seen is known. A count below one event is never taken for certain: ``n s^2``
is at least 1.

The order is drawn at random within each round (`rotation`). With a fixed order a rate that is
periodic with the rotation meets the same set always, and a rate that drifts meets one set earlier
than the others: neither the estimate nor its uncertainty can know. By simulation (in the tests),
95 % intervals of a quarter of 120 slices cover 95 % for steady rates, 99 % for drifting and for
bursty ones, 91 % for rates that are periodic with the rotation or come in rare spikes; in a fixed
order 34 % for the drift and none for the period. A quarter of 24 slices is too few for spikes
(65 %).

The kernel's own rotation has a fixed order, and of its slices only the total is known:
`scale_totals` then assumes their scatter, and says so.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats as distributions

from perflib.model.errors import UserError
from perflib.stats.interval import Interval

Floats = NDArray[np.float64]

KERNEL_SLICE_NS = 4_000_000  # perf_event_mux_interval_ms, where the kernel says nothing else
ASSUMED_SCATTER = 1.0


class Scaled(NamedTuple):
    """An estimate with its standard uncertainty and the degrees of freedom that stand behind it."""

    value: float
    error: float
    freedom: float

    def interval(self, confidence: float = 0.95) -> Interval:
        """The estimate with Student's interval."""
        if self.error == 0:
            return Interval(self.value, self.value, self.value)
        if not math.isfinite(self.error):
            return Interval(self.value, math.nan, math.nan)
        half_width = float(distributions.t.ppf(0.5 + confidence / 2, self.freedom)) * self.error
        return Interval(self.value, self.value - half_width, self.value + half_width)


def rotation(
    sets: int, rounds: int, generator: np.random.Generator, *, fixed: bool = False
) -> NDArray[np.int32]:
    """Which set is on: each once a round, in a random order, or always in the same one.

    >>> rotation(3, 2, np.random.default_rng(0), fixed=True).tolist()
    [0, 1, 2, 0, 1, 2]
    """
    order = np.tile(np.arange(sets, dtype=np.int32), (rounds, 1))
    if not fixed:
        order = generator.permuted(order, axis=1)
    return order.ravel()


def _checked(*columns: ArrayLike) -> list[Floats]:
    arrays = [np.asarray(column, dtype=np.float64) for column in columns]
    if any(array.ndim != 1 or array.shape != arrays[0].shape for array in arrays):
        msg = "slices need one count and one time each: two one-dimensional arrays of one length"
        raise UserError(msg)
    return arrays


def ratio_of_slices(above: ArrayLike, below: ArrayLike, share: float = 0.0) -> Scaled:
    """``sum(above) / sum(below)`` over slices in which both were seen, with its uncertainty.

    Parameters
    ----------
    above, below
        Counts of two events in the same slices (or of one event, and the slices' times).
    share
        Which share of the time these slices are, from 0 to 1; at 1 the ratio is known.

    Returns
    -------
    NaN where ``below`` is zero altogether; an uncertainty of NaN where a single slice was seen.

    >>> ratio_of_slices([2, 4, 6], [1, 2, 3]).value
    2.0
    """
    y, x = _checked(above, below)
    used = np.isfinite(y) & np.isfinite(x) & ((x > 0) | (y > 0))
    y, x = y[used], x[used]
    count, time = y.size, float(x.sum())
    if count == 0 or time <= 0:
        return Scaled(math.nan, math.nan, math.nan)
    ratio = float(y.sum()) / time
    if share >= 1:
        return Scaled(ratio, 0.0, math.inf)
    if count == 1:
        return Scaled(ratio, math.nan, math.nan)
    steps = np.diff(y - ratio * x)
    variance_seen = max(1.0, count * float((steps**2).sum()) / (2 * (count - 1)))
    error = math.sqrt((1 - max(share, 0.0)) * variance_seen) / time
    return Scaled(ratio, error, 2 * (count - 1) ** 2 / (3 * count - 4))


def scale_slices(seen: ArrayLike, seen_ns: ArrayLike, all_ns: float) -> Scaled:
    """The total of an event that was seen in some slices of the time.

    Parameters
    ----------
    seen
        What was counted in each slice, in the order of time.
    seen_ns
        How long the event was counted in each (the time the program ran, for a program's counter).
    all_ns
        How long the program ran altogether, the slices that were not seen included.

    Returns
    -------
    Total, standard uncertainty and degrees of freedom. NaN where nothing was seen at all.

    >>> scale_slices([100, 102, 98], [1e7, 1e7, 1e7], 6e7).value
    600.0
    """
    y, x = _checked(seen, seen_ns)
    if not all_ns > 0 or not x.sum() > 0:
        return Scaled(math.nan, math.nan, math.nan)
    ratio = ratio_of_slices(y, x, float(x.sum()) / all_ns)
    if ratio.error == 0:  # seen all the time: the count itself, not the ratio of two clocks
        return Scaled(float(y.sum()), 0.0, math.inf)
    return Scaled(ratio.value * all_ns, ratio.error * all_ns, ratio.freedom)


def scale_totals(
    value: ArrayLike,
    enabled_ns: ArrayLike,
    running_ns: ArrayLike,
    *,
    slice_ns: float = KERNEL_SLICE_NS,
    scatter: float = ASSUMED_SCATTER,
) -> tuple[Floats, Floats]:
    """Totals scaled by enabled over running time, where the kernel rotated and reports no slices.

    Parameters
    ----------
    value, enabled_ns, running_ns
        What the kernel says, of any one shape.
    slice_ns
        How long one slice of the kernel's rotation lasts.
    scatter
        How much the event's rate differs between slices: standard deviation over mean. It
        is **assumed**: 1 is a rate that is off as often as not. A single total cannot show it.

    Returns
    -------
    tuple
        The estimates, and their standard uncertainties under that assumption: ``estimate *
        scatter * sqrt((1 - f) / n)`` with ``f`` the share of the time seen in ``n`` slices, and at
        least that of one event. Certain is only that the total is no smaller than ``value``. Both
        are NaN where the running time is zero: not counted is not zero.

    >>> estimate, error = scale_totals([100, 100], [8e6, 8e6], [8e6, 2e6])
    >>> estimate.tolist()
    [100.0, 400.0]
    """
    seen, enabled, running = (
        np.asarray(column, dtype=np.float64) for column in (value, enabled_ns, running_ns)
    )
    counted = running > 0
    share = np.where(counted, np.minimum(running / np.where(enabled > 0, enabled, 1.0), 1), np.nan)
    estimate = np.where(share < 1, seen / share, np.where(counted, seen, np.nan))
    slices = np.maximum(running / slice_ns, 1.0)
    assumed = np.maximum(estimate * scatter / np.sqrt(slices), 1 / share)
    return estimate, assumed * np.sqrt(1 - share)
