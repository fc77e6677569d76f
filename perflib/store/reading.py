"""Runs and tables as they come from a file that anybody may have made: nothing in it is trusted."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from io import FileIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from perflib.model.errors import MeasurementError, UserError
from perflib.model.escape import from_csv_cell
from perflib.model.recorded import change_texts
from perflib.model.run import SCHEMA, Run
from perflib.store.csv_lines import csv_form
from perflib.store.files import json_of
from perflib.store.regular import open_to_read

if TYPE_CHECKING:  # both take long to import
    import duckdb
    import pandas as pd

# What schema 1 called otherwise in a run's provenance.
_RENAMED = {
    "turns": "trials",
    "failed_turns": "failed_trials",
    "asked": "requested",
    "got": "obtained",
    "unmet": "violated",
}
_ID = re.compile(r"\w[\w.+-]*")
# Compressed, a constant column of any length has a few bytes: beyond the larger of these a table
# does not belong to its file.
_MOST_BYTES, _MOST_PER_BYTE = 256 << 20, 200
_FIXED = re.compile(
    r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|BOOLEAN|(DATE|TIME|DECIMAL).*"
)


def quoted(path: Path | str) -> str:
    """A path, or a text, as DuckDB's SQL has it."""
    return "'" + str(path).replace("'", "''") + "'"


def read_run(path: Path, connection: duckdb.DuckDBPyConnection | None = None) -> Run:
    """Read a saved run.

    Parameters
    ----------
    path
        Its file.
    connection
        Of DuckDB, for who reads many: to open one takes longer than to read a run.

    Raises
    ------
    UserError
        The file is a table and no run, was written by a newer perflib, or holds what none writes.
    MeasurementError
        It cannot be read, or is damaged.
    """
    import duckdb

    try:
        with (
            duckdb.connect() if connection is None else nullcontext(connection) as opened,
            _held(path) as held,
        ):
            record = _record(opened, held, path)
            samples = _table(opened, f"read_parquet({quoted(held)})", path, held)
    except (duckdb.Error, OSError) as error:
        raise _damaged(path, error) from error
    return Run(samples=samples, **record)


