"""Who woke whom in a recording, chains of that, and the critical path through them.

An interval in which a thread waits or sleeps has in ``other`` who ended it: in a recording by
``perf`` who woke the thread, by ``preload`` who held the lock when the wait began. -1 is a timer, a
device, or not known.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perflib import kernels
from perflib.instruments.threads.formats import ALL, STATES, Selection, State
from perflib.instruments.threads.recording import Recording
from perflib.kernels.records import record
from perflib.model.errors import MeasurementError

PART = record("thread_path", "thread_part")
"""A part of the critical path: what a thread did, and on whom that depended."""

PATH_BY = ("thread", "lock", "function", "state")
"""What `path_summary` can group by."""

_PIECE = 1 << 12  # intervals that are looked at together
_RUNS = (State.RUNNING, State.SPINNING)

LINK = np.dtype([(name, "i8") for name in ("time_ns", "waker", "woken", "lock", "state", "stack")])
"""A wake-up, as a row of the tables."""


def wakeups(recording: Recording, selection: Selection = ALL) -> pd.DataFrame:
    """Every time that a thread of the selection woke another, or was woken by one.

    Returns
    -------
    pandas.DataFrame
        By time: time_ns, waker and woken (their rows), lock (its number; -1: the thread slept),
        state (number of the one that ended, WAITING or SLEEPING; -1: the thread was born), stack
        (where it waited; -1: not known).
    """
    start, end = recording.span(selection)
    each = [_wakeups_of(recording, row, start, end) for row in range(len(recording.threads))]
    found = np.concatenate(each) if each else np.empty(0, dtype=LINK)
    recording.check(others=found["waker"], stacks=found["stack"])
    recording.check(locks=found["lock"][found["lock"] >= 0])
    if selection.rows is not None:
        rows = recording.rows(selection.rows)
        found = found[np.isin(found["waker"], rows) | np.isin(found["woken"], rows)]
    return _table(np.sort(recording.selected(selection, found), order=["time_ns", "woken"]))


def chain(recording: Recording, thread: int, time_ns: int, depth: int = 20) -> pd.DataFrame:
    """Who woke a thread, who woke that one before, and so on, back in time.

    Parameters
    ----------
    recording
        What was recorded.
    thread
        Its row.
    time_ns
        The first wake-up is the last one until then: for a wait, the wait's end.
    depth
        The longest chain.

    Returns
    -------
    pandas.DataFrame
        As `wakeups`, the latest first. It ends where nobody is known.
    """
    (row,) = recording.rows([thread]).tolist()
    links: dict[tuple[int, ...], npt.NDArray[np.void]] = {}
    while len(links) < depth and len(link := _last_wakeup(recording, row, time_ns)):
        time_ns, row = int(link["time_ns"][0]), int(link["waker"][0])
        recording.check(others=link["waker"])
        if (time_ns, row) in links:  # only in a recording that is damaged, or whose wakers are old
            break
        links[time_ns, row] = link
    return _table(np.concatenate(list(links.values())) if links else np.empty(0, dtype=LINK))


def critical_path(recording: Recording, selection: Selection = ALL) -> pd.DataFrame:
    """The chain of dependences that ends with the last activity of the selected threads.

    It leads through all threads, back to the beginning of the selected time: parts join, and their
    lengths sum to that time. Making another thread faster makes the job no faster, as long as this
    stays its longest chain. Locks and a function in the selection choose no parts.

    A thread that was woken depends on its waker, so that its wait is not on the path: what the
    waker did meanwhile is. A wait stays on the path where nobody is known to have ended it, and in
    a recording by ``preload`` as long as the lock's first holder did not run either.

    Returns
    -------
    pandas.DataFrame
        By time: start_ns, end_ns, thread (its row; -1: not known), state (its number), lock,
        stack (where it waits; -1: not known), woken_by (who the path comes from; -1: the same
        thread). ``lock`` is the number of the lock that the thread waits for; of a thread that does
        not, the lock that a later thread of the path waits for meanwhile: without that lock there
        would be no need to wait for this part. -1: none.
    """
    start, end = recording.span(selection)
    lib, ffi = _kernel()
    parts = np.empty(0, dtype=PART)
    pointers, last = _ended_by(recording, selection)
    if last >= 0:
        origins = ffi.from_buffer("int32_t[]", _origins(recording))
        for _ in range(2):  # the first time they are only counted
            out = ffi.from_buffer("thread_part[]", parts)
            n = lib.thread_path(
                *pointers, len(recording.threads), origins, last, start, end, out, len(parts)
            )
            if n < 0:
                msg = "there is not enough memory for the critical path of this recording"
                raise MeasurementError(msg)
            if n > len(parts):
                parts = np.empty(n, dtype=PART)
    parts = parts[::-1]
    recording.check(stacks=parts["stack"], locks=parts["lock"][parts["lock"] >= 0])
    return pd.DataFrame(
        {
            "start_ns": parts["start_ns"].astype(np.int64),
            "end_ns": parts["end_ns"].astype(np.int64),
            "thread": parts["row"].astype(np.int64),
            "state": np.minimum(parts["state"], len(STATES) - 1).astype(np.int64),
            **{name: parts[name].astype(np.int64) for name in ("lock", "stack", "woken_by")},
        }
    )


def gains(
    recording: Recording, groups: Sequence[Collection[int]], selection: Selection = ALL
) -> list[float]:
    """How many seconds earlier the job would end, if nobody had to wait for each group of locks.

    Threads run, sleep and are in the run queue for as long as they did, and who was woken waits for
    its waker: a lock gains nothing if others wait for it, but not the job. Free cores are assumed,
    and the same order in which locks are taken. The end is that of the thread that is active last,
    or of the last one of those selected; locks and a function in the selection choose nothing.
    """
    start, end = recording.span(selection)
    lib, ffi = _kernel()
    pointers, last = _ended_by(recording, selection)
    if last < 0:
        return [0.0] * len(groups)
    rows = [last] if selection.rows is None else recording.rows(selection.rows)
    ending = ffi.from_buffer("int32_t[]", np.array(rows, dtype=np.int32)), len(rows)
    blocked, whose = _blocked(recording, start, end)
    ends = []
    for group in [(), *groups]:
        removed = (blocked["state"] == State.WAITING) & np.isin(blocked["lock"], list(group))
        arrays = (
            ffi.from_buffer("thread_interval[]", blocked),
            ffi.from_buffer("int32_t[]", whose),
            ffi.from_buffer("uint8_t[]", removed.astype(np.uint8)),
            len(blocked),
            ffi.from_buffer("int64_t[]", np.zeros(len(recording.threads), dtype=np.int64)),
        )
        ends.append(lib.thread_path_without(*pointers, *ending, start, end, *arrays))
    return [(ends[0] - one) / 1e9 for one in ends[1:]]


def path_summary(
    recording: Recording, by: str = "thread", path: pd.DataFrame | None = None
) -> pd.DataFrame:
    """How much of the critical path each thread, lock, function or state has.

    Parameters
    ----------
    recording
        What was recorded.
    by
        One of ``PATH_BY``. A function's time is that of the path's running parts, in proportion to
        the CPU samples there; it has no error from anything but their number.
    path
        Of `critical_path`; None: of the whole recording.

    Returns
    -------
    pandas.DataFrame
        The largest first: the number (thread and lock only; -1: none) and name, seconds,
        share_percent of the path; of functions also samples.
    """
    path = critical_path(recording) if path is None else path
    length = path["end_ns"] - path["start_ns"]
    total = max(int(length.sum()), 1)
    if by == "function":
        runs = path["state"].isin(_RUNS)
        table = _functions(recording, path[runs], float(length[runs].sum()))
    else:
        sums = length.groupby(path[by]).sum()
        numbers = sums.index.to_numpy()
        if by == "thread":
            names = recording.thread_names(numbers)
        elif by == "lock":
            names = [recording.locks[number].name if number >= 0 else "" for number in numbers]
        else:
            names = [STATES[number] for number in numbers]
        table = pd.DataFrame({by: numbers, "name": pd.Series(names, dtype=object)})
        table = table.assign(seconds=sums.to_numpy() / 1e9)
    table = table.assign(share_percent=1e11 * table["seconds"] / total)
    return table.sort_values(["seconds", "name"], ascending=[False, True], ignore_index=True)


# --- parts ---------------------------------------------------------------------------------------


def _table(links: npt.NDArray[np.void]) -> pd.DataFrame:
    return pd.DataFrame({name: links[name] for name in LINK.names or ()})


def _wakeups_of(recording: Recording, row: int, start: int, end: int) -> npt.NDArray[np.void]:
    """The wake-ups of one thread within a span of time."""
    low, high = int(recording.first[row]), int(recording.first[row + 1])
    begin = bisect_left(recording.intervals, start, low, high, key=lambda one: one["end_ns"])
    stop = bisect_left(recording.intervals, end, begin, high, key=lambda one: one["end_ns"])
    birth = _birth(recording, row)
    birth = birth[(start <= birth["time_ns"]) & (birth["time_ns"] < end)]
    return np.concatenate([birth, _ends(recording.intervals[begin:stop], row)])


def _ends(intervals: npt.NDArray[np.void], row: int) -> npt.NDArray[np.void]:
    """The ends of a thread's waits and sleeps, as far as somebody is known to have brought them."""
    state = intervals["state"]
    blocked = (state == State.WAITING) | (state == State.SLEEPING)
    found = intervals[blocked & (intervals["other"] >= 0)]
    links = np.empty(len(found), dtype=LINK)
    links["time_ns"], links["waker"], links["woken"] = found["end_ns"], found["other"], row
    links["lock"] = np.where(found["state"] == State.WAITING, found["lock"], -1)
    links["state"], links["stack"] = found["state"], found["stack"]
    return links


