"""From stamped waits and sampled states to the intervals of one thread.

Waits are stamped, and so is the CPU time at both their ends; how much CPU time passed between two
waits is therefore exact. What was not CPU time there, and which part of a wait the thread was
already runnable, follows from the kernel's count of run-queue delay (schedstat), which is only
sampled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from perflib.instruments.threads.formats import INTERVAL, Flag, State
from perflib.instruments.threads.preload.files import WaitKind

_Ints = npt.NDArray[np.int64]
_MAX_WAITS = 100_000  # at once
_BORN_NS = 1_000_000
_SMALL_NS = 3_000  # what is shorter than a switch of threads, or than a fiftieth, is no state
_SMALL_SHARE = 0.02
_MISSING_NS = 20_000_000  # time that the kernel's account of a runnable thread may lack


@dataclass(frozen=True)
class Life:
    """What is known of a thread.

    Parameters
    ----------
    start_ns, end_ns
        Its life, as far as it is recorded.
    start_cpu_ns, end_cpu_ns
        Its CPU time then; -1: not known. With hardly any at its start it was born there.
    waits
        Records ``WAIT``, by time and not overlapping.
    locks, others, stacks
        Of each wait: the number of its lock, the row of who held it, the number of its stack.
    readings
        Records ``READING``.
    reading_locks
        Of each reading: the number of the lock that the thread was blocked on; -1 if on none; -2 if
        it was in a stamped wait, so that nothing is known of the time outside of waits.
    """

    start_ns: int
    end_ns: int
    start_cpu_ns: int
    end_cpu_ns: int
    waits: npt.NDArray[np.void]
    locks: npt.NDArray[np.int32]
    others: npt.NDArray[np.int32]
    stacks: npt.NDArray[np.int32]
    readings: npt.NDArray[np.void]
    reading_locks: npt.NDArray[np.int32]


def thread_intervals(life: Life) -> Iterator[npt.NDArray[np.void]]:
    """What the thread did, without gaps from its start to its end, in the order of time.

    It comes in parts of a bounded number of waits.
    """
    if 0 <= life.start_cpu_ns < _BORN_NS:
        life = _with_birth(life)
    for part in _parts(life):
        if part.end_ns > part.start_ns:
            yield _intervals(part)


def _parts(life: Life) -> Iterator[Life]:
    """The life, cut at ends of waits; a reading before each part and one behind it belong to it."""
    cuts = range(_MAX_WAITS, len(life.waits), _MAX_WAITS)
    start_ns, start_cpu_ns, first = life.start_ns, life.start_cpu_ns, 0
    for cut in [*cuts, len(life.waits)]:
        last = cut == len(life.waits)
        end_ns = life.end_ns if last else int(life.waits["end_ns"][cut - 1])
        end_cpu_ns = life.end_cpu_ns if last else int(life.waits["cpu_end_ns"][cut - 1])
        low = max(int(np.searchsorted(life.readings["time_ns"], start_ns, side="right")) - 1, 0)
        high = int(np.searchsorted(life.readings["time_ns"], end_ns, side="left")) + 1
        yield replace(
            life,
            start_ns=start_ns,
            end_ns=end_ns,
            start_cpu_ns=start_cpu_ns,
            end_cpu_ns=end_cpu_ns,
            waits=life.waits[first:cut],
            locks=life.locks[first:cut],
            others=life.others[first:cut],
            stacks=life.stacks[first:cut],
            readings=life.readings[low:high],
            reading_locks=life.reading_locks[low:high],
        )
        start_ns, start_cpu_ns, first = end_ns, end_cpu_ns, cut


def _intervals(life: Life) -> npt.NDArray[np.void]:
    pieces = _pieces(life)
    in_waits = pieces.wait >= 0
    ready_in, ready_out = _ready_shares(life, pieces, in_waits)
    off = pieces.length - pieces.run
    ready_of_wait = np.bincount(
        pieces.wait[in_waits], weights=(off * ready_in)[in_waits], minlength=len(life.waits)
    )
    parts = [_of_waits(life, ready_of_wait), *_outside(life, pieces, ~in_waits, ready_out)]
    every = np.concatenate(parts)
    every = every[every["end_ns"] > every["start_ns"]]
    return _merged(every[np.argsort(every["start_ns"], kind="stable")])


def spinning(intervals: npt.NDArray[np.void], starts: _Ints, ends: _Ints) -> npt.NDArray[np.void]:
    """The same intervals, with SPINNING where the thread ran within the given spans of time."""
    if not len(starts) or not len(intervals):
        return intervals
    edges = np.unique(np.concatenate([intervals["start_ns"], starts, ends]))
    at = np.searchsorted(intervals["start_ns"], edges, side="right") - 1
    inside = (at >= 0) & (edges < intervals["end_ns"][at])
    edges, at = edges[inside], at[inside]
    cut = intervals[at]
    cut["start_ns"] = edges
    cut["end_ns"] = np.minimum(np.append(edges[1:], intervals["end_ns"][-1]), cut["end_ns"])
    starts, ends = np.sort(starts), np.sort(ends)
    open_spans = np.searchsorted(starts, edges, side="right") - np.searchsorted(
        ends, edges, side="right"
    )
    spins = (open_spans > 0) & (cut["state"] == State.RUNNING)
    cut["state"][spins] = State.SPINNING
    cut["flags"][spins] |= np.uint8(Flag.SAMPLED)
    return _merged(cut)


def _with_birth(life: Life) -> Life:
    """With a reading at its first moment: nothing had been counted then."""
    first = np.zeros(1, life.readings.dtype)
    first["time_ns"], first["run_ns"] = life.start_ns, life.start_cpu_ns
    first["state"], first["cpu"] = b"R", -1
    return replace(
        life,
        readings=np.concatenate([first, life.readings[life.readings["time_ns"] > life.start_ns]]),
        reading_locks=np.append(
            np.int32(-1), life.reading_locks[life.readings["time_ns"] > life.start_ns]
        ).astype(np.int32),
    )


# --- pieces: between two neighbouring times of which something is known -------------------------


@dataclass(frozen=True)
class _Pieces:
    start: _Ints
    length: _Ints
    run: _Ints  # CPU time in it
    wait: _Ints  # the wait that contains it, -1: none
    window: _Ints  # how many readings there were before its end
    cpu: _Ints


def _pieces(life: Life) -> _Pieces:
    waits, readings = life.waits, life.readings
    bounds = [life.start_ns, life.end_ns]
    edges = np.concatenate([bounds, waits["start_ns"], waits["end_ns"], readings["time_ns"]])
    inner = (edges >= life.start_ns) & (edges <= life.end_ns)
    edges = np.unique(edges[inner])
    times, cpu_ns = _cpu_times(life)
    if len(times):
        # After the last reading a thread continues as it did: it ran, or it was blocked.
        total = np.interp(edges, times, cpu_ns).astype(np.int64)
        if not len(readings) or readings["state"][-1] == b"R":
            total = np.where(edges > times[-1], cpu_ns[-1] + edges - times[-1], total)
    else:
        total = edges - edges[0]
    length = np.diff(edges)
    run = np.clip(np.diff(total), 0, length)
    starts = edges[:-1]
    wait = np.searchsorted(waits["start_ns"], starts, side="right") - 1
    if len(waits):
        wait[starts >= waits["end_ns"][wait]] = -1
    window = np.searchsorted(readings["time_ns"], starts, side="right")
    return _Pieces(starts, length, run, wait, window, _cpus(life, starts))


def _cpu_times(life: Life) -> tuple[_Ints, _Ints]:
    """The thread's CPU time at those times at which it is known."""
    waits, readings = life.waits, life.readings
    times = [waits["start_ns"], waits["end_ns"], readings["time_ns"]]
    known = [waits["cpu_end_ns"] - waits["cpu_ns"], waits["cpu_end_ns"], readings["run_ns"]]
    if life.start_cpu_ns >= 0:
        times.append(np.array([life.start_ns]))
        known.append(np.array([life.start_cpu_ns]))
    if life.end_cpu_ns >= 0:
        times.append(np.array([life.end_ns]))
        known.append(np.array([life.end_cpu_ns]))
    time, cpu_ns = np.concatenate(times), np.concatenate(known)
    order = np.argsort(time, kind="stable")
    time, cpu_ns = time[order].astype(np.int64), cpu_ns[order].astype(np.int64)
    if not len(time):
        return time, cpu_ns
    # A reading's CPU time may be old, so it is a lower bound, and a thread has no more CPU time
    # than there is time: a later one shows how much there must have been by now.
    lead = np.maximum.accumulate((cpu_ns - time)[::-1])[::-1]
    return time, np.maximum.accumulate(lead + time)


