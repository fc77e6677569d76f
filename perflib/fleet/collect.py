"""Collect a plan's results into the store, and write down which run belongs to which row."""

from __future__ import annotations

import csv
import filecmp
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from perflib.experiments.importing import Imported, import_runs
from perflib.fleet import results
from perflib.fleet.incoming import take_in
from perflib.fleet.job import same_host
from perflib.fleet.manifest import Row
from perflib.fleet.plan import Plan
from perflib.model.errors import MeasurementError
from perflib.model.escape import csv_cell
from perflib.store.files import replacing
from perflib.store.reading import quoted
from perflib.store.run_files import saved_path


@dataclass(frozen=True)
class Collected:
    """What became of a result: ``state`` is of `perflib.experiments.importing.Imported`."""

    key: str
    node: str
    experiment: str
    run: str
    state: str
    reason: str


_COLUMNS = tuple(Collected.__dataclass_fields__)


def collect(plan: Plan, progress: Callable[[int, int], None] | None = None) -> list[Collected]:
    """Import every result that is whole and is what its row says; the rest has a reason.

    ``collected.csv`` in the plan has the same. Again changes nothing: a run is there already.

    Raises
    ------
    MeasurementError
        The store or the plan cannot be written; what was imported stays.
    """
    try:
        take_in(plan)
        whole = {
            results.result(plan, row.key): row
            for row in plan.rows.values()
            if results.is_done(plan, row.key)
        }
        said = _said(list(whole))
        twice = _twice(said)
        wrong = {path: _mistaken(row, said.get(path), twice) for path, row in whole.items()}
        there = {path for path, one in said.items() if not wrong[path] and _is_there(path, one)}
        new = [path for path, why in wrong.items() if not why and path not in there]
        imported = {one.path: one for one in import_runs(new, progress)}
        for path in there:
            imported[path] = Imported(path, said[path]["run"], "there already")
        found = []
        for path, row in whole.items():
            one = imported.get(path)
            run, state, reason = (
                (one.run, one.state, one.reason) if one else ("", "refused", wrong[path])
            )
            found.append(Collected(row.key, row.node, row.experiment, run, state, reason))
        _write(plan.folder / "collected.csv", found)
    except OSError as error:
        msg = f"{plan.folder}: {error.strerror or error}"
        raise MeasurementError(msg) from error
    return found


def _is_there(path: Path, said: dict[str, Any]) -> bool:
    """Whether the store has this very file: it was checked when it was imported."""
    target = saved_path(said["run"])
    return target.exists() and filecmp.cmp(path, target, shallow=False)


def _write(path: Path, found: list[Collected]) -> None:
    with (
        replacing(path) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        table = csv.writer(file, lineterminator="\n")
        table.writerow(_COLUMNS)
        table.writerows([csv_cell(cell) for cell in astuple(one)] for one in found)


def _said(paths: list[Path]) -> dict[Path, dict[str, Any]]:
    """What files say that they are: run, experiment, parameters and host; all by one query.

    Of files among which one cannot be read, halves are queried.
    """
    import duckdb

    def ask(connection: duckdb.DuckDBPyConnection, some: list[Path]) -> dict[Path, dict[str, Any]]:
        if not some:
            return {}
        files = f"[{', '.join(map(quoted, some))}]"
        try:
            rows = connection.execute(
                "SELECT file_name, decode(value) ->> '$.id', decode(value) ->> '$.experiment', "
                "decode(value) ->> '$.params', decode(value) ->> '$.provenance.machine.hostname' "
                f"FROM parquet_kv_metadata({files}) WHERE decode(key) = 'perflib'"
            ).fetchall()
        except duckdb.Error:
            if len(some) == 1:
                return {}
            half = len(some) // 2
            return ask(connection, some[:half]) | ask(connection, some[half:])
        return {
            Path(name): {"run": run, "experiment": what, "params": params, "host": host}
            for name, run, what, params, host in rows
        }

    with duckdb.connect() as connection:
        return ask(connection, paths)


def _twice(said: dict[Path, dict[str, Any]]) -> set[str]:
    """Runs that several keys have as their result: somebody copied a file."""
    return {run for run, times in Counter(one["run"] for one in said.values()).items() if times > 1}


def _mistaken(row: Row, said: dict[str, Any] | None, twice: set[str]) -> str:
    """Why a file is not the result of its row; empty: it is."""
    if said is None or None in said.values():
        return "it is no run's file"
    if said["run"] in twice:
        return f"several keys have run {said['run']} as their result"
    if said["experiment"] != row.experiment:
        return f"it is a run of {said['experiment']}, not of {row.experiment}"
    if json.loads(said["params"]) != row.params:
        return "its parameters are not those of the manifest"
    if not same_host(str(said["host"]), row.hostname):
        return f"it was measured on {said['host']}, not on {row.hostname}"
    return ""
