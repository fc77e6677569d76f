"""SQL over all saved runs, by DuckDB, without a server: it reads the store, and nothing else."""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from perflib.model.errors import UserError
from perflib.store import config
from perflib.store.index import Indexed, ask
from perflib.store.reading import quoted

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb
    import pandas as pd

TIMEOUT_S = 60.0
_AGAIN_S = 0.1
_MOST_COLUMNS = 40  # of a table, in a sentence
_INNER = ("fresh", "here", "indexed", "kept", "reported")  # what the index is made of
_OF_RUN = 'run, experiment, node, "start"'


def _time(name: str) -> str:
    """A recorded time as a timestamp in UTC."""
    return f'make_timestamp(epoch_us(try_cast("{name}" AS TIMESTAMPTZ))) AS "{name}"'


_VIEWS = {
    "runs": f"""
        SELECT run, experiment, node, {_time("start")}, {_time("end")}, stopped, tag, samples,
            fingerprint, model, product, analysed, params::JSON AS params,
            provenance::JSON AS provenance, {{folder}} || '/' || name AS path
        FROM indexed""",
    "findings": f"""
        SELECT {_OF_RUN}, one.* REPLACE (one.about::JSON AS about) FROM (
            SELECT run, experiment, node, {_time("start")}, unnest(findings) AS one FROM indexed)
        """,
    "levels": f"""
        SELECT {_OF_RUN}, cpu, setting, value, unit FROM (
            SELECT {_OF_RUN}, one.setting, one.unit, unnest(one.cpu) AS cpu,
                unnest(one.value) AS value
            FROM (SELECT run, experiment, node, {_time("start")}, unnest(levels) AS one
                FROM indexed))
        WHERE cpu BETWEEN -1 AND 65535 AND value > 0 AND isfinite(value)""",
}


def query(sql: str, timeout_s: float = TIMEOUT_S, *, folder: Path | None = None) -> pd.DataFrame:
    """Run SQL over all saved runs.

    The tables are ``runs``, ``findings``, ``levels``, ``samples`` (of all runs), and the samples of
    each experiment under its name; docs/store.md lists their columns. What is in no table is out of
    reach: a query reads no other file, and writes none.

    Parameters
    ----------
    sql
        One SELECT, as DuckDB has it.
    timeout_s
        How long it may take, in seconds.
    folder
        Of the runs' files; those of the store by default.

    Returns
    -------
    Its rows. Times are in UTC; JSON is text.

    Raises
    ------
    UserError
        There is no run, or the query fails or takes longer: says why, and which tables and columns
        there are.

    Examples
    --------
    >>> query("SELECT node, count(*) FROM findings WHERE kind = 'anomaly' "
    ...       "AND verdict = 'supported' GROUP BY ALL")  # doctest: +SKIP
    """
    _check_statement(sql)
    if not 0 < timeout_s <= threading.TIMEOUT_MAX:
        msg = f"timeout: {timeout_s:g} s: a query takes a positive number of seconds, such as 60"
        raise UserError(msg)

    def answer(index: Indexed) -> pd.DataFrame:
        import duckdb

        try:
            with _interrupted_after(timeout_s, index.connection):
                return _answer(index, sql)
        except duckdb.InterruptException:
            msg = f"the query did not end within {timeout_s:g} s: ask for less, or give it longer "
            raise UserError(msg + "(--timeout, timeout_s)") from None

    return ask(folder or config.runs_dir().value, answer)


