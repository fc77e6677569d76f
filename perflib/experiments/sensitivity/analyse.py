"""By what the job is bound, by what it is not, and what this machine hides."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.sensitivity.claims import BUSY, CAPACITY, SIBLING, TRAFFIC, TRANSLATION
from perflib.experiments.sensitivity.functions import (
    SAMPLED,
    function_findings,
    functions_table,
)
from perflib.experiments.sensitivity.table import AMOUNTS, WITNESSES, DoseTable
from perflib.framework.levels import levels_table
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Reason, Witness, more_time
from perflib.stats.family import family_p, p_of_interval
from perflib.stats.interval import Interval, columns

_ALPHA = 0.05
_SAID = {"cpu": "CPU time", "wall": "wall time", "event": "time for an event"}
_CLAIMS = {
    "traffic": TRAFFIC,
    "occupied": CAPACITY,
    "small_pages": TRANSLATION,
    "alone": BUSY,
    "sibling": SIBLING,
}
_WITNESS = {
    "triad": "triad through memory",
    "chase": "chase through 75 % of the last-level cache",
    "walk": "walk through more pages than a TLB holds",
}
_TRAFFIC = {  # the verb, where it goes, and what the job is bound by that responds to it
    "nt_write": ("write", "", "memory bandwidth"),
    "write": ("write", " through the caches", "memory bandwidth, or the cache that writes fill"),
    "read": ("read", "", "memory bandwidth, or the cache that reads fill"),
}
_WHAT = {
    "traffic": "while others {verb} {amount}",
    "occupied": "while others occupy {amount} of the last-level cache",
    "small_pages": "with 4 KiB pages",
    "alone": "while other cores compute",
    "sibling": "while its core's other thread is busy",
}
NOT_APPLIED = "No trial has this dose: the notes of the run say why."


def findings(run: Run) -> list[Finding]:
    """Of each dose whether the job is bound by what it takes away."""
    table, threshold = table_of(run), run.params["threshold_percent"]
    doses = [one for one in _CLAIMS if one != "sibling" or table.levels(one)]
    found = {dose: table.longer(dose) for dose in doses}
    p = family_p(np.array([p_of_interval(one, threshold) for one in found.values()]))
    corrected = dict(zip(found, p, strict=True))
    every = [_finding(run, table, dose, found[dose], float(corrected[dose])) for dose in found]
    if set(run.samples) >= SAMPLED:
        what = {dose: text.format(**_amounts(run, table, dose)) for dose, text in _WHAT.items()}
        every += function_findings(run.samples, what)
    return every


def _amounts(run: Run, table: DoseTable, dose: str) -> dict[str, str]:
    """The largest dose, and what others do with it."""
    verb, where, bound_by = _TRAFFIC[run.params["traffic_kind"]]
    unit, levels = AMOUNTS.get(dose, ("", 1.0, ""))[2], table.levels(dose)
    amount = f"{table.amount(dose, levels[-1]):.3g} {unit}" if levels else f"some {unit}"
    amount += where if dose == "traffic" else ""
    return {"amount": amount if unit else "", "verb": verb, "bound_by": bound_by}


def _finding(run: Run, table: DoseTable, dose: str, found: Interval, p: float) -> Finding:
    threshold = run.params["threshold_percent"]
    prevented, levels = None, table.levels(dose)
    if not levels:
        why = run.provenance.get("absent", {}).get(dose, NOT_APPLIED)
        prevented = Reason("absent", {"why": why})
    elif not math.isfinite(found.half_width):
        prevented = Reason("few_rounds")
    facts: dict[str, Any] = {"bound": max(found.high, found.half_width)}
    if dose in AMOUNTS:
        facts["slope"] = table.slope(dose)
    to_refute = []
    if dose in WITNESSES:
        witness = WITNESSES[dose]
        response = table.longer(dose, witness)
        numbers = {"witness": _WITNESS[witness], "response": response}
        to_refute = [Witness(response.low > 0, Reason("unseen", numbers))]
    if dose == "occupied" and run.params["traffic_kind"] != "nt_write":
        to_refute.append(Witness(not table.bound_by_traffic, Reason("fills")))
    together = {"p": p, "count": len(_CLAIMS)}
    finding = _CLAIMS[dose].decided(
        found,
        threshold,
        about={"response": _SAID[run.params["response"]], **_amounts(run, table, dose)},
        facts=facts,
        evidence={"p": p, "doses": {f"{one:g}": list(table.at(dose, one)) for one in levels}},
        prevented=prevented,
        to_support=[Witness(p < _ALPHA, Reason("chance", together), Reason("corrected", together))],
        to_refute=to_refute,
    )
    return finding if prevented or finding.verdict != "inconclusive" else _open(run, finding)


def _open(run: Run, finding: Finding) -> Finding:
    """With how long a run would decide it, where only time is lacking."""
    if any(one.code != "open" for one in finding.reasons):
        return finding
    found = Interval(finding.effect, finding.low, finding.high)
    lasted_s = run.provenance.get("measured_s") or run.params["budget_s"]
    assert finding.threshold is not None
    return finding.prevented(more_time(found, finding.threshold, lasted_s))


def table_of(run: Run) -> DoseTable:
    """The run's samples as responses."""
    return DoseTable(run.samples, run.params["response"])


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``Sensitivity.tables``."""
    table = table_of(run)
    found: dict[str, Callable[[], pd.DataFrame]] = {
        "doses": partial(_doses, table),
        "slopes": partial(_slopes, table),
    }
    if set(run.samples) >= SAMPLED:
        found["functions"] = partial(functions_table, run.samples)
    return found


def levels(run: Run) -> pd.DataFrame:
    """The job's time at the control dose."""
    rows = table_of(run).rows
    mine = rows[(rows["program"] == "job") & (rows["dose"] == "control")]
    time = mine[f"{run.params['response']}_s"].median()
    return levels_table([(-1, "job", float(time), "s")])


def _doses(table: DoseTable) -> pd.DataFrame:
    """One row a dose and level."""
    rows: list[dict[str, Any]] = []
    for dose in _CLAIMS:
        for level in table.levels(dose):
            unit = AMOUNTS.get(dose, ("", 1.0, ""))[2]
            row = {
                "dose": dose,
                "level": level,
                "amount": table.amount(dose, level),
                "unit": unit,
                **columns("longer_percent", table.at(dose, level)),
                **columns("control_percent", table.at(dose, level, "control")),
            }
            witness = WITNESSES.get(dose, "")
            rows.append(row | columns("known_percent", table.at(dose, level, witness)))
    names = ["dose", "level", "amount", "unit"]
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=names)


def _slopes(table: DoseTable) -> pd.DataFrame:
    """One row a dose that comes in levels."""
    rows = [
        {"dose": dose, "unit": f"percent / ({unit})"} | columns("slope", table.slope(dose))
        for dose, (_, _, unit) in AMOUNTS.items()
        if table.levels(dose)
    ]
    names = ["dose", "unit", "slope", "slope_low", "slope_high"]
    return pd.DataFrame(rows, columns=names)
