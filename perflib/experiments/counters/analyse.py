"""What the counts of one job in several modes say: errors, costs, readings that are missing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments.counters.accuracy import accuracy, job_cost, relative_errors
from perflib.experiments.counters.measure import ALONE, NOTHING, ONE_SET, SAMPLED
from perflib.framework.verdicts import threshold_verdict
from perflib.model.errors import UserError
from perflib.model.finding import Finding, Verdict
from perflib.stats.interval import Interval
from perflib.stats.intervals import t_interval

__all__ = ["CountersTable", "Limits", "subject_of"]

Floats = NDArray[np.float64]
_REPEATABLE_PERCENT = 5.0
_TIMES = {"CPU time": "cpu_time_ns", "wall time": "time_ns"}
_IN_TURNS = ("rotated", "kernel")
_UNKNOWN = Interval(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Limits:
    """From which percentage on a claim holds: an error, the two costs, the readings missed."""

    error: float
    counting: float
    sampling: float
    missed: float


def subject_of(mode: str, jobs: int) -> str:
    """A mode and a number of jobs as one word: ``rotated×3``."""
    return f"{mode.replace(' ', '-')}×{jobs}"


class CountersTable:
    """Samples of the experiment, and what is computed from them.

    Parameters
    ----------
    samples
        Rows as `perflib.experiments.counters` documents them.
    repeatable_percent
        Events that two runs of one set at a time do not repeat to within this, on average, are
        left out of the average errors: nobody can say how wrong another mode is about them.

    Raises
    ------
    UserError
        There are neither counts with a reference (mode ``one set``), nor times with one
        (``alone``); or a count that is there twice.
    """

    def __init__(
        self, samples: pd.DataFrame, repeatable_percent: float = _REPEATABLE_PERCENT
    ) -> None:
        modes = set(samples["mode"])
        has_counts = "value" in samples and ONE_SET in modes
        has_times = bool(set(_TIMES.values()) & set(samples)) and ALONE in modes
        if not has_counts and not has_times:
            msg = (
                f"nothing to compare with: counts (value) are held against mode {ONE_SET!r}, times "
                f"(cpu_time_ns, time_ns) against mode {ALONE!r}; the modes here are "
                f"{', '.join(sorted(map(repr, modes)))}"
            )
            raise UserError(msg)
        self.samples = samples
        self.repeatable_percent = repeatable_percent
        self._has_counts, self._has_times = has_counts, has_times

    # --- counts --------------------------------------------------------------------------------

    @cached_property
    def counts(self) -> pd.DataFrame:
        """The rows of events, as `accuracy` takes them; an event of several sets names its set."""
        if not self._has_counts:
            return pd.DataFrame(columns=["mode", "jobs", "repetition", "event", "value"])
        rows = self.samples[self.samples["event"] != NOTHING].rename(
            columns={"round": "repetition"}
        )
        rows = rows.assign(value=rows["value"].astype(np.float64))
        if "set" in rows:
            several = rows.groupby("event")["set"].nunique()
            ambiguous = rows["event"].map(several) > 1
            named = rows["event"] + " (" + rows["set"].astype(str) + ")"
            rows["event"] = rows["event"].where(~ambiguous, named)
        return rows

    @cached_property
    def accuracy(self) -> pd.DataFrame:
        """Errors by event, mode and jobs, by the source's formula; see `counters.accuracy`."""
        if self.counts.empty:
            return pd.DataFrame()
        return accuracy(self.counts, reference=ONE_SET)

    @cached_property
    def errors(self) -> pd.DataFrame:
        """`accuracy` without the reference and without events that have no error, with intervals.

        ``error_low_percent``, ``error_high_percent``: of the average error, from the scatter
        between rounds. ``repeatable``: the reference's scatter is within
        ``repeatable_percent``, or not known.
        """
        table = self.accuracy
        if table.empty:
            return table
        table = table[(table["mode"] != ONE_SET) & table["average_error_percent"].notna()]
        ends = []
        for event, mode, jobs in table[["event", "mode", "jobs"]].itertuples(index=False):
            plain, measured = self._pairs(str(event), str(mode), int(jobs))
            ends.append(t_interval(100 * relative_errors(plain, measured)))
        return table.assign(
            error_low_percent=[max(0.0, end.low) for end in ends],
            error_high_percent=[end.high for end in ends],
            repeatable=~(table["scatter_average_percent"] > self.repeatable_percent),
        )

    def _pairs(self, event: str, mode: str, jobs: int) -> tuple[Floats, Floats]:
        """Counts of an event by one set at a time and in a mode, round by round."""
        rows = self.counts
        rows = rows[(rows["event"] == event) & (rows["jobs"] == jobs)]
        wide = rows.pivot_table(index="repetition", columns="mode", values="value")
        wide = wide.reindex(columns=[ONE_SET, mode])
        return wide[ONE_SET].to_numpy(np.float64), wide[mode].to_numpy(np.float64)

    def average_error(self, mode: str, jobs: int) -> tuple[Interval, Interval]:
        """The error averaged over events, and by how much it exceeds the run-to-run scatter.

        Both in percent, over rounds. The scatter is what one set at a time differs by from one
        round to all others: the error of a mode that does nothing.
        """
        table = self.errors
        if table.empty:
            return _UNKNOWN, _UNKNOWN
        chosen = table[(table["mode"] == mode) & (table["jobs"] == jobs) & table["repeatable"]]
        errors, scatters = [], []
        for event in chosen["event"]:
            plain, measured = self._pairs(event, mode, jobs)
            errors.append(pd.Series(100 * relative_errors(plain, measured)))
            scatters.append(pd.Series(100 * _scatter(plain)))
        if not errors:
            return _UNKNOWN, _UNKNOWN
        error = pd.concat(errors, axis=1).mean(axis=1)
        excess = error - pd.concat(scatters, axis=1).mean(axis=1)
        return t_interval(error.to_numpy(np.float64)), t_interval(excess.to_numpy(np.float64))

    # --- times ---------------------------------------------------------------------------------

    @cached_property
    def costs(self) -> pd.DataFrame:
        """What each mode costs the job, in percent of its time alone; see `counters.job_cost`.

        ``time`` says which: ``CPU time``, which other jobs hardly touch, and ``wall time``, in
        which waiting for them is the larger part. Where both are known the first decides.
        """
        keys = [name for name in ("round", "mode", "jobs", "set") if name in self.samples]
        turns = self.samples
        if "set" in keys:  # the absent sets' rows stand beside another set's in one turn
            turns = turns[(turns["event"] != NOTHING) | (turns["mode"] == ALONE)]
        turns = turns.drop_duplicates(keys).rename(columns={"round": "repetition"})
        parts = []
        for word, column in _TIMES.items():
            if self._has_times and column in turns:
                known = turns.assign(time_ns=turns[column])[turns[column] > 0]
                if (known["mode"] == ALONE).any():
                    parts.append(job_cost(known, without=ALONE).assign(time=word))
        parts = [part for part in parts if len(part)]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    @property
    def half_width(self) -> float:
        """The widest half interval of any cost with the fewest jobs, in percentage points."""
        table = self.costs
        if table.empty:
            return math.inf
        decide = table[(table["time"] == table["time"].iloc[0])]
        fewest = decide[decide["jobs"] == decide["jobs"].min()]
        widths = (fewest["cost_high_percent"] - fewest["cost_low_percent"]) / 2
        return float(widths.fillna(math.inf).max())

    # --- readings ------------------------------------------------------------------------------

    def missed(self, mode: str, jobs: int) -> Interval:
        """Readings that were due and not made, in percent of those due, over rounds."""
        rows = self.samples
        if not {"got", "due"} <= set(rows):
            return _UNKNOWN
        rows = rows[(rows["mode"] == mode) & (rows["jobs"] == jobs) & (rows["due"] > 0)]
        sums = rows.groupby("round")[["got", "due"]].sum().astype(np.float64)
        share = 100 * (1 - sums["got"] / sums["due"])
        return t_interval(share.clip(lower=0.0).to_numpy(np.float64))

    # --- findings ------------------------------------------------------------------------------

    def _combinations(self) -> Iterator[tuple[str, int]]:
        pairs = self.samples[["mode", "jobs"]].drop_duplicates()
        for mode, jobs in sorted(
            pairs.itertuples(index=False), key=lambda pair: (pair[1], pair[0])
        ):
            if mode != ALONE:
                yield str(mode), int(jobs)

    def findings(self, limits: Limits) -> list[Finding]:
        """First the errors, then the costs, then the readings missed."""
        every = list(self._combinations())
        found: list[Finding] = []
        if self._has_counts:
            found += [
                self._error_finding(mode, jobs, limits.error)
                for mode, jobs in every
                if mode != ONE_SET
            ]
        if self._has_times:
            for mode, jobs in every:
                limit = limits.sampling if mode == SAMPLED else limits.counting
                found.append(self._cost_finding(mode, jobs, limit))
        if {"got", "due"} <= set(self.samples):
            found += [self._missed_finding(mode, jobs, limits.missed) for mode, jobs in every]
        return found

    def _error_finding(self, mode: str, jobs: int, limit: float) -> Finding:
        error, excess = self.average_error(mode, jobs)
        subject = subject_of(mode, jobs)
        here = self.errors
        here = here[(here["mode"] == mode) & (here["jobs"] == jobs)] if len(here) else here
        verdict, reason = _error_verdict(error, excess, limit)
        rows = self.counts[(self.counts["mode"] == mode) & (self.counts["jobs"] == jobs)]
        if mode in _IN_TURNS and "status" in rows and not rows["status"].eq("scaled").any():
            reason += " Nothing had to be scaled: there was a counter for every event all the time."
        if len(here) and not here["repeatable"].all():
            left_out = here[~here["repeatable"]]
            reason += f" Left out, as no two runs agree on them: {', '.join(left_out['event'])}."
        if len(here) and math.isfinite(error.effect):
            worst = here[here["repeatable"]].nlargest(1, "average_error_percent").iloc[0]
            reason += (
                f" Farthest off: {worst['event']}, by {worst['average_error_percent']:.3g} % on "
                f"average; the reference scatters by {worst['scatter_average_percent']:.2g} %."
            )
        evidence: dict[str, Any] = {
            "excess_over_scatter_percent": list(excess),
            "events": here[_EVIDENCE].to_dict("records") if len(here) else [],
        }
        return Finding(
            claim=f"{subject} gives counts that are off by more than {limit:g} % on average",
            subject=subject,
            verdict=verdict,
            effect=error.effect,
            low=max(0.0, error.low) if math.isfinite(error.low) else error.low,
            high=error.high,
            unit="percent",
            reason=reason,
            evidence=evidence,
        )

    def _cost_finding(self, mode: str, jobs: int, limit: float) -> Finding:
        table = self.costs
        rows = table[(table["mode"] == mode) & (table["jobs"] == jobs)] if len(table) else table
        found = {
            str(row["time"]): Interval(*(float(row[name]) for name in _COST))
            for row in rows.to_dict("records")
        }
        word, cost = next(iter(found.items()), ("time", _UNKNOWN))
        verdict, reason = threshold_verdict(cost, limit)
        return Finding(
            claim=f"{subject_of(mode, jobs)} costs the job more than {limit:g} % of {word}",
            subject=f"{subject_of(mode, jobs)} cost",
            verdict=verdict,
            effect=cost.effect,
            low=cost.low,
            high=cost.high,
            unit="percent",
            reason=reason,
            evidence={f"{name}, percent": list(interval) for name, interval in found.items()},
        )

    def _missed_finding(self, mode: str, jobs: int, limit: float) -> Finding:
        missed = self.missed(mode, jobs)
        verdict, reason = threshold_verdict(missed, limit)
        low, high = (min(max(end, 0.0), 100.0) for end in (missed.low, missed.high))
        known = math.isfinite(missed.low)
        what = "samples" if mode == SAMPLED else "readings"
        return Finding(
            claim=f"{subject_of(mode, jobs)} misses more than {limit:g} % of its {what}",
            subject=f"{subject_of(mode, jobs)} missed",
            verdict=verdict,
            effect=missed.effect,
            low=low if known else math.nan,
            high=high if known else math.nan,
            unit="percent",
            reason=reason,
        )


