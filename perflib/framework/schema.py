"""What a table of samples must be before anything is analysed: one schema an experiment.

A schema is an experiment's ``columns``. Every table goes through ``checked`` on its way into an
analysis, whether it was just measured, saved, recorded elsewhere or written by a user, so that an
analysis meets finite numbers within bounds, whole numbers where it counts, and texts that it knows.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import TYPE_CHECKING, Any, Literal

from perflib.model.errors import UserError, choose
from perflib.stats.decide import Reason

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

Type = Literal["integer", "number", "text", "boolean", "json"]
Role = Literal["key", "measured", "other"]

_COUNT = 2**31 - 1  # of rounds, cores, threads, calls of a slice: whatever is no time and no size
# By unit: what no measurement of it reaches, and all arithmetic on it survives in doubles.
_MAX_VALUE = {
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
_MIN_MEASURED = 1e-6  # ns, s, cycles: what is less is no measurement, and ratios overflow
_UNKNOWN = -1  # what a kernel writes of a time that it could not get
_MIN_RATIO = 1e-15  # of what has no unit
_MAX_SUM = 2.0**62  # of integers
_SHOWN = 80  # characters of a value in a sentence
# An analysis makes arrays of all rounds by all configurations, NaN where there is no sample.
# Of those a complete table has one a row; below the first number nobody minds.
_CELLS_ALWAYS = 100_000
_CELLS_A_ROW = 200
_CONFIGURATIONS_ALWAYS = 1000  # of more, most must come in more than one round
_MIN_VALUES = 5  # different ones of what was measured
_ENOUGH_ROWS = 20  # to expect so many
_TIMES = ("round", "position", "start_ns")


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
        by it. ``measured``: verdicts rest on it, and where it hardly varies, there are none, unless
        it is ``set``: a period, a recording cut into equal segments.
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
    set: bool = False

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest number that it may hold."""
        least = self.least
        if least is None:
            least = _MIN_MEASURED if self.role == "measured" or self.unit == "MHz" else 0
        if self.most is not None:
            return least, self.most
        return least, _COUNT if self.role == "key" and not self.unit else _MAX_VALUE[self.unit]

    def documentation(self) -> dict[str, Any]:
        """The declaration as JSON can hold it, for the reference."""
        names = ("name", "type", "unit", "help", "required", "role")
        found = {name: getattr(self, name) for name in names}
        if self.type in ("integer", "number"):
            found["least"], found["most"] = self.bounds
        if self.values:
            found["values"] = list(self.values)
        return found


def key(name: str, type_: Type, help_: str, unit: str = "", **bounds: Any) -> Column:
    """A column that every table must have, and that says what a row is a sample of."""
    return Column(name, type_, unit, help_, required=True, role="key", **bounds)


SAMPLED_COLUMNS = (
    Column("symbol", "text", "", "functions: where samples were taken; one row for equal ones"),
    Column("object", "text", "", "the program or library that the function is in"),
    Column("offset", "integer", "B", "where in the function; -1: unknown", least=-1, most=2**30),
    Column("stack", "text", "", "the functions from the outermost caller on, ';' between"),
    Column("event", "text", "", "what perf sampled"),
    Column("period", "number", "", "what these samples stand for: ns of a clock, cycles"),
    Column("count", "integer", "", "how many samples they are"),
)
"""What perf's samples of a start are, where it was recorded."""


def ok(why: str) -> Column:
    """The column of rows that are not used, and why they are not."""
    return Column("ok", "boolean", "", f"false: {why}; it is not used")


START = Column(
    "start_ns",
    "integer",
    "ns",
    "when it began, on one clock for the whole run; without it rounds count alike",
)


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
    categories = samples.select_dtypes("category")  # arithmetic on texts knows none
    samples = samples.astype(dict.fromkeys(categories, object))
    if samples.empty and len(samples.columns):
        msg = "the samples have no rows"
        raise UserError(msg)
    _check_names(samples, columns, who)
    used = is_used(samples)
    for column in columns:
        if column.name not in samples:
            continue
        values = samples[column.name]
        if not values.isna().all() or column.required:
            values = _values(values, column, used)
        if values.isna().all() and not column.required:  # known of no sample: as good as absent
            samples = samples.drop(columns=column.name)
        elif values is not samples[column.name]:
            samples = samples.assign(**{column.name: values})
    _check_size(samples[used], columns)
    return _in_order(samples, columns)


def _in_order(samples: pd.DataFrame, columns: Sequence[Column]) -> pd.DataFrame:
    """Rows in the order of time, columns as declared, in whatever order a file has them."""
    import numpy as np

    names = [column.name for column in columns if column.name in samples]
    keys = [column.name for column in columns if column.role == "key" and column.name in samples]
    numbers = samples[list(dict.fromkeys([*(name for name in _TIMES if name in names), *keys]))]
    by = [values.to_numpy(np.float64) for _, values in numbers.select_dtypes("number").items()]
    order = np.lexsort(by[::-1]) if by else slice(None)  # stable: what is equal stays as it is
    named = list(dict.fromkeys([*names, *samples]))
    return samples[named].iloc[order].reset_index(drop=True)


