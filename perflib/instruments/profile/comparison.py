"""Two profiles of the same work compared: which functions account for the additional time.

Three questions, kept apart. How much longer does the event take (``total``)? Which functions does
the additional time is in (``share_percent``, the table of Guerri et al. 2015)? Those that cost
most always head that list, also on a core that is merely slower. So the third: does a function grow
*more* than all the others do (``excess_percent``)? Only that makes a function stand out.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special
from scipy import stats as distributions

from perflib.instruments.profile.costs import Counts, costs_of, counts_of, unit_of
from perflib.stats.excess import Excesses, excesses
from perflib.stats.interval import NO_INTERVAL, Interval, percent
from perflib.stats.intervals import robust_mean, t_interval, t_intervals

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_FAR = 5.0  # standard deviations from which a round's ratio counts as an outlier, and
_FLOOR = math.log(1.1)  # less than this never does
_ANYTHING_PERCENT = 100.0  # of the event time: who leaves that open has seen nothing


# --- comparison --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """What two configurations have in common and where they differ.

    Parameters
    ----------
    table
        One row a function, the one that stands out most first. ``cost_first``, ``cost_second`` and
        ``additional`` are per event in ``unit``, each with ``_low`` and ``_high``; outliers are
        left out of them. ``share_percent`` is the function's part of the additional time; NaN
        unless the total of it is clearly not zero (at a fifth of the doubt). ``excess_percent`` is
        by how much it grew more than the slowdown common to the functions that do not stand out,
        infinite where the first never ran it; ``of_event_percent`` the same time as a share of
        the event on the first. Each of the three has ``_low`` and ``_high``. ``p_holm`` is
        corrected for the number of functions, NaN where the samples are too few to test.
        ``stands_out``, ``samples`` (of both), ``log_error``, ``systematic`` and ``df`` (see
        ``visible``).
    first, second, unit, confidence
        What was compared, the unit of costs, and what share of the intervals cover the truth.
    total, common
        By how many percent the event, and the functions that do not stand out, took longer on the
        second; outliers left out.
    additional
        The same for the event in ``unit``.
    rounds, dropped, outliers
        Repetitions compared; left out because a configuration was missing; in which the ratio of
        the two are far from the other rounds'.
    open_percent
        The largest excess, as a share of the event time, that the intervals (all together) leave
        open for any function: what could not have been seen. Infinite where that is anything.
    relevant_percent
        An excess below this share of the event time is none that matters.
    alone_percent
        The samples were taken while their core was alone, and so many were. 0: too few were, so
        all are compared; NaN: that is not known. Then what fluctuates within repeated recordings
        may explain a difference.
    claims
        How many claims are made together: of functions, and of the event, on each core.
    log_ratios
        Of the event's time in each round, second over first; outliers left out.
    """

    table: pd.DataFrame
    first: Hashable
    second: Hashable
    unit: str
    confidence: float
    total: Interval
    common: Interval
    additional: Interval
    rounds: int
    dropped: int
    outliers: int
    open_percent: float
    relevant_percent: float
    alone_percent: float = math.nan
    claims: int = 1
    log_ratios: tuple[float, ...] = ()

    @property
    def counting_only(self) -> bool:
        """Is there one repetition only, so that intervals come from counting alone?"""
        return self.rounds == 1

    def visible(self, power: float = 0.9) -> pd.Series[float]:
        """By how many percent each function would have to grow to be named that often.

        NaN where a function has too few samples to be tested.
        """
        tested = self.table["p_holm"].notna()
        tail = (1 - self.confidence) / 2 / max(1, int(tested.sum()))
        df = self.table["df"]
        needed = distributions.t.ppf(1 - tail, df) + distributions.t.ppf(power, df)
        systematic = 2 * self.table["systematic"]  # between the ends of what may explain it
        growth = 100 * np.expm1(needed * self.table["log_error"] + systematic)
        return pd.Series(
            np.where(tested, growth, np.nan), index=self.table["function"], name="visible_percent"
        )


def compare(
    costs: pd.DataFrame,
    first: Hashable,
    second: Hashable,
    confidence: float = 0.95,
    *,
    unit: str = "ns",
    relevant_percent: float = 5.0,
    alone_percent: float = math.nan,
    claims: int = 1,
    fluctuates: bool = True,
) -> Comparison:
    """Compare the costs of functions of two configurations.

    Parameters
    ----------
    costs
        One row for each repetition, configuration and function: ``round``, ``configuration``,
        ``function``, ``cost`` in ``unit``; a function that is absent cost nothing. Where
        ``samples`` is there too, it is the number of samples behind the cost. ``costs_of`` makes
        such a table. The two trials of a round did the same work, close in time; rounds may differ
        in theirs.
    first, second
        The configurations: what is additional is so on the second.
    confidence
        What share of the intervals cover the truth; a function stands out below one minus it, over
        the number of ``claims``.
    unit
        Of the costs.
    relevant_percent
        That no function stands out is a finding only where every excess of this share of the event
        time could have been seen.
    alone_percent, claims
        See `Comparison`; where samples were taken alone, ``samples`` must be there.
    fluctuates
        Whether what slows all functions for a while may have differed between the two throughout:
        not where chance gave each trial its configuration.

    Returns
    -------
    The comparison. Intervals come from the differences within rounds; from the number of samples
    alone where there is one round (``counting_only``).

    Raises
    ------
    UserError
        A configuration or a column that is not there, costs that are none, no round with both.

    Examples
    --------
    >>> costs = pd.DataFrame({"round": 0, "configuration": [0, 0, 0, 8, 8, 8],
    ...                       "function": list("fghfgh"),
    ...                       "cost": [400.0, 300.0, 300.0, 900.0, 300.0, 300.0]})
    >>> compare(costs.assign(samples=costs["cost"]), 0, 8).table["function"][0]
    'f'
    """
    with np.errstate(over="ignore"):  # of one sample in a few rounds any growth is possible
        counts = counts_of(costs, first, second)
        odds = counts
        if alone_percent > 0:  # costs are those of the whole event, of which a part was seen
            seen = costs.assign(cost=costs["samples"].astype(np.float64))
            odds = counts_of(seen, first, second)
        alpha = (1 - confidence) / claims
        found = excesses(
            odds.first, odds.second, alpha, fluctuates=fluctuates and not alone_percent > 0
        )
        plain = np.ones(len(counts.functions), dtype=np.bool_)
        plain[list(found.named)] = False
        total, outliers = _slowdown(counts.first, counts.second, confidence)
        sums = counts.first.sum(axis=1), counts.second.sum(axis=1)
        log_ratios = np.log(sums[1] / sums[0])[~outliers]
        common, _ = _slowdown(counts.first[:, plain], counts.second[:, plain], confidence)
        kept = ~outliers if int((~outliers).sum()) >= 2 else np.ones_like(outliers)
        table, additional = _table(counts, found, kept, confidence)
        return Comparison(
            table=table,
            first=first,
            second=second,
            unit=unit,
            confidence=confidence,
            total=total,
            common=common,
            additional=additional,
            rounds=len(counts.first),
            dropped=counts.dropped,
            outliers=int(outliers.sum()),
            open_percent=_left_open(counts, found, confidence),
            relevant_percent=relevant_percent,
            alone_percent=alone_percent,
            claims=claims,
            log_ratios=tuple(log_ratios.tolist()),
        )


def compare_samples(
    samples: pd.DataFrame,
    first: str,
    second: str,
    alone_percent: float = math.nan,
    claims: int = 1,
    fluctuates: bool = True,
) -> Comparison:
    """Compare two configurations of a table of samples of one event, in that event's unit."""
    return compare(
        costs_of(samples),
        first,
        second,
        unit=unit_of(samples),
        alone_percent=alone_percent,
        claims=claims,
        fluctuates=fluctuates,
    )


