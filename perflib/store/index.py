"""An index of a store: what its runs' files say of themselves, so that a list opens none of them.

It is one Parquet file next to the runs, ``.index``, with a row a run: the file's name, size and
time of change, what the list and queries show, the findings and the levels. A row counts while its
file has that size and time. What is new is read from the files, and written to the index once there
is enough of it; the index is replaced whole, so several processes may do so at once. It can be made
again: an index that is damaged, of another perflib, or of somebody else is not read.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from perflib.model.errors import PerflibError, UserError
from perflib.store.files import replacing
from perflib.store.ownership import check_writable
from perflib.store.reading import quoted
from perflib.store.regular import open_regular, open_to_read
from perflib.store.reported import FINDINGS, LEVELS

if TYPE_CHECKING:
    import duckdb

Answer = TypeVar("Answer")

INDEX = ".index"
_FORMAT = "1"  # raised when the columns, or what they hold, change
_ENOUGH, _ENOUGH_SHARE = 32, 0.02  # files that are not in the index, before it is written anew
_AT_ONCE = 100  # files of one query
_PARQUET_END = b"PAR1"
_FINDING = (
    "STRUCT(claim VARCHAR, subject VARCHAR, kind VARCHAR, verdict VARCHAR, effect DOUBLE, "
    "low DOUBLE, high DOUBLE, unit VARCHAR, threshold DOUBLE, confidence DOUBLE, plain VARCHAR, "
    "exact VARCHAR, reason VARCHAR, about VARCHAR)[]"
)
_LEVEL = "STRUCT(setting VARCHAR, unit VARCHAR, cpu BIGINT[], value DOUBLE[])[]"
_TEXTS = {
    "experiment": "experiment",
    "node": "provenance.machine.hostname",
    "start": "provenance.start",
    "end": "provenance.end",
    "stopped": "provenance.stopped",
    "tag": "provenance.tag",
    "fingerprint": "provenance.machine.fingerprint",
    "model": "provenance.machine.processor",
    "product": "provenance.machine.product",
}
"""Columns that are one text of a run's record, and where it stands there."""
_COLUMNS = {
    "name": "VARCHAR",
    "size": "BIGINT",
    "mtime_ns": "BIGINT",
    "run": "VARCHAR",
    "samples": "BIGINT",
    **dict.fromkeys(_TEXTS, "VARCHAR"),
    "params": "VARCHAR",
    "provenance": "VARCHAR",
    "analysed": "VARCHAR",  # by which perflib; NULL: by none
    "findings": _FINDING,
    "levels": _LEVEL,
}
_NAMES = ", ".join(f'"{name}"' for name in _COLUMNS)

_PARTS = {
    "findings": FINDINGS,
    "levels": LEVELS,
    "text_list": ", ".join(f"'$.{place}'" for place in _TEXTS.values()),
    "text_columns": ", ".join(f'texts[{at}] AS "{name}"' for at, name in enumerate(_TEXTS, 1)),
}


@dataclass(frozen=True)
class Indexed:
    """What a store holds, as a connection of DuckDB has it.

    Parameters
    ----------
    connection
        Its table ``indexed`` has a row for each readable file.
    paths
        All files, by name.
    damaged
        Names of those that cannot be read, or are no run's.
    source
        The file that a query over ``indexed`` opens; empty: none.
    """

    connection: duckdb.DuckDBPyConnection
    paths: Mapping[str, Path]
    damaged: Sequence[str]
    source: str

    def is_whole(self) -> bool:
        """Whether all of the index can be read."""
        import duckdb

        try:
            self.connection.execute(f"SELECT max(hash(one)) FROM read_parquet('{self.source}') one")
        except duckdb.Error:
            return False
        return True


def ask(folder: Path, question: Callable[[Indexed], Answer]) -> Answer:
    """The answer to a question, which is computed again where the index turns out to be damaged.

    A part of it that the question alone reads may be; and DuckDB opens it by its name, which it has
    lost where another process replaced it.
    """
    import duckdb

    tries = 3
    while True:
        tries -= 1
        with indexed(folder) as index:
            try:
                return question(index)
            except (duckdb.Error, UserError) as error:
                cause = error.__cause__ or error
                if not tries or not index.source or not _may_be_damage(cause) or index.is_whole():
                    raise
            with contextlib.suppress(OSError):
                if _is_still(index.source, folder):
                    (folder / INDEX).unlink()


