"""An investigation on disk: plan and runs in one folder, which can be moved and replayed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perflib.model.errors import MeasurementError, UserError
from perflib.model.escape import file_name
from perflib.model.run import Run
from perflib.store import run_files
from perflib.store.files import json_of, replacing
from perflib.store.ownership import distrust_status

PLAN = "investigation.json"
REPORTS = Path("reports")  # where investigations are unless a folder is given
_SCHEMA = 1
_OF_A_STEP = {
    "name", "part", "why", "experiment", "params", "budget_s", "run", "seconds", "skipped"
}  # fmt: skip


def find(named: Path) -> Path:
    """The folder of an investigation: that one, or the one below ``reports`` that begins so.

    Raises
    ------
    UserError
        Several begin so.
    """
    if named.is_dir() or named.parent != Path():
        return named
    every = (path.parent for path in sorted(REPORTS.glob(f"*/{PLAN}")))
    matching = [folder for folder in every if folder.name.startswith(named.name)]
    if len(matching) > 1:
        msg = f"investigation {named.name!r} may be any of: {', '.join(map(str, matching))}"
        raise UserError(msg)
    return matching[0] if matching else named


def write_plan(folder: Path, record: Mapping[str, Any]) -> None:
    """Write the plan, whole or not at all.

    Raises
    ------
    MeasurementError
        The disk is full or may not be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / PLAN) as temporary:
            temporary.write_text(json.dumps({"schema": _SCHEMA, **record}, indent=1) + "\n")
    except OSError as error:
        msg = f"the investigation cannot be saved in {folder}: {error.strerror or error}"
        raise MeasurementError(msg) from error


def read_plan(folder: Path, *, to_resume: bool = False) -> dict[str, Any]:
    """The plan of an investigation.

    Raises
    ------
    UserError
        There is none in that folder, or it cannot be read; or it is ``to_resume``, and another user
        could have written it: a plan may name a job to start.
    """
    path = folder / PLAN
    if not path.is_file():
        near = sorted(str(one.parent) for one in folder.parent.glob(f"*/{PLAN}"))[-3:]
        there = f"; there are {', '.join(near)}" if near else ""
        msg = f"there is no investigation in {folder}: it has no {PLAN}{there}"
        raise UserError(msg)
    try:
        with path.open(encoding="utf-8") as file:
            if to_resume and (problem := distrust_status(os.fstat(file.fileno()))):
                msg = f"{path} {problem}: nobody resumes it, because it may name a job to "
                msg += f"start. --replay {folder} starts none"
                raise UserError(msg)
            record = json_of(file.read())
        if record["schema"] > _SCHEMA:
            msg = f"{path} was written by a newer perflib: upgrade perflib"
            raise UserError(msg)
        whole = all(step.keys() >= _OF_A_STEP for step in record["steps"])
        if not whole or not {"question", "cores", "tag", "spent_s"} <= record.keys():
            raise TypeError
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"{path} is damaged: {str(error) or 'it is no plan'}"
        raise UserError(msg) from error
    found: dict[str, Any] = record
    return found


def keep_run(folder: Path, run: Run) -> None:
    """Keep a saved run in the folder too: as a second name of its file where that is possible.

    A recorded run was never saved here: it is written.
    """
    path = runs_in(folder) / f"{file_name(run.id)}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    if "recording" in run.provenance:
        run_files.save(run, path)
        return
    saved = run_files.saved_path(run.id)
    try:
        path.hardlink_to(saved)
    except FileExistsError:
        pass
    except OSError:  # another disk
        shutil.copyfile(saved, path)


def runs_in(folder: Path) -> Path:
    """The place of an investigation's runs."""
    return folder / "runs"
