"""What a table of samples must be before anything is analysed: one schema an experiment.

A schema is an experiment's ``columns``. Every table goes through ``checked`` on its way into an
analysis, whether it was just measured, saved, recorded elsewhere or written by a user, so that an
analysis meets finite numbers within bounds, whole numbers where it counts, and texts that it knows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from perflib.model.errors import UserError, choose
from perflib.stats.decide import Reason

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

__all__ = ["Column", "check_cells", "checked", "too_few_values"]

Type = Literal["integer", "number", "text", "boolean", "json"]
Role = Literal["key", "measured", "other"]

_COUNT = 2**31 - 1  # of rounds, cores, threads, calls of a slice: whatever is no time and no size
# By unit: what no measurement of it reaches, and all arithmetic on it survives in doubles.
_MOST = {
    "": 10**15,
    "ns": 10**18,  # 30 years
    "s": 10**9,
    "B": 2**50,
    "MHz": 10**6,
    "cycles": 10**15,
    "events": 10**18,
    "GB/s": 10**6,
    "percent": 10**6,
}
_LEAST_MEASURED = 1e-6  # ns, s, cycles: what is less is no measurement, and ratios overflow
_SHOWN = 80  # characters of a value in a sentence
# An analysis makes arrays of all rounds by all configurations, NaN where there is no sample.
# Of those a complete table has one a row; below the first number nobody minds.
_CELLS_ALWAYS = 100_000
_CELLS_A_ROW = 200
_CONFIGURATIONS_ALWAYS = 1000  # of more, most must come in more than one round
_FEWEST_VALUES = 5  # different ones of what was measured
_ENOUGH_ROWS = 20  # to expect so many


@dataclass(frozen=True)
class Column:
    """One column of an experiment's samples.

    Parameters
    ----------
    name, type, unit, help
        What it holds. Numbers are finite; one that is not known is missing.
    required
        ``analyse`` needs it, with a value in every row that is used.
    role
        ``key``: it says what a row is a sample of (its round, core, size), and samples are grouped
        by it. ``measured``: verdicts rest on it, and where it hardly varies, there are none.
    least, most
        Bounds of numbers; else those that the unit and the role suggest.
    values
        All that a text may be; without them any text.
    holds
        What a text in JSON is, as a type for pydantic.
    """

    name: str
    type: Type
    unit: str
    help: str
    required: bool = False
    role: Role = "other"
    least: float | None = None
    most: float | None = None
    values: tuple[str, ...] = ()
    holds: Any = None

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest number that it may hold."""
        least = self.least
        if least is None:
            least = _LEAST_MEASURED if self.role == "measured" else 0
        if self.most is not None:
            return least, self.most
        return least, _COUNT if self.role == "key" and not self.unit else _MOST[self.unit]

    def documentation(self) -> dict[str, Any]:
        """The declaration as JSON can hold it, for the reference."""
        names = ("name", "type", "unit", "help", "required", "role")
        found = {name: getattr(self, name) for name in names}
        if self.type in ("integer", "number"):
            found["least"], found["most"] = self.bounds
        if self.values:
            found["values"] = list(self.values)
        return found


def checked(
    samples: pd.DataFrame, columns: Sequence[Column], who: str, renamed: Mapping[str, str]
) -> pd.DataFrame:
    """The samples under today's names, whole numbers as integers, if they fit the schema.

    A row whose ``ok`` is false is not used, and may hold anything.

    Raises
    ------
    UserError
        There are no rows, a column is missing, or a value is not what its column holds: names
        the column, the row (from 1) and the value.
    """
    samples = samples.rename(columns=renamed)
    if samples.empty and len(samples.columns):
        msg = "the samples have no rows"
        raise UserError(msg)
    _check_names(samples, columns, who)
    used = _used(samples)
    for column in columns:
        if column.name not in samples:
            continue
        values = samples[column.name]
        if values.isna().all() and not column.required:  # known of no sample: as good as absent
            samples = samples.drop(columns=column.name)
        elif (fitting := _values(values, column, used)) is not values:
            samples = samples.assign(**{column.name: fitting})
    _check_size(samples[used], columns)
    return samples