def _birth(recording: Recording, row: int) -> npt.NDArray[np.void]:
    """Who began a thread, where the recording says it."""
    low, high = int(recording.first[row]), int(recording.first[row + 1])
    links = np.array([(-1,) * 6], dtype=LINK)
    one = recording.intervals[low] if low < high else None
    if one is None or one["state"] != State.READY or one["other"] < 0 or one["lock"] >= 0:
        return links[:0]
    links["time_ns"], links["waker"], links["woken"] = one["start_ns"], one["other"], row
    return links


def _last_wakeup(recording: Recording, row: int, time_ns: int) -> npt.NDArray[np.void]:
    """The last wake-up of a thread at a time or before it; empty: nobody is known."""
    low, high = int(recording.first[row]), int(recording.first[row + 1])
    stop = bisect_right(recording.intervals, time_ns, low, high, key=lambda one: one["end_ns"])
    while stop > low:
        begin = max(low, stop - _PIECE)
        if len(found := _ends(recording.intervals[begin:stop], row)):
            return found[-1:]
        stop = begin
    birth = _birth(recording, row)
    return birth[birth["time_ns"] <= time_ns]


def _blocked(
    recording: Recording, start: int, end: int
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.int32]]:
    """What threads waited for or slept until, by its end, and whose it was; births among them."""
    first, intervals = recording.first, recording.intervals
    born = np.flatnonzero(np.diff(first))
    begun = intervals[first[born]].copy()
    named = (begun["state"] == State.READY) & (begun["other"] >= 0)
    begun["other"] = np.where(named, begun["other"], _origins(recording)[born])
    begun["end_ns"], begun["start_ns"], begun["state"] = begun["start_ns"], start, State.SLEEPING
    kept = (intervals["state"] == State.WAITING) | (intervals["state"] == State.SLEEPING)
    kept &= (start < intervals["end_ns"]) & (intervals["end_ns"] <= end)
    (places,) = np.nonzero(kept)
    found = np.concatenate([begun, intervals[places]])
    whose = np.append(born, np.searchsorted(first, places, side="right") - 1).astype(np.int32)
    order = np.argsort(found["end_ns"], kind="stable")
    recording.check(others=found["other"])
    found["start_ns"] = np.minimum(np.maximum(found["start_ns"], start), found["end_ns"])
    return found[order], whose[order]