_COST = ("cost_percent", "cost_low_percent", "cost_high_percent")
_EVIDENCE = [
    "event", "pairs", "average_error_percent", "max_error_percent", "scatter_average_percent",
    "scatter_max_percent", "p_value", "verdict",
]  # fmt: skip


def _scatter(plain: Floats) -> Floats:
    """For each run the mean error of all other runs of the same, against it; NaN where none is."""
    errors = np.abs(plain[:, None] - plain[None, :]) / np.where(plain > 0, plain, np.nan)[:, None]
    np.fill_diagonal(errors, np.nan)
    known = np.isfinite(errors)
    count = known.sum(axis=1)
    total = np.where(known, errors, 0.0).sum(axis=1)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))


def _error_verdict(error: Interval, excess: Interval, limit: float) -> tuple[Verdict, str]:
    if not math.isfinite(error.effect):
        return "inconclusive", "No event is counted in both ways and repeatable."
    if not math.isfinite(error.half_width) or not math.isfinite(excess.half_width):
        return "inconclusive", "It takes two rounds or more."
    if error.high < limit:
        return "refuted", f"An error of {limit:g} % lies outside the interval."
    if excess.low <= 0:
        return "inconclusive", (
            "It is not clearly larger than what two runs of one set at a time differ by "
            f"({error.effect - excess.effect:.2g} %)."
        )
    if error.low <= limit:
        return "inconclusive", f"{limit:g} % lies within the interval: more rounds would narrow it."
    return "supported", (
        f"Two runs of one set at a time differ by {error.effect - excess.effect:.2g} %."
    )