def too_few_values(samples: pd.DataFrame, columns: Sequence[Column]) -> Reason | None:
    """Why samples are no evidence, if a measured column hardly varies.

    A clock stood still, or is too coarse for what it timed.
    """
    samples = samples[_used(samples)]
    if len(samples) < _ENOUGH_ROWS:
        return None
    for column in columns:
        if column.role == "measured" and column.name in samples:
            count = samples[column.name].nunique()
            if 0 < count < _FEWEST_VALUES:
                return Reason("few_values", {"column": column.name, "values": count})
    return None


def _used(samples: pd.DataFrame) -> NDArray[np.bool_]:
    import numpy as np

    if "ok" not in samples:
        return np.ones(len(samples), dtype=np.bool_)
    try:
        used: NDArray[np.bool_] = samples["ok"].fillna(value=True).astype(bool).to_numpy()
    except (TypeError, ValueError):  # it is told below
        return np.ones(len(samples), dtype=np.bool_)
    return used


def _check_names(samples: pd.DataFrame, columns: Sequence[Column], who: str) -> None:
    names = [str(name) for name in samples]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        msg = f"the samples have the column {min(twice)!r} twice"
        raise UserError(msg)
    needed = [column.name for column in columns if column.required]
    missing = next((name for name in needed if name not in samples), None)
    if missing is not None:
        msg = (
            f"the samples lack a column: {choose('column', missing, names)}; {who} needs "
            f"{', '.join(needed)} ('perflib list')"
        )
        raise UserError(msg)


def _values(values: pd.Series[Any], column: Column, used: NDArray[np.bool_]) -> pd.Series[Any]:
    """A column's values, by its type; the same object where nothing had to change."""
    missing = values.isna().to_numpy()
    needed = column.required or column.role == "key"
    if needed and (absent := missing & used).any():
        msg = f"the column {column.name!r} has no value in {_row(absent)}"
        raise UserError(msg)
    check = {"text": _text, "boolean": _boolean, "json": _json}.get(column.type, _numbers)
    return check(values, column, used & ~missing)


def _numbers(values: pd.Series[Any], column: Column, used: NDArray[np.bool_]) -> pd.Series[Any]:
    import numpy as np
    from pandas.api.types import is_bool_dtype, is_complex_dtype, is_integer_dtype, is_numeric_dtype

    whole = column.type == "integer" and column.unit in ("", "B")  # a table may have parts of a ns
    if not is_numeric_dtype(values) or is_complex_dtype(values):
        msg = f"the column {column.name!r} holds no numbers, but {_first(values, used)}"
        raise UserError(msg)
    numbers = values.to_numpy(np.float64, na_value=np.nan)
    low, high = column.bounds
    if not is_integer_dtype(values) and not is_bool_dtype(values):
        _refuse(values, column, used & ~np.isfinite(numbers), "which is not finite")
        if whole:
            broken = used & (numbers != np.floor(numbers))
            _refuse(values, column, broken, "and it takes whole numbers")
    outside = used & ((numbers < low) | (numbers > high))
    _refuse(values, column, outside, f"and it takes {_number(low)} to {_number(high)}")
    if column.unit and low >= -1 and not whole:  # -1: not known; others are differences
        tiny = used & (numbers > 0) & (numbers < _LEAST_MEASURED)
        _refuse(values, column, tiny, "which is too small to be measured")
    if whole and not is_integer_dtype(values) and np.isfinite(numbers).all():
        inside = np.clip(numbers, -(2.0**62), 2.0**62)  # those of rows that are not used
        return values.__class__(inside.astype(np.int64), index=values.index, name=values.name)
    return values


def _boolean(values: pd.Series[Any], column: Column, used: NDArray[np.bool_]) -> pd.Series[Any]:
    wrong = used & ~values.isin([True, False]).to_numpy()
    _refuse(values, column, wrong, "and it takes true or false")
    return values


