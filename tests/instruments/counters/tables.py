"""Tables of counts made by hand, as groups of counters and monitors make them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd


def counts(values: Mapping[str, float], error: float = 0.0) -> pd.DataFrame:
    """Rows of one set: each event's count, and its uncertainty as a part of the count."""
    return pd.DataFrame(
        {
            "event": list(values),
            "set": "mine",
            "scaled": list(values.values()),
            "scaled_error": [error * value for value in values.values()],
            "status": "scaled" if error else "counted",
        }
    )


def series_row(tick: int, set_: str, event: str, value: float) -> dict[str, Any]:
    """A count of a slice of 10 ms, in which its set was on and the program ran."""
    return {
        "time_ns": tick, "elapsed_ns": 1e7, "set": set_, "event": event, "value": value,
        "enabled_ns": 1e7, "running_ns": 1e7, "scaled": value, "scaled_error": 0.0,
        "clock_ns": 1e7, "missed": 0.0, "status": "counted",
    }  # fmt: skip