def additional_time_table(compared: Comparison) -> pd.DataFrame:
    """The comparison by function; ``explained``: what the common slowdown gives it.

    ``visible_percent``: by how much it would have had to grow to be named nine times in ten.
    """
    table = compared.table.drop(columns=["log_error", "systematic", "df", "log_odds"])
    return table.assign(
        explained=table["cost_first"] * compared.common.effect / 100,
        visible_percent=compared.visible().to_numpy(),
        unit=compared.unit,
    )


def _slowdown(first: Floats, second: Floats, confidence: float) -> tuple[Interval, Flags]:
    """By how many percent the sum over functions is larger, and which rounds are outliers.

    A burst of the host doubles one trial of a round: the round's ratio is then farther from the
    others' than their scatter or counting explains.
    """
    sums = np.column_stack([first.sum(axis=1), second.sum(axis=1)])
    usable = (sums > 0).all(axis=1)
    outliers = np.zeros(len(sums), dtype=np.bool_)
    if not usable.any():
        return NO_INTERVAL, outliers
    log_ratio = np.full(len(sums), np.nan)
    log_ratio[usable] = np.log(sums[usable, 1] / sums[usable, 0])
    counting = np.full(len(sums), np.inf)
    counting[usable] = np.sqrt((1 / sums[usable]).sum(axis=1))
    if len(sums) == 1:
        centre, half_width = float(log_ratio[0]), _normal(confidence) * float(counting[0])
        return percent(Interval(centre, centre - half_width, centre + half_width)), outliers
    away = np.abs(log_ratio - robust_mean(log_ratio[:, None])[0])
    scatter = 1.4826 * float(np.nanmedian(away))
    outliers[usable] = (away > np.maximum(_FAR * np.maximum(scatter, counting), _FLOOR))[usable]
    return percent(t_interval(log_ratio[~outliers], confidence)), outliers


