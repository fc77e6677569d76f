"""Samples of an event, of our own runs or brought by a user, as the comparison takes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from perflib.instruments.profile.comparison import Comparison, compare_samples
from perflib.instruments.profile.costs import costs_of
from perflib.instruments.profile.views import merge_copies
from perflib.model.errors import UserError, choose
from perflib.model.finding import Finding
from perflib.model.run import Run

__all__ = [
    "as_one_arm",
    "comparisons",
    "nothing_compared",
    "profiled",
    "reference_of",
    "shares_percent",
    "unseen_percent",
]

_LEAST_ROUNDS = 3  # fewer give no verdict
_NO_TEXT = {"comm": "", "symbol": "", "object": "[unknown]", "event": "unknown"}


# --- the table -----------------------------------------------------------------------------------


def profiled(run: Run) -> pd.DataFrame:
    """A run's samples as the views take them, with the column ``arm``; copies of code as one.

    Raises
    ------
    UserError
        A core or a round is no whole number, so that a sample belongs nowhere; there are several
        events, and the parameter ``sampled_event`` names none of them.
    """
    samples = run.samples.copy()
    for name in ("round", "core"):
        samples[name] = _whole(samples[name], name) if name in samples else -1
    samples["event"] = samples.get("event", "unknown")
    if samples["event"].nunique() > 1:
        samples = _of_event(samples, run.params.get("sampled_event"))
    for name, instead in _NO_TEXT.items():
        if name in samples:
            samples[name] = _text(samples[name], instead)
    leaf = samples["symbol"]
    samples["stack"] = _text(samples["stack"], leaf) if "stack" in samples else leaf
    for name in _NO_TEXT.keys() & set(samples) | {"stack"}:
        samples[name] = samples[name].astype("category")
    if "offset" in samples:
        known = np.isfinite(samples["offset"])
        samples["offset"] = samples["offset"].where(known, -1).astype(np.int64)
    if "ip" in samples:  # as a floating number an address has lost its last digits
        whole = pd.api.types.is_integer_dtype(samples["ip"])
        samples["ip"] = samples["ip"].to_numpy().astype(np.uint64) if whole else np.uint64(0)
    samples["arm"] = "cpu" + samples["core"].astype(str)
    return merge_copies(samples)


def _of_event(samples: pd.DataFrame, event: str | None) -> pd.DataFrame:
    chosen = samples[samples["event"].astype(str) == str(event)]
    if chosen.empty:
        events = ", ".join(sorted(samples["event"].dropna().astype(str).unique()))
        msg = f"the samples are of several events: say which with sampled_event=... ({events})"
        raise UserError(msg)
    return chosen.copy()


def _text(values: pd.Series[Any], instead: str | pd.Series[str]) -> pd.Series[str]:
    return values.astype(str).where(values.notna(), instead)


def _whole(values: pd.Series[Any], name: str) -> pd.Series[int]:
    wrong = ~(np.isfinite(values) & (values % 1 == 0)).to_numpy(dtype=bool)
    if wrong.any():
        row = int(wrong.argmax())
        msg = f"the column {name!r} has no whole number in row {row + 1}, but {values.iloc[row]}"
        raise UserError(msg)
    return values.astype(np.int64)


def as_one_arm(run: Run) -> pd.DataFrame:
    """A run's samples for a comparison with another run: each core's turn is a repetition."""
    samples = profiled(run)
    turns = samples.groupby(["round", "core"]).ngroup()
    return samples.assign(arm=run.id, round=turns)


# --- cores compared ------------------------------------------------------------------------------


def reference_of(run: Run) -> int | None:
    """The core to compare with; of a run in which it was never recorded, any other."""
    plan = run.provenance.get("plan")
    if plan is None:  # a table that a user brings
        wanted: int | None = run.params.get("reference_core")
        return wanted
    reference: int = plan["reference"]
    return reference if (run.samples["core"] == reference).any() else None


def comparisons(samples: pd.DataFrame, reference: int | None) -> dict[str, Comparison]:
    """Each core against the reference core (None: the first), by its name."""
    arms = [f"cpu{core}" for core in sorted(samples["core"].unique())]
    first = arms[0] if reference is None else f"cpu{reference}"
    if first not in arms:
        raise UserError(choose("core in reference_core", first, arms))
    return {arm: compare_samples(samples, first, arm) for arm in arms if arm != first}


def unseen_percent(samples: pd.DataFrame, plan: Mapping[str, Any]) -> float:
    """How precise a run is by now: the largest excess that no comparison could have seen."""
    cores = plan["cores"]
    if samples.empty or samples["core"].nunique() < len(cores):
        return math.inf
    table = profiled(Run("unfinished", "event_profile", {}, samples))
    if len(cores) == 1:
        share = float(shares_percent(table).iloc[0])
        return 1.96 * math.sqrt(share * (100 - share) / len(table))  # the error of counting
    try:
        every = comparisons(table, plan["reference"]).values()
    except UserError:  # turns have failed, and no round has both cores yet
        return math.inf
    if min(comparison.rounds for comparison in every) < _LEAST_ROUNDS:
        return math.inf
    return max(comparison.open_percent for comparison in every)


# --- one core alone ------------------------------------------------------------------------------


def shares_percent(samples: pd.DataFrame) -> pd.Series[float]:
    """Each function's share of all costs in percent, the largest first."""
    costs = costs_of(samples).groupby("function")["cost"].sum().sort_values(ascending=False)
    return 100 * costs / costs.sum()


def nothing_compared(samples: pd.DataFrame) -> Finding:
    """What is to be said of one core's profile: what costs most."""
    most = [f"{function} {share:.1f} %" for function, share in shares_percent(samples)[:3].items()]
    return Finding(
        "on some core a function takes more, or less, than the slowdown common to all other "
        "functions explains",
        "standing out",
        "inconclusive",
        math.nan,
        math.nan,
        math.nan,
        unit="percent of the event time",
        reason=f"The samples are of one core: nothing is compared. Most cost {', '.join(most)}.",
    )
