"""What samples of an event say, of our own runs or brought by a user."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.event_profile.alone import alone
from perflib.experiments.event_profile.claims import ONE_CORE
from perflib.experiments.event_profile.footprint import footprint
from perflib.instruments.profile.comparison import Comparison, compare_samples
from perflib.instruments.profile.costs import costs_of
from perflib.instruments.profile.entry_cost import EntryCost, entry_cost
from perflib.instruments.profile.findings import (
    LEAST_ROUNDS,
    comparison_findings,
    entry_findings,
)
from perflib.instruments.profile.views import flat, merge_copies
from perflib.model.errors import UserError, choose
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Decision

__all__ = [
    "CoreProfiles",
    "additional_time",
    "compare",
    "cost_by_core",
    "findings",
    "profiled",
    "tables",
    "tables_of",
    "unseen_percent",
]

_NO_TEXT = {"comm": "", "symbol": "", "object": "[unknown]", "event": "unknown"}
_TIMES = ["begin_ns", "event_time_ns", "missed_begin_ns", "missed_end_ns"]  # of a trial's event
_MOST_NAMED = 3


# --- the samples ---------------------------------------------------------------------------------


def profiled(samples: pd.DataFrame, sampled_event: str | None = None) -> pd.DataFrame:
    """Samples as profiles' views take them, with a ``configuration``; copies of code as one.

    ``raw_symbol`` keeps the name that each copy has by itself.

    Raises
    ------
    UserError
        A core or a round is no whole number, so that a sample belongs nowhere; there are several
        events, and ``sampled_event`` names none of them.
    """
    samples = samples.copy()
    for name in ("round", "core"):
        samples[name] = _whole(samples[name], name) if name in samples else -1
    for name in ("event", "object"):
        samples[name] = samples.get(name, _NO_TEXT[name])
    if samples["event"].nunique() > 1:
        samples = _of_event(samples, sampled_event)
    for name, instead in _NO_TEXT.items():
        if name in samples:
            samples[name] = _text(samples[name], instead)
    leaf = samples["symbol"]
    samples["stack"] = _text(samples["stack"], leaf) if "stack" in samples else leaf
    for name in _NO_TEXT.keys() & set(samples) | {"stack"}:
        samples[name] = samples[name].astype("category")
    if "offset" in samples:
        known = np.isfinite(samples["offset"])
        samples["offset"] = samples["offset"].where(known, -1).astype(np.int64)
    if "ip" in samples:  # as a floating number an address has lost its last digits
        whole = pd.api.types.is_integer_dtype(samples["ip"])
        samples["ip"] = samples["ip"].to_numpy().astype(np.uint64) if whole else np.uint64(0)
    samples["configuration"] = "cpu" + samples["core"].astype(str)
    return merge_copies(samples).assign(raw_symbol=samples["symbol"])


def _of_event(samples: pd.DataFrame, event: str | None) -> pd.DataFrame:
    chosen = samples[samples["event"].astype(str) == str(event)]
    if chosen.empty:
        events = ", ".join(sorted(samples["event"].dropna().astype(str).unique()))
        msg = f"the samples are of several events: say which with sampled_event=... ({events})"
        raise UserError(msg)
    return chosen.copy()


def _text(values: pd.Series[Any], instead: str | pd.Series[str]) -> pd.Series[str]:
    return values.astype(str).where(values.notna(), instead)


def _whole(values: pd.Series[Any], name: str) -> pd.Series[int]:
    wrong = ~(np.isfinite(values) & (values % 1 == 0)).to_numpy(dtype=bool)
    if wrong.any():
        row = int(wrong.argmax())
        msg = f"the column {name!r} has no whole number in row {row + 1}, but {values.iloc[row]}"
        raise UserError(msg)
    return values.astype(np.int64)


# --- profiles of cores ---------------------------------------------------------------------------


class CoreProfiles:
    """The profiles of one run: one for each core in each round."""

    def __init__(self, run: Run) -> None:
        self.all = profiled(run.samples, run.params["sampled_event"])
        self.samples, self.alone_percent = alone(self.all)
        self._instructions = run.provenance.get("instructions")
        self._has_times = {"round", "core", "time_ns", *_TIMES} <= set(run.samples)
        plan = run.provenance.get("plan")  # a table that a user brings has none
        reference = plan["reference"] if plan else run.params["reference_core"]
        cores = sorted(self.samples["core"].unique())
        if plan and reference not in cores:  # it was never recorded
            reference = None
        self.cores = [f"cpu{core}" for core in cores]
        self.reference = self.cores[0] if reference is None else f"cpu{reference}"
        if self.reference not in self.cores:
            raise UserError(choose("core in reference_core", self.reference, self.cores))

    @property
    def others(self) -> list[str]:
        """The cores that are compared with the reference core."""
        return [core for core in self.cores if core != self.reference]

    @cached_property
    def comparisons(self) -> dict[str, Comparison]:
        """Each other core compared with the reference core."""
        claims = 2 * len(self.others)  # of the event, and of functions
        return {
            core: compare_samples(self.samples, self.reference, core, self.alone_percent, claims)
            for core in self.others
        }

    @cached_property
    def entry(self) -> EntryCost | None:
        """The samples on functions' first instructions, over all cores.

        ``None`` without offsets, or with too few samples in each function.
        """
        try:
            return entry_cost(self.samples, self._instructions)
        except UserError:
            return None

    @property
    def timed(self) -> bool:
        """Is it known of samples of which trial they are, and when its event began and ended?"""
        return self._has_times and not self._with_times.empty

    @cached_property
    def _with_times(self) -> pd.DataFrame:
        return self.all.dropna(subset=["time_ns", *_TIMES])

    # --- tables ----------------------------------------------------------------------------------

    def shares(self) -> pd.DataFrame:
        """Each function's share of all costs, the largest first, with the errors of counting."""
        costs = costs_of(self.samples).groupby("function")["cost"].sum()
        share = (100 * costs / costs.sum()).sort_values(ascending=False)
        half_width = 1.96 * np.sqrt(share * (100 - share) / len(self.samples))
        columns = {
            "share_percent": share,
            "share_low": share - half_width,
            "share_high": share + half_width,
        }
        return pd.DataFrame(columns).reset_index()

    def trials(self) -> pd.DataFrame:
        """One row a trial: how long its event took, and how much of it was missed."""
        by_trial = self._with_times.groupby(["round", "core"])
        first = by_trial[_TIMES].first() / 1e6
        missed_ms = first["missed_begin_ns"] + first["missed_end_ns"]
        event_ms = first["event_time_ns"]
        return pd.DataFrame(
            {
                "event_ms": event_ms,
                "missed_ms": missed_ms,
                "covered_percent": 100 * (1 - missed_ms / event_ms),
                "samples": by_trial.size(),
            }
        ).reset_index()

    def time_line(self) -> pd.DataFrame:
        """One row a sample of the first trial: its time since the event began; the event's own."""
        by_trial = self._with_times.groupby(["round", "core"])
        _, trial = next(iter(by_trial))
        return pd.DataFrame(
            {
                "time_ms": (trial["time_ns"] - trial["begin_ns"]) / 1e6,
                "event_ms": trial["event_time_ns"] / 1e6,
                "missed_begin_ms": trial["missed_begin_ns"] / 1e6,
                "missed_end_ms": trial["missed_end_ns"] / 1e6,
            }
        ).reset_index(drop=True)


