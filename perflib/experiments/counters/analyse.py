"""What the counts of one job in several modes say: errors, costs, readings that are missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
import pandas as pd

from perflib.experiments.counters.accuracy import errors_by_event, errors_by_round
from perflib.experiments.counters.claims import COSTS, MISCOUNTS, MISSES, words
from perflib.experiments.counters.costs import (
    by_slices,
    by_trials,
    cost_of_counting,
    p_costs_more,
)
from perflib.experiments.counters.modes import ALONE, MULTIPLEXED, NOTHING, ONE_SET, SAMPLED
from perflib.framework.published import published
from perflib.instruments.counters.sets import published_names, ratio_table
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Reason, Witness
from perflib.stats.interval import NO_INTERVAL, Interval
from perflib.stats.intervals import Floats, holm, p_above, t_interval

_ALPHA = 0.05
_REPEATABLE_PERCENT = 5.0
_CLOCKS = ("task-clock", "cpu-clock")
_TIMES = {"CPU time": "cpu_time_ns", "wall time": "time_ns"}
_WAY = ["jobs", "mode"]
_COST = ["cost_percent", "cost_percent_low", "cost_percent_high"]
_READINGS = ["mode", "jobs", "set", "event", "at_ms", "ran_ms", "value"]


class _Make(Protocol):
    """Makes a finding of one claim about one way to count."""

    def __call__(
        self, table: CountersTable, mode: str, jobs: int, limit: float, no_chance: Witness
    ) -> Finding: ...


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
        sliced = samples["slice"].notna() if "slice" in samples else pd.Series(False, samples.index)
        self.slices, samples = samples[sliced], samples[~sliced]
        self.has_counts = "value" in samples and ONE_SET in modes
        timed = bool(set(_TIMES.values()) & set(samples)) and ALONE in modes
        self.has_times = timed or not self.slices.empty
        self.has_readings = {"obtained", "due"} <= set(samples)
        if not self.has_counts and not self.has_times:
            msg = (
                f"nothing to compare with: counts (value) need mode {ONE_SET!r} as well, times "
                f"(cpu_time_ns, time_ns) mode {ALONE!r}; the modes here are "
                f"{', '.join(sorted(map(repr, modes)))}"
            )
            raise UserError(msg)
        self.samples = samples
        self.repeatable_percent = repeatable_percent

    def ways(self) -> Iterator[tuple[str, int]]:
        """Every mode in which something is counted, with each number of jobs."""
        rows = pd.concat([self.samples[_WAY], self.slices[_WAY]]).drop_duplicates()
        for jobs, mode in sorted(rows.itertuples(index=False, name=None)):
            if mode != ALONE:
                yield str(mode), int(jobs)

    # --- counts --------------------------------------------------------------------------------

    @cached_property
    def counts(self) -> pd.DataFrame:
        """The rows of events; an event of several sets names its set."""
        rows = self.samples[self.samples["event"] != NOTHING]
        rows = rows.assign(value=rows["value"].astype(np.float64))
        if "set" in rows:
            ambiguous = rows["event"].map(rows.groupby("event")["set"].nunique()) > 1
            named = rows["event"] + " (" + rows["set"].astype(str) + ")"
            rows["event"] = rows["event"].where(~ambiguous, named)
        return rows

    @cached_property
    def _errors_by_round(self) -> pd.DataFrame:
        return errors_by_round(self.counts)

    @cached_property
    def errors(self) -> pd.DataFrame:
        """Errors by event, mode and number of jobs; see `errors_by_event`."""
        if not self.has_counts:
            return pd.DataFrame()
        return errors_by_event(self._errors_by_round, self.repeatable_percent)

    def average_error(self, mode: str, jobs: int) -> tuple[Interval, Interval]:
        """The error averaged over events, and by how much it exceeds the run-to-run scatter.

        Both in percent, over rounds. The scatter is what one set at a time differs by from one
        round to all others: the error of a mode that does nothing.
        """
        error, excess = self._errors_of(mode, jobs)
        return t_interval(error), t_interval(excess)

    def off_but_for_clocks(self, mode: str, jobs: int, limit_percent: float) -> bool:
        """Whether counts are off that show what the job did, not how fast the machine was then.

        A clock's count is the job's CPU time. It differs from run to run on a busy machine, and
        two references that happen to agree do not make it repeatable.
        """
        error, _ = self._errors_of(mode, jobs, clocks=False)
        return t_interval(error).low > limit_percent

    def rounds_of(self, mode: str, jobs: int) -> int:
        """How many rounds the error is averaged over."""
        return int(np.isfinite(self._errors_of(mode, jobs)[0]).sum())

    def p_miscounts(self, mode: str, jobs: int, limit_percent: float) -> float:
        """The p value of an average error of no more than a limit, or than the scatter."""
        error, excess = self._errors_of(mode, jobs)
        return max(p_above(error, limit_percent), p_above(excess, 0.0))

    def _errors_of(self, mode: str, jobs: int, *, clocks: bool = True) -> tuple[Floats, Floats]:
        """By round: the error averaged over events, and what of it is beyond the scatter."""
        rows = _of(self._errors_by_round, mode, jobs)
        if not clocks:
            rows = rows[~rows["event"].str.startswith(_CLOCKS)]
        rows = rows[~(rows["scatter_average_percent"] > self.repeatable_percent)]
        means = rows.groupby("round")[["error_percent", "scatter_percent"]].mean()
        error = means["error_percent"].to_numpy(np.float64)
        excess = error - means["scatter_percent"].to_numpy(np.float64)
        return error, excess

    # --- times ---------------------------------------------------------------------------------

    @cached_property
    def costs(self) -> pd.DataFrame:
        """What each mode costs the job, in percent of its time alone; see `cost_of_counting`.

        ``time`` says which: ``CPU time``, which other jobs hardly touch, and ``wall time``, in
        which waiting for them is the larger part. Where both are known the first decides.
        """
        parts = [
            cost_of_counting(ratios).assign(time=word) for word, ratios in self._ratios.items()
        ]
        parts = [part for part in parts if len(part)]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    @cached_property
    def _ratios(self) -> dict[str, pd.DataFrame]:
        """The log ratios of times with and without counting, by which time is meant."""
        if not self.slices.empty:
            return {
                word: by_slices(self.slices, column)
                for word, column in _TIMES.items()
                if column in self.slices and self.slices[column].notna().any()
            }
        keys = [name for name in ("round", "mode", "jobs", "set") if name in self.samples]
        trials = self.samples
        if "set" in keys:  # the absent sets' rows are with another set's in one trial
            trials = trials[(trials["event"] != NOTHING) | (trials["mode"] == ALONE)]
        trials = trials.drop_duplicates(keys)
        return {
            word: by_trials(trials[trials[column] > 0], column)
            for word, column in _TIMES.items()
            if self.has_times and column in trials
        }

    def cost(self, mode: str, jobs: int) -> dict[str, Interval]:
        """What a mode costs the job, by which time is meant; the first decides."""
        rows = _of(self.costs, mode, jobs).to_dict("records")
        return {str(row["time"]): Interval(*(float(row[name]) for name in _COST)) for row in rows}

    def p_costs_more(self, mode: str, jobs: int, limit_percent: float) -> float:
        """The p value of the cost, by the time that decides, being no more than a limit."""
        first = next((ratios for ratios in self._ratios.values() if len(ratios)), None)
        return 1.0 if first is None else p_costs_more(_of(first, mode, jobs), limit_percent)

    def batches_of_cost(self, mode: str, jobs: int) -> int:
        """Of how many pairs the interval of the cost that decides is made."""
        rows = _of(self.costs, mode, jobs)
        return int(rows["pairs"].iloc[0]) if len(rows) else 0

    @property
    def half_width(self) -> float:
        """The widest half interval of any cost with the fewest jobs, in percentage points."""
        table = self.costs
        if table.empty:
            return math.inf
        decide = table[(table["time"] == table["time"].iloc[0])]
        fewest = decide[decide["jobs"] == decide["jobs"].min()]
        widths = (fewest["cost_percent_high"] - fewest["cost_percent_low"]) / 2
        return float(widths.fillna(math.inf).max())

    # --- readings ------------------------------------------------------------------------------

    def p_misses(self, mode: str, jobs: int, limit_percent: float) -> float:
        """The p value of missing no more readings than a limit."""
        return p_above(self._missed(mode, jobs), limit_percent)

    def _missed(self, mode: str, jobs: int) -> Floats:
        rows = _of(self.samples, mode, jobs)
        sums = rows[rows["due"] > 0].groupby("round")[["obtained", "due"]].sum().astype(np.float64)
        share = 100 * (1 - sums["obtained"] / sums["due"]).clip(lower=0.0)
        return share.to_numpy(np.float64)

    def missed(self, mode: str, jobs: int) -> Interval:
        """Readings that were due and not taken, in percent of those due, over rounds."""
        found = t_interval(self._missed(mode, jobs))
        low, high = (float(np.clip(end, 0.0, 100.0)) for end in found[1:])
        return Interval(found.effect, low, high)

    def missed_by_mode(self) -> pd.DataFrame:
        """One row for each mode and number of jobs: readings or samples missed."""
        rows = [(*way, *self.missed(*way)) for way in self.ways()] if self.has_readings else []
        names = ["mode", "jobs", "missed_percent", "missed_percent_low", "missed_percent_high"]
        return pd.DataFrame(rows, columns=names)


def _of(rows: pd.DataFrame, mode: str, jobs: int) -> pd.DataFrame:
    return rows[(rows["mode"] == mode) & (rows["jobs"] == jobs)] if len(rows) else rows


# --- findings ----------------------------------------------------------------------------------


def findings(run: Run) -> list[Finding]:
    """First the errors, then the costs, then the readings missed, of each mode and load.

    All are claims of something wrong with this machine's counting. Their p values are corrected
    together, by Holm: where nothing is wrong, any is supported in at most one run of 20.
    """
    params = run.params
    table = CountersTable(run.samples, params["error_percent"])
    claims: list[tuple[_Make, float, str, int, float]] = []
    if table.has_counts:
        limit = params["error_percent"]
        claims += [
            (_miscounts, table.p_miscounts(*way, limit), *way, limit)
            for way in table.ways()
            if way[0] != ONE_SET
        ]
    if table.has_times:
        for way in table.ways():
            limit = params["sampling_percent" if way[0] == SAMPLED else "counting_percent"]
            claims.append((_costs, table.p_costs_more(*way, limit), *way, limit))
    if table.has_readings:
        limit = params["missed_percent"]
        claims += [(_misses, table.p_misses(*way, limit), *way, limit) for way in table.ways()]
    p_holm = holm(np.array([p for _, p, *_ in claims]))
    return [
        make(table, mode, jobs, limit, _no_chance(float(p), len(claims)))
        for (make, _, mode, jobs, limit), p in zip(claims, p_holm, strict=True)
    ]


def _no_chance(p: float, claims: int) -> Witness:
    return Witness(p < _ALPHA, Reason("chance", {"p": p, "claims": claims}))


def _miscounts(
    table: CountersTable, mode: str, jobs: int, limit: float, no_chance: Witness
) -> Finding:
    error, excess = table.average_error(mode, jobs)
    here = _of(table.errors, mode, jobs)
    prevented = None
    if not math.isfinite(error.effect):
        prevented = Reason("nothing_repeatable")
    elif not math.isfinite(excess.half_width):
        prevented = Reason("no_interval")
    scatter = {"scatter": error.effect - excess.effect}
    beyond = Witness(
        excess.low > 0, Reason("within_scatter", scatter), Reason("beyond_scatter", scatter)
    )
    counts = Witness(table.off_but_for_clocks(mode, jobs, limit), Reason("only_clocks"))
    return MISCOUNTS.decided(
        Interval(error.effect, float(np.maximum(error.low, 0.0)), error.high),
        limit,
        about={"mode": mode, "jobs": jobs},
        facts=words(mode, jobs),
        evidence={
            "batches": table.rounds_of(mode, jobs),
            "excess_over_scatter_percent": list(excess),
            "events": here.drop(columns=["mode", "jobs"], errors="ignore").to_dict("records"),
        },
        prevented=prevented,
        to_support=[beyond, counts, no_chance],
        remarks=_remarks(_of(table.counts, mode, jobs), here),
    )


def _remarks(counts: pd.DataFrame, errors: pd.DataFrame) -> list[Reason]:
    """Was anything scaled, which events are left out, and which is farthest off?"""
    remarks = []
    multiplexed = counts["mode"].isin(MULTIPLEXED).any()
    if multiplexed and "status" in counts and not counts["status"].eq("scaled").any():
        remarks.append(Reason("never_scaled"))
    if errors.empty:
        return remarks
    repeatable = errors[errors["repeatable"]]
    if len(repeatable) < len(errors):
        left_out = errors["event"][~errors["repeatable"]]
        remarks.append(Reason("left_out", {"events": list(left_out)}))
    known = repeatable[repeatable["scatter_average_percent"].notna()]
    if len(known):
        worst = known.nlargest(1, "average_error_percent").to_dict("records")[0]
        numbers = {
            "event": worst["event"],
            "error": worst["average_error_percent"],
            "scatter": worst["scatter_average_percent"],
        }
        remarks.append(Reason("worst", numbers))
    return remarks


def _costs(table: CountersTable, mode: str, jobs: int, limit: float, no_chance: Witness) -> Finding:
    found = table.cost(mode, jobs)
    time, cost = next(iter(found.items()), ("time", NO_INTERVAL))
    return COSTS.decided(
        cost,
        limit,
        about={"mode": mode, "jobs": jobs},
        facts={**words(mode, jobs), "time": time},
        evidence={
            "batches": table.batches_of_cost(mode, jobs),
            **{f"{name}, percent": list(interval) for name, interval in found.items()},
        },
        to_support=[no_chance],
    )


def _misses(
    table: CountersTable, mode: str, jobs: int, limit: float, no_chance: Witness
) -> Finding:
    what = "samples" if mode == SAMPLED else "readings"
    return MISSES.decided(
        table.missed(mode, jobs),
        limit,
        about={"mode": mode, "jobs": jobs},
        facts={**words(mode, jobs), "what": what},
        to_support=[no_chance],
    )


# --- tables ------------------------------------------------------------------------------------


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``Counters.tables``."""
    table = CountersTable(run.samples, run.params["error_percent"])
    return {
        "errors": lambda: table.errors,
        "costs": lambda: table.costs,
        "missed": table.missed_by_mode,
        "over_time": partial(_over_time, run.provenance.get("series", [])),
        "not_counted": partial(_not_counted, run.provenance.get("plan", {})),
        "ratios": partial(_ratios, run.samples),
        "beside_published": lambda: _beside_published(table.errors),
    }


