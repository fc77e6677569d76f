"""SQL over all saved runs, by DuckDB, without a server: it reads the store, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from perflib.model import config
from perflib.model.errors import UserError
from perflib.model.index import Indexed, ask
from perflib.model.reading import quoted

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

__all__ = ["query", "tables"]

_MOST_COLUMNS = 40  # of a table, in a sentence
_INNER = ("fresh", "here", "indexed", "kept", "said")  # what the index is made of
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


def query(sql: str) -> pd.DataFrame:
    """Run SQL over all saved runs.

    The tables are ``runs``, ``findings``, ``levels``, ``samples`` (of all runs), and the samples of
    each experiment under its name; docs/store.md lists their columns. What is in no table is out of
    reach: a query reads no other file, and writes none.

    Parameters
    ----------
    sql
        One SELECT, as DuckDB has it.

    Returns
    -------
    Its rows. Times are in UTC; JSON is text.

    Raises
    ------
    UserError
        There is no run, or the query fails: says why, and which tables and columns there are.

    Examples
    --------
    >>> query("SELECT node, count(*) FROM findings WHERE kind = 'anomaly' "
    ...       "AND verdict = 'supported' GROUP BY ALL")  # doctest: +SKIP
    """
    _check_statement(sql)
    return ask(config.runs_dir().value, lambda index: _answer(index, sql))


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
    said = " ".join([lines[0], *hints[:1]]) if lines else type(error).__name__
    return UserError(f"the query fails: {said}{more}")


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
    except duckdb.Error as error:
        raise _failed(error) from error
    try:
        return connection.execute(sql).df()
    except duckdb.PermissionException as error:
        raise _failed(error, "; a query reads the saved runs and no other file") from error
    except duckdb.Error as error:
        raise _failed(error, _what_there_is(every, columns)) from error
    except RuntimeError as error:
        if "interrupted" not in str(error):
            raise
        raise KeyboardInterrupt from error  # what DuckDB makes of Ctrl-C


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
    index.connection.execute(
        f'CREATE VIEW "{name}" AS SELECT parse_filename(filename, true) AS run, * EXCLUDE filename '
        f"FROM read_parquet([{', '.join(map(quoted, paths))}], union_by_name = true, "
        "filename = true)"
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
    said = f". The tables are {', '.join(tables)}"
    for name, every in columns.items():
        more = ", ..." if len(every) > _MOST_COLUMNS else ""
        said += f"; {name} has {', '.join(every[:_MOST_COLUMNS])}{more}"
    return said
