"""A recording of threads: its files, and the questions that can be asked of it.

A recording is a folder. ``threads.npy``, ``intervals.npy`` (grouped by thread, then by time),
``samples.npy`` (by time) and ``lost.npy`` have the records of `perflib.threads.formats`,
``stacks.txt`` has one folded stack a line (the outermost frame first, ``;`` between frames), and
``meta.json``, which is written last, has the rest. Arrays are mapped, not read: opening takes no
longer and no more memory for hours of thousands of threads.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from perflib.errors import MeasurementError, UserError
from perflib.threads import intervals as kernel
from perflib.threads import waits
from perflib.threads.formats import EVENT, INTERVAL, LOCK_KINDS, LOST, SAMPLE, STATES, Lock

__all__ = [
    "EVENT",
    "FORMAT",
    "INTERVAL",
    "LOCK_KINDS",
    "LOST",
    "SAMPLE",
    "STATES",
    "Lock",
    "Recording",
    "Writer",
]

FORMAT = 1
_THREAD = np.dtype(
    [("tid", "i4"), ("pid", "i4"), ("start_ns", "i8"), ("end_ns", "i8"), ("intervals", "i8")],
    align=True,
)
_META: dict[str, Any] = {
    "backend": "",
    "clock": "CLOCK_MONOTONIC",
    "start_ns": 0,
    "end_ns": 0,
    "job_pid": 0,
    "cpus": 1,
    "sample_period_ns": 0,
    "remarks": [],
    "lost": {"events": 0, "samples": 0},
    "cut": "",
    "others_busy_ns": 0,
}
_PIECE = 1 << 19  # intervals in memory while they are put in order

Rows = Sequence[int] | npt.NDArray[np.integer[Any]]


class Writer:
    """Writes a recording piece by piece: intervals go to disk as they come, in any thread's turn.

    Examples
    --------
    >>> writer = Writer(folder)  # doctest: +SKIP
    >>> writer.add(rows, intervals)  # doctest: +SKIP
    >>> recording = writer.close(threads=threads, stacks=[], locks=[], lost=lost, meta=meta)
    ... # doctest: +SKIP
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "meta.json").unlink(missing_ok=True)  # from here on it is no recording
        self.folder = folder
        self._intervals = (folder / "intervals.unsorted").open("w+b")
        self._rows = (folder / "rows.unsorted").open("w+b")
        self._samples = (folder / "samples.unsorted").open("w+b")
        self._sampled_ns = np.iinfo(np.int64).min

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
        keep: npt.NDArray[np.bool_] | None = None,
    ) -> Recording:
        """Put the intervals in order, and write everything else.

        Parameters
        ----------
        threads
            tid, pid, name, start_ns, end_ns of each row.
        stacks, locks, lost, meta
            As `Recording` has them.
        lock_of
            The lock that each number in the intervals stands for (-1: none); else the numbers are
            those of ``locks``.
        keep
            The rows to keep. The others' intervals are left out, and who waited for them, waited
            for an unknown thread.

        Raises
        ------
        MeasurementError
            Intervals of one thread overlap, or belong to no thread.
        """
        kept = np.ones(len(threads), dtype=bool) if keep is None else np.asarray(keep, dtype=bool)
        row_of = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1).astype(np.int32)
        lock_map = None if lock_of is None else np.append(lock_of, -1).astype(np.int32)
        threads = threads[kept]
        counts = self._order(row_of, int(kept.sum()), lock_map)
        self._order_samples(row_of)
        table = np.zeros(len(threads), dtype=_THREAD)
        for column in ("tid", "pid", "start_ns", "end_ns"):
            table[column] = threads[column]
        table["intervals"] = counts
        np.save(self.folder / "threads.npy", table)
        np.save(self.folder / "lost.npy", np.empty(0, dtype=LOST) if lost is None else lost)
        with (self.folder / "stacks.txt").open(
            "w", encoding="utf-8", errors="surrogateescape", newline="\n"
        ) as file:
            file.writelines(stack.replace("\n", " ") + "\n" for stack in stacks)
        written = {
            **_META,
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
        return Recording.open(self.folder)

    def _order(
        self, row_of: npt.NDArray[np.int32], n_rows: int, lock_map: npt.NDArray[np.int32] | None
    ) -> npt.NDArray[np.int64]:
        """Group the intervals by row; how many each has."""
        for file in (self._rows, self._intervals):
            file.close()
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
        following = np.append(0, np.cumsum(counts))
        reached = np.full(n_rows, np.iinfo(np.int64).min)
        ordered = np.lib.format.open_memmap(  # type: ignore[no-untyped-call]
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
        ordered.flush()
        del rows, unsorted
        for name in ("rows.unsorted", "intervals.unsorted"):
            (self.folder / name).unlink()
        return counts

    def _order_samples(self, row_of: npt.NDArray[np.int32]) -> None:
        self._samples.close()
        path = self.folder / "samples.unsorted"
        unsorted = _mapped(path, SAMPLE)
        pieces = range(0, len(unsorted), _PIECE)
        n = sum(
            int((row_of[unsorted["thread"][at : at + _PIECE]] >= 0).sum()) for at in pieces
        )
        samples = np.lib.format.open_memmap(  # type: ignore[no-untyped-call]
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
        del unsorted
        path.unlink()


def _mapped(path: Path, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if path.stat().st_size == 0:
        return np.empty(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r")


@dataclass(frozen=True, eq=False)
class Recording:
    """What the threads of a job did.

    Attributes
    ----------
    folder
        Where it lies.
    threads
        One row a thread: tid, pid, name, start_ns, end_ns. A thread's number is its row.
    intervals
        Records ``INTERVAL``, grouped by thread; those of row r are
        ``intervals[first[r]:first[r + 1]]``.
    first
        See ``intervals``.
    samples
        Records ``SAMPLE``, in the order of time.
    stacks
        Folded stacks, the outermost frame first.
    locks
        What threads waited for.
    lost
        Records ``LOST``: where events are missing.
    meta
        ``backend``, ``clock``, ``start_ns``, ``end_ns``, ``job_pid``, ``cpus`` (how many the job
        could use), ``sample_period_ns``, ``remarks`` (sentences), ``lost`` (how many ``events`` and
        ``samples``), ``cut`` (why it ends early, or ""), ``others_busy_ns`` (CPU time that other
        processes had while a thread of the job was ready).
    """

    folder: Path
    threads: pd.DataFrame
    intervals: npt.NDArray[np.void]
    first: npt.NDArray[np.int64]
    samples: npt.NDArray[np.void]
    stacks: list[str]
    locks: list[Lock]
    lost: npt.NDArray[np.void]
    meta: dict[str, Any]

    # --- files -----------------------------------------------------------------------------------

    @classmethod
    def write(
        cls,
        folder: Path,
        *,
        threads: pd.DataFrame,
        intervals: npt.NDArray[np.void],
        rows: Rows,
        samples: npt.NDArray[np.void],
        stacks: Sequence[str],
        locks: Sequence[Lock],
        lost: npt.NDArray[np.void] | None = None,
        meta: dict[str, Any],
    ) -> Self:
        """Write a recording that is in memory; ``rows`` has the thread of each interval.

        Intervals may come in any order. What cannot be held in memory is written by a `Writer`.

        Raises
        ------
        MeasurementError
            Intervals of one thread overlap, or belong to no thread.
        """
        writer = Writer(folder)
        order = np.argsort(intervals["start_ns"], kind="stable")
        writer.add(np.asarray(rows, dtype=np.int32)[order], intervals[order])
        writer.add_samples(samples)
        writer.close(threads=threads, stacks=stacks, locks=locks, lost=lost, meta=meta)
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open a recording.

        Raises
        ------
        UserError
            The folder has none, one of a later format, or one that is damaged.
        """
        meta = _meta(folder)
        table = _array(folder, "threads", _THREAD)
        intervals = _array(folder, "intervals", INTERVAL)
        first = np.append(0, np.cumsum(table["intervals"]))
        try:
            threads = pd.DataFrame({name: table[name] for name in ("tid", "pid")})
            threads["name"] = pd.Series(meta.pop("names"), dtype=object)
            threads["start_ns"], threads["end_ns"] = table["start_ns"], table["end_ns"]
            locks = [Lock(**lock) for lock in meta.pop("locks")]
            n_stacks = meta.pop("stacks")
        except (KeyError, TypeError) as error:
            raise _damaged(folder, f"meta.json lacks {error}") from error
        if first[-1] != len(intervals) or len(threads["name"].dropna()) != len(table):
            raise _damaged(folder, "its threads and its intervals do not belong together")
        try:
            text = (folder / "stacks.txt").read_text("utf-8", errors="surrogateescape")
        except OSError as error:
            raise _damaged(folder, f"stacks.txt: {error.strerror}") from error
        stacks = text.split("\n")[:-1]
        if len(stacks) != n_stacks:
            raise _damaged(folder, f"it has {len(stacks)} of {n_stacks} stacks")
        return cls(
            folder=folder,
            threads=threads,
            intervals=intervals,
            first=first,
            samples=_array(folder, "samples", SAMPLE),
            stacks=stacks,
            locks=locks,
            lost=_array(folder, "lost", LOST),
            meta=meta,
        )

    # --- what is asked ---------------------------------------------------------------------------

    @property
    def start_ns(self) -> int:
        """When it begins."""
        return int(self.meta["start_ns"])

    @property
    def end_ns(self) -> int:
        """When it ends."""
        return int(self.meta["end_ns"])

    def span(self, start_ns: int | None, end_ns: int | None) -> tuple[int, int]:
        """A span of time; what is not given is the recording's own begin or end."""
        start = self.start_ns if start_ns is None else int(start_ns)
        end = self.end_ns if end_ns is None else int(end_ns)
        return start, max(start, end)

    def rows(self, rows: Rows | None = None) -> npt.NDArray[np.int32]:
        """Rows as an array; None: all.

        Raises
        ------
        UserError
            There is no such row.
        """
        if rows is None:
            return np.arange(len(self.threads), dtype=np.int32)
        wanted = np.asarray(rows, dtype=np.int64)
        if len(wanted) and not (0 <= wanted.min() and wanted.max() < len(self.threads)):
            msg = f"there is no thread {wanted.max()}: rows go from 0 to {len(self.threads) - 1}"
            raise UserError(msg)
        return wanted.astype(np.int32)

    def states_in_bins(
        self, start_ns: int, end_ns: int, bins: int, rows: Rows | None = None
    ) -> npt.NDArray[np.float64]:
        """Nanoseconds of each thread in each bin of time and each state: ``[rows, bins, 6]``.

        Bin b begins at ``start_ns + b * (end_ns - start_ns) // bins``.
        """
        wanted = self.rows(rows)
        slots = np.arange(len(wanted), dtype=np.int32)
        return kernel.states_in_bins(self, wanted, slots, (start_ns, end_ns), bins)

    def thread_states(
        self, rows: Rows | None = None, start_ns: int | None = None, end_ns: int | None = None
    ) -> pd.DataFrame:
        """Seconds of each thread in each state; also its tid, pid and name. The index is the row."""
        wanted, (start, end) = self.rows(rows), self.span(start_ns, end_ns)
        seconds = self.states_in_bins(start, end, 1, wanted)[:, 0, :] / 1e9
        table = self.threads.loc[wanted, ["tid", "pid", "name"]]
        return table.assign(**{state: seconds[:, i] for i, state in enumerate(STATES)})

    def concurrency(
        self, start_ns: int | None = None, end_ns: int | None = None, rows: Rows | None = None
    ) -> npt.NDArray[np.int64]:
        """For how many ns k threads were running (or spinning) at once, for k = 0, 1 ..."""
        return waits.concurrency(self, start_ns, end_ns, rows)

    def effective_concurrency(
        self, start_ns: int | None = None, end_ns: int | None = None, rows: Rows | None = None
    ) -> float:
        """How many threads were running (or spinning) on average; NaN for no time at all."""
        return waits.effective_concurrency(self, start_ns, end_ns, rows)

    def concurrency_over_time(
        self,
        bins: int,
        start_ns: int | None = None,
        end_ns: int | None = None,
        rows: Rows | None = None,
    ) -> pd.DataFrame:
        """How many threads were in each state on average, bin by bin: see `waits`."""
        return waits.concurrency_over_time(self, bins, start_ns, end_ns, rows)

    def serial(self) -> waits.Serial:
        """The begin and the end of the job that only one thread worked: see `waits`."""
        return waits.serial(self)

    def lock_waits(
        self, start_ns: int | None = None, end_ns: int | None = None, rows: Rows | None = None
    ) -> pd.DataFrame:
        """One row a lock, the longest total first: see `waits`."""
        return waits.lock_waits(self, start_ns, end_ns, rows)

    def paths(
        self,
        lock: int | None = None,
        start_ns: int | None = None,
        end_ns: int | None = None,
        rows: Rows | None = None,
    ) -> pd.DataFrame:
        """From where locks (or one) were waited for, the longest total first: see `waits`."""
        return waits.paths(self, lock, start_ns, end_ns, rows)

    def holders(
        self,
        lock: int | None = None,
        start_ns: int | None = None,
        end_ns: int | None = None,
        rows: Rows | None = None,
    ) -> pd.DataFrame:
        """Which threads let go of what was waited for, the longest total first: see `waits`."""
        return waits.holders(self, lock, start_ns, end_ns, rows)

    def longest(
        self,
        start_ns: int | None = None,
        end_ns: int | None = None,
        n: int = 20,
        rows: Rows | None = None,
    ) -> pd.DataFrame:
        """The n longest waits for locks: see `waits`."""
        return waits.longest(self, start_ns, end_ns, n, rows)

    def at(self, row: int, time_ns: int) -> dict[str, Any]:
        """What a thread does at a time; empty where nothing is recorded.

        ``state``, ``start_ns``, ``end_ns``, ``cpu``, ``lock`` (its name), ``holder`` (the thread
        that held it, or that woke this one), ``stack`` (texts are "" where not known), ``lost``
        (events are missing here), ``sampled`` (its ends are not stamped).
        """
        (row,) = self.rows([row]).tolist()
        low, high = int(self.first[row]), int(self.first[row + 1])
        i = bisect_right(self.intervals, time_ns, low, high, key=lambda one: one["start_ns"]) - 1
        if i < low or time_ns >= self.intervals[i]["end_ns"]:
            return {}
        one = self.intervals[i]
        return {
            "state": STATES[one["state"]],
            "start_ns": int(one["start_ns"]),
            "end_ns": int(one["end_ns"]),
            "cpu": int(one["cpu"]),
            "lock": self.locks[one["lock"]].name if one["lock"] >= 0 else "",
            "holder": str(self.threads["name"].iloc[one["other"]]) if one["other"] >= 0 else "",
            "stack": self.stacks[one["stack"]] if one["stack"] >= 0 else "",
            "lost": bool(one["flags"] & 1),
            "sampled": bool(one["flags"] & 2),
        }

    def cpu_samples(
        self, start_ns: int | None = None, end_ns: int | None = None, rows: Rows | None = None
    ) -> pd.DataFrame:
        """Where threads spent CPU time, as `perflib.profiling.views` takes it.

        The period of a sample is the CPU time in ns that it stands for.
        """
        start, end = self.span(start_ns, end_ns)
        low = bisect_left(self.samples, start, key=lambda one: one["time_ns"])
        high = bisect_left(self.samples, end, low, key=lambda one: one["time_ns"])
        samples = self.samples[low:high]
        if rows is not None:
            wanted = np.zeros(len(self.threads), dtype=bool)
            wanted[self.rows(rows)] = True
            samples = samples[wanted[samples["thread"]]]
        return self._views_table(
            samples["time_ns"], samples["thread"], samples["stack"], samples["weight_ns"], "cpu"
        )

    def wait_samples(
        self,
        start_ns: int | None = None,
        end_ns: int | None = None,
        rows: Rows | None = None,
        lock: int | None = None,
    ) -> pd.DataFrame:
        """Where threads waited for locks (or one), as `perflib.profiling.views` takes it.

        One row a wait; its period is the time in ns that it took, without a core at the end of it
        included.
        """
        found = waits.waits(self, start_ns, end_ns, rows, lock)
        return self._views_table(
            found["start_ns"],
            found["row"],
            found["stack"],
            found["waiting_ns"] + found["ready_ns"],
            "wait",
        )

    def _views_table(
        self,
        time_ns: npt.NDArray[np.int64],
        row: npt.NDArray[np.int32],
        stack: npt.NDArray[np.int32],
        period: npt.NDArray[np.int64],
        event: str,
    ) -> pd.DataFrame:
        used, codes = np.unique(stack, return_inverse=True)
        texts = [self.stacks[number] if number >= 0 else "" for number in used]
        leaves = [text.rpartition(";")[2] or "[unknown]" for text in texts]
        names, name_of = np.unique(self.threads["name"].to_numpy(dtype=object), return_inverse=True)
        return pd.DataFrame(
            {
                "time_ns": np.array(time_ns),
                "pid": self.threads["pid"].to_numpy()[row],
                "tid": self.threads["tid"].to_numpy()[row],
                "comm": pd.Categorical.from_codes(name_of[row], pd.Index(names)),
                "event": pd.Categorical.from_codes(np.zeros(len(row), dtype=np.int8), [event]),
                "period": np.array(period),
                "symbol": _categorical(codes, leaves),
                "object": pd.Categorical.from_codes(np.zeros(len(row), dtype=np.int8), [""]),
                "stack": _categorical(codes, texts),
            }
        )


def _categorical(codes: npt.NDArray[np.integer[Any]], texts: Sequence[str]) -> pd.Categorical:
    numbers, names = pd.factorize(np.asarray(texts, dtype=object))
    return pd.Categorical.from_codes(numbers[codes], pd.Index(names, dtype=str))


# --- opening -------------------------------------------------------------------------------------


def _damaged(folder: Path, why: str) -> UserError:
    msg = f"the recording of threads in {folder} is damaged: {why}. It must be recorded again."
    return UserError(msg)


def _meta(folder: Path) -> dict[str, Any]:
    try:
        meta = json.loads((folder / "meta.json").read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        msg = f"{folder} has no recording of threads: no meta.json is there"
        raise UserError(msg) from None
    except OSError as error:
        msg = f"{folder} cannot be read: {error.strerror}"
        raise UserError(msg) from error
    except ValueError as error:
        raise _damaged(folder, f"meta.json: {error}") from error
    number = meta.pop("format", None) if isinstance(meta, dict) else None
    if not isinstance(number, int):
        msg = f"{folder} has no recording of threads: its meta.json is something else"
        raise UserError(msg)
    if number > FORMAT:
        msg = (
            f"the recording in {folder} has format {number}, written by a later perflib; this one "
            f"reads up to {FORMAT}: use the later one"
        )
        raise UserError(msg)
    missing = [name for name in _META if name not in meta]
    if missing:
        raise _damaged(folder, f"meta.json lacks {', '.join(missing)}")
    return meta


def _array(folder: Path, name: str, dtype: np.dtype[Any]) -> npt.NDArray[np.void]:
    path = folder / f"{name}.npy"
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise _damaged(folder, f"{path.name}: {error.strerror or error}") from error
    except (ValueError, EOFError) as error:
        raise _damaged(folder, f"{path.name}: {error}") from error
    if array.dtype != dtype or array.ndim != 1:
        raise _damaged(folder, f"{path.name} has other records than it should")
    return array  # type: ignore[no-any-return]