def read_records(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """What saved runs hold apart from their samples: ``id experiment params provenance schema``.

    Raises as `read_run` does.
    """
    import duckdb

    found = []
    with duckdb.connect() as connection:
        for path in paths:
            try:
                with _held(path) as held:
                    found.append(_record(connection, held, path))
            except (duckdb.Error, OSError) as error:
                raise _damaged(path, error) from error
    return found


def _damaged(path: Path, error: Exception) -> MeasurementError:
    msg = (
        f"{path} cannot be read, it may be cut off: {_reason(error, path)}. If its "
        "journal is still there, 'perflib run --resume ID' makes it again."
    )
    return MeasurementError(msg)


@contextmanager
def _held(path: Path) -> Iterator[Path]:
    with open_to_read(path) as file, _named(file) as name:
        yield name


@contextmanager
def _named(file: IO[bytes] | FileIO) -> Iterator[Path]:
    """A file by its descriptor: what is checked is what is read, and no sign is a pattern's."""
    if Path("/proc/self/fd").exists():
        yield Path(f"/proc/self/fd/{file.fileno()}")
        return
    with tempfile.TemporaryDirectory() as folder:  # this is no Linux: a copy does as well
        copy = Path(folder, "table")
        file.seek(0)
        with copy.open("wb") as kept:
            shutil.copyfileobj(file, kept)
        yield copy


def _reason(error: Exception, path: Path) -> str:
    """What an error's first line says, of the file by its own name."""
    line = getattr(error, "strerror", None) or str(error).partition("\n")[0]
    return re.sub(r"/proc/self/fd/\d+", lambda _: path.name, line)


def _record(connection: duckdb.DuckDBPyConnection, held: Path, path: Path) -> dict[str, Any]:
    """The run without its samples, checked."""
    rows = connection.execute(
        f"SELECT value FROM parquet_kv_metadata({quoted(held)}) WHERE key = 'perflib'"
    ).fetchall()
    if not rows:
        msg = f"{path} is a Parquet file, but no run: 'perflib analyse' reads such tables"
        raise UserError(msg)
    return checked_record(rows[0][0], path)


def checked_record(text: bytes, path: Path) -> dict[str, Any]:
    """What a run's file holds apart from its samples, by the names of this schema.

    Raises
    ------
    UserError
        A newer perflib wrote it, or none.
    MeasurementError
        It is damaged.
    """
    from perflib.store.shape import check_record

    try:
        record: Any = json_of(text)
    except ValueError as error:  # also: a number of thousands of digits
        raise _damaged(path, error) from error
    schema = record.get("schema") if isinstance(record, dict) else None
    if isinstance(schema, int) and schema > SCHEMA:
        msg = (
            f"{path} was written by a newer perflib (schema {schema}, this one "
            f"reads up to {SCHEMA}): upgrade perflib"
        )
        raise UserError(msg)
    check_record(record, str(path))
    if not _ID.fullmatch(record["id"]):  # it becomes the name of a file
        msg = f"{path} names a run {record['id']!r}: no run of perflib is called so"
        raise UserError(msg)
    record["provenance"] = _current(record["provenance"])
    return {key: record[key] for key in ("id", "experiment", "params", "provenance", "schema")}


def _current(provenance: dict[str, Any]) -> dict[str, Any]:
    """Provenance by the names of this schema; conditions by theirs, too."""
    found = {_RENAMED.get(key, key): value for key, value in provenance.items()}
    if isinstance(conditions := found.get("conditions"), list):
        found["conditions"] = [
            {_RENAMED.get(key, key): value for key, value in one.items()} for one in conditions
        ]
    return found


def read_table(path: Path) -> pd.DataFrame:
    """A table of samples that a user brings, CSV or Parquet.

    In CSV an apostrophe before what would be a formula is none of the text: see `store.write_csv`.

    Raises
    ------
    UserError
        There is no such file, it is of another kind, damaged, or of more than fits into memory.
    """
    if not path.is_file():
        msg = f"there is no file {path}"
        raise UserError(msg)
    reader = {".csv": "read_csv", ".parquet": "read_parquet"}.get(path.suffix.lower())
    if reader is None:
        msg = f"{path}: samples are read from .csv or .parquet files, not {path.suffix or 'this'!r}"
        raise UserError(msg)
    if path.stat().st_size == 0:
        msg = f"{path} is empty"
        raise UserError(msg)
    import duckdb

    try:
        with (
            duckdb.connect() as connection,
            _held(path) as held,
            _source(reader, path, held) as source,
        ):
            table = _table(connection, source, path, held)
    except (duckdb.Error, OSError) as error:
        msg = f"{path} cannot be read as {path.suffix[1:]}: {_reason(error, path)}"
        raise UserError(msg) from error
    if reader == "read_csv":
        table = change_texts(table, from_csv_cell).rename(columns=from_csv_cell)
    return table


@contextmanager
def _source(reader: str, path: Path, held: Path) -> Iterator[str]:
    """What duckdb is asked to read, in the form that the lines of a CSV file have."""
    if reader != "read_csv":
        yield f"{reader}({quoted(held)})"
        return
    form = csv_form(path, held)
    # Standard quotes: guessed, an apostrophe in a name may be taken for one.
    how = f"""delim = '{form.delimiter}', header = true, quote = '"', escape = '"'"""
    how += f", skip = {form.preamble}"
    if not form.comments:
        yield f"{reader}({quoted(held)}, {how})"
        return
    with tempfile.TemporaryFile() as file:  # duckdb would also cut a text at its '#'
        lines = held.read_bytes().split(b"\n")
        kept = (line for number, line in enumerate(lines) if number not in form.comments)
        file.write(b"\n".join(kept))
        file.flush()
        with _named(file) as name:
            yield f"{reader}({quoted(name)}, {how})"


def _table(
    connection: duckdb.DuckDBPyConnection, source: str, path: Path, held: Path
) -> pd.DataFrame:
    """All rows of a table, if they are in proportion to its file."""
    file_bytes = held.stat().st_size
    if source.startswith("read_parquet"):
        columns = connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
        names = [
            name.replace('"', '""') for name, kind, *_ in columns if not _FIXED.fullmatch(kind)
        ]
        texts = "".join(f' + coalesce(sum(strlen("{name}"::VARCHAR)), 0)' for name in names)
        (sizes,) = connection.execute(f"SELECT count(*), 0{texts} FROM {source}").fetchall()
        rows, text_bytes = map(int, sizes)
        needed = 8 * rows * len(columns) + text_bytes
        if needed > max(_MOST_BYTES, _MOST_PER_BYTE * file_bytes):
            msg = (
                f"{path} has {file_bytes} bytes and claims {rows} rows of {len(columns)} columns, "
                f"{needed >> 20} MiB: it was not written by a measurement"
            )
            raise UserError(msg)
    return connection.execute(f"SELECT * FROM {source}").df()