def _may_be_damage(error: BaseException) -> bool:
    import duckdb

    of_sql = (duckdb.BinderException, duckdb.ParserException, duckdb.CatalogException)
    return isinstance(error, duckdb.Error) and not isinstance(error, of_sql)


@contextlib.contextmanager
def indexed(
    folder: Path, reported: Mapping[str, Mapping[str, str]] | None = None
) -> Iterator[Indexed]:
    """The index of a folder, brought up to date.

    Parameters
    ----------
    folder
        Of run files.
    reported
        What was found in runs whose files lack it (`perflib.store.reported`), by file name: it is
        kept in the index.
    """
    import duckdb

    with duckdb.connect() as connection, contextlib.ExitStack() as opened:
        if reported:  # what others add meanwhile is added to what this adds, not replaced by it
            opened.enter_context(_alone(folder))
        files = _files(folder)
        connection.execute("SET temp_directory = ''")  # nothing is written anywhere
        _make_tables(connection, files, reported or {})
        source = _kept(connection, folder, len(files), opened)
        known = {name for (name,) in connection.execute("SELECT name FROM kept").fetchall()}
        new = [name for name in files if name not in known]
        _read(connection, [folder / name for name in new if _is_ended(folder / name)])
        added = {name for (name,) in connection.execute("SELECT name FROM fresh").fetchall()}
        connection.execute(
            f"CREATE VIEW indexed AS SELECT {_NAMES} FROM kept UNION ALL SELECT {_NAMES} FROM fresh"
        )
        if reported:
            _write(connection, folder)
        elif len(added) > max(_ENOUGH, _ENOUGH_SHARE * len(files)):
            with (
                contextlib.suppress(OSError, PerflibError, duckdb.Error),
                _alone(folder, wait=False),
            ):
                if _is_still(source, folder):
                    _write(connection, folder)
        damaged = [name for name in new if name not in added]
        paths = {name: folder / name for name in files}
        yield Indexed(connection, paths, damaged, source)


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of each run's file, by name."""
    found = {}
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".parquet") and not entry.name.startswith("."):
                with contextlib.suppress(OSError):  # it was removed meanwhile
                    status = entry.stat()
                    found[entry.name] = (status.st_size, status.st_mtime_ns)
    return found


def _make_tables(
    connection: duckdb.DuckDBPyConnection,
    files: Mapping[str, tuple[int, int]],
    reported: Mapping[str, Mapping[str, str]],
) -> None:
    """``here``: the files; ``reported``: what was found in some; ``fresh``: rows to come."""
    types = ", ".join(f'"{name}" {kind}' for name, kind in _COLUMNS.items())
    connection.execute(f"CREATE TABLE fresh ({types})")
    connection.execute(
        "CREATE TABLE here AS SELECT unnest($1::VARCHAR[]) AS name, unnest($2::BIGINT[]) AS size, "
        "unnest($3::BIGINT[]) AS mtime_ns",
        [list(files), *([one[at] for one in files.values()] for at in (0, 1))],
    )
    connection.execute(
        "CREATE TABLE reported AS SELECT unnest($1::VARCHAR[]) AS name, "
        "unnest($2::VARCHAR[]) AS findings, unnest($3::VARCHAR[]) AS levels",
        [list(reported), *([one[key] for one in reported.values()] for key in (FINDINGS, LEVELS))],
    )


# --- what is kept ---------------------------------------------------------------------------------


def _kept(
    connection: duckdb.DuckDBPyConnection, folder: Path, count: int, opened: contextlib.ExitStack
) -> str:
    """Make the view ``kept``, of the rows that still count; returns the file that it opens."""
    source = _opened(connection, folder, count, opened)
    rows = f"SELECT {_NAMES} FROM read_parquet('{source}')" if source else "SELECT * FROM fresh"
    connection.execute(
        f"CREATE VIEW kept AS {rows} SEMI JOIN here USING (name, size, mtime_ns) "
        f"ANTI JOIN reported USING (name) {'' if source else 'WHERE false'}"
    )
    return source