def _cpus(life: Life, starts: _Ints) -> _Ints:
    """The CPU that a thread was on last, or else next; -1: not known."""
    time = np.concatenate([life.waits["end_ns"], life.readings["time_ns"]])
    cpu = np.concatenate([life.waits["cpu"], life.readings["cpu"]]).astype(np.int64)
    time, cpu = time[cpu >= 0], cpu[cpu >= 0]
    if not len(time):
        return np.full(len(starts), -1)
    order = np.argsort(time, kind="stable")
    at = np.searchsorted(time[order], starts, side="right") - 1
    return cpu[order][np.maximum(at, 0)]


def _ready_shares(
    life: Life, pieces: _Pieces, in_waits: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The share of each piece's time off the CPU that the thread was ready: in waits, outside.

    Between two readings it is known how long the thread was blocked. Waits come first: a wait is
    mostly blocked. What is left was blocked outside of waits. NaN outside where nothing is known.
    """
    readings = life.readings
    n = len(readings) + 1
    off = (pieces.length - pieces.run).astype(np.float64)
    inside = np.bincount(pieces.window[in_waits], weights=off[in_waits], minlength=n)
    outside = np.bincount(pieces.window[~in_waits], weights=off[~in_waits], minlength=n)
    known = np.zeros(n, dtype=bool)
    blocked = np.zeros(n)
    if len(readings) > 1:
        total = _blocked_ns(life, inside)
        blocked[1:-1] = total[1:] - total[:-1]
        known[1:-1] = True
    if len(readings) and readings["state"][-1] != b"R":  # no reading since: it has not run
        blocked[-1], known[-1] = life.end_ns - life.start_ns, True
    in_waits_blocked = np.minimum(blocked, inside)
    outside_blocked = np.minimum(blocked - in_waits_blocked, outside)
    in_share = np.where(known & (inside > 0), 1 - in_waits_blocked / np.maximum(inside, 1), 0.0)
    out_share = np.where(known, 1 - outside_blocked / np.maximum(outside, 1), np.nan)
    return in_share[pieces.window], out_share[pieces.window]


def _blocked_ns(life: Life, inside: npt.NDArray[np.number[Any]]) -> _Ints:
    """How long the thread had been blocked by each reading; ``inside``: what its waits explain.

    Of a thread that is blocked the account is exact. Of one that runs or is ready the last part is
    missing from it, which makes this too large: a later account may show that, and what neither
    waits nor the reading before explain is believed only if it is more than can be missing.
    """
    readings = life.readings
    total = readings["time_ns"] - readings["run_ns"] - readings["delay_ns"]
    total = np.minimum.accumulate(total[::-1])[::-1]
    exact = (readings["state"] != b"R").tolist()
    outside = (life.reading_locks != -2).tolist()
    found = total.tolist()
    explained = inside.astype(np.int64).tolist()
    for i in range(1, len(found)):
        if not exact[i] and not (exact[i - 1] and outside[i - 1]):
            least = max(found[i - 1], found[i] - _MISSING_NS)
            found[i] = max(least, min(found[i], found[i - 1] + explained[i]))
    return np.array(found)


# --- intervals -----------------------------------------------------------------------------------


def _empty(n: int, state: State, flags: int = 0) -> npt.NDArray[np.void]:
    found = np.zeros(n, INTERVAL)
    found["state"], found["flags"] = state, flags
    for name in ("cpu", "lock", "other", "stack"):
        found[name] = -1
    return found


def _of_waits(life: Life, ready: npt.NDArray[np.number[Any]]) -> npt.NDArray[np.void]:
    waits = life.waits
    start, end = waits["start_ns"], waits["end_ns"]
    length = end - start
    spins = waits["kind"] == WaitKind.SPIN
    # Of a spinning lock CPU time is spinning. Others are tried for some microseconds at most before
    # they sleep; what more they have is the kernel's, or was stolen by a virtual machine's host.
    spin = np.where(spins, np.minimum(waits["cpu_ns"], length), 0)
    most = np.where(spins, length - spin, length - 1)  # a wait remains one
    ready_ns = np.where(spins, most, np.minimum(ready.astype(np.int64), most))
    ready_ns[ready_ns < np.minimum(_SMALL_NS, _SMALL_SHARE * length)] = 0
    spun = _empty(len(waits), State.SPINNING)
    waited = _empty(len(waits), State.WAITING)
    readied = _empty(len(waits), State.READY, Flag.SAMPLED)
    for part, begin, finish in (
        (spun, start, start + spin),
        (waited, start + spin, end - ready_ns),
        (readied, end - ready_ns, end),
    ):
        part["start_ns"], part["end_ns"] = begin, finish
        part["lock"], part["other"], part["stack"] = life.locks, life.others, life.stacks
    spun["cpu"] = waits["cpu"]
    return np.concatenate([spun, waited, readied])


def _outside(
    life: Life,
    pieces: _Pieces,
    chosen: npt.NDArray[np.bool_],
    ready_share: npt.NDArray[np.float64],
) -> list[npt.NDArray[np.void]]:
    start, length = pieces.start[chosen], pieces.length[chosen]
    run, share = pieces.run[chosen], ready_share[chosen]
    off = length - run
    off[off < np.maximum(_SMALL_NS, _SMALL_SHARE * length)] = 0
    run = length - off
    unknown = np.isnan(share) & (off > 0)
    ready = (off * np.nan_to_num(share)).astype(np.int64)
    ready[ready < _SMALL_NS] = 0
    ready = np.where(off - ready < _SMALL_NS, off, ready)
    ready[unknown] = 0
    blocked = off - ready
    before, after = _locks_around(life, pieces, chosen)
    # Blocked at the reading before and not at the one after: it ran only in the end.
    late = (before >= -1) & (after == -2) & (off > 0)
    lock = np.where(after >= 0, after, np.where(before >= 0, before, -1))
    flags = np.where(off > 0, int(Flag.SAMPLED), 0)
    ran_at = np.where(late, start + off, start)
    blocked_at = np.where(late, start, start + run)
    ready_at = blocked_at + blocked
    parts = []
    for state, begin, ns in (
        (State.RUNNING, ran_at, run),
        (State.SLEEPING, blocked_at, blocked),
        (State.READY, ready_at, ready),
    ):
        part = _empty(len(start), state)
        part["start_ns"], part["end_ns"], part["flags"] = begin, begin + ns, flags
        parts.append(part)
    parts[0]["cpu"] = pieces.cpu[chosen]
    waits = (lock >= 0) & (blocked > 0) & ~unknown
    parts[1]["state"][waits] = State.WAITING
    parts[1]["lock"][waits] = lock[waits]
    parts[2]["lock"][waits] = lock[waits]
    parts[1]["state"][unknown] = State.UNKNOWN
    return parts


def _locks_around(
    life: Life, pieces: _Pieces, chosen: npt.NDArray[np.bool_]
) -> tuple[_Ints, _Ints]:
    """What the readings around each piece saw: a lock's number, -1 sleep, -2 not blocked."""
    blocked = np.isin(life.readings["state"], [b"S", b"D"])
    seen = np.where(blocked, life.reading_locks, -2)
    seen = np.concatenate([[-2], seen, [-2]]).astype(np.int64)
    window = pieces.window[chosen]
    return seen[window], seen[window + 1]


def _merged(every: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Equal neighbours as one, but for waits, each of which is an operation."""
    if len(every) < 2:
        return every
    last, this = every[:-1], every[1:]
    same = (last["end_ns"] == this["start_ns"]) & (
        (this["lock"] < 0) | ((this["flags"] & Flag.SAMPLED > 0) & (this["stack"] < 0))
    )
    for name in ("state", "lock", "other", "stack", "cpu"):
        same &= last[name] == this[name]
    first = np.flatnonzero(np.append(True, ~same))
    merged = every[first]
    merged["end_ns"] = every["end_ns"][np.append(first[1:], len(every)) - 1]
    merged["flags"] = np.bitwise_or.reduceat(every["flags"], first)
    return merged
