"""Noise: what the gaps in a spinning core's clock say about who else used the core.

The kernel ``clock_gaps`` spins on a core and notes the steps of the clock that took too long. This
module reads its findings.

What a gap is *not*: a slow core. A core at half its frequency, or one whose sibling is busy, makes
every step longer and leaves no gap; it shows in ``step_ns``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "GAP_CAUSES",
    "Cause",
    "gap_histogram",
    "likely_cause",
    "step_ns",
    "stolen_share",
]

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
class Cause:
    """Who has the core in a gap of a certain length, with or without a switch to another task."""

    name: str
    switched: bool
    below_ns: float
    explanation: str


GAP_CAUSES: tuple[Cause, ...] = (
    Cause(
        "interrupt",
        False,
        10e3,
        "The timer tick (1 to 5 us, 100 to 1000 times a second) or a device's interrupt. Fewer "
        "with nohz_full on the measured cores and interrupts steered to others "
        "(/proc/irq/*/smp_affinity).",
    ),
    Cause(
        "long interrupt",
        False,
        100e3,
        "An interrupt with work behind it (network, block device), a call from another core (TLB "
        "shootdown), or, in a virtual machine, an interrupt that went through the hypervisor.",
    ),
    Cause(
        "firmware or hypervisor",
        False,
        float("inf"),
        "Nothing that this kernel knows of: system management mode (0.1 to several ms, on bare "
        "metal), or the hypervisor ran another guest on the core (ms, its scheduler's slice).",
    ),
    Cause(
        "kernel thread",
        True,
        100e3,
        "A short task, mostly the kernel's own (kworker, ksoftirqd, rcu). Less on isolated cores.",
    ),
    Cause(
        "another task",
        True,
        20e6,
        "The scheduler gave the core to another program for a slice (0.1 to some ms). Less with "
        "fewer programs, isolated cores, or FIFO priority.",
    ),
    Cause(
        "throttling",
        True,
        float("inf"),
        "The thread was stopped for long: a container's CPU quota was spent (to the end of its "
        "100 ms), a FIFO task ran out of its 95 % (50 ms each second), or the machine is full.",
    ),
)


def likely_cause(length_ns: float, switches: int) -> Cause:
    """The likeliest cause of a gap, by its length and whether the thread was switched out."""
    same: Sequence[Cause] = [cause for cause in GAP_CAUSES if cause.switched == (switches > 0)]
    return next(cause for cause in same if length_ns < cause.below_ns)
