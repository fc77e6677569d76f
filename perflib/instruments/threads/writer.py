"""Writing a recording of threads, piece by piece."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from perflib.instruments.threads.formats import (
    FORMAT,
    INTERVAL,
    LOST,
    META,
    SAMPLE,
    THREAD,
    Lock,
    Rows,
    State,
)
from perflib.instruments.threads.intervals import mark_lost
from perflib.model.errors import MeasurementError

_PIECE = 1 << 19  # intervals in memory while they are put in order


class Writer:
    """Writes a recording piece by piece: intervals go to disk as they come, in any thread's turn.

    Used in a ``with`` statement, it leaves no file behind that is no recording's.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "meta.json").unlink(missing_ok=True)  # from here on it is no recording
        self.folder = folder
        self._intervals = (folder / "intervals.unsorted").open("wb")
        self._rows = (folder / "rows.unsorted").open("wb")
        self._samples = (folder / "samples.unsorted").open("wb")
        self._sampled_ns = np.iinfo(np.int64).min

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def discard(self) -> None:
        """Close and remove what is only needed until the recording is there."""
        for file in (self._intervals, self._rows, self._samples):
            file.close()
            Path(file.name).unlink(missing_ok=True)

    def add(self, rows: Rows, intervals: npt.NDArray[np.void]) -> None:
        """Add intervals, each of the thread of its row, each thread's in the order of time."""
        self._rows.write(np.ascontiguousarray(rows, dtype=np.int32).data)
        self._intervals.write(np.ascontiguousarray(intervals, dtype=INTERVAL).data)

    def add_samples(self, samples: npt.NDArray[np.void]) -> None:
        """Add samples in the order of time; one that comes late counts as at the last one's."""
        if len(samples):
            ordered = np.sort(samples, order="time_ns", kind="stable")
            np.maximum(ordered["time_ns"], self._sampled_ns, out=ordered["time_ns"])
            self._sampled_ns = ordered["time_ns"][-1]
            self._samples.write(ordered.data)

    def close(
        self,
        *,
        threads: pd.DataFrame,
        stacks: Sequence[str],
        locks: Sequence[Lock],
        lost: npt.NDArray[np.void] | None,
        meta: dict[str, Any],
        lock_of: Sequence[int] | None = None,
        keep: Sequence[bool] | npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Put the intervals in order, and write everything else.

        Parameters
        ----------
        threads
            tid, pid, name, start_ns, end_ns of each row.
        stacks, locks, lost, meta
            As `Recording` has them.
        lock_of
            The lock that each number in the intervals stands for (-1: none); else the numbers are
            those of ``locks``. Who waits for a thread's end (``join``) sleeps: that is no lock.
        keep
            The rows to keep. The others' intervals are left out, and who waited for them, waited
            for an unknown thread.

        Raises
        ------
        MeasurementError
            Intervals of one thread overlap, or belong to no thread.
        """
        for file in (self._intervals, self._rows, self._samples):
            file.flush()
        kept = np.ones(len(threads), dtype=bool) if keep is None else np.asarray(keep, dtype=bool)
        row_of = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1).astype(np.int32)
        lock_map = None if lock_of is None else np.append(lock_of, -1).astype(np.int32)
        threads = threads[kept]
        missing = np.ascontiguousarray([] if lost is None else lost, dtype=LOST)
        joins = np.array([*(lock.kind == "join" for lock in locks), False])
        counts = self._order(row_of, int(kept.sum()), lock_map, joins, missing)
        self._order_samples(row_of)
        table = np.zeros(len(threads), dtype=THREAD)
        for column in ("tid", "pid", "start_ns", "end_ns"):
            table[column] = threads[column]
        table["intervals"] = counts
        np.save(self.folder / "threads.npy", table)
        np.save(self.folder / "lost.npy", missing)
        with (self.folder / "stacks.txt").open("wb") as lines:
            for stack in stacks:
                lines.write(stack.replace("\n", " ").encode(errors="surrogateescape") + b"\n")
        written = {
            **META,
            **meta,
            "format": FORMAT,
            "stacks": len(stacks),
            "names": [str(name) for name in threads["name"]],
            "locks": [asdict(lock) for lock in locks],
        }
        # Last and at once: a folder without it is no recording, so none is ever half written.
        temporary = self.folder / "meta.json.new"
        temporary.write_text(json.dumps(written, indent=1))
        temporary.replace(self.folder / "meta.json")
        self.discard()

    def _order(
        self,
        row_of: npt.NDArray[np.int32],
        n_rows: int,
        lock_map: npt.NDArray[np.int32] | None,
        joins: npt.NDArray[np.bool_],
        missing: npt.NDArray[np.void],
    ) -> npt.NDArray[np.int64]:
        """Group the intervals by row, flag those that lost events touch; how many each row has."""
        rows = _mapped(self.folder / "rows.unsorted", np.dtype("i4"))
        unsorted = _mapped(self.folder / "intervals.unsorted", INTERVAL)
        counts = np.zeros(len(row_of), dtype=np.int64)
        for at in range(0, len(rows), _PIECE):
            piece = np.asarray(rows[at : at + _PIECE])
            if piece.min() < 0 or piece.max() >= len(row_of) - 1:
                msg = f"an interval belongs to row {piece.max()} of {len(row_of) - 1} threads"
                raise MeasurementError(msg)
            counts += np.bincount(piece, minlength=len(row_of))
        counts = counts[:-1][row_of[:-1] >= 0]
        first = np.append(0, np.cumsum(counts))
        following = first.copy()
        reached = np.full(n_rows, np.iinfo(np.int64).min)
        ordered = np.lib.format.open_memmap(
            self.folder / "intervals.npy", mode="w+", dtype=INTERVAL, shape=(int(counts.sum()),)
        )
        for at in range(0, len(rows), _PIECE):
            row = row_of[rows[at : at + _PIECE]]
            order = np.argsort(row, kind="stable")
            order = order[np.searchsorted(row[order], 0) :]
            row, piece = row[order], np.array(unsorted[at : at + _PIECE][order])
            piece["other"] = row_of[piece["other"]]
            if lock_map is not None:
                piece["lock"] = lock_map[piece["lock"]]
            ends = joins[piece["lock"]]
            piece["state"][ends & (piece["state"] == State.WAITING)] = State.SLEEPING
            piece["lock"][ends] = -1
            present, begins, many = np.unique(row, return_index=True, return_counts=True)
            before = np.append(np.iinfo(np.int64).min, piece["end_ns"][:-1])
            before[begins] = reached[present]
            wrong = np.flatnonzero(
                (piece["start_ns"] < before) | (piece["end_ns"] < piece["start_ns"])
            )
            if len(wrong):
                msg = f"intervals of thread {row[wrong[0]]} overlap at {piece[wrong[0]]}"
                raise MeasurementError(msg)
            reached[present] = piece["end_ns"][begins + many - 1]
            ordered[np.repeat(following[present] - begins, many) + np.arange(len(row))] = piece
            following[present] += many
        mark_lost(ordered, first, missing)
        ordered.flush()
        return counts

    def _order_samples(self, row_of: npt.NDArray[np.int32]) -> None:
        unsorted = _mapped(self.folder / "samples.unsorted", SAMPLE)
        pieces = range(0, len(unsorted), _PIECE)
        n = sum(int((row_of[unsorted["thread"][at : at + _PIECE]] >= 0).sum()) for at in pieces)
        samples = np.lib.format.open_memmap(
            self.folder / "samples.npy", mode="w+", dtype=SAMPLE, shape=(n,)
        )
        filled = 0
        for at in pieces:
            piece = np.array(unsorted[at : at + _PIECE])
            piece["thread"] = row_of[piece["thread"]]
            piece = piece[piece["thread"] >= 0]
            samples[filled : filled + len(piece)] = piece
            filled += len(piece)
        samples.flush()


def _mapped(path: Path, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if path.stat().st_size == 0:
        return np.empty(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r")
