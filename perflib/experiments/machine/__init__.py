"""Who else uses this core? Gaps in the clock of a spinning core, core by core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from perflib.framework.experiment import Column, Experiment, Session
from perflib.framework.params import Params, parameter
from perflib.kernels import build
from perflib.machine.activity.noise import (
    GAP,
    TOTALS,
    gap_histogram,
    likely_cause,
    step_ns,
    stolen_share,
)
from perflib.measure.conditions import Conditions
from perflib.measure.process import Out, Worker
from perflib.measure.schedule import Columns, frame_of
from perflib.measure.workers import Workers
from perflib.model.finding import Finding, Verdict
from perflib.model.run import Run
from perflib.stats.intervals import t_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MachineNoise", "NoiseParams", "experiment", "look", "stolen_by_turn"]

_CAPACITY = 200_000


class NoiseParams(Params):
    """What to visit and for how long."""

    budget_s: float = parameter(20.0, "the longest time to measure", "s", gt=0, le=1e6)
    precision_percent: float = parameter(
        0.05,
        "measure until the half-width of every core's stolen share is below this",
        "percentage points",
        gt=0,
        le=100,
    )
    spin_ms: float = parameter(200.0, "how long a core spins in a turn", "ms", ge=1, le=60_000)
    gap_us: float = parameter(
        1.0, "a step of the clock longer than this is a gap", "us", ge=0.1, le=1e6
    )
    stolen_percent: float = parameter(
        1.0, "a core is disturbed if more of its time than this is stolen", "percent", gt=0, le=100
    )


class MachineNoise(Experiment):
    """Spin on each core in turn and read the clock: what is missing, somebody else had."""

    name = "machine"
    title = "The machine and its noise"
    question = "What is this computer, and who else uses its cores?"
    notebook = "00_machine"
    Params: ClassVar[type[Params]] = NoiseParams
    columns = (
        Column("round", "integer", "", "number of the round", required=True),
        Column("position", "integer", "", "place of the turn in its round"),
        Column("cpu", "integer", "", "the core that spun", required=True),
        Column("start_ns", "integer", "ns", "when the turn began, on the run's clock"),
        Column("duration_ns", "integer", "ns", "how long it spun", required=True),
        Column("step_ns", "number", "ns", "an ordinary step of the loop"),
        Column("stolen_ns", "number", "ns", "time in all gaps, one step each taken off"),
        Column(
            "gap_low_ns", "integer", "ns", "lower edge of the bin of gap lengths", required=True
        ),
        Column("gaps", "integer", "", "gaps of that length (gap_low_ns up to twice that)"),
        Column("gap_ns", "integer", "ns", "their summed length", required=True),
        Column("switched_gaps", "integer", "", "those in which the thread was switched out"),
    )
    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"budget_s": 10.0},
        "full": {"budget_s": 120.0, "cores": "all"},
    }

    def plan(self, params: NoiseParams) -> dict[str, Any]:
        """The cores."""
        return {"cores": params.resolved_cores()}

    def take(self, params: NoiseParams, session: Session) -> str:
        """Spin on every core, in rounds."""
        cores = session.plan["cores"]
        with Workers(build("clock_gaps"), [params.conditions(cpu) for cpu in cores]) as workers:
            session.note(workers)

            def turn(_round: int, arm: int) -> Columns:
                return _spin(workers[arm], cores[arm], params.spin_ms, params.gap_us)

            return session.rounds(params, len(cores), turn, _widest, least_s=5.0)

    def analyse(self, run: Run) -> list[Finding]:
        """The share of each core's time that was stolen, against ``stolen_percent``."""
        limit = NoiseParams.make(run.params).stolen_percent
        findings = []
        for cpu, turns in stolen_by_turn(run.samples).groupby("cpu"):
            share = t_interval(turns["stolen_percent"].to_numpy())
            low, high = max(0.0, share.low), min(100.0, share.high)
            verdict: Verdict = "inconclusive"
            if low > limit:
                verdict = "supported"
            elif high < limit:
                verdict = "refuted"
            findings.append(
                Finding(
                    claim=f"cpu{cpu} loses more than {limit:g} % of its time to others",
                    subject=f"cpu{cpu}",
                    verdict=verdict,
                    effect=share.effect,
                    low=low,
                    high=high,
                    unit="percent",
                    reason=_main_cause(run.samples[run.samples["cpu"] == cpu]),
                    evidence={"turns": len(turns)},
                )
            )
        return findings

    def figures(self, run: Run) -> dict[str, Figure]:
        """Gaps per second by length, one line a core."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 4.5))
        axes = figure.subplots()
        places = run.provenance.get("machine", {}).get("cpus", [])
        where = {place["cpu"]: place["where"] for place in places}
        for cpu, rows in run.samples.groupby("cpu"):
            spun_s = rows.drop_duplicates("round")["duration_ns"].sum() / 1e9
            counts = rows.groupby("gap_low_ns")["gaps"].sum()
            counts = counts[counts > 0] / spun_s
            edges_us = counts.index.to_numpy() / 1e3
            stolen = stolen_by_turn(rows)["stolen_percent"].mean()
            label = f"cpu{cpu} ({where.get(cpu, 'place unknown')}): {stolen:.2f} % stolen"
            axes.step(edges_us, counts.to_numpy(), where="post", marker="o", ms=3, label=label)
        axes.set(xscale="log", yscale="log", xlabel="length of the gap (µs)")
        axes.set_ylabel("gaps per second, in bins that double")
        axes.set_title("Gaps in the clock of a spinning core")
        axes.legend(fontsize="small")
        return {"gaps": figure}


def look(cores: Sequence[int], spin_ms: float = 200.0, gap_us: float = 1.0) -> pd.DataFrame:
    """One turn on each core, without a run: the doctor's glance at the noise."""
    turns = []
    with Workers(build("clock_gaps"), [Conditions(cpu=cpu) for cpu in cores]) as workers:
        for arm, cpu in enumerate(cores):
            columns = _spin(workers[arm], cpu, spin_ms, gap_us)
            turns.append({"round": 0, "position": arm, "columns": columns})
    return frame_of(turns)


