"""What counts over time say: how many, how often, how complete, and what follows from them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.counting.claims import COMPLETE, RATE
from perflib.framework.levels import levels_table
from perflib.instruments.counters import pfm
from perflib.instruments.counters.sets import ratio_table
from perflib.instruments.counters.topdown import model_of
from perflib.instruments.counters.topdown import table_of as topdown_table
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Decision, Reason, Verdict
from perflib.stats.interval import Interval
from perflib.stats.intervals import t_interval

_BATCHES = 12  # of successive parts: neighbours are alike, and are not counted as independent
_ALL = 0.999  # the clock and a counter are not read at the same instant
_MIN_BATCHES = 4  # of these, for an interval
_KEYS = ["set", "event", "cpu"]
# Of what is a time, a rate is a share of the time (of several cores: their sum).
_PERCENT = {"ns": 1e-7, "us": 1e-4, "ms": 0.1}
_TOTALS = [
    "set",
    "event",
    "cpu",
    "unit",
    "value",
    "scaled",
    "per_s",
    "per_s_low",
    "per_s_high",
    "complete_percent",
]


def findings(run: Run) -> list[Finding]:
    """Each event's rate; and of what was not on all the time, how complete its count is."""
    found = []
    rows = totals(run.samples).to_dict("records")
    labels = Counter(_label(row) for row in rows)
    for row in rows:
        label = _label(row)  # of an event in two sets each has its set's name
        about = {"event": label if labels[label] == 1 else f"{label} in {row['set']}"}
        share = row["complete_percent"] / 100
        few = not np.isfinite(row["per_s_low"])
        remarks = [Reason("scaled", {"share": share})] if 0 < share <= _ALL else []
        if few:
            remarks.append(Reason("few", {"intervals": row["parts"]}))
        verdict: Verdict = (
            "inconclusive" if few else "supported" if row["scaled"] > 0 else "refuted"
        )
        factor = _PERCENT.get(row["unit"], 1.0)
        unit = "percent" if row["unit"] in _PERCENT else f"{row['unit']} per s".strip()
        if np.isfinite(row["per_s"]):
            rate = Interval(*(factor * row[name] for name in ("per_s", "per_s_low", "per_s_high")))
            found.append(
                RATE.found(Decision(verdict, tuple(remarks)), rate, about=about, unit=unit)
            )
        percent = row["complete_percent"]
        seen = Interval(percent, percent, percent)
        if share > _ALL:
            continue
        found.append(COMPLETE.decided(seen, run.params["complete_percent"], about=about))
    return found


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``Count.tables``."""
    return {
        "totals": lambda: totals(run.samples)[_TOTALS],
        "series": lambda: rates(run.samples),
        "ratios": lambda: ratio_table(_counts(run.samples)),
        "topdown": lambda: _topdown(run),
    }


def levels(run: Run) -> pd.DataFrame:
    """How often each event happened."""
    rows = [
        (row["cpu"], row["event"], row["per_s"], f"{row['unit']} per s".strip())
        for row in totals(run.samples).to_dict("records")
    ]
    return levels_table(rows)


def rates(samples: pd.DataFrame) -> pd.DataFrame:
    """One row a part of the time and event: ``per_s``, scaled to all of the part; NaN: not seen.

    A count that was on for a part of the time is taken to have gone on as it was seen.
    """
    samples = _whole(samples)
    table = samples[[*_KEYS, "unit", "bin", "start_ns", "elapsed_ns"]].copy()
    on, due = samples["on_ns"].to_numpy(np.float64), samples["all_ns"].to_numpy(np.float64)
    share = np.where(due > 0, on / np.where(due > 0, due, 1.0), 0.0)
    share = np.where(share > _ALL, 1.0, share)
    seen = samples["value"].to_numpy(np.float64) / np.where(share > 0, share, np.nan)
    idle = due == 0  # nothing that is watched ran: there was nothing to count
    elapsed_s = np.where(samples["elapsed_ns"] > 0, samples["elapsed_ns"], np.nan) / 1e9
    table["time_s"] = samples["start_ns"] / 1e9
    table["per_s"] = np.where(idle, 0.0, seen) / elapsed_s
    table["complete_percent"] = np.where(due > 0, 100 * share, np.nan)
    return table.reset_index(drop=True)


def totals(samples: pd.DataFrame) -> pd.DataFrame:
    """One row an event: counted, scaled to all of the time, its rate, and its completeness.

    The interval of the rate is that of batches of successive parts: it says how much the rate
    varied in time, and with it how far the time watched is typical.
    """
    samples = _whole(samples)
    series = dict(iter(rates(samples).groupby(_KEYS, sort=False)))
    rows = []
    for key, part in samples.groupby(_KEYS, sort=False):
        mine = series[key].dropna(subset=["per_s"])
        on, due = part["on_ns"].sum(), part["all_ns"].sum()
        elapsed_s = part["elapsed_ns"].sum() / 1e9
        on = due if on > _ALL * due else on
        scaled = part["value"].sum() * (due / on) if on > 0 else 0.0 if due == 0 else np.nan
        per_s = scaled / elapsed_s if elapsed_s > 0 else np.nan
        low, high = _interval(mine, per_s)
        rows.append(
            {
                **dict(zip(_KEYS, key, strict=True)),
                "unit": part["unit"].iloc[0],
                "value": part["value"].sum(),
                "scaled": scaled,
                "per_s": per_s,
                "per_s_low": low,
                "per_s_high": high,
                "complete_percent": 100 * on / due if due > 0 else 100.0,
                "parts": len(mine),
                "enabled_ns": due,
                "running_ns": on,
            }
        )
    return pd.DataFrame(rows)


def _whole(samples: pd.DataFrame) -> pd.DataFrame:
    """With a unit and a core in each row."""
    unit = samples["unit"].fillna("") if "unit" in samples else ""
    return samples.assign(unit=unit, cpu=samples.get("cpu", -1))


def _label(row: Mapping[Hashable, Any]) -> str:
    return str(row["event"]) if row["cpu"] < 0 else f"{row['event']} of cpu{row['cpu']}"


def _interval(series: pd.DataFrame, per_s: float) -> tuple[float, float]:
    if len(series) < _MIN_BATCHES:
        return np.nan, np.nan
    weights = series["elapsed_ns"].to_numpy(np.float64)
    values = series["per_s"].to_numpy(np.float64)
    batches = np.array_split(np.arange(len(series)), min(_BATCHES, len(series)))
    means = np.array([np.average(values[at], weights=weights[at]) for at in batches])
    if np.ptp(means) == 0:
        return per_s, per_s
    half = t_interval(means).half_width
    return max(0.0, per_s - half), per_s + half


def _counts(samples: pd.DataFrame) -> pd.DataFrame:
    """As `Group.read` gives them, for ratios."""
    table = totals(_whole(samples).assign(cpu=-1))  # of all CPUs
    half = (table["per_s_high"] - table["per_s_low"]) / 2
    status = np.select(
        [table["running_ns"] <= 0, table["complete_percent"] > 99.9], ["not counted", "counted"],
        "scaled",
    )  # fmt: skip
    relative = (half / table["per_s"].where(table["per_s"] > 0)).fillna(0.0) / 2
    error = np.where(status == "scaled", relative * table["scaled"], 0.0)
    return table.assign(scaled_error=error, status=status)


def _topdown(run: Run) -> pd.DataFrame:
    """By the formulas of the processor of the run; of a table without one, of this machine's."""
    machine = run.provenance.get("machine", {})
    here = pfm.this_cpu() if not machine and not pfm.missing() else None
    counts = _counts(run.samples)
    for word in (machine.get("product"), machine.get("microarchitecture"), here):
        with contextlib.suppress(UserError):  # libpfm4 calls none so, or is not there
            if word and model_of(word) is not None:
                return topdown_table(counts, word)
    return pd.DataFrame(columns=["metric", "value", "status"])
