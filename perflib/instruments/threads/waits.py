"""What the threads of a recording waited for, and on whom."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from perflib.instruments.threads.formats import ALL, Selection
from perflib.instruments.threads.intervals import waits
from perflib.instruments.threads.lock_names import LINE_BYTES
from perflib.instruments.threads.recording import Recording


def _table(found: npt.NDArray[np.void]) -> pd.DataFrame:
    table = pd.DataFrame({name: found[name].astype(np.int64) for name in found.dtype.names or ()})
    return table.assign(total_ns=table["waiting_ns"] + table["ready_ns"])


def _grouped(recording: Recording, found: npt.NDArray[np.void], *by: str) -> pd.DataFrame:
    """Waits and their time by lock and further columns, the longest total first."""
    keys = ["lock", *by]
    table = _table(found).groupby(keys, as_index=False).agg(
        waits=("total_ns", "size"), waiting_s=("waiting_ns", "sum"), ready_s=("ready_ns", "sum"),
        total_s=("total_ns", "sum"), longest_ms=("total_ns", "max"),
    )  # fmt: skip
    for column, unit_ns in (("waiting_s", 1e9), ("ready_s", 1e9), ("total_s", 1e9),
                            ("longest_ms", 1e6)):  # fmt: skip
        table[column] /= unit_ns
    locks = [recording.locks[number] for number in table["lock"]]
    for name in ("kind", "name"):
        table.insert(1, name, pd.Series([getattr(lock, name) for lock in locks], dtype=object))
    return table.sort_values(
        ["total_s", *keys], ascending=[False, *(True for _ in keys)], ignore_index=True
    )


def lock_waits(recording: Recording, selection: Selection = ALL) -> pd.DataFrame:
    """What was waited for, the longest total first.

    Returns
    -------
    pandas.DataFrame
        One row a lock that was waited for: lock (its number), name, kind, waits, waiting_s,
        ready_s (run-queue delay before it ran again), total_s (both: what the job's own clock
        would show), longest_ms, threads (how many waited), on_its_line (what else is on the
        line of 64 bytes on which it begins: static variables, by the symbol table, and locks that
        were waited for, by their addresses; whoever writes there disturbs whoever takes it).
    """
    found = waits(recording, selection)
    threads = _table(found).groupby("lock")["row"].nunique()
    table = _grouped(recording, found)
    return table.assign(
        threads=threads[table["lock"]].to_numpy(),
        on_its_line=pd.Series(_on_lines(recording, table["lock"].tolist()), dtype=object),
    )


def _on_lines(recording: Recording, numbers: Sequence[int]) -> list[str]:
    """Of each lock what else is on its line."""
    locks = recording.locks
    by_line: dict[tuple[int, int], list[int]] = {}
    for number in numbers:
        lock = locks[number]
        by_line.setdefault((lock.pid, lock.address // LINE_BYTES), []).append(number)
    texts = []
    for number in numbers:
        mine = locks[number]
        near = by_line[mine.pid, mine.address // LINE_BYTES]
        others = [locks[one] for one in near if one != number and locks[one].kind != "join"]
        if mine.kind == "join" or not mine.address:
            others = []
        heap = [f"{one.name} at {one.address:#x}" for one in others if one.name not in mine.beside]
        texts.append(", ".join((*mine.beside, *heap)))
    return texts


def wait_paths(
    recording: Recording, lock: int | None = None, selection: Selection = ALL
) -> pd.DataFrame:
    """From where locks (or one) were waited for, the longest total first.

    Returns
    -------
    pandas.DataFrame
        lock (its number), name, stack (its text; "" where it is not known), waits, total_s.
    """
    table = _grouped(recording, waits(recording, selection, lock), "stack")
    table["stack"] = pd.Series(recording.stack_texts(table["stack"]), dtype=object)
    return table[["lock", "name", "stack", "waits", "total_s"]]


def lock_holders(
    recording: Recording, lock: int | None = None, selection: Selection = ALL
) -> pd.DataFrame:
    """Which threads released what was waited for, the longest total first.

    Returns
    -------
    pandas.DataFrame
        lock (its number), name, holder (its row; -1: not known), thread (its name), waits, total_s.
    """
    table = _grouped(recording, waits(recording, selection, lock), "other")
    threads = pd.Series(recording.thread_names(table["other"]), dtype=object)
    table = table.assign(holder=table["other"], thread=threads)
    return table[["lock", "name", "holder", "thread", "waits", "total_s"]]


def longest_waits(recording: Recording, n: int = 20, selection: Selection = ALL) -> pd.DataFrame:
    """The n longest waits for locks, the longest first.

    Returns
    -------
    pandas.DataFrame
        row, thread (its name), lock (its number), name, start_ns, end_ns, total_ms, holder (its
        name), stack.
    """
    table = _table(waits(recording, selection))
    table = table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)[:n]
    return pd.DataFrame(
        {
            "row": table["row"],
            "thread": pd.Series(recording.thread_names(table["row"]), dtype=object),
            "lock": table["lock"],
            "name": [recording.locks[lock].name for lock in table["lock"]],
            "start_ns": table["start_ns"],
            "end_ns": table["end_ns"],
            "total_ms": table["total_ns"] / 1e6,
            "holder": pd.Series(recording.thread_names(table["other"]), dtype=object),
            "stack": pd.Series(recording.stack_texts(table["stack"]), dtype=object),
        }
    )
