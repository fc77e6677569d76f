"""Tables of what a recording of threads says: a column is a title and what it shows of a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from perflib.lab.tables import Table, styles
from perflib.lab.threads.page import duration, shown


class Column(NamedTuple):
    """A column: ``kind`` is the style class of its cells, ``number``, ``path`` or none."""

    title: str
    cell: Callable[[Mapping[Any, Any]], str]
    kind: str = "number"


def name(title: str, key: str) -> Column:
    """A name; one that is not known is a question mark."""
    return Column(title, lambda row: shown(row[key] or "?"), "")


def count(title: str, key: str) -> Column:
    """A number of things."""
    return Column(title, lambda row: f"{row[key]:,}")


def time(title: str, key: str, unit_ns: float = 1.0) -> Column:
    """A time, with the unit that fits it."""
    return Column(title, lambda row: duration(unit_ns * row[key]))


def percent(title: str, key: str) -> Column:
    """A share in percent."""
    return Column(title, lambda row: f"{row[key]:.1f} %")


def path(title: str, key: str, most: int = 40) -> Column:
    """A folded stack, innermost first, of so many frames at the most."""

    def cell(row: Mapping[Any, Any]) -> str:
        frames = [shown(frame) for frame in row[key].split(";")[::-1] if frame]
        more = ["…"] if len(frames) > most else []
        return " ← ".join(frames[:most] + more) or "(not known)"

    return Column(title, cell, "path")


def cells(table: pd.DataFrame, columns: Sequence[Column]) -> list[list[str]]:
    """The texts of each row."""
    return [[column.cell(row) for column in columns] for row in table.to_dict("records")]


def html(table: pd.DataFrame, columns: Sequence[Column]) -> str:
    """The table, to be read."""
    kinds = styles([[column.kind for column in columns]] * len(table))
    return Table([column.title for column in columns], cells(table, columns), kinds).html()