def _spin(worker: Worker, cpu: int, spin_ms: float, gap_us: float) -> Columns:
    """One turn: the worker's core spins, its gaps come back as rows."""
    _checksum, (noted, totals) = worker.call(
        "clock_gaps",
        int(spin_ms * 1e6),
        int(gap_us * 1e3),
        Out(GAP, _CAPACITY),
        _CAPACITY,
        Out(TOTALS, 1),
        timeout_s=10 + 3 * spin_ms / 1e3,
    )
    return _columns(cpu, noted, totals[0])


def _columns(cpu: int, noted: Any, totals: Any) -> Columns:
    """One turn as rows: a row for each bin of gap lengths that occurred, at least one."""
    lengths, switches = noted["length_ns"][: totals["gaps"]], noted["switches"][: totals["gaps"]]
    edges, counts = gap_histogram(lengths)
    bins = np.clip(np.searchsorted(edges, lengths, side="right") - 1, 0, len(counts) - 1)
    used = np.flatnonzero(counts) if counts.any() else np.array([0])
    counted = [int(totals[name]) for name in ("gap_ns", "gaps", "steps", "duration_ns")]
    same = {
        "cpu": cpu,
        "start_ns": int(totals["first_ns"]),
        "duration_ns": int(totals["duration_ns"]),
        "step_ns": round(step_ns(*counted), 3),
        "stolen_ns": round(stolen_share(*counted) * float(totals["duration_ns"]), 1),
    }
    columns: Columns = {name: [value] * len(used) for name, value in same.items()}
    columns["gap_low_ns"] = [int(edges[i]) for i in used]
    columns["gaps"] = [int(counts[i]) for i in used]
    columns["gap_ns"] = [int(lengths[bins == i].sum()) for i in used]
    columns["switched_gaps"] = [int((switches[bins == i] > 0).sum()) for i in used]
    return columns


def stolen_by_turn(samples: pd.DataFrame) -> pd.DataFrame:
    """One row a turn, with the share of its time that was stolen, in percent."""
    samples = samples.copy()
    if "stolen_ns" not in samples:
        samples["stolen_ns"] = samples.groupby(["cpu", "round"])["gap_ns"].transform("sum")
    turns = samples.sort_values("round").drop_duplicates(["cpu", "round"])
    share = 100 * turns["stolen_ns"] / turns["duration_ns"]
    return turns.assign(stolen_percent=share)


def _widest(samples: pd.DataFrame) -> float:
    widths = [
        t_interval(turns["stolen_percent"].to_numpy()).half_width
        for _, turns in stolen_by_turn(samples).groupby("cpu")
    ]
    return max((width if np.isfinite(width) else np.inf) for width in widths)


def _main_cause(rows: pd.DataFrame) -> str:
    """Which gaps take most of the time that is missing, in words."""
    if "gaps" not in rows or rows["gaps"].sum() == 0:
        return "No gap was seen."
    by_bin = rows.groupby("gap_low_ns")[["gaps", "gap_ns", "switched_gaps"]].sum().reset_index()
    worst = by_bin.sort_values("gap_ns").iloc[-1]
    low_ns, share = float(worst["gap_low_ns"]), float(worst["gap_ns"] / by_bin["gap_ns"].sum())
    cause = likely_cause(1.5 * low_ns, int(2 * worst["switched_gaps"] > worst["gaps"]))
    return (
        f"{share:.0%} of it in gaps of {_length(low_ns)} to {_length(2 * low_ns)}, as "
        f"'{cause.name}' makes."
    )


def _length(time_ns: float) -> str:
    return f"{time_ns / 1e6:.2g} ms" if time_ns >= 1e6 else f"{time_ns / 1e3:.2g} µs"


experiment = MachineNoise()
