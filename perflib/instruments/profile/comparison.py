"""Two profiles of the same work compared: which functions account for the additional time.

Three questions, kept apart. How much longer does the event take (``total``)? Which functions does
the additional time lie in (``share_percent``, the table of the source)? Those that cost most always
head that list, also on a core that is merely slower. So the third: does a function grow *more* than
all the others do (``excess_percent``)? Only that makes a function stand out.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats as distributions

from perflib.instruments.profile.costs import Counts, costs_of, counts_of, unit_of
from perflib.model.finding import Finding, Verdict
from perflib.stats.excess import Excesses, excesses
from perflib.stats.interval import Interval, percent
from perflib.stats.intervals import robust_mean, t_interval

__all__ = ["Comparison", "compare", "compare_samples"]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

COUNTING_ONLY = (
    "Counting only: there is one repetition, so the intervals come from the number of samples and "
    "say nothing of how much the functions differ from one event to the next."
)
_LEAST_ROUNDS = 3  # below, the scatter of events is not known well enough for a verdict
_FAR = 5.0  # standard deviations from which a round counts as disturbed, and
_FLOOR = math.log(1.1)  # less than this never does
_ANYTHING_PERCENT = 100.0  # of the event time: who leaves that open has seen nothing
_LONGER_PERCENT = 1.0  # an event that takes so much longer is of interest


# --- comparison --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """What two arms have in common and where they differ.

    Parameters
    ----------
    table
        One row a function, the one that stands out most first. ``cost_first``, ``cost_second`` and
        ``additional`` are per event in ``unit``, each with ``_low`` and ``_high``; disturbed rounds
        are left out of them. ``share_percent`` is the function's part of the additional time; NaN
        unless the total of it is clearly not zero (at a fifth of the doubt). ``excess_percent`` is
        by how much it grew beyond the slowdown common to the functions that do not stand out,
        infinite where the first arm never met it; ``of_event_percent`` the same time as a share of
        the event on the first arm, with ``of_event_low`` and ``of_event_high``. ``p_holm`` is
        corrected for the number of functions, NaN where the samples are too few to test.
        ``stands_out``, ``samples`` (on both arms), ``log_error`` and ``df`` (see ``visible``).
    first, second, unit, confidence
        What was compared, the unit of costs, and what share of the intervals cover the truth.
    total, common
        By how many percent the event, and the functions that do not stand out, took longer on the
        second arm; disturbances left out.
    additional
        The same for the event in ``unit``.
    rounds, dropped, disturbed
        Repetitions compared; left out because an arm was missing; in which one arm lay far above
        its own low state.
    open_percent
        The largest excess, as a share of the event time, that the intervals (all together) leave
        open for any function: what could not have been seen. Infinite where that is anything.
    relevant_percent
        An excess below this share of the event time is none that matters.
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
    disturbed: int
    open_percent: float
    relevant_percent: float

    @property
    def counting_only(self) -> bool:
        """Is there one repetition only, so that intervals come from counting alone?"""
        return self.rounds == 1

    def visible(self, power: float = 0.9, rounds: int | None = None) -> pd.Series[float]:
        """By how many percent each function would have to grow to be named that often.

        ``rounds``: with so many repetitions instead of those that were made. NaN where a function
        has too few samples to be tested.
        """
        tested = self.table["p_holm"].notna()
        tail = (1 - self.confidence) / 2 / max(1, int(tested.sum()))
        df = self.table["df"]
        needed = distributions.t.ppf(1 - tail, df) + distributions.t.ppf(power, df)
        scale = math.sqrt(self.rounds / (rounds or self.rounds))
        growth = 100 * np.expm1(needed * self.table["log_error"] * scale)
        return pd.Series(
            np.where(tested, growth, np.nan), index=self.table["function"], name="visible_percent"
        )

    def findings(self) -> list[Finding]:
        """Does the event take longer; does any function stand out; and one for each that does."""
        named = self.table[self.table["stands_out"]]
        return [
            _longer(self),
            _any_stands_out(self),
            *(_one(self, row) for _, row in named.iterrows()),
        ]


