"""Tables of samples made by hand, as perflib.instruments.perf.script makes them of perf's text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

TYPES = {
    "time_ns": "int64",
    "cpu": "int32",
    "pid": "int32",
    "tid": "int32",
    "comm": "category",
    "event": "category",
    "period": "int64",
    "ip": "uint64",
    "symbol": "category",
    "offset": "int64",
    "object": "category",
    "stack": "category",
}


def sample(stack: str, **columns: Any) -> dict[str, Any]:
    """One row: what is not given is of a job on CPU 0 with one thread and one event."""
    leaf = stack.rpartition(";")[2]
    return {
        "time_ns": 0,
        "cpu": 0,
        "pid": 100,
        "tid": 100,
        "comm": "job",
        "event": "cpu-clock",
        "period": 1_000_000,
        "ip": 0,
        "symbol": leaf,
        "offset": -1,
        "object": "/usr/bin/job",
        "stack": stack,
    } | columns


def table(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """The rows of ``sample`` as a table with the columns' types."""
    return pd.DataFrame(list(rows), columns=list(TYPES)).astype(TYPES)


def samples_of(stacks: dict[str, int], **columns: Any) -> pd.DataFrame:
    """So many samples of each stack, a millisecond apart."""
    names = [stack for stack, count in stacks.items() for _ in range(count)]
    return table(
        [sample(name, **({"time_ns": i * 1_000_000} | columns)) for i, name in enumerate(names)]
    )
