"""Time by program and library, then by function in each: the module summary of psprocess.

PerfSuite's ``psprocess`` (Kufrin 2005) prints such a table of one profile, without uncertainty.
Where the work was repeated, each share has an interval from the scatter of the repetitions.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from perflib.instruments.profile.views import leaves
from perflib.stats.intervals import wilson

Floats = NDArray[np.float64]

_MIN_TRIALS = 3  # for an interval from their scatter
_CONFIDENCE = 0.95


def modules(samples: pd.DataFrame) -> pd.DataFrame:
    """The share of samples in each object, and in each function of it.

    Parameters
    ----------
    samples
        The table that ``perfscript.read`` makes, or a part of it; where it has a ``round`` (and a
        ``configuration``), their trials are the repetitions.

    Returns
    -------
    pandas.DataFrame
        One row a function in an object, the object with most samples first, in it the function
        with most first: object, function; samples, percent (of all samples) with percent_low and
        percent_high; module_samples and module_percent with module_percent_low and
        module_percent_high of the whole object.
        95 % intervals: from the scatter between trials where there are three or more, never
        narrower than counting alone makes them (Wilson 1927).

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"stack": ["main", "main;f", "main;f"], "object": "a.out"})
    >>> modules(table.astype("category"))[["object", "function", "samples", "module_samples"]]
      object function  samples  module_samples
    0  a.out        f        2               3
    1  a.out     main        1               3
    """
    where = pd.DataFrame(
        {
            "object": samples["object"].astype(str).to_numpy(),
            "function": leaves(samples).astype(str).to_numpy(),
            "trial": _trials(samples),
        }
    )
    trials = np.asarray(where.groupby("trial").size(), np.float64)
    by_function = _shares(where, ["object", "function"], trials)
    by_module = _shares(where, ["object"], trials).rename(
        columns={
            "samples": "module_samples", "percent": "module_percent",
            "percent_low": "module_percent_low", "percent_high": "module_percent_high",
        }
    )  # fmt: skip
    made = by_function.merge(by_module, on="object")
    by = ["module_samples", "object", "samples", "function"]
    return made.sort_values(by, ascending=[False, True, False, True], ignore_index=True)


def _trials(samples: pd.DataFrame) -> NDArray[np.int64]:
    names = [name for name in ("round", "configuration") if name in samples]
    if "round" not in names:
        return np.zeros(len(samples), dtype=np.int64)
    return np.asarray(samples.groupby(names, observed=True).ngroup(), np.int64)


def _shares(where: pd.DataFrame, keys: list[str], trials: Floats) -> pd.DataFrame:
    """For each group its number of samples, and its percentage of all with an interval."""
    counts = where.groupby([*keys, "trial"]).size().unstack("trial", fill_value=0)
    of_trial = np.asarray(counts, np.float64)
    number = of_trial.sum(axis=1)
    total = trials.sum()
    share = number / total
    low, high = wilson(share, total, _CONFIDENCE)
    if len(trials) >= _MIN_TRIALS:
        # Of the ratio of two sums: what each trial has more than its part.
        away = of_trial - share[:, None] * trials
        many = len(trials) / (len(trials) - 1)
        error = np.sqrt(many * (away**2).sum(axis=1)) / total
        half = special.stdtrit(len(trials) - 1, 0.5 + _CONFIDENCE / 2) * error
        low, high = np.minimum(low, share - half), np.maximum(high, share + half)
    shares = {"percent": share, "percent_low": np.maximum(low, 0), "percent_high": high}
    made = pd.DataFrame({"samples": number.astype(np.int64)}, index=counts.index)
    return made.assign(**{name: 100 * values for name, values in shares.items()}).reset_index()


def short_names(objects: Iterable[str]) -> dict[str, str]:
    """For each object its file's own name, with the folder where two would be the same.

    >>> short_names(["/usr/lib/libm.so.6", "/a/kv", "/b/kv"])
    {'/usr/lib/libm.so.6': 'libm.so.6', '/a/kv': 'a/kv', '/b/kv': 'b/kv'}
    """
    names = list(dict.fromkeys(objects))
    last = [name.rstrip("/").rpartition("/")[2] or name for name in names]
    return {
        name: short if last.count(short) == 1 else "/".join(name.split("/")[-2:])
        for name, short in zip(names, last, strict=True)
    }
