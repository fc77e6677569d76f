"""Tables that no measurement makes, from each experiment's columns and its golden run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perflib import experiments
from perflib.framework.brackets import BRACKET_COLUMNS
from perflib.framework.schema import Column
from perflib.model.run import Run
from perflib.store.run_files import load

RUNS = Path(__file__).parent / "data" / "runs"
_ROUNDS = 12  # of a golden run: an attack needs no narrow interval

Table = pd.DataFrame
Columns = tuple[Column, ...]
Random = np.random.Generator
Tables = Iterator[tuple[str, Table]]  # what is wrong with each
Hostile = Callable[[Table, Columns, Random], Tables]


@functools.cache
def golden(name: str) -> Run:
    """The first rounds of an experiment's golden run, with today's names and probes."""
    experiment = experiments.get(name)
    run = experiment.current(load(RUNS / f"{name}.parquet"))
    samples = run.samples
    if "round" in samples:
        samples = samples[samples["round"].isin(sorted(samples["round"].unique())[:_ROUNDS])]
    samples = samples.reset_index(drop=True)
    generator = np.random.default_rng(1)
    declared = {column.name for column in experiment.columns}
    for column in BRACKET_COLUMNS:  # golden runs are older than probes
        if column.name in declared and column.name not in samples:
            samples[column.name] = _probe(column.name, samples, generator)
    return Run(run.id, name, run.params, samples, run.provenance)


def _probe(name: str, samples: Table, generator: np.random.Generator) -> Any:
    if "probe" in name or "chain" in name:
        return 1000 * generator.lognormal(0, 0.003, len(samples))
    if name == "cpu_time_ns" and "time_ns" in samples:
        return samples["time_ns"]
    return 0.0


def _numbers(columns: tuple[Column, ...], table: Table) -> Iterator[Column]:
    for column in columns:
        if column.type in ("integer", "number") and column.name in table:
            yield column


def _changed(table: Table, name: str, value: object, row: int | None = None) -> Table:
    values = table[name].astype(object)
    values.iloc[slice(None) if row is None else row] = value
    return table.assign(**{name: values.infer_objects()})


def infinite(table: Table, columns: Columns, generator: Random) -> Tables:
    """One infinite value in each numeric column."""
    for column in _numbers(columns, table):
        row = int(generator.integers(len(table)))
        yield (
            column.name,
            _changed(table, column.name, float(generator.choice([np.inf, -np.inf])), row),
        )


def missing(table: Table, columns: Columns, generator: Random) -> Tables:
    """A value missing, every other one, and all, in each column."""
    for column in columns:
        if column.name not in table:
            continue
        row = int(generator.integers(len(table)))
        yield f"{column.name}, one", _changed(table, column.name, None, row)
        half = table[column.name].astype(object).where(generator.random(len(table)) < 0.5)
        yield f"{column.name}, half", table.assign(**{column.name: half.infer_objects()})
        yield f"{column.name}, all", _changed(table, column.name, None)


def broken(table: Table, columns: Columns, generator: Random) -> Tables:
    """Fractions where whole numbers are, and numbers beyond 64 bits."""
    for column in _numbers(columns, table):
        row = int(generator.integers(len(table)))
        yield f"{column.name}, a half", _changed(table, column.name, 0.5, row)
        yield f"{column.name}, halves", table.assign(**{column.name: table[column.name] + 0.5})
        yield f"{column.name}, beyond", _changed(table, column.name, 2.0**70, row)
        yield f"{column.name}, object", _changed(table, column.name, 2**70, row)
        yield f"{column.name}, negative", _changed(table, column.name, -7, row)


def random_keys(table: Table, columns: Columns, generator: Random) -> Tables:
    """Random whole numbers in place of each key, and of all."""
    keys = [column for column in _numbers(columns, table) if column.role == "key"]
    everything = table
    for column in keys:
        least, most = (int(min(max(bound, -(2**31)), 2**31)) for bound in column.bounds)
        values = generator.integers(least, most, len(table))
        everything = everything.assign(**{column.name: values})
        yield column.name, table.assign(**{column.name: values})
        yield f"{column.name}, small", table.assign(**{column.name: values % 5})
    yield "all", everything


def extreme(table: Table, columns: Columns, generator: Random) -> Tables:
    """The largest and the smallest that a column may hold, and what doubles may, in one or all."""
    for column in _numbers(columns, table):
        row = int(generator.integers(len(table)))
        for value in (1e308, 5e-324, 0, 1, *column.bounds):
            yield f"{column.name}, {value:g}", _changed(table, column.name, value, row)
            yield f"{column.name}, all {value:g}", _changed(table, column.name, value)
        if column.role != "key":
            spread = 10 ** generator.uniform(0, np.log10(max(column.bounds[1], 10)), len(table))
            if column.type == "integer":
                spread = np.floor(spread)
            yield f"{column.name}, any order of magnitude", table.assign(**{column.name: spread})


def few(table: Table, columns: Columns, generator: Random) -> Tables:
    """One row, two, three, one round; also with tiny values."""
    rows = generator.permutation(len(table))
    yield "none", table.head(0)
    for count in (1, 2, 3, 7):
        part = table.iloc[np.sort(rows[:count])]
        yield f"{count}", part
        tiny = {
            column.name: 1e-12
            for column in columns
            if column.role == "measured" and column.type == "number" and column.name in part
        }
        yield f"{count}, tiny", part.assign(**tiny)
    if "round" in table:
        yield "one round", table[table["round"] == table["round"].min()]
    yield "first of many", table.head(20)


def shuffled(table: Table, columns: Columns, generator: Random) -> Tables:
    """Rows twice, in another order, and each column's values exchanged at random."""
    yield "twice", pd.concat([table, table], ignore_index=True)
    yield "order", table.iloc[generator.permutation(len(table))]
    for column in columns:
        if column.name in table:
            values = table[column.name].to_numpy()[generator.permutation(len(table))]
            yield column.name, table.assign(**{column.name: values})