def _normal(confidence: float) -> float:
    return float(special.ndtri(0.5 + confidence / 2))


def _means(values: Floats, counting_errors: Floats, confidence: float) -> Floats:
    """``[column, estimate and ends]`` of the means over rounds.

    Counting alone gives the error of one round, and the least error of many.
    """
    half_width = _normal(confidence) * counting_errors
    centre = np.ascontiguousarray(values.T).mean(axis=1)
    if len(values) > 1:
        scatter = [found.half_width for found in t_intervals(values, confidence)]
        half_width = np.maximum(half_width, scatter)
    return np.column_stack([centre, centre - half_width, centre + half_width])


def _table(
    counts: Counts, found: Excesses, kept: Flags, confidence: float
) -> tuple[pd.DataFrame, Interval]:
    """The rows of the comparison, sorted, and the total of the additional time."""
    first, second = counts.first[kept], counts.second[kept]
    more = second - first
    rounds = len(more)
    columns: dict[str, Floats] = {}
    for name, values in (("cost_first", first), ("cost_second", second), ("additional", more)):
        samples = (first + second if name == "additional" else values).sum(axis=0)
        ends = counts.quantum * _means(values, np.sqrt(samples) / rounds, confidence)
        for number, end in enumerate(("", "_low", "_high")):
            columns[name + end] = ends[:, number]
    sums = more.sum(axis=1, keepdims=True)
    counting_error = np.sqrt([float((first + second).sum())]) / rounds
    (total,) = _means(sums, counting_error, confidence)
    shares = np.full((3, len(counts.functions)), np.nan)
    ((_, low, high),) = _means(sums, counting_error, 1 - (1 - confidence) / 5)
    if low > 0 or high < 0:  # a share of next to nothing is no number
        shares = 100 * _shares(more, first + second, confidence)
    for end, values in zip(("", "_low", "_high"), shares, strict=True):
        columns["share_percent" + end] = values

    never_first, never_second = counts.first.sum(axis=0) == 0, counts.second.sum(axis=0) == 0
    low, high = found.interval(confidence)
    columns["excess_percent"] = 100 * np.where(
        never_first, np.inf, np.where(never_second, -1.0, np.expm1(found.log_odds))
    )
    columns["excess_percent_low"] = 100 * np.where(never_second, -1.0, np.expm1(low))
    columns["excess_percent_high"] = 100 * np.where(never_first, np.inf, np.expm1(high))
    for end, log_odds in (("", found.log_odds), ("_low", low), ("_high", high)):
        columns["of_event_percent" + end] = 100 * _share_of_event(counts) * np.expm1(log_odds)
    columns["p_holm"] = np.where(found.tested, found.p_holm, np.nan)
    columns["samples"] = np.rint((counts.first + counts.second).sum(axis=0))
    columns["log_error"], columns["df"] = found.error, found.df
    columns["systematic"] = found.systematic
    columns["log_odds"] = found.log_odds
    table = pd.DataFrame({"function": counts.functions, **columns})
    table["stands_out"] = np.isin(np.arange(len(table)), found.named)
    rank = np.full(len(table), len(table))
    rank[list(found.named)] = np.arange(len(found.named))
    order = np.lexsort((-columns["samples"], found.p, ~found.tested, rank))
    return table.iloc[order].reset_index(drop=True), Interval(
        *(counts.quantum * value for value in total)
    )


