"""Noise: what the gaps in a spinning core's clock say about who else used the core.

The kernel ``clock_gaps`` spins on a core and notes the steps of the clock that took too long. This
module reads its findings.

What a gap is *not*: a slow core. A core at half its frequency, or one whose sibling is busy, makes
every step longer and leaves no gap; it shows in ``step_ns``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

_LOWEST_POWER, _HIGHEST_POWER = 6, 34  # bins from 64 ns to 17 s


def gap_histogram(gaps_ns: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count gaps by length in bins that double: ``(edges_ns, counts)``.

    The edges are the same for every core and machine (64 ns, 128 ns ... 17 s), so that counts can
    be compared. Bin ``i`` holds ``edges[i] <= gap < edges[i + 1]``; the first also holds shorter
    gaps and the last longer ones, so that the counts add up to the number of gaps.

    >>> edges, counts = gap_histogram([1000, 1023, 1024])
    >>> [(int(edges[i]), int(counts[i])) for i in counts.nonzero()[0]]
    [(512, 2), (1024, 1)]
    """
    edges = 2 ** np.arange(_LOWEST_POWER, _HIGHEST_POWER + 1, dtype=np.int64)
    gaps = np.clip(np.asarray(gaps_ns, dtype=np.int64), edges[0], edges[-1] - 1)
    counts, _ = np.histogram(gaps, bins=edges)
    return edges, counts.astype(np.int64)


def stolen_share(gap_ns: int, gaps: int, steps: int, duration_ns: int) -> float:
    """Share of the time in which something else ran on the core.

    A gap's length contains one ordinary step of the loop, which is taken off: ``(gap_ns - gaps *
    step_ns) / duration_ns``, where ``step_ns`` is the mean of the steps that are no gaps.
    """
    if duration_ns <= 0:
        return 0.0
    ordinary_ns = step_ns(gap_ns, gaps, steps, duration_ns)
    return max(0.0, gap_ns - gaps * ordinary_ns) / duration_ns


def step_ns(gap_ns: int, gaps: int, steps: int, duration_ns: int) -> float:
    """The mean ordinary step: reading the clock once, without interference."""
    ordinary = steps - gaps
    return (duration_ns - gap_ns) / ordinary if ordinary > 0 else 0.0


@dataclass(frozen=True)
class GapCause:
    """Who has the core in a gap of a certain length, with or without a switch to another task."""

    name: str
    switched: bool
    below_ns: float
    explanation: str


GAP_CAUSES = tuple(
    GapCause(name, **row)
    for name, row in tomllib.loads(Path(__file__).with_name("gap_causes.toml").read_text()).items()
)
"""Those that there are, from gap_causes.toml."""


def likely_cause(length_ns: float, switches: int) -> GapCause:
    """The likeliest cause of a gap, by its length and whether the thread was switched out."""
    same: Sequence[GapCause] = [cause for cause in GAP_CAUSES if cause.switched == (switches > 0)]
    return next(cause for cause in same if length_ns < cause.below_ns)