def _opened(
    connection: duckdb.DuckDBPyConnection, folder: Path, count: int, opened: contextlib.ExitStack
) -> str:
    """The index, if it is one; whoever replaces it meanwhile does not change what is read."""
    import duckdb

    try:
        descriptor = open_regular(folder / INDEX, os.O_RDONLY | os.O_NOFOLLOW)
        opened.callback(os.close, descriptor)
        source = f"/proc/self/fd/{descriptor}"
        ours = _is_ours(os.fstat(descriptor), folder) and _fits(connection, source, count)
    except (OSError, duckdb.Error):
        return ""
    return source if ours else ""


def _is_ours(status: os.stat_result, folder: Path) -> bool:
    """Whether nobody made the index but who may make the runs."""
    trusted = {0, os.geteuid(), folder.stat().st_uid}
    return status.st_uid in trusted and not status.st_mode & stat.S_IWOTH


def _fits(connection: duckdb.DuckDBPyConnection, source: str, count: int) -> bool:
    """Whether a file is an index as this perflib writes it, of about so many runs."""
    (version,) = connection.execute(
        "SELECT max(decode(value)) FROM parquet_kv_metadata($1) WHERE key = 'perflib_index'",
        [source],
    ).fetchall()[0]
    if version != _FORMAT:
        return False
    found, wanted = (
        connection.execute(f"DESCRIBE {what}").fetchall()
        for what in (f"SELECT * FROM read_parquet('{source}')", "fresh")
    )
    if [one[:2] for one in found] != [one[:2] for one in wanted]:
        return False
    (rows,) = connection.execute(f"SELECT count(*) FROM read_parquet('{source}')").fetchall()[0]
    if rows > 2 * count + _AT_ONCE:  # most of it is of files that are gone, or it is no index
        return False
    (names,) = connection.execute(
        f"SELECT count(DISTINCT name) FROM read_parquet('{source}')"
    ).fetchall()[0]
    return bool(names == rows)


# --- what is new ----------------------------------------------------------------------------------


def _read(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> None:
    """Add the rows of files to ``fresh``, by as few queries as damaged files allow."""
    import duckdb

    if len(paths) > _AT_ONCE:
        for begin in range(0, len(paths), _AT_ONCE):
            _read(connection, paths[begin : begin + _AT_ONCE])
        return
    if not paths:
        return
    files = f"[{', '.join(map(quoted, paths))}]"
    try:
        rows = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
        for name, text in (*_PARTS.items(), ("files", files)):
            rows = rows.replace(f"{{{name}}}", text)
        connection.execute(f"INSERT INTO fresh ({_NAMES}) {rows}")
    except (duckdb.BinderException, duckdb.ParserException):  # our own, whatever the files are
        raise
    except duckdb.Error:  # of a file that is damaged: looked for among half as many
        half = len(paths) // 2
        if half:
            _read(connection, paths[:half])
            _read(connection, paths[half:])


def _is_ended(path: Path) -> bool:
    """Whether a file ends as Parquet does: one that was cut off is found without a query."""
    try:
        with open_to_read(path) as file:
            file.seek(-len(_PARQUET_END), os.SEEK_END)
            return file.read() == _PARQUET_END
    except OSError:  # it is shorter, or may not be read
        return False


@contextlib.contextmanager
def _alone(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """While nobody else replaces the index; without waiting it raises where somebody does."""
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise
        except OSError:  # a file system without locks: the index is replaced whole all the same
            pass
        yield
    finally:
        os.close(descriptor)


def _is_still(source: str, folder: Path) -> bool:
    """Whether the index is the one that was opened: one that came later knows more."""
    try:
        now = (folder / INDEX).lstat()
    except FileNotFoundError:
        return True
    return not source or os.path.samestat(now, Path(source).stat())


def _write(connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Replace the index; who calls it is `_alone`, so other files there were left by a kill.

    Raises
    ------
    OSError, UserError, duckdb.Error
        It cannot be written. Everything works without, but slower.
    """
    check_writable(folder)
    for left in folder.glob(f".{INDEX}.*"):
        left.unlink(missing_ok=True)
    # Otherwise all rows of an old and a new index are in memory at once.
    connection.execute("SET preserve_insertion_order = false")
    try:
        with replacing(folder / INDEX) as temporary:
            connection.execute(
                f"COPY (SELECT {_NAMES} FROM indexed) TO {quoted(temporary)} "
                "(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 2048, USE_TMP_FILE false, "
                f"KV_METADATA {{perflib_index: '{_FORMAT}'}})"
            )
    finally:
        connection.execute("RESET preserve_insertion_order")