def compare(
    costs: pd.DataFrame,
    first: Hashable,
    second: Hashable,
    confidence: float = 0.95,
    *,
    unit: str = "ns",
    relevant_percent: float = 5.0,
) -> Comparison:
    """Compare the costs of functions on two arms.

    Parameters
    ----------
    costs
        One row for each repetition, arm and function: ``round``, ``arm``, ``function``, ``cost``
        in ``unit``; a function that is absent cost nothing. Where ``samples`` is there too, it is
        the number of samples behind the cost. ``costs_of`` makes such a table. The two arms of a
        round did the same work, close in time; rounds may differ in theirs.
    first, second
        The arms: what is additional is so on the second.
    confidence
        What share of the intervals cover the truth; a function stands out below one minus it.
    unit
        Of the costs.
    relevant_percent
        That no function stands out is a finding only where every excess of this share of the event
        time could have been seen.

    Returns
    -------
    The comparison. Intervals come from the differences within rounds; from the number of samples
    alone where there is one round (``counting_only``).

    Raises
    ------
    UserError
        An arm or a column that is not there, costs that are none, no round with both arms.

    Source: the table of additional clock cycles in 'KV on Haswell'. The excess is new here.

    Examples
    --------
    >>> costs = pd.DataFrame({"round": 0, "arm": [0, 0, 0, 8, 8, 8], "function": list("fghfgh"),
    ...                       "cost": [400.0, 300.0, 300.0, 900.0, 300.0, 300.0]})
    >>> compare(costs.assign(samples=costs["cost"]), 0, 8).table["function"][0]
    'f'
    """
    with np.errstate(over="ignore"):  # of one sample in a few rounds any growth is possible
        counts = counts_of(costs, first, second)
        found = excesses(counts.first, counts.second, 1 - confidence)
        plain = np.ones(len(counts.functions), dtype=np.bool_)
        plain[list(found.named)] = False
        total, disturbed = _slowdown(counts.first, counts.second, confidence)
        common, _ = _slowdown(counts.first[:, plain], counts.second[:, plain], confidence)
        kept = ~disturbed if int((~disturbed).sum()) >= 2 else np.ones_like(disturbed)
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
            disturbed=int(disturbed.sum()),
            open_percent=_left_open(counts, found, confidence),
            relevant_percent=relevant_percent,
        )


def compare_samples(samples: pd.DataFrame, first: str, second: str) -> Comparison:
    """Compare two arms of a table of samples of one event, in that event's unit."""
    return compare(costs_of(samples), first, second, unit=unit_of(samples))


def _slowdown(first: Floats, second: Floats, confidence: float) -> tuple[Interval, Flags]:
    """By how many percent the sum over functions is larger, and which rounds were disturbed.

    A burst of the host doubles one arm of a round: its ratio lies far from the others', beyond
    what their scatter or counting explains.
    """
    sums = np.column_stack([first.sum(axis=1), second.sum(axis=1)])
    usable = (sums > 0).all(axis=1)
    disturbed = np.zeros(len(sums), dtype=np.bool_)
    if not usable.any():
        return Interval(math.nan, math.nan, math.nan), disturbed
    log_ratio = np.full(len(sums), np.nan)
    log_ratio[usable] = np.log(sums[usable, 1] / sums[usable, 0])
    counting = np.full(len(sums), np.inf)
    counting[usable] = np.sqrt((1 / sums[usable]).sum(axis=1))
    if len(sums) == 1:
        centre, reach = float(log_ratio[0]), _normal(confidence) * float(counting[0])
        return percent(Interval(centre, centre - reach, centre + reach)), disturbed
    away = np.abs(log_ratio - robust_mean(log_ratio[:, None])[0])
    scatter = 1.4826 * float(np.nanmedian(away))
    disturbed[usable] = (away > np.maximum(_FAR * np.maximum(scatter, counting), _FLOOR))[usable]
    return percent(t_interval(log_ratio[~disturbed], confidence)), disturbed


