"""thread_path.c in plain Python, nanosecond by nanosecond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.reference.thread_states import READY, SLEEPING, UNKNOWN, WAITING, Interval

Threads = Sequence[Sequence[Interval]]


class Cell(NamedTuple):
    """What the path consists of in one nanosecond; ``woken_by`` if it comes from another thread."""

    row: int
    state: int
    lock: int = -1
    stack: int = -1
    woken_by: int = -1


def _during(intervals: Sequence[Interval], time: int) -> Interval | None:
    """The interval that contains the nanosecond before a time."""
    return next((one for one in intervals if one.start_ns < time <= one.end_ns), None)


def _lives(intervals: Sequence[Interval], time: int) -> bool:
    return any(one.start_ns < time for one in intervals)


def _awake(intervals: Sequence[Interval], time: int) -> bool:
    one = _during(intervals, time)
    return one is not None and one.state not in {WAITING, SLEEPING}


def path_end(threads: Threads, rows: Sequence[int], start: int, end: int) -> int:
    """The row that is awake last; of several one that is on a CPU, then the first."""
    for time in range(end, start, -1):
        awake = [row for row in rows if _awake(threads[row], time)]
        states = {row: one.state for row in awake if (one := _during(threads[row], time))}
        on_cpu = [row for row in awake if states[row] not in {READY, UNKNOWN}]
        if awake:
            return (on_cpu or awake)[0]
    return -1


def path_of(threads: Threads, origin: Sequence[int], row: int, start: int, end: int) -> list[Cell]:
    """A cell a nanosecond, the first first."""
    cells: list[Cell] = []
    waits: list[tuple[int, int]] = []  # since when, and for which lock; the innermost last
    time = end

    def comes_from(other: int) -> None:
        if cells:
            cells[-1] = cells[-1]._replace(woken_by=other)

    while time > start:
        waits = [one for one in waits if one[0] < time]
        one = _during(threads[row], time)
        if one is None and not _lives(threads[row], time):
            first = threads[row][0] if threads[row] else None
            named = first is not None and first.state == READY and first.other >= 0
            other = first.other if named and first is not None else origin[row]
            if other < 0 or not _lives(threads[other], time):
                cells += [Cell(-1, UNKNOWN)] * (time - start)
                break
            comes_from(other)
            row = other
            continue
        blocked = one is not None and one.state in {WAITING, SLEEPING}
        if one is not None and blocked and one.end_ns == time and one.other not in {-1, row}:
            since = max(start, one.start_ns)
            times = [t for t in range(time, since, -1) if _awake(threads[one.other], t)]
            if times:
                late = time - times[0]
                cells += [Cell(row, one.state, one.lock, one.stack)] * late
                comes_from(one.other)
                waits = [wait for wait in waits if wait[0] < since]
                if one.state == WAITING and one.lock >= 0:
                    waits.append((since, one.lock))
                row, time = one.other, times[0]
                continue
        if one is None:
            cells.append(Cell(row, UNKNOWN, waits[-1][1] if waits else -1))
        elif blocked or (one.state == READY and one.lock >= 0):
            cells.append(Cell(row, one.state, one.lock, one.stack))
        else:
            cells.append(Cell(row, one.state, waits[-1][1] if waits else -1, one.stack))
        time -= 1
        if blocked and one is not None:  # it is gone through as a whole
            cells += [Cell(row, one.state, one.lock, one.stack)] * (time - max(start, one.start_ns))
            time = max(start, one.start_ns)
    return cells[::-1]
