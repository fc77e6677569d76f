"""Samples of an event that was cut into slices: which were taken while their core was alone.

A busy sibling thread costs some functions more than others. So a core that has one more often has
another profile, and nothing is wrong with it. Where our own simulation is profiled, it runs in
slices between two probes, and the samples outside slices in which the core was alone are left out.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.framework.brackets import BRACKET_COLUMNS, bracket_columns, classify
from perflib.measure.schedule import Columns

SLICE_COLUMNS = ("slice", "slice_start_ns", *(column.name for column in BRACKET_COLUMNS))
# What is used here; a machine may have no value for the others, and no column then.
_USED = {"slice", "cpu_time_ns", "period", "cpu", "round", "core"}
_TRIAL = ["round", "core"]
_MIN_SAMPLES, _MIN_TRIALS = 50, 4  # alone, in a trial that counts; trials of each core
_FAR = 0.1  # log ratio of a slice to the same slice's usual time: an interrupt, at most


def slices_of_samples(time_ns: NDArray[np.int64], slices: Any) -> Columns:
    """For each sample what is known of the slice that it was taken in; ``None`` between slices.

    ``time_ns``: when the samples were taken. ``slices``: the kernel's records, in their order.
    """
    taken = slices["sample"]
    columns: Columns = {
        "slice": slices["slice"].tolist(),
        "slice_start_ns": taken["start_ns"].tolist(),
        **bracket_columns(taken),
    }
    place = np.searchsorted(taken["start_ns"], time_ns, side="right") - 1
    inside = np.zeros(len(time_ns), dtype=np.bool_)
    if len(slices):
        ends = taken["start_ns"] + taken["time_ns"]
        inside = (place >= 0) & (time_ns < ends[place])
    return {
        name: [values[at] if there else None for at, there in zip(place, inside, strict=True)]
        for name, values in columns.items()
    }


def alone(samples: pd.DataFrame) -> tuple[pd.DataFrame, float]:
    """The samples to compare, and how many of them were taken while their core was alone.

    Parameters
    ----------
    samples
        Of one event, with ``round``, ``core``, ``cpu``, ``period`` and the columns of slices.

    Returns
    -------
    The samples, and a percentage of those within slices. Where probes show it and each core has
    enough of them, only samples taken alone; each trial's periods are scaled to add up to the CPU
    time that its event takes when the core is alone. Where a core has too few, all within slices,
    and 0; where no state can be classified, NaN. A table without slices is returned as it is.
    """
    if not set(samples) >= _USED:
        return samples, math.nan
    within = samples[samples["slice"].notna()]
    core_states = classify(within) if len(within) else None
    if core_states is None:
        return samples, math.nan
    if {one.status for one in core_states.calibrations.values()} == {"no second state"}:
        return within, 100.0  # there was no sibling at work in the whole run
    if not core_states.any_calibrated:
        return within, math.nan
    here = pd.Series(core_states.alone, within.index)
    count = here.groupby([within[name] for name in _TRIAL]).transform("sum")
    here &= count >= _MIN_SAMPLES
    trials = within[here].groupby("core")["round"].nunique()
    if not set(trials[trials >= _MIN_TRIALS].index) >= set(samples["core"]):
        return within, 0.0
    return _scaled(within, here), 100 * float(here.mean())


def _scaled(within: pd.DataFrame, here: pd.Series[bool]) -> pd.DataFrame:
    """The samples that are ``here``; their periods add up to what the whole event takes alone."""
    within = within.assign(log_time=np.log(within["cpu_time_ns"].to_numpy(np.float64)))
    usual = within[here].groupby("slice")["log_time"].median()
    within["away"] = within["log_time"] - within["slice"].map(usual)
    within["longer"] = np.exp(within["away"])
    trials = within.groupby(_TRIAL)
    # How long all slices took compared with their usual times, and how long they take alone.
    event = float((trials["period"].sum() / trials["longer"].mean()).median())
    kept = within[here].assign(away=within["away"].clip(-_FAR, _FAR))
    alone_trials = kept.groupby(_TRIAL)
    speed = np.exp(alone_trials["away"].transform("mean"))
    scale = event * speed / alone_trials["period"].transform("sum")
    return kept.assign(period=kept["period"] * scale).drop(columns=["log_time", "away", "longer"])