def _over_time(series: list[dict[str, Any]]) -> pd.DataFrame:
    """One row a reading and event: when, how long it was counted, what, and the rate."""
    parts = [
        pd.DataFrame(one["readings"]).assign(mode=one["mode"], jobs=one["jobs"]) for one in series
    ]
    rows = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=_READINGS)
    rate = rows["value"].astype(np.float64) / rows["ran_ms"].astype(np.float64)
    return rows[_READINGS].assign(rate_per_ms=rate.where(rows["ran_ms"] > 0))


def _not_counted(plan: dict[str, Any]) -> pd.DataFrame:
    """One row for each set that this machine does not count, and for sampling."""
    rows = list(plan.get("absent", {}).items())
    if plan.get("not_sampled"):
        rows.append(("(sampling)", plan["not_sampled"]))
    return pd.DataFrame(rows, columns=["set", "reason"])


def _ratios(samples: pd.DataFrame) -> pd.DataFrame:
    """Ratios of what was counted by one set at a time, with the fewest jobs, over rounds."""
    names = ["ratio", "set", "value", "value_low", "value_high", "formula", "status"]
    if not {"set", "value", "status", "scaled_error"} <= set(samples):
        return pd.DataFrame(columns=names)
    rows = samples[(samples["mode"] == ONE_SET) & (samples["jobs"] == samples["jobs"].min())]
    rows = rows.rename(columns={"value": "scaled"})
    parts = [ratio_table(part) for _, part in rows.groupby("round")]
    ratios = pd.concat(parts) if parts else ratio_table(rows)
    found = [
        (*key, *t_interval(part["value"].to_numpy(np.float64)), *part[names[-2:]].iloc[0])
        for key, part in ratios.groupby(["ratio", "set"], sort=False)
    ]
    return pd.DataFrame(found, columns=names)


def _beside_published(errors: pd.DataFrame) -> pd.DataFrame:
    """Our errors and those of Jurga 2006, by the same formula, in the same columns."""
    theirs = published("perfctr_sampling_accuracy").rename(columns={"counter": "event"})
    names = published_names()  # a counter that is none of ours keeps its own
    theirs["event"] = [names.get(name, name) for name in theirs["event"]]
    theirs = theirs.assign(mode="multiplexed", **{"from": "Jurga 2006"})
    both = [errors.assign(**{"from": "this machine"}), theirs]
    both = [part for part in both if len(part)]
    columns = ["event", "from", "mode", "jobs", "average_error_percent", "max_error_percent"]
    table = pd.concat(both, ignore_index=True).reindex(columns=columns)
    return table.sort_values(["from", "event", "mode", "jobs"], kind="stable", ignore_index=True)
