"""What each function cost in each repetition: from samples to a table that can be compared."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.model.errors import UserError, choose

Floats = NDArray[np.float64]

CLOCKS = ("cpu-clock", "task-clock")
_COLUMNS = ("round", "configuration", "function", "cost")


def costs_of(samples: pd.DataFrame, event: str | None = None) -> pd.DataFrame:
    """What each function cost in each profile: the samples' periods added up.

    Parameters
    ----------
    samples
        The table of samples with a column ``configuration`` (what is compared: the CPU, the build)
        and, where the work was repeated, ``round`` (the repetition; its trials ran close in time).
    event
        Which event's samples to take; needed where there are several.

    Returns
    -------
    Columns ``round``, ``configuration``, ``function``, ``cost`` (in the event's unit: ns of a
    clock, cycles; in samples where a period is missing) and ``samples`` (their number), a row for
    every function in every profile, zeros included. A row stands for one sample, or ``count``.
    Functions without a name are distinguished by their file.
    """
    needed = ("configuration", "symbol", "period")
    _has_columns(samples, needed)
    if "event" in samples:
        events = sorted(str(name) for name in samples["event"].unique())
        if event is None and len(events) > 1:
            msg = f"the samples are of several events ({', '.join(events)}): say which to compare"
            raise UserError(msg)
        if event is not None:
            if event not in events:
                raise UserError(choose("event", event, events))
            samples = samples[(samples["event"] == event).to_numpy(dtype=bool)]
    if samples.empty:
        msg = "there are no samples to compare"
        raise UserError(msg)
    function = samples["symbol"].astype(str)
    if "object" in samples:
        nameless = (function == "[unknown]") & (samples["object"].astype(str) != "[unknown]")
        function = function.where(~nameless, "[unknown] in " + samples["object"].astype(str))
    known = bool((samples["period"] > 0).all())
    table = pd.DataFrame(
        {
            "round": samples.get("round", 0),
            "configuration": samples["configuration"],
            "function": function,
            "cost": samples["period"].astype(np.float64) if known else 1.0,
            "samples": samples.get("count", 1),
        }
    )
    keys = ["round", "configuration", "function"]
    sums = table.groupby(keys, observed=True)[["cost", "samples"]].sum()
    wide = sums.unstack("function", fill_value=0)
    functions = wide["cost"].columns
    # stack() takes a minute for 25,000 functions
    whole = wide.index.repeat(len(functions)).to_frame(index=False)
    whole["function"] = np.tile(functions.to_numpy(), len(wide))
    for name in ("cost", "samples"):
        whole[name] = wide[name].to_numpy().ravel()
    return whole


def of_cpu_time(rows: pd.DataFrame, start: list[str]) -> pd.Series[float]:
    """The periods, those of a start's CPU clock made to add up to its CPU time.

    ``rows``: samples with the ``cpu_s`` of their start; ``start``: the columns that identify one.
    """
    periods = rows["period"].astype(np.float64)
    if not rows["event"].isin(CLOCKS).all():  # cycles; or user code alone, a part of that time
        return periods
    sums = periods.groupby([rows[name] for name in start]).transform("sum")
    return periods * 1e9 * rows["cpu_s"] / sums


def unit_of(samples: pd.DataFrame) -> str:
    """What ``costs_of`` gives the costs of one event in: ns of a clock, the event, or samples."""
    if not (samples["period"] > 0).all():
        return "samples"
    event = str(samples["event"].iloc[0]).partition(":")[0]
    return {"unknown": "of its unit", "": "of its unit"}.get(
        event, "ns" if event in CLOCKS else event
    )


class Counts(NamedTuple):
    """Costs as ``[round, function]``, in units of one sample's cost."""

    functions: list[str]
    first: Floats
    second: Floats
    quantum: float
    dropped: int  # rounds that one configuration lacks


def counts_of(costs: pd.DataFrame, first: Hashable, second: Hashable) -> Counts:
    """The costs of two configurations, checked: rounds with both, functions that either met."""
    _has_columns(costs, _COLUMNS)
    known = list(costs["configuration"].unique())
    for configuration in (first, second):
        if configuration not in known:
            raise UserError(choose("configuration", str(configuration), map(str, known)))
    if first == second:
        msg = f"{first!r} cannot be compared with itself: name two configurations"
        raise UserError(msg)
    costs = costs[costs["configuration"].isin([first, second])]
    values = costs["cost"].to_numpy(np.float64)
    wrong = ~(np.isfinite(values) & (values >= 0)) | costs["function"].isna().to_numpy()
    if wrong.any():
        row = costs.iloc[int(wrong.argmax())]
        msg = (
            f"a cost must be a number, zero or more, of a named function: it is {row['cost']} for "
            f"{row['function']!r} in round {row['round']} of {row['configuration']!r}"
        )
        raise UserError(msg)
    twice = costs.duplicated(["round", "configuration", "function"]).to_numpy()
    if twice.any():
        row = costs.iloc[int(twice.argmax())]
        msg = (
            f"{row['function']!r} has several costs in round {row['round']} of "
            f"{row['configuration']!r}: add them up, or give each event a round of its own"
        )
        raise UserError(msg)
    quantum = _quantum(costs)
    wide = costs.assign(second=costs["configuration"] == second).pivot_table(
        index=["second", "round"], columns="function", values="cost", fill_value=0.0, observed=True
    )
    wide = wide[wide.sum(axis=1) > 0]
    of_second = wide.index.get_level_values("second").to_numpy(dtype=bool)
    sides = [wide[~of_second].droplevel("second"), wide[of_second].droplevel("second")]
    both = sides[0].index.intersection(sides[1].index)
    if both.empty:
        msg = (
            f"no round has costs of both {first!r} and {second!r}: the two profiles that are to be "
            "compared need the same number in the column 'round'"
        )
        raise UserError(msg)
    on_first, on_second = (side.loc[both].to_numpy(np.float64) / quantum for side in sides)
    met = on_first.sum(axis=0) + on_second.sum(axis=0) > 0
    return Counts(
        [str(name) for name in wide.columns[met]],
        on_first[:, met],
        on_second[:, met],
        quantum,
        int(costs["round"].nunique()) - len(both),
    )


def _has_columns(table: pd.DataFrame, needed: tuple[str, ...]) -> None:
    for name in needed:
        if name not in table:
            msg = f"the table lacks the column {name!r}; it has: {', '.join(map(str, table))}"
            raise UserError(msg)


def _quantum(costs: pd.DataFrame) -> float:
    """What one sample costs; without the number of samples, the least that any function cost."""
    total = float(costs["cost"].sum())
    if total <= 0:
        msg = "all costs are zero: there is nothing to compare"
        raise UserError(msg)
    if "samples" in costs:
        number = float(costs["samples"].sum())
        if not (math.isfinite(number) and number > 0):
            msg = f"the column 'samples' must count samples: its sum is {number}"
            raise UserError(msg)
        return total / number
    return float(costs.loc[costs["cost"] > 0, "cost"].min())
