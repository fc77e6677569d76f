"""What samples of an event say, of our own runs or brought by a user."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.event_profile.claims import ONE_CORE
from perflib.experiments.event_profile.classes import classes_of, named, of_class
from perflib.experiments.event_profile.footprint import footprint
from perflib.experiments.event_profile.instructions import sides_of_cores
from perflib.experiments.event_profile.profiles import CoreProfiles, compare_runs, profiled
from perflib.instruments.profile.comparison import Comparison, additional_time_table
from perflib.instruments.profile.findings import (
    LEAST_ROUNDS,
    comparison_findings,
    entry_findings,
)
from perflib.instruments.profile.modules import modules
from perflib.instruments.profile.side_by_side import SideBySide
from perflib.instruments.profile.views import flat
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Decision

__all__ = [
    "CoreProfiles",
    "beside",
    "compare",
    "cost_by_core",
    "findings",
    "profiled",
    "tables",
    "tables_of",
    "unseen_percent",
]

_MAX_NAMED = 3


# --- tables --------------------------------------------------------------------------------------


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
    return {
        table: make
        for name, part in classes_of(run).items()
        for table, make in of_class(tables_of(CoreProfiles(part)), name).items()
    }


def tables_of(profiles: CoreProfiles) -> dict[str, Callable[[], pd.DataFrame]]:
    """The same, of profiles that are made already."""
    made: dict[str, Callable[[], pd.DataFrame]] = {
        "profile": lambda: profiles.samples,
        "flat": lambda: flat(profiles.samples),
        "modules": lambda: modules(profiles.samples),
    }
    for core in profiles.others:
        made[f"additional_time_{core}"] = partial(_of, profiles, core, additional_time_table)
        made[f"cost_{core}"] = partial(_of, profiles, core, cost_by_core)
        if profiles.placed(core):
            made[f"instructions_{core}"] = partial(_instructions, profiles, core)
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


def beside(profiles: CoreProfiles, core: str) -> list[SideBySide]:
    """Functions' instructions there and on the reference core; see ``Sides.all_beside``."""
    return sides_of_cores(profiles, profiles.reference, core).all_beside()


def _instructions(profiles: CoreProfiles, core: str) -> pd.DataFrame:
    parts = [found.table.assign(function=found.function) for found in beside(profiles, core)]
    whole = pd.concat(parts, ignore_index=True)
    return whole[["function", *(name for name in whole if name != "function")]]


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
        return float(largest["share_percent_high"] - largest["share_percent"])
    try:
        every = profiles.comparisons.values()
    except UserError:  # trials have failed, and no round has both cores yet
        return math.inf
    if min(comparison.rounds for comparison in every) < LEAST_ROUNDS:
        return math.inf
    return max(comparison.open_percent for comparison in every)


# --- findings ------------------------------------------------------------------------------------


def findings(run: Run) -> list[Finding]:
    """What is found of every class of events; see `classes_of`."""
    return [
        named(finding, name)
        for name, part in classes_of(run).items()
        for finding in _findings(part)
    ]


def _findings(run: Run) -> list[Finding]:
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
    most = profiles.shares().head(_MAX_NAMED)
    facts = {
        "costliest": most["function"].tolist(),
        "shares": most["share_percent"].tolist(),
    }
    return ONE_CORE.found(Decision("inconclusive"), facts=facts, evidence=facts)


def compare(first: Run, second: Run) -> list[Finding]:
    """Two runs' profiles, whatever their cores: two builds, two machines, two days."""
    compared = compare_runs(first, second)
    code = footprint(compared.every, first.id, second.id)
    return [*comparison_findings(compared.comparison), *([] if code is None else [code])]
