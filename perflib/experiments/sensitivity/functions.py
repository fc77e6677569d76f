"""The job function by function: which of them suffers from each largest dose?

The statistics are those by which `event_profile` compares cores (`perflib.instruments.profile`):
here the dose is in the place of the core.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.sensitivity.claims import SPARED, SUFFERS
from perflib.experiments.sensitivity.table import BASES
from perflib.framework.samples import usable
from perflib.instruments.profile.comparison import (
    Comparison,
    additional_time_table,
    compare_samples,
)
from perflib.instruments.profile.costs import of_cpu_time
from perflib.instruments.profile.findings import LEAST_ROUNDS, standing_findings
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from perflib.stats.interval import Interval

SAMPLED = {"symbol", "object", "event", "period", "count"}
"""Columns of samples without which no functions are compared."""
_DOSES = ("traffic", "occupied", "small_pages", "alone", "sibling")


def compared(samples: pd.DataFrame) -> dict[str, Comparison]:
    """Of each dose the job at its largest level, compared with the job without it."""
    rows = usable(samples)
    rows = rows[(rows["program"] == "job") & rows["symbol"].notna()].reset_index(drop=True)
    rows["period"] = of_cpu_time(rows, ["round", "dose", "level"])
    rows["configuration"] = rows["dose"]
    largest = rows["level"] == rows.groupby("dose")["level"].transform("max")
    rows, found = rows[largest], {}
    doses = [dose for dose in _DOSES if dose in set(rows["dose"])]
    for dose in doses:
        first, second = BASES.get(dose, "control"), dose
        if dose == "alone":  # the busy cores are what slows
            first, second = second, first
        try:
            found[dose] = compare_samples(rows, first, second, claims=len(doses), fluctuates=False)
        except UserError:  # no round has both
            continue
    return found


def open_percent(samples: pd.DataFrame) -> float:
    """The largest excess of a function that could have stayed unseen at any dose."""
    found = compared(samples).values() if set(samples) >= SAMPLED else ()
    return max(
        (one.open_percent if one.rounds >= LEAST_ROUNDS else math.inf for one in found),
        default=math.inf,
    )


def functions_table(
    samples: pd.DataFrame, known: Mapping[str, Comparison] | None = None
) -> pd.DataFrame:
    """One row a dose and function; ``longer_percent``: of its own time, as it was measured."""
    found = compared(samples) if known is None else known
    counts = samples.dropna(subset="symbol").groupby(["symbol", "object"])["count"].sum()
    place = {str(name): str(one) for name, one in counts.sort_values(kind="stable").index}
    tables = [additional_time_table(one).assign(dose=dose) for dose, one in found.items()]
    table = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame({"function": []})
    table.insert(1, "library", [place.get(name, "") for name in table["function"]])
    if tables:
        before = table["cost_first"].where(table["cost_first"] > 0, np.nan)
        for end in ("", "_low", "_high"):
            table[f"longer_percent{end}"] = 100 * table[f"additional{end}"] / before
    return table


def function_findings(samples: pd.DataFrame, what: Mapping[str, str]) -> list[Finding]:
    """Of each dose the first function that suffers; ``what``: the doses in words."""
    every, found = compared(samples), []
    table = functions_table(samples, every)
    for dose, one in every.items():
        about = {"dose": dose, "what": what[dose]}
        standing, *named = standing_findings(one, about, SUFFERS, SUFFERS)
        more = [each for each in named if each.facts["change"] == "more"]
        if more:
            mine = table["function"] == more[0].about["function"]
            row = table[mine & (table["dose"] == dose)].iloc[0].to_dict()
            standing = _suffers(standing, more[0], row)
        elif named:
            standing = replace(standing, of=SPARED)
        found.append(standing)
    return found


def _suffers(standing: Finding, named: Finding, row: Mapping[Any, Any]) -> Finding:
    longer, (effect, low, high) = (
        Interval(*(float(row[f"{name}_percent{end}"]) for end in ("", "_low", "_high")))
        for name in ("longer", "of_event")
    )
    share = row["share_percent"]
    said = f": {share:.0f} % of the job's slow-down" if math.isfinite(share) else ""
    known = {"function": row["function"], "library": row["library"]}
    return replace(
        standing,
        effect=effect,
        low=low,
        high=high,
        facts={**standing.facts, **known, "longer": longer, "share": said},
        evidence={**standing.evidence, **named.evidence, **known, "longer_percent": list(longer)},
    )
