"""Results without a measurement: files that a job of a row could have published."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from perflib.fleet import attempts, results
from perflib.fleet.manifest import Row
from perflib.fleet.plan import Plan
from perflib.model.run import new_id
from perflib.store.reading import read_run
from perflib.store.run_files import save

RECORDED = Path(__file__).parents[1] / "data" / "runs"


def made(folder: Path, row: Row, **changes: Any) -> Path:
    """A run's file as the row wants it, or changed."""
    run = read_run(RECORDED / f"{row.experiment}.parquet")
    machine = {**run.provenance["machine"], "hostname": row.hostname}
    changes = {
        "id": new_id(row.experiment),
        "params": dict(row.params),
        "provenance": {**run.provenance, "machine": machine},
        **changes,
    }
    path = folder / f"{changes['id']}.parquet"
    return save(dataclasses.replace(run, **changes), path)


def done(plan: Plan, row: Row, folder: Path, **changes: Any) -> Path:
    """Publish such a file, as an attempt that succeeded."""
    attempt = attempts.begin(plan.folder / "attempts", row.key, host=row.hostname)
    place = results.publish(plan, row.key, made(folder, row, **changes), attempt.name)
    attempt.ended("done", "", run="a run", seconds=1.0, alone=True)
    return place
