"""What the kinds of files have in common: events, weights, names."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perflib.instruments.profile.costs import unit_of
from perflib.instruments.profile.views import select


def default_event(samples: pd.DataFrame) -> str | None:
    """The first sample's event: what is folded where several were recorded and none is named."""
    return (samples["event"].iloc[0] or None) if len(samples) else None


def of_one_event(samples: pd.DataFrame, event: str | None) -> pd.DataFrame:
    """The samples of the event that is named, else of the first sample's."""
    event = default_event(samples) if event is None else event
    return samples if event is None else select(samples, event=event)


def by_event(samples: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The samples of each event, in the order of their first samples; ``""``: it has no name."""
    names = samples["event"].unique().tolist()
    return {str(name): samples[(samples["event"] == name).to_numpy()] for name in names}


def weights(samples: pd.DataFrame) -> npt.NDArray[np.int64]:
    """A sample stands for its period, or for one where the text has no periods."""
    period = samples["period"].to_numpy()
    return np.where(period < 0, 1, period)


def unit(samples: pd.DataFrame) -> str:
    """Of the weights of one event's samples: ``nanoseconds`` of a clock, else ``count``."""
    return "nanoseconds" if len(samples) and unit_of(samples) == "ns" else "count"


def thread_name(comm: Any, pid: int, tid: int) -> str:
    """A thread as a person finds it: ``kv 12/14``, ``kv 14`` where the process is not known."""
    return f"{comm} {tid}" if pid < 0 else f"{comm} {pid}/{tid}"