def garbage(table: Table, columns: Columns, generator: Random) -> Tables:
    """Texts where numbers are, numbers where texts are, random texts, mixed types, odd names."""
    for column in columns:
        if column.name not in table:
            continue
        row = int(generator.integers(len(table)))
        yield f"{column.name}, text", _changed(table, column.name, "garbage", row)
        yield f"{column.name}, number", _changed(table, column.name, 17.25, row)
        yield f"{column.name}, bytes", _changed(table, column.name, b"\xff\x00", row)
        yield f"{column.name}, list", table.assign(**{column.name: pd.Series([[1]] * len(table))})
        yield f"{column.name}, time", table.assign(**{column.name: pd.Timestamp(0)})
        if column.type == "text":
            texts = [f"x{number}" for number in generator.integers(1, 10**6, len(table))]
            yield f"{column.name}, all different", table.assign(**{column.name: texts})
            yield (
                f"{column.name}, category",
                table.assign(**{column.name: table[column.name].astype("category")}),
            )
    yield (
        "columns are numbers",
        table.rename(columns={name: place for place, name in enumerate(table)}),
    )
    yield (
        "two of a name",
        pd.concat([table, table[[columns[0].name]]], axis=1) if columns[0].name in table else table,
    )
    yield "complex", _changed(table, next(_numbers(columns, table)).name, 1j)


def absent(table: Table, columns: Columns, generator: Random) -> Tables:
    """Optional columns that are not there: all, all but one, one, and so many at random."""
    optional = [column.name for column in columns if not column.required and column.name in table]
    yield "all optional", table.drop(columns=optional)
    for name in optional:
        yield f"{name}", table.drop(columns=name)
        yield f"all but {name}", table.drop(columns=[one for one in optional if one != name])
    for count in range(2, len(optional) - 1):
        some = [str(name) for name in generator.choice(optional, count, replace=False)]
        yield ", ".join(some), table.drop(columns=some)


def at_bounds(table: Table, columns: Columns, generator: Random) -> Tables:
    """All numbers at a bound of their column; some rows at one and some at the other."""
    numbers = [column for column in _numbers(columns, table) if column.role != "key"]
    measured = [column for column in numbers if column.role == "measured"]
    for what, some in (("all", numbers), ("measured", measured)):
        for place in (0, 1):
            yield (
                f"{what}, {place}",
                table.assign(**{column.name: column.bounds[place] for column in some}),
            )
    for column in numbers:
        high = generator.random(len(table)) < 0.5
        yield (
            f"{column.name}, either",
            table.assign(**{column.name: np.where(high, *column.bounds)}),
        )


def types(table: Table, columns: Columns, _generator: Random) -> Tables:
    """Each column in each type that a file or a program may give it."""
    for column in columns:
        if column.name not in table:
            continue
        values = table[column.name]
        for what, made in _typed(values):
            yield f"{column.name}, {what}", table.assign(**{column.name: made})


def _typed(values: pd.Series[Any]) -> Iterator[tuple[str, pd.Series[Any]]]:
    every = np.arange(len(values)) % 5
    for name in ("int32", "int64", "float32", "float64", "Int64", "Float64", "uint64", "bool"):
        try:
            yield name, values.astype(name)
        except (TypeError, ValueError, OverflowError):  # texts, missing values
            yield name, pd.Series(every, values.index).astype(name)
    yield "category", values.astype("category")
    yield "boolean", pd.Series(every % 2 > 0, values.index, dtype="boolean")
    yield "object", values.astype(object)
    yield "text", values.astype(str)
    for name, one in {
        "decimal": Decimal("1.5"),
        "list": [1, 2],
        "array": np.arange(3.0),
        "record": {"a": 1},
        "time": pd.Timestamp("2026-01-01"),
        "span": pd.Timedelta(1),
        "tuple": (1,),
    }.items():
        yield name, pd.Series([one for _ in every], values.index)


def still(table: Table, columns: Columns, _generator: Random) -> Tables:
    """A clock that stands still, or knows two values only."""
    measured = [
        column.name for column in columns if column.role == "measured" and column.name in table
    ]
    for value in (1, 1000):
        yield f"constant {value}", table.assign(**dict.fromkeys(measured, value))
    coarse = {name: 1000 + 1000 * (table[name] > table[name].median()) for name in measured}
    yield "two values", table.assign(**coarse)


HOSTILE: tuple[Hostile, ...] = (
    infinite, missing, broken, random_keys, extreme, few, shuffled, garbage, still, absent,
    at_bounds, types,
)  # fmt: skip


def hostile(name: str, seed: int = 1) -> Tables:
    """Every hostile table of an experiment, and what is wrong with it."""
    run = golden(name)
    columns = experiments.get(name).columns
    for kind in HOSTILE:
        generator = np.random.default_rng(seed)
        for what, table in kind(run.samples, columns, generator):
            yield f"{kind.__name__}: {what}", table
