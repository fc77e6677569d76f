"""What perf_counters.c is to compute by itself: which reading is due, and how many went by."""

from __future__ import annotations


def next_tick(elapsed_ns: int, period_ns: int, ticks_due: int) -> tuple[int, int]:
    """The first tick not yet behind us; of several that are overdue, only the latest is made.

    Its number, and how many were missed.
    """
    overdue = [
        number
        for number in range(ticks_due + 1, elapsed_ns // period_ns + 1)
        if number * period_ns <= elapsed_ns
    ]
    return (overdue[-1], len(overdue) - 1) if overdue else (ticks_due + 1, 0)