def additional_time(compared: Comparison) -> pd.DataFrame:
    """The comparison by function; ``explained``: what the common slowdown gives it.

    ``visible_percent``: by how much it would have had to grow to be named nine times in ten.
    """
    table = compared.table.drop(columns=["log_error", "systematic", "df", "log_odds"])
    return table.assign(
        explained=table["cost_first"] * compared.common.effect / 100,
        visible_percent=compared.visible().to_numpy(),
        unit=compared.unit,
    )


def cost_by_core(compared: Comparison) -> pd.DataFrame:
    """What each function costs per event on both cores, the costliest first."""
    total = compared.table["cost_first"] + compared.table["cost_second"]
    rows = compared.table.loc[total.sort_values(ascending=False, kind="stable").index]
    sides = [
        pd.DataFrame(
            {
                "function": rows["function"],
                "core": str(core),
                "cost": rows[f"cost_{side}"],
                "cost_low": np.maximum(rows[f"cost_{side}_low"], 0),
                "cost_high": rows[f"cost_{side}_high"],
                "unit": compared.unit,
            }
        )
        for side, core in (("first", compared.first), ("second", compared.second))
    ]
    return pd.concat(sides, ignore_index=True)


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables that its samples can give; see ``EventProfile.tables``."""
    return tables_of(CoreProfiles(run))


def tables_of(profiles: CoreProfiles) -> dict[str, Callable[[], pd.DataFrame]]:
    """The same, of profiles that are made already."""
    made: dict[str, Callable[[], pd.DataFrame]] = {
        "profile": lambda: profiles.samples,
        "flat": lambda: flat(profiles.samples),
    }
    for core in profiles.others:
        made[f"additional_time_{core}"] = partial(_of, profiles, core, additional_time)
        made[f"cost_{core}"] = partial(_of, profiles, core, cost_by_core)
    if not profiles.others:
        made["cost"] = profiles.shares
    entry = profiles.entry
    if entry is not None:
        made["entry"] = lambda: entry.table
    if profiles.timed:
        made |= {"trials": profiles.trials, "time_line": profiles.time_line}
    return made


def _of(
    profiles: CoreProfiles, core: str, table: Callable[[Comparison], pd.DataFrame]
) -> pd.DataFrame:
    return table(profiles.comparisons[core])


def unseen_percent(samples: pd.DataFrame, plan: Mapping[str, Any]) -> float:
    """How precise a run is by now: the largest excess that no comparison could have seen.

    Of one core: the error of counting of the largest share.
    """
    if samples.empty or samples["core"].nunique() < len(plan["cores"]):
        return math.inf
    run = Run("unfinished", "event_profile", {"sampled_event": None}, samples, {"plan": plan})
    profiles = CoreProfiles(run)
    if not profiles.others:
        largest = profiles.shares().iloc[0]
        return float(largest["share_high"] - largest["share_percent"])
    try:
        every = profiles.comparisons.values()
    except UserError:  # trials have failed, and no round has both cores yet
        return math.inf
    if min(comparison.rounds for comparison in every) < LEAST_ROUNDS:
        return math.inf
    return max(comparison.open_percent for comparison in every)


# --- findings ------------------------------------------------------------------------------------


def findings(run: Run) -> list[Finding]:
    """Of each core: longer, does a function stand out, which, more code; of all: the entry's cost.

    More code is looked for in all samples: what a sibling takes adds none.
    """
    profiles = CoreProfiles(run)
    several = len(profiles.others) > 1
    found = [
        finding
        for core, comparison in profiles.comparisons.items()
        for finding in (
            *comparison_findings(comparison, core if several else ""),
            footprint(profiles.all, profiles.reference, core, core if several else ""),
        )
        if finding is not None
    ] or [_nothing_compared(profiles)]
    if profiles.entry is None:
        return found
    over_all, control, *functions = entry_findings(profiles.entry)
    costly = [function for function in functions if function.verdict == "supported"]
    return [*found, over_all, control, *costly]


def _nothing_compared(profiles: CoreProfiles) -> Finding:
    """What is to be said of one core's profile: what costs most."""
    most = profiles.shares().head(_MOST_NAMED)
    facts = {
        "costliest": most["function"].tolist(),
        "shares": most["share_percent"].tolist(),
    }
    return ONE_CORE.found(Decision("inconclusive"), facts=facts, evidence=facts)


def compare(first: Run, second: Run) -> list[Finding]:
    """Two runs' profiles, whatever their cores: two builds, two machines, two days."""
    runs = (first, second)
    every = [profiled(run.samples, run.params["sampled_event"]) for run in runs]
    sampled = [str(table["event"].iloc[0]) for table in every]
    if sampled[0] != sampled[1]:
        each = f"{first.id} has samples of {sampled[0]}, {second.id} of {sampled[1]}"
        msg = f"{each}: they cannot be compared"
        raise UserError(msg)
    samples, alone_percent = zip(*map(alone, every), strict=True)
    both_alone = float(np.min(alone_percent))  # NaN if it is not known of one of them
    ids = first.id, second.id
    compared = compare_samples(_by_run(runs, samples), *ids, both_alone, claims=2)
    code = footprint(_by_run(runs, every), *ids)
    return [*comparison_findings(compared), *([] if code is None else [code])]


def _by_run(runs: Iterable[Run], tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Samples of runs for a comparison of the runs: each core's trial is a repetition."""
    renamed = [
        samples.assign(configuration=run.id, round=samples.groupby(["round", "core"]).ngroup())
        for run, samples in zip(runs, tables, strict=True)
    ]
    return pd.concat(renamed, ignore_index=True)
