"""The command that asks all saved runs at once: query."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from perflib.cli.output import (
    examples,
    json_option,
    print_json,
    put,
    quiet,
    say,
    show,
    table_lines,
    verbose,
    working,
)
from perflib.cli.times import seconds
from perflib.model.errors import UserError
from perflib.model.escape import shortened, visible

if TYPE_CHECKING:
    import pandas as pd

_MISSING = ("NaT", "<NA>")
_WIDEST = 60  # characters of a cell; -v shows all


@click.command(
    epilog=examples(
        "perflib query",
        "perflib query \"SELECT plain FROM findings WHERE kind = 'anomaly'\"",
        'perflib query "SELECT cpu, median(value) FROM levels GROUP BY cpu" --csv',
    )
)
@click.argument("sql", required=False)
@click.option("--csv", "as_csv", is_flag=True, help="CSV on standard output, nothing else.")
@click.option("--analyse", is_flag=True, help="Analyse the runs that have no findings, before.")
@click.option(
    "--timeout",
    "timeout_s",
    metavar="TIME",
    default="60s",
    show_default=True,
    callback=seconds,
    help="How long the query may take.",
)
@json_option
def query(sql: str | None, as_csv: bool, analyse: bool, timeout_s: float, as_json: bool) -> None:
    """Ask all saved runs in SQL.

    SQL is one SELECT, as DuckDB has it; without it the tables are listed. A query reads the saved
    runs and nothing else, and writes nothing. With -v long texts are shown whole.
    """
    from perflib.store import run_files

    if as_csv and as_json:
        msg = "--csv and --json exclude each other: name one"
        raise UserError(msg)
    if analyse:
        _analyse()
    if sql is None:
        if not analyse:
            _list_tables(as_json)
        return
    table = run_files.query(sql, timeout_s)
    if as_json:
        print_json(_plain(table))
    elif as_csv:
        for line in run_files.csv_text(_visible(table)).splitlines():
            put(line)
    else:
        for line in _lines(_visible(table)):
            put(line)
        _count_unanalysed()


def _analyse() -> None:
    from perflib.experiments.analysing import analyse_runs

    with working("analysing"):
        failed = analyse_runs()
    for run, why in failed.items():
        say(f"without findings: run {run}: {why}")


def _count_unanalysed() -> None:
    """A remark on runs that a question about findings passes over."""
    from perflib.store import run_files

    counts = run_files.query(
        "SELECT count(*) - count(analysed) AS lacking, count(*) AS runs FROM runs"
    )
    lacking, runs = (int(counts[name][0]) for name in ("lacking", "runs"))
    if lacking:
        say(f"{lacking} of {runs} runs have no findings: 'perflib query --analyse' adds them")


def _list_tables(as_json: bool) -> None:
    from perflib.store.query import tables

    found = tables()
    if as_json:
        print_json({"tables": found})
        return
    for name, columns in found.items():
        if quiet():
            put(name)
        else:
            show(visible(", ".join(columns)), f"{name}: ", "    ")
    _count_unanalysed()


def _plain(table: pd.DataFrame) -> dict[str, Any]:
    """A table as JSON can hold it: what is not a number becomes ``None``, times become texts."""
    import json

    text = table.to_json(orient="values", date_format="iso", double_precision=15, force_ascii=True)
    return {"columns": list(map(str, table.columns)), "rows": json.loads(text)}


def _visible(table: pd.DataFrame) -> pd.DataFrame:
    """All texts as a terminal may have them; what is missing is empty."""
    import pandas as pd

    parts = {}
    for at in range(table.shape[1]):  # two columns may have one name
        column = table.iloc[:, at]
        if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
            parts[at] = column
        else:
            column = column.astype(object).where(column.notna(), None)
            parts[at] = pd.Series(
                ["" if one is None else visible(str(one)) for one in column], dtype="str"
            )
    made = pd.DataFrame(parts)
    made.columns = pd.Index([visible(str(name)) for name in table.columns])
    return made


def _lines(table: pd.DataFrame) -> list[str]:
    """A table for people: numbers with six digits, to the right; texts to the left."""
    import pandas as pd

    columns = []
    for at, name in enumerate(table.columns):
        column = table.iloc[:, at]
        numeric = pd.api.types.is_numeric_dtype(column)
        cells = [name, *(_cell(value) for value in column)]
        if not verbose():
            cells = [shortened(cell, _WIDEST) for cell in cells]
        columns.append((cells, numeric))
    return table_lines(columns)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    return "" if str(value) in _MISSING else str(value)
