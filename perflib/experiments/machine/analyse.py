"""What the gaps in a spinning core's clock say."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd

from perflib.experiments.machine.claims import STOLEN
from perflib.framework.levels import levels_table
from perflib.machine.activity.noise import likely_cause
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Reason
from perflib.stats.interval import Interval, widest
from perflib.stats.intervals import t_interval


def findings(run: Run) -> list[Finding]:
    """The share of each core's time that was stolen, against ``stolen_percent``."""
    found = []
    for cpu, trials in stolen_by_trial(run.samples).groupby("cpu"):
        share = t_interval(trials["stolen_percent"].to_numpy())
        found.append(
            STOLEN.decided(
                Interval(*np.clip(share, 0.0, 100.0).tolist()),
                run.params["stolen_percent"],
                about={"cpu": cpu},
                evidence={"trials": len(trials)},
                remarks=[_main_cause(run.samples[run.samples["cpu"] == cpu])],
            )
        )
    return found


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``MachineNoise.tables``."""
    return {
        "gaps": lambda: _gaps(run),
        "worst_gaps": lambda: _worst_gaps(run.samples),
        "stolen": lambda: stolen_by_trial(run.samples)[["round", "cpu", "stolen_percent"]],
    }


def _gaps(run: Run) -> pd.DataFrame:
    """Gaps a second by core and length; the core's place and its share of stolen time with them."""
    places = run.provenance.get("machine", {}).get("cpus", [])
    where = {place["cpu"]: place["where"] for place in places}
    parts = []
    for cpu, rows in run.samples.groupby("cpu"):
        spun_s = rows.drop_duplicates("round")["duration_ns"].sum() / 1e9
        counts = rows.groupby("gap_low_ns")["gaps"].sum()
        counts = counts[counts > 0] / spun_s
        stolen = stolen_by_trial(rows)["stolen_percent"].mean()
        parts.append(
            pd.DataFrame(
                {
                    "cpu": cpu,
                    "where": where.get(cpu, "place unknown"),
                    "stolen_percent": stolen,
                    "gap_low_us": counts.index.to_numpy() / 1e3,
                    "gaps_per_s": counts.to_numpy(),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def _worst_gaps(samples: pd.DataFrame) -> pd.DataFrame:
    """The three lengths of gap by which each core loses most time, with their likely cause."""
    bins = samples.groupby(["cpu", "gap_low_ns"])[["gaps", "gap_ns", "switched_gaps"]].sum()
    spun_s = samples.drop_duplicates(["cpu", "round"]).groupby("cpu")["duration_ns"].sum() / 1e9
    bins = (
        bins[bins["gaps"] > 0]
        .sort_values("gap_ns", ascending=False, kind="stable")
        .groupby("cpu")
        .head(3)
    )
    worst = bins.sort_index().reset_index()
    spun = worst["cpu"].map(spun_s)
    causes = [
        likely_cause(1.5 * low, switched * 2 > gaps).name
        for low, switched, gaps in worst[["gap_low_ns", "switched_gaps", "gaps"]].to_numpy()
    ]
    return pd.DataFrame(
        {
            "cpu": worst["cpu"],
            "gap_low_us": worst["gap_low_ns"] / 1e3,
            "gap_high_us": worst["gap_low_ns"] / 500,
            "gaps_per_s": worst["gaps"] / spun,
            "lost_ms_per_s": worst["gap_ns"] / 1e6 / spun,
            "likely_cause": causes,
        }
    )


def levels(run: Run) -> pd.DataFrame:
    """How much longer work takes on each core for the time that is stolen there: 1, none is."""
    trials = stolen_by_trial(run.samples).groupby("cpu")[["duration_ns", "stolen_ns"]].sum()
    longer = trials["duration_ns"] / (trials["duration_ns"] - trials["stolen_ns"])
    rows = [(cpu, "with what is stolen", value, "times") for cpu, value in longer.items()]
    return levels_table(rows)


def stolen_by_trial(samples: pd.DataFrame) -> pd.DataFrame:
    """One row a trial, with the share of its time that was stolen, in percent."""
    samples = samples.copy()
    if "stolen_ns" not in samples:
        samples["stolen_ns"] = samples.groupby(["cpu", "round"])["gap_ns"].transform("sum")
    trials = samples.sort_values("round", kind="stable").drop_duplicates(["cpu", "round"])
    share = 100 * trials["stolen_ns"] / trials["duration_ns"]
    return trials.assign(stolen_percent=share)


def half_width(samples: pd.DataFrame) -> float:
    """The widest half-width of any core's share, in percentage points."""
    widths = [
        t_interval(trials["stolen_percent"].to_numpy()).half_width
        for _, trials in stolen_by_trial(samples).groupby("cpu")
    ]
    return widest(widths, default=math.inf)


def _main_cause(rows: pd.DataFrame) -> Reason:
    """Which gaps take most of the time that is missing."""
    if not {"gaps", "switched_gaps"} <= set(rows) or not rows[["gaps", "gap_ns"]].sum().all():
        return Reason("no_gap")
    by_bin = rows.groupby("gap_low_ns")[["gaps", "gap_ns", "switched_gaps"]].sum().reset_index()
    worst = by_bin.sort_values("gap_ns", kind="stable").iloc[-1]
    low_ns, share = float(worst["gap_low_ns"]), float(worst["gap_ns"] / by_bin["gap_ns"].sum())
    cause = likely_cause(1.5 * low_ns, int(2 * worst["switched_gaps"] > worst["gaps"]))
    numbers = {"share": share, "low_us": low_ns / 1e3, "high_us": low_ns / 500}
    return Reason("gaps", {**numbers, "cause": cause.name})