def too_few_values(samples: pd.DataFrame, columns: Sequence[Column]) -> Reason | None:
    """Why samples are no evidence, if a measured column hardly varies.

    A clock stood still, or is too coarse for what it timed.
    """
    samples = samples[is_used(samples)]
    if len(samples) < _ENOUGH_ROWS:
        return None
    for column in columns:
        if column.role == "measured" and not column.set and column.name in samples:
            count = samples[column.name].nunique()
            if 0 < count < _MIN_VALUES:
                return Reason("few_values", {"column": column.name, "values": count})
    return None


def is_used(samples: pd.DataFrame) -> NDArray[np.bool_]:
    """Of each row, whether its ``ok`` is not false."""
    import numpy as np

    if "ok" not in samples:
        return np.ones(len(samples), dtype=np.bool_)
    try:
        used: NDArray[np.bool_] = samples["ok"].fillna(value=True).astype(bool).to_numpy()
    except (TypeError, ValueError):  # reported below
        return np.ones(len(samples), dtype=np.bool_)
    return used


def _check_names(samples: pd.DataFrame, columns: Sequence[Column], who: str) -> None:
    names = [str(name) for name in samples]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        msg = f"the samples have the column {min(twice)!r} twice"
        raise UserError(msg)
    needed = [column.name for column in columns if column.required]
    if missing := [name for name in needed if name not in names]:
        foreign = set(names) - {column.name for column in columns}
        said = []
        for name in missing:
            near = difflib.get_close_matches(name, foreign, n=1)
            said.append(f"{name!r} (is it their {near[0]!r}?)" if near else repr(name))
        msg = (
            f"the samples lack the column{'s' * (len(said) > 1)} {', '.join(said)}; {who} needs "
            f"{', '.join(needed)} ('perflib list'), they have {', '.join(names) or 'none'}"
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
    from pandas.api.types import is_integer_dtype

    whole = column.type == "integer" and column.unit in ("", "B")  # a table may have parts of a ns
    values = _as_numbers(values, column, used)
    numbers = values.to_numpy(np.float64, na_value=np.nan)
    low, high = column.bounds
    if not is_integer_dtype(values):
        _refuse(values, column, used & ~np.isfinite(numbers), "which is not finite")
        if whole:
            broken = used & (numbers != np.floor(numbers))
            _refuse(values, column, broken, "and it takes whole numbers")
    outside = used & ((numbers < low) | (numbers > high))
    _refuse(values, column, outside, f"and it takes {_number(low)} to {_number(high)}")
    if low >= -1 and not whole:  # -1: not known; others are differences
        least = _MIN_MEASURED if column.unit or column.role == "measured" else _MIN_RATIO
        tiny = used & (numbers > 0) & (numbers < least)
        _refuse(values, column, tiny, "which is too small to be measured")
    if low == _UNKNOWN and column.unit == "ns" and (numbers == _UNKNOWN).any():
        return values.where(numbers != _UNKNOWN)
    is_sum = column.type == "number" or high < _MAX_SUM  # others are addresses
    if is_sum and is_integer_dtype(values) and np.nansum(np.abs(numbers)) > _MAX_SUM:
        # A sum of integers would overflow without a word.
        return values.__class__(numbers, index=values.index, name=values.name)
    if whole and not is_integer_dtype(values) and np.isfinite(numbers).all():
        inside = np.clip(numbers, -(2.0**62), 2.0**62)  # those of rows that are not used
        return values.__class__(inside.astype(np.int64), index=values.index, name=values.name)
    return values


def _as_numbers(values: pd.Series[Any], column: Column, used: NDArray[np.bool_]) -> pd.Series[Any]:
    """Integers or doubles of 64 bits: arithmetic on shorter ones overflows."""
    import numpy as np
    from pandas.api.types import is_bool_dtype, is_complex_dtype, is_integer_dtype, is_numeric_dtype

    values = values.infer_objects()
    if values.dtype == object and all(map(_is_number, values[used])):
        values = values.where(used).astype(np.float64)
    if not is_numeric_dtype(values) or is_complex_dtype(values) or is_bool_dtype(values):
        msg = f"the column {column.name!r} holds no numbers, but {_first(values, used)}"
        raise UserError(msg)
    if values.dtype in (np.int64, np.float64):
        return values
    whole = is_integer_dtype(values) and not values.isna().any()
    return values.astype(np.int64 if whole else np.float64)


def _is_number(value: Any) -> bool:
    if not isinstance(value, Number) or isinstance(value, bool | complex):
        return False
    try:
        return math.isfinite(float(value))  # type: ignore[arg-type]  # of a decimal, a fraction
    except OverflowError:
        return False


def _boolean(values: pd.Series[Any], column: Column, used: NDArray[np.bool_]) -> pd.Series[Any]:
    import numpy as np

    if values.dtype != np.bool_:
        known = [
            isinstance(value, Number | np.bool_) and value in {True, False} for value in values
        ]
        _refuse(values, column, used & ~np.array(known), "and it takes true or false")
        values = values.astype(np.bool_) if used.all() else values
    return values


def _text(values: pd.Series[Any], column: Column, used: NDArray[np.bool_]) -> pd.Series[Any]:
    import numpy as np
    from pandas.api.types import infer_dtype, is_bool_dtype, is_numeric_dtype, is_string_dtype

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
    # A trial continues, repeat by repeat, where others take its core: few rounds may have many.
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
    shown = repr(value.tolist() if hasattr(value, "tolist") else value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."


def _number(value: float) -> str:
    return f"{value:g}"
