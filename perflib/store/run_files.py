"""Runs on disk: one Parquet file a run, provenance inside it; DuckDB reads and writes them.

A file is written next to its place, flushed to the disk and moved there, so that a run is saved
whole or not at all.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import glob
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from perflib.model.errors import MeasurementError, UserError
from perflib.model.escape import csv_cell, file_name
from perflib.model.recorded import change_texts
from perflib.model.run import Run, experiment_of
from perflib.store import config
from perflib.store.files import replacing
from perflib.store.index import Indexed, ask
from perflib.store.ownership import check_writable, make_folder
from perflib.store.query import query
from perflib.store.reading import quoted, read_run, read_table
from perflib.store.regular import open_to_read

if TYPE_CHECKING:  # both take long to import, and who only names a run's file needs neither
    import pandas as pd

__all__ = [
    "Saved",
    "csv_text",
    "find",
    "load",
    "query",
    "read_table",
    "runs",
    "runs_dir",
    "save",
    "saved_path",
    "write_csv",
    "write_parquet",
    "write_run",
]

_LEFT_S = 3600.0  # nobody writes one file for so long; clocks of hosts that share a store differ
_MOST_LISTED = 10
_FORM = "COMPRESSION zstd"  # of a saved run, in words of DuckDB's COPY


def runs_dir() -> Path:
    """The place of runs and their journals."""
    folder: Path = config.runs_dir().value
    return folder


def saved_path(run_id: str) -> Path:
    """The file of a run."""
    return runs_dir() / f"{file_name(run_id)}.parquet"


def save(run: Run, path: Path | None = None, reported: Mapping[str, str] | None = None) -> Path:
    """Save a run; its journal, if it has one, stays until the caller removes it.

    Parameters
    ----------
    run
        What was measured.
    path
        Its file; by default its place in the store.
    reported
        What its analysis says (`perflib.store.reported`).

    Raises
    ------
    UserError
        Another user could exchange what is in the store.
    MeasurementError
        The disk is full or may not be written; says so, and leaves nothing half written.
    """
    if path is None:
        path = saved_path(run.id)
        check_writable(path.parent)
    import duckdb

    try:
        make_folder(path.parent)
        _remove_unfinished(path)
        with replacing(path) as temporary:
            write_run(run, temporary, reported or {})
    except RuntimeError as error:
        if "interrupted" not in str(error):
            raise
        raise KeyboardInterrupt from error  # what DuckDB makes of Ctrl-C
    except (OSError, duckdb.Error) as error:
        msg = f"run {run.id} cannot be saved to {path}: {str(error).splitlines()[0]}"
        raise MeasurementError(msg) from error
    return path


def write_run(run: Run, path: Path, reported: Mapping[str, str]) -> None:
    """Write a run's file as it is; `save` puts it in its place, whole."""
    record = {
        "id": run.id,
        "experiment": run.experiment,
        "params": run.params,
        "provenance": run.provenance,
        "schema": run.schema,
    }
    write_parquet(run.samples, path, {"perflib": json.dumps(record), **reported})


def write_parquet(table: pd.DataFrame, path: Path, metadata: Mapping[str, str]) -> None:
    """Write a table, with texts in its metadata; raises as DuckDB does."""
    import duckdb

    texts = ", ".join(f"{key}: {quoted(text)}" for key, text in metadata.items())
    kept = f", KV_METADATA {{{texts}}}" if texts else ""
    with duckdb.connect() as connection:
        connection.register("given", table)
        connection.execute(
            f"COPY given TO {quoted(path)} (FORMAT parquet, {_FORM}, USE_TMP_FILE false{kept})"
        )


def _remove_unfinished(path: Path) -> None:
    """Remove what processes left that were killed while they saved this run, or another."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*"):
        left.unlink(missing_ok=True)  # who saves this run is alone with it
    for left in path.parent.glob(f".*.parquet.{'[0-9a-f]' * 8}"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _LEFT_S:
                left.unlink()


def load(run_id: str | Path) -> Run:
    """Read a run back: its id or an unambiguous part of it (see `find`), or its file's path."""
    return read_run(find(str(run_id)))


