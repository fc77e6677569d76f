"""Simulated samples are made once for all tests of a process that want the same."""

from __future__ import annotations

import functools
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ParamSpec

import pandas as pd

MOST_KEPT = 24  # tables of a simulation: the memory of a test process is limited
P = ParamSpec("P")


def made_once(simulate: Callable[P, pd.DataFrame]) -> Callable[P, pd.DataFrame]:
    """Keep the last tables of a simulation; every caller gets a copy, which it may change.

    Arguments that cannot be pickled, such as a lambda, are simulated every time.
    """
    kept: OrderedDict[bytes, pd.DataFrame] = OrderedDict()

    @functools.wraps(simulate)
    def made(*args: P.args, **kwargs: P.kwargs) -> pd.DataFrame:
        key = _key(args, kwargs)
        if key is None:
            return simulate(*args, **kwargs)
        if key not in kept:
            kept[key] = simulate(*args, **kwargs)
            if len(kept) > MOST_KEPT:
                kept.popitem(last=False)
        kept.move_to_end(key)
        return kept[key].copy()

    made.cache_clear = kept.clear  # type: ignore[attr-defined]  # conftest.py: as functools' are
    return made


def _key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes | None:
    try:
        return pickle.dumps((args, sorted(kwargs.items())))
    except (pickle.PicklingError, AttributeError):
        return None