@contextlib.contextmanager
def _interrupted_after(limit_s: float, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    ended = threading.Event()

    def interrupt() -> None:
        wait_s = limit_s
        while not ended.wait(wait_s):  # one that comes between two statements is lost
            connection.interrupt()
            wait_s = _AGAIN_S

    watching = threading.Thread(target=interrupt, daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()  # the next statement is not interrupted


def tables() -> dict[str, list[str]]:
    """The tables that a query may name, each with its columns.

    Raises
    ------
    UserError
        There is no run, or samples cannot be read.
    """
    return ask(config.runs_dir().value, _described)


def _described(index: Indexed) -> dict[str, list[str]]:
    import duckdb

    _check_runs(index)
    found = {}
    for name, experiment in _tables(index).items():
        try:
            _make_view(index, name, experiment)
            found[name] = _columns(index.connection, name)
        except duckdb.Error as error:
            raise _failed(error) from error
    return found


def _check_runs(index: Indexed) -> None:
    if len(index.damaged) == len(index.paths):
        msg = f"no runs are saved in {config.runs_dir().value}"
        raise UserError(msg)


def _failed(error: Exception, more: str = "") -> UserError:
    lines = [line for line in str(error).splitlines() if line]
    hints = [line for line in lines[1:] if line.startswith("Candidate")]
    message = " ".join([lines[0], *hints[:1]]) if lines else type(error).__name__
    return UserError(f"the query fails: {message}{more}")


def _check_statement(sql: str) -> None:
    import duckdb

    try:
        with duckdb.connect() as connection:
            kinds = [one.type for one in connection.extract_statements(sql)]
    except duckdb.Error as error:
        raise _failed(error) from error
    if len(kinds) != 1 or kinds[0] not in (
        duckdb.StatementType.SELECT,
        duckdb.StatementType.EXPLAIN,
    ):
        msg = "a query is one SELECT: it reads the saved runs, and changes nothing"
        raise UserError(msg)


def _answer(index: Indexed, sql: str) -> pd.DataFrame:
    import duckdb

    _check_runs(index)
    connection = index.connection
    named = set(re.findall(r"\w+", sql.lower()))
    every = _tables(index)
    used = [name for name in every if name.lower() in named]
    files: set[str] = {index.source} - {""}
    try:
        for name in used:
            files |= _make_view(index, name, every[name])
        columns = {name: _columns(connection, name) for name in used}
        _lock(connection, files)
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        raise _failed(error) from error
    try:
        return _without_bytes(connection.execute(sql).df())
    except duckdb.InterruptException:
        raise
    except duckdb.PermissionException as error:
        raise _failed(error, "; a query reads the saved runs and no other file") from error
    except duckdb.Error as error:
        raise _failed(error, _what_there_is(every, columns)) from error
    except RuntimeError as error:
        if "interrupted" not in str(error):
            raise
        raise KeyboardInterrupt from error  # what DuckDB makes of Ctrl-C


def _without_bytes(table: pd.DataFrame) -> pd.DataFrame:
    """A table whose bytes are hexadecimal digits: neither JSON nor a terminal has bytes."""
    for place, kind in enumerate(table.dtypes):
        if str(kind) == "object":
            column = table.iloc[:, place]
            texts = column.map(lambda one: one.hex() if isinstance(one, bytearray) else one)
            table.isetitem(place, texts.to_numpy(dtype=object))
    return table


def _tables(index: Indexed) -> dict[str, str]:
    """Every table by name, with the experiment whose samples it holds; ``samples`` has all."""
    rows = index.connection.execute("SELECT DISTINCT experiment FROM indexed ORDER BY 1").fetchall()
    own = (*_VIEWS, "samples")
    experiments = [one for (one,) in rows if re.fullmatch("[a-z_][a-z0-9_]*", one)]
    taken = {*own, *_INNER}
    return {**dict.fromkeys(own, ""), **{one: one for one in experiments if one not in taken}}


def _make_view(index: Indexed, name: str, experiment: str) -> set[str]:
    """Make one of the tables; returns the run files that it opens."""
    if name in _VIEWS:
        folder = quoted(config.runs_dir().value)
        index.connection.execute(f"CREATE VIEW {name} AS {_VIEWS[name].format(folder=folder)}")
        return set()
    where = f"WHERE experiment = {quoted(experiment)}" if experiment else ""
    rows = index.connection.execute(f"SELECT name FROM indexed {where} ORDER BY name").fetchall()
    paths = [index.paths[one] for (one,) in rows]
    file = f"file_{secrets.token_hex(8)}"  # no run has a column of this name
    index.connection.execute(
        f'CREATE VIEW "{name}" AS SELECT parse_filename({file}, true) AS run, * EXCLUDE {file} '
        f"FROM read_parquet([{', '.join(map(quoted, paths))}], union_by_name = true, "
        f"filename = '{file}')"
    )
    return {str(path) for path in paths}


def _columns(connection: duckdb.DuckDBPyConnection, name: str) -> list[str]:
    return [row[0] for row in connection.execute(f'DESCRIBE "{name}"').fetchall()]


def _lock(connection: duckdb.DuckDBPyConnection, files: Iterable[str]) -> None:
    """From here on nothing but these files can be opened."""
    allowed = ", ".join(map(quoted, sorted(files)))
    connection.execute(f"SET allowed_paths = [{allowed}]")
    connection.execute("SET python_enable_replacements = false")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _what_there_is(tables: Iterable[str], columns: dict[str, list[str]]) -> str:
    message = f". The tables are {', '.join(tables)}"
    for name, every in columns.items():
        more = ", ..." if len(every) > _MOST_COLUMNS else ""
        message += f"; {name} has {', '.join(every[:_MOST_COLUMNS])}{more}"
    return message