def find(name: str, wanted: Literal["saved", "unfinished"] = "saved") -> Path:
    """The file of the run that a user names.

    Parameters
    ----------
    name
        Its id; the beginning of its id, or of a part of it (time, host, random end), if no other
        run's id has it; or, of a saved run, the path of its file.
    wanted
        A ``saved`` run's file, or the journal of an ``unfinished`` one, to be resumed.

    Raises
    ------
    UserError
        There is no such run (says which there are, the nearest first), several have such a
        part, or it is of the other kind.
    """
    if wanted == "saved" and name.endswith(".parquet"):
        if Path(name).is_file():
            return Path(name)
        msg = f"there is no run file {name!r}"
        raise UserError(msg)
    files = {suffix: _by_id(suffix) for suffix in ("parquet", "journal")}
    suffix, other = ("parquet", "journal") if wanted == "saved" else ("journal", "parquet")
    every = {**files[other], **files[suffix]}
    found = every.get(name) or _named(name, files[suffix]) or _named(name, files[other])
    if found is None:
        raise UserError(_unknown(name, every))
    if found.suffix != f".{suffix}":
        raise UserError(_other_kind(found))
    return found


def _by_id(suffix: str) -> dict[str, Path]:
    return {path.stem: path for path in runs_dir().glob(f"*.{suffix}")}


def _named(name: str, among: dict[str, Path]) -> Path | None:
    """The one run whose id begins with a name, or, where none does, has a part that does."""
    matching = sorted(run_id for run_id in among if run_id.startswith(name))
    matching = matching or sorted(run_id for run_id in among if f"-{name}" in run_id)
    if len(matching) > 1:
        msg = f"run {name!r} may be any of: {_listed(matching)}"
        raise UserError(msg)
    return among[matching[0]] if matching else None


def _other_kind(path: Path) -> str:
    """Why a run that is there is not what was wanted, and what can be done with it."""
    run_id = path.stem
    if path.suffix == ".parquet":
        return f"run {run_id} is saved, nothing of it is unfinished: see 'perflib show {run_id}'"
    if _unfinished(path) == "running":
        return f"run {run_id} is being measured right now, by another process"
    return f"run {run_id} was interrupted: 'perflib run --resume {run_id}' continues it"


def _unknown(name: str, known: dict[str, Path]) -> str:
    if not known:
        return f"unknown run {name!r}: there are none in {runs_dir()}"

    def likeness(run_id: str) -> float:  # a beginning of it may have been meant
        return difflib.SequenceMatcher(None, name, run_id[: len(name)]).ratio()

    newest_first = sorted(known, key=lambda run_id: (_start_of(run_id), run_id), reverse=True)
    nearest = sorted(newest_first, key=likeness, reverse=True)
    return f"unknown run {name!r}; in {runs_dir()} there are, nearest first: {_listed(nearest)}"


def _listed(run_ids: list[str]) -> str:
    more = len(run_ids) - _MOST_LISTED
    return ", ".join(run_ids[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def csv_text(table: pd.DataFrame) -> str:
    """A table as CSV in which no text is a formula: `read_table` reads the same texts."""
    safe: pd.DataFrame = change_texts(table, csv_cell).rename(columns=csv_cell)
    return safe.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC)


def write_csv(samples: pd.DataFrame, path: Path) -> None:
    """Write samples as `csv_text` makes them."""
    path.write_text(csv_text(samples), newline="")


@dataclass(frozen=True)
class Saved:
    """A line of the list; ``status``: ``saved``, ``running``, ``interrupted`` or ``damaged``."""

    id: str
    status: str
    experiment: str = ""
    machine: str = ""
    start: str = ""
    samples: int = 0
    stopped: str = ""


_LISTED = """
    SELECT run, experiment, coalesce(node, ''), coalesce(start, ''), samples, coalesce(stopped, '')
    FROM indexed
"""


def runs() -> list[Saved]:
    """Every run there is, oldest first; damaged files and unfinished journals among them."""

    def listed(index: Indexed) -> list[Saved]:
        rows = index.connection.execute(_LISTED).fetchall()
        damaged = [Saved(index.paths[name].stem, "damaged") for name in index.damaged]
        return [Saved(run, "saved", *values) for run, *values in rows] + damaged

    found = ask(runs_dir(), listed)
    saved = {entry.id for entry in found}
    found += [
        Saved(path.stem, _unfinished(path), experiment_of(path.stem))
        for path in runs_dir().glob("*.journal")
        if path.stem not in saved
    ]
    return sorted(found, key=lambda entry: (entry.start or _start_of(entry.id), entry.id))


def _unfinished(journal: Path) -> str:
    """Whether a process still writes to a journal."""
    import fcntl

    try:
        with open_to_read(journal) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "running"
    except OSError:  # it is no file, or may not be read
        return "damaged"
    return "interrupted"


def _start_of(run_id: str) -> str:
    """The start that a run's id holds, as provenance writes it."""
    match = re.search(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)", run_id)
    return "{}-{}-{}T{}:{}:{}".format(*match.groups()) if match else ""
