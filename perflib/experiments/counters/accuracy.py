"""How far multiplexed or sampled counts are from plain ones, and what counting costs the job.

The same job is counted in several modes: one set at a time (the reference), multiplexed by perflib
or by the kernel, sampled; with one, two, three jobs on the machine. For ``n`` pairs of a reference
count ``X_ws`` and a count ``X_s`` of the same event in the mode under test, Jurga 2006 (*Practical
experience with performance monitoring*, CERN openlab) reports::

    average = sum(|X_ws - X_s| / X_ws) / n * 100 %        and the largest of the n errors

Two runs of one job differ also when nothing is done to them. Their errors by the same formula,
among the reference runs themselves, are listed too (``scatter``): an error below it means nothing.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from perflib.experiments.counters.modes import ONE_SET
from perflib.model.errors import UserError
from perflib.stats.intervals import Floats, t_interval

_RUN = ["event", "jobs", "round"]
# Migrations, switches: of two counts by chance the difference is known, and two rounds may hide it.
_MIN_COUNT = 30


def relative_errors(reference: ArrayLike, measured: ArrayLike) -> Floats:
    """``|X_ws - X_s| / X_ws`` of each pair; NaN where the reference is zero or one was not counted.

    >>> relative_errors([100, 200], [99, 210]).tolist()
    [0.01, 0.05]
    """
    without = np.asarray(reference, dtype=np.float64)
    sampled = np.asarray(measured, dtype=np.float64)
    known = np.where(without > 0, without, np.nan)
    return np.asarray(np.abs(without - sampled) / known)


def errors_by_round(counts: pd.DataFrame) -> pd.DataFrame:
    """Each count's error against the reference of its round, with the reference's own scatter.

    Parameters
    ----------
    counts
        One row a count: ``mode``, ``jobs`` (how many ran at once), ``round``, ``event``, ``value``
        (scaled to the whole job; NaN: not counted).

    Returns
    -------
    The rows of all modes but the reference, and ``error_percent``, ``scatter_percent`` (the mean
    error of the references of all other rounds against this round's), ``scatter_average_percent``
    (of all rounds of this event and number of jobs; where fewer than 30 are counted, at least what
    counts differ by that come by chance); NaN where the round has no reference.

    Raises
    ------
    UserError
        A count is there twice.
    """
    key = ["mode", *_RUN]
    twice = counts[counts.duplicated(key)]
    if len(twice):
        first = ", ".join(f"{name}={twice.iloc[0][name]}" for name in key)
        msg = f"the samples have {first} more than once"
        raise UserError(msg)
    reference = counts[counts["mode"] == ONE_SET][[*_RUN, "value"]]
    reference = reference.rename(columns={"value": "reference"})
    scatter = reference.groupby(_RUN[:2])["reference"].transform(_scatter)
    reference = reference.assign(scatter_percent=scatter)
    by_event = reference.groupby(_RUN[:2])
    average = by_event["scatter_percent"].transform("mean")
    least = by_event["reference"].transform("min")
    by_chance = 100 * np.sqrt(2 / np.maximum(least, 1.0))
    average = average.where(least >= _MIN_COUNT, np.maximum(average, by_chance))
    rows = counts[counts["mode"] != ONE_SET].merge(
        reference.assign(scatter_average_percent=average), on=_RUN, how="left"
    )
    return rows.assign(error_percent=100 * relative_errors(rows["reference"], rows["value"]))


def _scatter(reference: pd.Series[float]) -> Floats:
    """For each run the mean error of all other runs of the same, in percent; NaN where none is."""
    plain = reference.to_numpy(np.float64)
    errors = relative_errors(plain[:, None], plain[None, :])
    np.fill_diagonal(errors, np.nan)
    known = np.isfinite(errors)
    count = known.sum(axis=1)
    total = np.where(known, errors, 0.0).sum(axis=1)
    return np.asarray(100 * np.where(count > 0, total / np.maximum(count, 1), np.nan))


def errors_by_event(rows: pd.DataFrame, repeatable_percent: float) -> pd.DataFrame:
    """One row for each event, mode and number of jobs of ``errors_by_round``.

    Returns
    -------
    ``event``, ``mode``, ``jobs``, ``pairs`` (of a count with its reference),
    ``average_error_percent`` with its interval over rounds (``error_percent_low``,
    ``error_percent_high``), ``max_error_percent``, ``scatter_average_percent``, ``repeatable``
    (that scatter is within ``repeatable_percent``, or not known). Events without an error have no
    row.
    """
    found = []
    for (event, jobs, mode), part in rows.groupby(["event", "jobs", "mode"], sort=False):
        errors = part["error_percent"].dropna().to_numpy(np.float64)
        if errors.size:
            average = t_interval(errors)
            scatter = float(part["scatter_average_percent"].max())
            found.append(
                {
                    "event": event,
                    "mode": mode,
                    "jobs": jobs,
                    "pairs": errors.size,
                    "average_error_percent": average.effect,
                    "error_percent_low": float(np.maximum(average.low, 0.0)),
                    "error_percent_high": average.high,
                    "max_error_percent": errors.max(),
                    "scatter_average_percent": scatter,
                    "repeatable": not scatter > repeatable_percent,
                }
            )
    return pd.DataFrame(found)