def _normal(confidence: float) -> float:
    return float(distributions.norm.ppf(0.5 + confidence / 2))


def _mean(values: Floats, counting_error: float, confidence: float) -> Interval:
    """The mean over rounds; counting alone gives the error of one, and the least error of many."""
    reach = _normal(confidence) * counting_error
    if values.size > 1:
        interval = t_interval(values, confidence)
        reach = max(reach, interval.half_width)
    centre = float(values.mean())
    return Interval(centre, centre - reach, centre + reach)


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
        intervals = [
            _mean(values[:, place], math.sqrt(samples[place]) / rounds, confidence)
            for place in range(len(counts.functions))
        ]
        ends = counts.quantum * np.array(intervals).reshape(-1, 3)
        for number, end in enumerate(("", "_low", "_high")):
            columns[name + end] = ends[:, number]
    all_samples = float((first + second).sum())
    total = _mean(more.sum(axis=1), math.sqrt(all_samples) / rounds, confidence)
    shares = np.full((3, len(counts.functions)), np.nan)
    clearly = _mean(more.sum(axis=1), math.sqrt(all_samples) / rounds, 1 - (1 - confidence) / 5)
    if clearly.low > 0 or clearly.high < 0:  # a share of next to nothing is no number
        shares = 100 * _shares(more, first + second, confidence)
    columns |= dict(zip(("share_percent", "share_low", "share_high"), shares, strict=True))

    never_first, never_second = counts.first.sum(axis=0) == 0, counts.second.sum(axis=0) == 0
    low, high = found.interval(confidence)
    columns["excess_percent"] = 100 * np.where(
        never_first, np.inf, np.where(never_second, -1.0, np.expm1(found.log_odds))
    )
    columns["excess_low"] = 100 * np.where(never_second, -1.0, np.expm1(low))
    columns["excess_high"] = 100 * np.where(never_first, np.inf, np.expm1(high))
    for end, log_odds in (("", found.log_odds), ("_low", low), ("_high", high)):
        columns["of_event" + (end or "_percent")] = (
            100 * _share_of_event(counts) * np.expm1(log_odds)
        )
    columns["p_holm"] = np.where(found.tested, found.p_holm, np.nan)
    columns["samples"] = np.rint((counts.first + counts.second).sum(axis=0))
    columns["log_error"], columns["df"] = found.error, found.df
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
        reach = float(distributions.t.ppf(0.5 + confidence / 2, rounds - 1))
    else:
        own = both = samples[0]
        whole = float(samples.sum())
        reach = _normal(confidence)
    part, of = more.mean(axis=0), float(total.mean())
    a = of**2 - reach**2 * whole
    b = part * of - reach**2 * both
    c = part**2 - reach**2 * own
    root = np.sqrt(np.maximum(b**2 - a * c, 0.0))
    if a <= 0:
        return np.array([part / of, np.full_like(part, np.nan), np.full_like(part, np.nan)])
    return np.array([part / of, (b - root) / a, (b + root) / a])


def _share_of_event(counts: Counts) -> Floats:
    """Each function's share of the event on the first arm; half a sample where there is none."""
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


# --- findings ----------------------------------------------------------------------------------


def _number(value: float) -> str:
    return "no" if math.isnan(value) else f"{value:+.1f} %"


def _repetitions(compared: Comparison) -> str:
    return COUNTING_ONLY if compared.counting_only else f"{compared.rounds} repetitions."


