"""What ``counters`` can claim of each way to count, with each number of jobs."""

from __future__ import annotations

from perflib.experiments.counters.modes import KERNEL, ONE_SET, ROTATED, SAMPLED
from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)

_WAYS = {
    ONE_SET: "counting one set at a time",
    ROTATED: "multiplexing by perflib",
    KERNEL: "multiplexing by the kernel",
    SAMPLED: "sampling by perf",
}


def words(mode: str, jobs: int) -> dict[str, str]:
    """How the sentences name a way of counting and the load."""
    return {
        "way": _WAYS.get(mode, f"mode {mode!r}"),
        "load": "one job" if jobs == 1 else f"{jobs} jobs at once",
    }


MISCOUNTS = _CLAIMS["miscounts"]
COSTS = _CLAIMS["costs"]
MISSES = _CLAIMS["misses"]
