"""What a recording of threads says: how many worked at once, what they waited for, on whom.

Every function takes a span of time and rows of threads; what is not given is everything. They are
methods of `perflib.instruments.threads.recording.Recording` too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from perflib.instruments.threads import intervals
from perflib.instruments.threads.formats import STATES, Rows, State

if TYPE_CHECKING:
    from perflib.instruments.threads.recording import Recording

__all__ = [
    "Limit",
    "Serial",
    "concurrency",
    "concurrency_over_time",
    "effective_concurrency",
    "holders",
    "limiting",
    "lock_waits",
    "longest",
    "paths",
    "serial",
    "waits",
]

_AT_WORK = (State.RUNNING, State.SPINNING)
_RUNNABLE = (State.RUNNING, State.SPINNING, State.READY)
_NO_WORK = ("condition", "barrier")  # who waits so, waits for work, not for permission


class Serial(NamedTuple):
    """Begin and end of the job that only one thread worked, in seconds, and what lies between.

    ``alone_share``: the share of the time between them in which just one thread was running; NaN if
    there is no time between them.
    """

    start_s: float
    end_s: float
    alone_share: float


class Limit(NamedTuple):
    """The lock that was waited for longest: its number, its name, the time and its share.

    ``share``: of the time of all threads that did not sleep.
    """

    lock: int
    name: str
    kind: str
    total_s: float
    share: float


# --- how many at once ----------------------------------------------------------------------------


def concurrency(
    recording: Recording,
    start_ns: int | None = None,
    end_ns: int | None = None,
    rows: Rows | None = None,
) -> npt.NDArray[np.int64]:
    """For how many ns k threads were running (or spinning) at once, for k from 0 to all."""
    wanted = np.unique(recording.rows(rows))
    return intervals.levels(recording, wanted, recording.span(start_ns, end_ns), _AT_WORK)[0]


def effective_concurrency(
    recording: Recording,
    start_ns: int | None = None,
    end_ns: int | None = None,
    rows: Rows | None = None,
) -> float:
    """How many threads were running (or spinning) on average; NaN for no time at all."""
    start, end = recording.span(start_ns, end_ns)
    if end == start:
        return float("nan")
    table = concurrency_over_time(recording, 1, start, end, rows)
    return float(table["concurrency"].iloc[0])


def concurrency_over_time(
    recording: Recording,
    bins: int,
    start_ns: int | None = None,
    end_ns: int | None = None,
    rows: Rows | None = None,
) -> pd.DataFrame:
    """How many threads were in each state on average, bin by bin.

    Returns
    -------
    pandas.DataFrame
        start_ns, end_ns, a column for each of ``STATES``, and concurrency: running and spinning.
    """
    start, end = recording.span(start_ns, end_ns)
    wanted = recording.rows(rows)
    sums = intervals.states_in_bins(recording, wanted, np.zeros_like(wanted), (start, end), bins)
    edges = start + np.arange(bins + 1) * (end - start) // bins
    lengths = np.maximum(np.diff(edges), 1)  # a bin without time has no threads
    table = pd.DataFrame({"start_ns": edges[:-1], "end_ns": edges[1:]})
    for i, state in enumerate(STATES):
        table[state] = sums[0, :, i] / lengths if len(sums) else 0.0
    return table.assign(concurrency=table["running"] + table["spinning"])


def serial(recording: Recording, tolerance: float = 0.01) -> Serial:
    """The begin and the end of the job that only one thread worked.

    The begin is the longest one during which at most one thread was awake, but for a share of
    ``tolerance`` (a helper that looks about from time to time does not make a job parallel); the
    end likewise. A thread is awake that runs, spins, has no core, or waits for permission: for a
    mutex, say. One that sleeps, waits for work (a condition variable) or at a barrier is not, nor
    is one of which nothing is known.
    """
    start, end = recording.span(None, None)
    # The last place is that of no lock: a futex that is not known may be anybody's lock.
    awake = np.array([lock.kind not in _NO_WORK for lock in recording.locks] + [True])
    _, times = intervals.levels(
        recording, recording.rows(), (start, end), _RUNNABLE, awake=awake, most=1
    )
    lengths = np.diff(np.concatenate([[start], times, [end]]))
    several = np.arange(len(lengths)) % 2 == 1
    begin_ns = _begin(lengths, several, tolerance)
    end_ns = _begin(lengths[::-1], several[::-1], tolerance)
    middle = (start + begin_ns, end - end_ns)
    alone = float("nan")
    if middle[1] > middle[0]:
        alone = int(concurrency(recording, *middle)[1:2].sum()) / (middle[1] - middle[0])
    return Serial(begin_ns / 1e9, min(end_ns, end - start - begin_ns) / 1e9, alone)


def _begin(lengths: npt.NDArray[np.int64], several: npt.NDArray[np.bool_], tolerance: float) -> int:
    """How long it takes until several are awake for more than a tolerated share of the time."""
    before = np.append(0, np.cumsum(lengths))
    excess = np.append(0, np.cumsum(lengths * several))
    begins = np.flatnonzero(several & (lengths > 0))
    begins = begins[excess[begins] <= tolerance * before[begins]]
    if excess[-1] <= tolerance * before[-1]:
        return int(before[-1])
    return int(before[begins[-1]])


# --- waits ---------------------------------------------------------------------------------------


def waits(
    recording: Recording,
    start_ns: int | None = None,
    end_ns: int | None = None,
    rows: Rows | None = None,
    lock: int | None = None,
) -> npt.NDArray[np.void]:
    """Every wait for a lock (or for one), as records ``WAIT`` of `threads.intervals`.

    A wait is one operation on a lock: ``waiting_ns`` asleep and then ``ready_ns`` without a core,
    each within the span; ``other`` let go of it (-1: not known), ``stack`` is where it waited.
    """
    wanted = np.unique(recording.rows(rows))
    found = intervals.waits(recording, wanted, recording.span(start_ns, end_ns))
    return found if lock is None else found[found["lock"] == lock]


def _total_ns(found: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    total: npt.NDArray[np.int64] = found["waiting_ns"] + found["ready_ns"]
    return total


def _sums(
    keys: npt.NDArray[np.int64], values: Sequence[npt.NDArray[np.int64]], n: int
) -> list[npt.NDArray[np.float64]]:
    sums = [np.bincount(keys, weights=each, minlength=n) for each in values]
    return [each.astype(np.float64) for each in sums]


def _names(recording: Recording, rows: npt.NDArray[np.integer[Any]]) -> list[str]:
    names = [*recording.threads["name"], ""]
    return [str(names[row]) for row in rows]


def lock_waits(
    recording: Recording,
    start_ns: int | None = None,
    end_ns: int | None = None,
    rows: Rows | None = None,
) -> pd.DataFrame:
    """What was waited for, the longest total first.

    Returns
    -------
    pandas.DataFrame
        One row a lock that was waited for: lock (its number), name, kind, waits, waiting_s,
        ready_s (without a core before it could go on), total_s (both: what the job's own clock
        would say), longest_ms, threads (how many waited).
    """
    found = waits(recording, start_ns, end_ns, rows)
    n, lock = len(recording.locks), found["lock"].astype(np.int64)
    waiting, ready = _sums(lock, [found["waiting_ns"], found["ready_ns"]], n)
    longest_ns = np.zeros(n, dtype=np.int64)
    np.maximum.at(longest_ns, lock, _total_ns(found))
    pairs = np.unique(lock * len(recording.threads) + found["row"]) // max(
        len(recording.threads), 1
    )
    table = pd.DataFrame(
        {
            "lock": np.arange(n),
            "name": pd.Series([one.name for one in recording.locks], dtype=object),
            "kind": pd.Series([one.kind for one in recording.locks], dtype=object),
            "waits": np.bincount(lock, minlength=n),
            "waiting_s": waiting / 1e9,
            "ready_s": ready / 1e9,
            "total_s": (waiting + ready) / 1e9,
            "longest_ms": longest_ns / 1e6,
            "threads": np.bincount(pairs, minlength=n),
        }
    )
    return table[table["waits"] > 0].sort_values(
        ["total_s", "lock"], ascending=[False, True], ignore_index=True
    )


def _grouped(recording: Recording, found: npt.NDArray[np.void], column: str) -> pd.DataFrame:
    """Waits and their time by lock and one more column, the longest total first."""
    value = found[column].astype(np.int64) + 1
    width = int(value.max(initial=0)) + 1
    keys, group = np.unique(found["lock"].astype(np.int64) * width + value, return_inverse=True)
    (total,) = _sums(group, [_total_ns(found)], len(keys))
    table = pd.DataFrame(
        {
            "lock": keys // width,
            "name": [recording.locks[lock].name for lock in keys // width],
            column: keys % width - 1,
            "waits": np.bincount(group, minlength=len(keys)),
            "total_s": total / 1e9,
        }
    )
    return table.sort_values(
        ["total_s", "lock", column], ascending=[False, True, True], ignore_index=True
    )


def paths(
    recording: Recording,
    lock: int | None = None,
    start_ns: int | None = None,
    end_ns: int | None = None,
    rows: Rows | None = None,
) -> pd.DataFrame:
    """From where locks (or one) were waited for, the longest total first.

    Returns
    -------
    pandas.DataFrame
        lock (its number), name, stack (its text; "" where it is not known), waits, total_s.
    """
    table = _grouped(recording, waits(recording, start_ns, end_ns, rows, lock), "stack")
    texts = [*recording.stacks, ""]
    table["stack"] = pd.Series([texts[number] for number in table["stack"]], dtype=object)
    return table


def holders(
    recording: Recording,
    lock: int | None = None,
    start_ns: int | None = None,
    end_ns: int | None = None,
    rows: Rows | None = None,
) -> pd.DataFrame:
    """Which threads let go of what was waited for, the longest total first.

    Returns
    -------
    pandas.DataFrame
        lock (its number), name, holder (its row; -1: not known), thread (its name), waits, total_s.
    """
    table = _grouped(recording, waits(recording, start_ns, end_ns, rows, lock), "other")
    table.insert(3, "thread", _names(recording, table["other"].to_numpy()))
    return table.rename(columns={"other": "holder"})


def longest(
    recording: Recording,
    start_ns: int | None = None,
    end_ns: int | None = None,
    n: int = 20,
    rows: Rows | None = None,
) -> pd.DataFrame:
    """The n longest waits for locks, the longest first.

    Returns
    -------
    pandas.DataFrame
        row, thread (its name), lock (its number), name, start_ns, end_ns, total_ms, holder (its
        name), stack.
    """
    found = waits(recording, start_ns, end_ns, rows)
    found = found[np.argsort(-_total_ns(found), kind="stable")[:n]]
    texts = [*recording.stacks, ""]
    return pd.DataFrame(
        {
            "row": found["row"],
            "thread": _names(recording, found["row"]),
            "lock": found["lock"],
            "name": [recording.locks[lock].name for lock in found["lock"]],
            "start_ns": found["start_ns"],
            "end_ns": found["end_ns"],
            "total_ms": _total_ns(found) / 1e6,
            "holder": _names(recording, found["other"]),
            "stack": [texts[number] for number in found["stack"]],
        }
    )


def limiting(
    recording: Recording, start_ns: int | None = None, end_ns: int | None = None
) -> Limit | None:
    """The lock that was waited for longest; None if none was."""
    table = lock_waits(recording, start_ns, end_ns)
    if table.empty:
        return None
    first = table.iloc[0]
    states = recording.thread_states(None, start_ns, end_ns)
    awake = float(states[["running", "ready", "waiting", "spinning"]].to_numpy().sum())
    share = float(first["total_s"]) / awake
    return Limit(
        int(first["lock"]), str(first["name"]), str(first["kind"]), float(first["total_s"]), share
    )