def _longer(compared: Comparison) -> Finding:
    total = compared.total
    verdict: Verdict = "inconclusive"
    reason = f"{_LONGER_PERCENT:g} % lies within the interval."
    if compared.rounds < _LEAST_ROUNDS:
        reason = _too_few(compared)
    elif total.low > _LONGER_PERCENT or total.high < -_LONGER_PERCENT:
        verdict, reason = "supported", _repetitions(compared)
    elif total.low > -_LONGER_PERCENT and total.high < _LONGER_PERCENT:
        verdict, reason = "refuted", f"{_LONGER_PERCENT:g} % lies outside the interval."
    if compared.disturbed:
        reason += f" {compared.disturbed} disturbed rounds are left out."
    return Finding(
        f"the event takes more than {_LONGER_PERCENT:g} % longer, or shorter, on "
        f"{compared.second} than on {compared.first}",
        "event time",
        verdict,
        *total,
        unit="percent",
        confidence=compared.confidence,
        reason=reason,
        evidence={
            "additional": list(compared.additional),
            "additional_unit": compared.unit,
            "rounds": compared.rounds,
            "rounds_dropped": compared.dropped,
            "rounds_disturbed": compared.disturbed,
        },
    )


def _too_few(compared: Comparison) -> str:
    few = COUNTING_ONLY if compared.counting_only else f"There are {compared.rounds} repetitions."
    return f"{few} A verdict takes {_LEAST_ROUNDS} or more."


def _any_stands_out(compared: Comparison) -> Finding:
    """One finding for the profile as a whole: its leading function's excess, and what is open."""
    table = compared.table
    named = table.loc[table["stands_out"], "function"]
    lead = table.iloc[0]
    open_, limit = compared.open_percent, compared.relevant_percent
    tested = int(table["p_holm"].notna().sum())
    verdict: Verdict = "inconclusive"
    size = f"{open_:.1f} %" if math.isfinite(open_) else "any part"
    could = f"an excess of {size} of the event time could have stayed unseen"
    if compared.rounds < _LEAST_ROUNDS:
        by_count = f" By counting, {', '.join(named)} would." if len(named) else ""
        reason = f"{_too_few(compared)}{by_count}"
    elif tested <= 2:
        reason = f"{tested} functions have enough samples: it takes three to tell which is odd."
    elif len(named):
        verdict = "supported"
        reason = f"{', '.join(named)}. Beside it, {could}. {_repetitions(compared)}"
    elif open_ <= limit:
        verdict = "refuted"
        reason = (
            f"No function stands out. All functions have {_number(compared.common.effect)} in "
            f"common; any excess of {open_:.1f} % of the event time or more would have been seen."
        )
    else:
        reason = f"No function stands out, but {could}: more repetitions would tell."
    return Finding(
        f"on {compared.second} some function takes more, or less, than the slowdown common to all "
        f"other functions explains",
        "standing out",
        verdict,
        float(lead["of_event_percent"]),
        float(lead["of_event_low"]),
        float(lead["of_event_high"]),
        unit="percent of the event time",
        confidence=compared.confidence,
        reason=reason,
        evidence={
            "leading": lead["function"],
            "named": list(named),
            "open_percent": open_,
            "common_percent": list(compared.common),
            "functions_tested": tested,
            "rounds": compared.rounds,
        },
    )


def _one(compared: Comparison, row: pd.Series[Any]) -> Finding:
    """A function that stands out."""
    grew = "more" if row["log_odds"] > 0 else "less"
    verdict: Verdict = "supported"
    reason = f"p = {row['p_holm']:.2g}, corrected for the number of functions. "
    if compared.rounds < _LEAST_ROUNDS:
        verdict = "inconclusive"
        reason += _too_few(compared)
    else:
        reason += _repetitions(compared)
    return Finding(
        f"{row['function']} takes {grew} on {compared.second} than the slowdown common to the "
        "other functions explains",
        str(row["function"]),
        verdict,
        float(row["excess_percent"]),
        float(row["excess_low"]),
        float(row["excess_high"]),
        unit="percent",
        confidence=compared.confidence,
        reason=reason,
        evidence={
            "p_holm": float(row["p_holm"]),
            "of_event_percent": float(row["of_event_percent"]),
            "share_of_additional_percent": float(row["share_percent"]),
            "additional": [float(row[f"additional{end}"]) for end in ("", "_low", "_high")],
            "additional_unit": compared.unit,
            "samples": int(row["samples"]),
            "rounds": compared.rounds,
        },
    )