def _kernel() -> tuple[Any, Any]:
    kernel = kernels.load("thread_path")
    return kernel.lib, kernel.ffi


def _ended_by(recording: Recording, selection: Selection) -> tuple[tuple[Any, Any], int]:
    """The intervals for C, and the row that is active last; -1: none."""
    lib, ffi = _kernel()
    pointers = (
        ffi.from_buffer("thread_interval[]", recording.intervals),
        ffi.from_buffer("int64_t[]", recording.first),
    )
    rows = np.unique(recording.rows(selection.rows)).astype(np.int32)
    of = ffi.from_buffer("int32_t[]", rows), len(rows)
    return pointers, int(lib.thread_path_end(*pointers, *of, *recording.span(selection)))


def _origins(recording: Recording) -> npt.NDArray[np.int32]:
    """Who began each thread, where its intervals do not say it: its process's first one."""
    threads = recording.threads
    first = {
        int(pid): row
        for row, (tid, pid) in reversed(
            list(enumerate(zip(threads["tid"], threads["pid"], strict=True)))
        )
        if tid == pid
    }
    root = first.get(int(recording.meta["job_pid"]), -1)
    mains = [first.get(int(pid), -1) for pid in threads["pid"]]
    found = [root if main == row or main < 0 else main for row, main in enumerate(mains)]
    return np.array([-1 if one == row else one for row, one in enumerate(found)], dtype=np.int32)


def _functions(recording: Recording, runs: pd.DataFrame, length_ns: float) -> pd.DataFrame:
    """The running parts of the path by the function that the samples in them were in."""
    samples, starts, ends = recording.samples, *(runs[f"{end}_ns"] for end in ("start", "end"))
    if len(runs):
        low, high = (
            bisect_left(samples, int(time_ns), key=lambda one: one["time_ns"])
            for time_ns in (starts.iloc[0], ends.iloc[-1])
        )
        samples = samples[low:high]
        at = np.searchsorted(starts, samples["time_ns"], side="right") - 1
        mine = samples["time_ns"] < ends.to_numpy()[at]
        mine &= samples["thread"] == runs["thread"].to_numpy()[at]
        samples = samples[mine]
    else:
        samples = samples[:0]
    if not len(samples):
        return pd.DataFrame(
            {"name": ["[no samples]"], "seconds": [length_ns / 1e9], "samples": [0]}
        )
    recording.check(stacks=samples["stack"])
    used, place = np.unique(samples["stack"], return_inverse=True)
    leaves = [text.rpartition(";")[2] or "[unknown]" for text in recording.stack_texts(used)]
    weight = np.maximum(samples["weight_ns"], 1).astype(np.float64)
    weights = pd.DataFrame({"name": pd.Series(leaves, dtype=object)[place].to_numpy()})
    sums = weights.assign(weight=weight).groupby("name")["weight"].agg(["sum", "size"])
    return pd.DataFrame(
        {
            "name": pd.Series(list(sums.index), dtype=object),
            "seconds": sums["sum"].to_numpy() / weight.sum() * length_ns / 1e9,
            "samples": sums["size"].to_numpy(),
        }
    )
