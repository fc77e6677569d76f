"""Comparisons that were recorded: what each solution saved, on machines that are named.

``recordings/MACHINE.json`` has a record for each solution: the log ratio of times in each process,
and both versions' median times of a call. ``benchmarks/fix_it.py --record`` writes them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perflib.course.fix.bench import Bench
from perflib.course.fix.compare import ORIGINAL, YOURS, decided
from perflib.model.errors import UserError, choose

_FOLDER = Path(__file__).parent / "recordings"


def recorded_bench(
    problem: str, machine: str, way: str = "mended", threshold_percent: float = 1.0
) -> Bench:
    """What a solution saved on a recorded machine.

    Raises
    ------
    UserError
        No comparison of it was recorded there; says where.
    """
    known = {path.stem: path for path in _FOLDER.glob("*.json")}
    if machine not in known:
        raise UserError(choose("machine with recorded comparisons of code", machine, known))
    records = json.loads(known[machine].read_text())
    fitting = [one for one in records if (one["problem"], one["way"]) == (problem, way)]
    if not fitting:
        msg = f"{problem}: solution {way!r} was not timed on {machine}"
        raise UserError(msg)
    one = fitting[0]
    ratios = np.array(one["ratios"], dtype=np.float64)
    compared = decided(ratios, threshold_percent, (one["share"], one["words"]))
    beside = f"the system's load was {one['load_average']:g}"
    said = [
        f"recorded on {machine} ({beside}), of the solution {way!r}: no code of yours was timed"
    ]
    note = {"machine": machine, "day": one["start"][:10]}
    provenance = {"start": one["start"], "rounds": one["rounds"], "recording": note}
    return Bench(problem, compared, _samples(one), "recorded", said, provenance)


def _samples(one: dict[str, Any]) -> pd.DataFrame:
    """One row for each process and version: its median time of a call."""
    parts = [
        pd.DataFrame({"batch": range(len(times)), "version": version, "time_ns": times})
        for version, times in ((ORIGINAL, one["original_ns"]), (YOURS, one["yours_ns"]))
    ]
    return pd.concat(parts, ignore_index=True).assign(round=0, calls=1, ok=True)
