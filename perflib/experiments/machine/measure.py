"""A core spins on its clock and notes the steps that took too long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.machine import NoiseParams
from perflib.experiments.machine.analyse import half_width
from perflib.framework.experiment import Session
from perflib.kernels import build, record
from perflib.machine.activity.noise import gap_histogram, step_ns, stolen_share
from perflib.measure.conditions import Conditions
from perflib.measure.process import Out, Worker
from perflib.measure.schedule import Columns, frame_of
from perflib.measure.workers import Workers

_CAPACITY = 200_000


def plan(params: NoiseParams) -> dict[str, Any]:
    """The cores."""
    return {"cores": params.resolved_cores()}


def take(params: NoiseParams, session: Session) -> str:
    """Spin on every core, in rounds."""
    cores = session.plan["cores"]
    with Workers(build("clock_gaps"), [params.conditions(cpu) for cpu in cores]) as workers:
        session.note(workers)

        def trial(_round: int, core: int) -> Columns:
            return _spin(workers[core], cores[core], params.spin_ms, params.gap_us)

        return session.rounds(params, len(cores), trial, half_width, least_s=5.0)


def look(cores: Sequence[int], spin_ms: float = 200.0, gap_us: float = 1.0) -> pd.DataFrame:
    """One trial on each core, without a run: the doctor's glance at the noise."""
    trials = []
    with Workers(build("clock_gaps"), [Conditions(cpu=cpu) for cpu in cores]) as workers:
        for which, cpu in enumerate(cores):
            columns = _spin(workers[which], cpu, spin_ms, gap_us)
            trials.append({"round": 0, "position": which, "columns": columns})
    return frame_of(trials)


def _spin(worker: Worker, cpu: int, spin_ms: float, gap_us: float) -> Columns:
    """One trial: the worker's core spins, its gaps come back as rows."""
    _checksum, (noted, totals) = worker.call(
        "clock_gaps",
        int(spin_ms * 1e6),
        int(gap_us * 1e3),
        Out(record(build("clock_gaps"), "clock_gap"), _CAPACITY),
        _CAPACITY,
        Out(record(build("clock_gaps"), "clock_gaps_result"), 1),
        timeout_s=10 + 3 * spin_ms / 1e3,
    )
    return _columns(cpu, noted, totals[0])


def _columns(cpu: int, noted: Any, totals: Any) -> Columns:
    """One trial as rows: a row for each bin of gap lengths that occurred, at least one."""
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