def _shares(more: Floats, samples: Floats, confidence: float) -> Floats:
    """``[estimate, low, high; function]``: each function's part of the additional time.

    A ratio of two means over the same rounds, with Fieller's interval: NaN ends where it has none
    because the total might be zero after all.
    """
    total = more.sum(axis=1, keepdims=True)
    rounds = len(more)
    if rounds > 1:
        away, total_away = more - more.mean(axis=0), total - total.mean(axis=0)
        scale = rounds * (rounds - 1)
        own = (away**2).sum(axis=0) / scale
        both = (away * total_away).sum(axis=0) / scale
        whole = float((total_away**2).sum()) / scale
        quantile = float(distributions.t.ppf(0.5 + confidence / 2, rounds - 1))
    else:
        own = both = samples[0]
        whole = float(samples.sum())
        quantile = _normal(confidence)
    part, of = more.mean(axis=0), float(total.mean())
    a = of**2 - quantile**2 * whole
    b = part * of - quantile**2 * both
    c = part**2 - quantile**2 * own
    root = np.sqrt(np.maximum(b**2 - a * c, 0.0))
    if a <= 0:
        return np.array([part / of, np.full_like(part, np.nan), np.full_like(part, np.nan)])
    return np.array([part / of, (b - root) / a, (b + root) / a])


def _share_of_event(counts: Counts) -> Floats:
    """Each function's share of the event on the first; half a sample where there is none."""
    shares: Floats = (counts.first.sum(axis=0) + 0.5) / (counts.first.sum() + 1)
    return shares


def _left_open(counts: Counts, found: Excesses, confidence: float) -> float:
    """The largest excess that no interval excludes, in percent of the event time.

    A rare function's growth has hardly a bound; but it cannot have taken more time than its few
    samples allow.
    """
    low, high = found.interval(confidence, together=True)
    tail = (1 - confidence) / 2 / max(1, int(found.tested.sum()))
    spread = np.maximum(found.dispersion, 1.0)
    most = [
        spread * distributions.chi2.ppf(1 - tail, 2 * (side.sum(axis=0) / spread + 1)) / 2
        for side in (counts.first, counts.second)
    ]
    share = _share_of_event(counts)
    lost = np.minimum(-share * np.expm1(low), most[0] / counts.first.sum())
    gained = np.minimum(share * np.expm1(high), most[1] / counts.second.sum())
    plain = np.ones(share.size, dtype=np.bool_)
    plain[list(found.named)] = False
    open_percent = float(100 * np.maximum(lost, gained)[plain].max(initial=0.0))
    return open_percent if open_percent < _ANYTHING_PERCENT else math.inf
