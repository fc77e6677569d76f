"""What all tables of samples need: the usable rows, and when the rounds began."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.model.errors import UserError


def usable(samples: pd.DataFrame) -> pd.DataFrame:
    """The rows whose ``ok`` is not false.

    Raises
    ------
    UserError
        There are none.
    """
    if "ok" in samples:
        samples = samples[samples["ok"].fillna(value=True).astype(bool)]
    if samples.empty:
        msg = "no sample is usable: in every row 'ok' is false (its conditions failed)"
        raise UserError(msg)
    return samples


def round_starts(
    samples: pd.DataFrame, rounds: pd.Index[Any] | NDArray[Any]
) -> NDArray[np.float64] | None:
    """When each round began, in s; ``None`` unless it is known of all, and ascending."""
    if "start_ns" not in samples or len(rounds) < 2:
        return None
    starts = samples.groupby("round")["start_ns"].min().reindex(rounds).to_numpy(np.float64)
    starts = (starts - starts[0]) / 1e9
    return starts if np.isfinite(starts).all() and (np.diff(starts) > 0).all() else None


def mean_of_known(values: NDArray[np.float64], axis: int = 1) -> NDArray[np.float64]:
    """The mean along an axis of what is there; NaN where nothing is.

    >>> mean_of_known(np.array([[1.0, np.nan], [np.nan, np.nan]])).tolist()
    [1.0, nan]
    """
    there = np.isfinite(values)
    count = there.sum(axis=axis)
    total = np.where(there, values, 0.0).sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def labelled(frame: pd.DataFrame, **labels: Any) -> pd.DataFrame:
    """A table with these columns before its own: of one value, or of one for each row."""
    return frame.assign(**labels)[[*labels, *frame]]


def in_order(found: Iterable[str], known: Sequence[str]) -> list[str]:
    """Names in the order in which they are known; others, of a user's table, after them."""
    names = set(found)
    return [name for name in known if name in names] + sorted(names - set(known))
