"""What a view of threads over time shows: shares of states by bin, axes, names, colours.

The widget and the figure draw the same of it. All of it is bounded: a view of
hours of thousands of threads is as large as one of seconds of two.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from perflib.instruments.threads import use
from perflib.instruments.threads.concurrency import thread_states
from perflib.instruments.threads.formats import Selection, State
from perflib.instruments.threads.intervals import states_in_bins
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.use import use_over_time
from perflib.lab.theme import hex_colours
from perflib.model.errors import UserError, choose
from perflib.model.escape import visible
from perflib.model.expressions import Expression

DRAWN = (
    State.RUNNING,
    State.SPINNING,
    State.READY,
    State.WAITING,
    State.SLEEPING,
    State.UNKNOWN,
)
"""The order in which shares of a bin are stacked: what takes a core is below."""

LABELS = {
    State.RUNNING: "running",
    State.READY: "ready (run-queue delay)",
    State.WAITING: "waiting for a lock",
    State.SLEEPING: "sleeping or in I/O",
    State.SPINNING: "spinning",
    State.UNKNOWN: "unknown (lost events)",
}

ORDERS = ("start", "name", "waiting", "CPU time")
"""How threads may be ordered; the last two: the most first."""

BLOCKED = ("waiting", "sleeping", "ready")
"""States that somebody else ends, or has ended."""

WAKERS = (
    "An arrow goes from a thread to the one that it wakes.",
    "An arrow goes from the thread that held a lock to the one that waited for it.",
)
"""What an arrow is in a recording of a kernel's wake-ups, and in one of a job's own waits."""

_UNITS = (("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000), ("ns", 1))
_MIN_WINDOW_NS = 1_000  # of a window


def colours() -> dict[State, str]:
    """The colour of each state."""
    return {state: hex_colours()[state.name.lower()] for state in State}


def legend(recording: Recording) -> dict[str, object]:
    """What the script needs to name and colour what it draws."""
    return {
        "states": [LABELS[state] for state in DRAWN],
        "palette": [colours()[state] for state in DRAWN],
        "classes": list(use.CLASSES),
        "class_palette": [hex_colours()[name] for name in use.CLASSES],
        "orders": list(ORDERS),
        "waker": WAKERS[recording.meta["backend"] == "preload"],
    }


def shown(name: str) -> str:
    r"""A name as it can be drawn and sent.

    >>> shown("a\tb\x1b[1m"), shown("")
    ('a\\tb\\x1b[1m', '(no name)')
    """
    return visible(name) or "(no name)"


def duration(ns: float) -> str:
    """A time with the unit that fits it.

    >>> duration(1_234_500), duration(0), duration(12e9)
    ('1.23 ms', '0 s', '12.0 s')
    """
    if not ns:
        return "0 s"
    unit, size = next(
        ((unit, size) for unit, size in _UNITS if abs(ns) >= 0.9995 * size), _UNITS[-1]
    )
    value = ns / size
    if unit == "ns" or abs(value) >= 999.5:
        return f"{value:,.0f} {unit}"
    return f"{value:#.3g}".rstrip(".") + f" {unit}"


def number(many: int, what: str) -> str:
    """So many things.

    >>> number(1, "core"), number(2000, "thread")
    ('1 core', '2,000 threads')
    """
    return f"{many:,} {what}" if many == 1 else f"{many:,} {what}s"


def about(recording: Recording) -> list[str]:
    """What was recorded, and what is uncertain about it."""
    meta = recording.meta
    length = duration(recording.end_ns - recording.start_ns)
    who = f"{number(len(recording.threads), 'thread')} on {number(int(meta['cpus']), 'core')}"
    words = [f"{who}, {length}, recorded by the backend “{meta['backend']}”."]
    if meta["others_busy_ns"]:
        others = duration(meta["others_busy_ns"])
        words.append(f"While its threads were ready, other programs ran for {others}.")
    lost = meta["lost"]
    if lost["events"] or lost["samples"]:
        words.append(
            f"Lost: {lost['events']:,} events and {lost['samples']:,} samples; what they touch is "
            f"marked ({LABELS[State.UNKNOWN]})."
        )
    if meta["cut"]:
        words.append(f"It ends early: {meta['cut'].rstrip('.')}.")
    words += meta["remarks"]
    return words


def window(recording: Recording, selection: Selection) -> Selection:
    """What is selected, its span within the recording and not shorter than a microsecond.

    Raises
    ------
    UserError
        The span is empty, or is outside of the recording.
    """
    first, last = recording.start_ns, recording.end_ns
    start_ns, end_ns = selection.start_ns, selection.end_ns
    start = first if start_ns is None else max(first, start_ns)
    end = last if end_ns is None else min(last, end_ns)
    if start >= end and not start == end == first == last:
        msg = (
            f"no time from {start_ns} to {end_ns} ns: the recording goes from {first} to {last} ns"
        )
        raise UserError(msg)
    if end - start < _MIN_WINDOW_NS:
        start = max(first, min(start, last - _MIN_WINDOW_NS))
        end = start + _MIN_WINDOW_NS
    return Selection(start, end, selection.rows)


def levels(recording: Recording, bins: int, selection: Selection) -> np.ndarray:
    """How high the states are stacked: uint8[rows, bins, 6] of 255, in the order ``DRAWN``.

    A bin in which the thread did not always exist is not filled to the top.
    """
    start, end = recording.span(selection)
    inside = states_in_bins(recording, bins, selection)[:, :, list(DRAWN)]
    stacked = np.cumsum(inside, axis=2) * (bins / (end - start))
    return np.rint(255 * np.clip(stacked, 0, 1)).astype(np.uint8)


def used(recording: Recording, bins: int, selection: Selection) -> np.ndarray:
    """How high the classes of use are stacked: uint8[bins, 5] of 255, by `use.CLASSES`."""
    shares = use_over_time(recording, bins, selection)[list(use.CLASSES)].to_numpy()
    levels: np.ndarray = np.rint(255 * np.clip(np.cumsum(shares, axis=1), 0, 1))
    return levels.astype(np.uint8)


def longest_within(
    recording: Recording, row: int, span: tuple[int, int], state: State | None
) -> tuple[int, int]:
    """A time (ns) at which a thread's longest interval within a span is, of a state or of any.

    Also how many there are; of none the time is the middle of the span.
    """
    start, end = span
    low, high = int(recording.first[row]), int(recording.first[row + 1])
    low = bisect_right(recording.intervals, start, low, high, key=lambda one: one["end_ns"])
    high = bisect_left(recording.intervals, end, low, high, key=lambda one: one["start_ns"])
    inside = recording.intervals[low:high]
    if state is not None:
        inside = inside[inside["state"] == state]
    if not len(inside):
        return (start + end) // 2, 0
    longest = inside[np.argmax(inside["end_ns"] - inside["start_ns"])]
    return max(start, int(longest["start_ns"])), len(inside)


def time_axis(start_ns: int, end_ns: int) -> tuple[str, list[tuple[float, str]]]:
    """The title of an axis of time and its ticks: place (ns) and text.

    Times count from the recording's start. Deep inside of a recording the ticks would have more
    digits than anyone reads: there they count from a time that the title names.

    >>> time_axis(0, 10_000_000)[1][:3]
    [(0, '0'), (2000000, '2'), (4000000, '4')]
    """
    span = max(1, end_ns - start_ns)
    unit, size = next(((unit, size) for unit, size in _UNITS if span >= 2 * size), _UNITS[-1])
    power = 10 ** max(0, math.floor(math.log10(max(1.0, span / 8))))
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if power * factor >= span / 8)
    base = 0
    title = f"time since the recording began ({unit})"
    if start_ns > 1000 * span and size < _UNITS[0][1]:
        base = start_ns - start_ns % (1000 * size)
        digits = {"ms": 0, "µs": 3, "ns": 6}[unit]
        title = f"{base / 1e9:.{digits}f} s since the recording began, and ({unit})"
    digits = max(0, math.ceil(math.log10(size / step))) if step < size else 0
    first = -(-start_ns // step) * step
    return title, [
        (at, f"{(at - base) / size:,.{digits}f}".replace(",", "\u2009"))
        for at in range(first, end_ns + 1, step)
    ]


def ordered(recording: Recording, order: str) -> list[int]:
    """All threads' rows in an order of ``ORDERS``.

    Raises
    ------
    UserError
        No such order.
    """
    if order not in ORDERS:
        raise UserError(choose("order", order, ORDERS))
    rows = range(len(recording.threads))
    if order == "start":
        starts = recording.threads["start_ns"].to_numpy()
        return sorted(rows, key=lambda row: (starts[row], row))
    if order == "name":
        names = [_natural(name) for name in recording.threads["name"]]
        return sorted(rows, key=lambda row: (names[row], row))
    states = thread_states(recording)
    columns = ["waiting"] if order == "waiting" else ["running", "spinning"]
    most = states[columns].sum(axis=1).to_numpy()
    return sorted(rows, key=lambda row: (-most[row], row))


def restricted(recording: Recording, selection: Selection, locks: str, function: str) -> Selection:
    """A selection of the locks and the function that regular expressions are found in.

    Raises
    ------
    UserError
        One is none, or takes too long.
    """
    Expression(function, "function")
    numbers = None
    if locks:
        kept = Expression(locks, "locks").finds(lock.name for lock in recording.locks)
        numbers = tuple(number for number, keep in enumerate(kept) if keep)
    return replace(selection, locks=numbers, function=function)


def wait_end(recording: Recording, row: int, time_ns: int) -> int:
    """When a thread was woken from the wait that it is in at a time; ready, it has been already."""
    found = recording.at(row, time_ns)
    return int(found["start_ns"] if found["state"] == "ready" else found["end_ns"])


def _natural(name: str) -> list[tuple[int, str]]:
    """So that ``event-10`` comes after ``event-2``."""
    parts = re.split(r"(\d+)", name.casefold())
    return [(int(part), "") if i % 2 else (-1, part) for i, part in enumerate(parts)]


def found(recording: Recording, pattern: str, rows: Sequence[int]) -> list[int]:
    """Those of the rows in whose thread's name a regular expression is found.

    Raises
    ------
    UserError
        It is none, or takes too long.
    """
    names = list(recording.threads["name"])
    kept = Expression(pattern, repr(pattern)).finds(names[row] for row in rows)
    return [row for row, keep in zip(rows, kept, strict=True) if keep]