def _text(values: pd.Series[Any], column: Column, used: NDArray[np.bool_]) -> pd.Series[Any]:
    import numpy as np
    import pandas as pd
    from pandas.api.types import infer_dtype, is_bool_dtype, is_numeric_dtype, is_string_dtype

    if isinstance(values.dtype, pd.CategoricalDtype):  # arithmetic on texts knows none
        values = values.astype(object)
    if is_numeric_dtype(values) and not is_bool_dtype(values):  # as CSV files have such names
        values = values.map(str, na_action="ignore")
    if not is_string_dtype(values) or infer_dtype(values, skipna=True) != "string":
        is_text = np.array([isinstance(value, str) for value in values], dtype=np.bool_)
        _refuse(values, column, used & ~is_text, "and it takes texts")
    if column.values:
        unknown = used & ~values.isin(column.values).to_numpy()
        if unknown.any():
            value = str(values[unknown].iloc[0])[:_SHOWN]
            msg = f"in {_row(unknown)}: {choose(column.name, value, column.values)}"
            raise UserError(msg)
    return values


def _json(values: pd.Series[Any], column: Column, used: NDArray[np.bool_]) -> pd.Series[Any]:
    from pydantic import TypeAdapter, ValidationError

    _text(values, column, used)
    adapter = TypeAdapter(column.holds)
    for row in used.nonzero()[0]:
        try:
            adapter.validate_json(values.iloc[row])
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            why = f"{where} {first['msg']}".strip()
            msg = f"the column {column.name!r} is not what it takes in row {row + 1}: {why}"
            raise UserError(msg) from error
    return values


def _refuse(values: pd.Series[Any], column: Column, wrong: NDArray[np.bool_], why: str) -> None:
    if wrong.any():
        unit = f" {column.unit}" if column.unit else ""
        shown = f"{_first(values, wrong)}{unit} in {_row(wrong)}"
        msg = f"the column {column.name!r} holds {shown}, {why}"
        raise UserError(msg)


def check_cells(axes: Mapping[str, int], rows: int) -> None:
    """Refuse to make an array far larger than what would fill it.

    Parameters
    ----------
    axes
        How long each axis would be, by the plural of what it holds.
    rows
        How many samples there are for it.

    Raises
    ------
    UserError
        Says how many cells there would be: a column is no key, but numbers its rows.
    """
    cells = math.prod(axes.values())
    if cells > max(_CELLS_ALWAYS, _CELLS_A_ROW * rows):
        sizes = " by ".join(f"{size} {name}" for name, size in axes.items())
        msg = f"{sizes} are {cells:.3g} cells, and only {rows} samples fill them: does a column "
        msg += "of these number its rows?"
        raise UserError(msg)


def _check_size(samples: pd.DataFrame, columns: Sequence[Column]) -> None:
    """An analysis compares all rounds with all configurations: is that a sane number?"""
    keys = [column.name for column in columns if column.role == "key" and column.name in samples]
    if "round" not in keys:
        return
    # A trial goes on, repeat by repeat, where others take its core: few rounds may have many.
    others = [key for key in keys if key not in ("round", "repeat")]
    configurations = samples.groupby(others).ngroups if others else 1
    rounds = samples["round"].nunique()
    check_cells({"rounds": rounds, "configurations": configurations}, len(samples))
    # A plan may visit everything once and then little again, but a column that numbers its rows
    # brings new configurations in every round.
    first = samples["round"] == samples["round"].min()
    new = configurations - (samples[first].groupby(others).ngroups if others else 1)
    if configurations > _CONFIGURATIONS_ALWAYS and new > (~first).sum() / 2:
        msg = (
            f"{len(samples)} samples are of {configurations} configurations "
            f"({', '.join(others)}): hardly any was measured twice, does one of these columns "
            "number its rows?"
        )
        raise UserError(msg)


def _row(wrong: NDArray[np.bool_]) -> str:
    return f"row {int(wrong.argmax()) + 1}"


def _first(values: pd.Series[Any], where: NDArray[np.bool_]) -> str:
    value = values[where].iloc[0]
    shown = repr(value.item() if hasattr(value, "item") else value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."


def _number(value: float) -> str:
    return f"{value:g}"
