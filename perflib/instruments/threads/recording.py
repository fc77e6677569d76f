"""A recording of threads; `concurrency`, `waits` and `samples` answer questions about it.

A recording is a folder. ``threads.npy``, ``intervals.npy`` (grouped by thread, then by time),
``samples.npy`` (by time) and ``lost.npy`` have the records of `threads.formats`,
``stacks.txt`` has one folded stack a line (the outermost frame first, ``;`` between frames), and
``meta.json``, which is written last, has the rest. Arrays are mapped, not read: opening takes no
longer and no more memory for hours of thousands of threads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError  # numpy reads a header as Python
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perflib.instruments.threads.formats import (
    FORMAT,
    INTERVAL,
    LOST,
    META,
    SAMPLE,
    STATES,
    THREAD,
    Flag,
    Lock,
    Rows,
    Selection,
)
from perflib.model.errors import UserError
from perflib.model.expressions import Expression
from perflib.store.files import json_of
from perflib.store.regular import check_regular, open_to_read

_FAR_NS = 1 << 61  # from 0: no time is further, and differences fit into 64 bits
_Time = Annotated[int, Field(ge=-_FAR_NS, le=_FAR_NS)]
_Count = Annotated[int, Field(ge=0, le=_FAR_NS)]


class _Shape(BaseModel):
    model_config = ConfigDict(strict=True)


class _Lock(_Shape):
    name: str
    kind: str
    address: int
    pid: int
    beside: list[str] = []


class _Lost(_Shape):
    events: _Count = 0
    samples: _Count = 0


class _Meta(_Shape):  # META's, and what only a file has
    backend: str
    clock: str
    start_ns: _Time
    end_ns: _Time
    job_pid: int
    cpus: _Count
    sample_period_ns: float
    remarks: list[str]
    lost: _Lost
    cut: str
    others_busy_ns: int
    names: list[str]
    locks: list[_Lock]
    stacks: _Count


@dataclass(frozen=True, eq=False)
class Recording:
    """What the threads of a job did.

    Attributes
    ----------
    folder
        Where it is.
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
        ``samples``), ``cut`` (why it ends early, or ""), ``others_busy_ns`` (CPU time of other
        processes while a thread of the job was ready).
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

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """Open a recording.

        Raises
        ------
        UserError
            The folder has none, one of a later format, or one that is damaged.
        """
        folder = Path(folder)
        meta = _meta(folder)
        table = _array(folder, "threads", THREAD)
        intervals = _array(folder, "intervals", INTERVAL)
        counts, names, n_stacks = table["intervals"], meta.pop("names"), meta.pop("stacks")
        first = np.append(0, np.cumsum(counts))
        whole = ((counts >= 0) & (counts <= len(intervals))).all() and first[-1] == len(intervals)
        if not whole or len(names) != len(table):
            raise _damaged(folder, "its threads and its intervals do not belong together")
        threads = pd.DataFrame({name: table[name] for name in ("tid", "pid")})
        threads["name"] = pd.Series(names, dtype=object)
        threads["start_ns"], threads["end_ns"] = table["start_ns"], table["end_ns"]
        locks = [
            Lock(**{**lock, "beside": tuple(lock.get("beside", ()))}) for lock in meta.pop("locks")
        ]
        try:
            text = _read(folder / "stacks.txt").decode(errors="surrogateescape")
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

    @property
    def start_ns(self) -> int:
        """When it begins."""
        return int(self.meta["start_ns"])

    @property
    def end_ns(self) -> int:
        """When it ends."""
        return int(self.meta["end_ns"])

    def span(self, selection: Selection) -> tuple[int, int]:
        """The begin and the end of what is selected."""
        start = self.start_ns if selection.start_ns is None else int(selection.start_ns)
        end = self.end_ns if selection.end_ns is None else int(selection.end_ns)
        start, end = (max(-_FAR_NS, min(time_ns, _FAR_NS)) for time_ns in (start, end))
        return start, max(start, end)

    def check(
        self,
        *,
        rows: npt.NDArray[Any] | None = None,
        others: npt.NDArray[Any] | None = None,
        stacks: npt.NDArray[Any] | None = None,
        locks: npt.NDArray[Any] | None = None,
    ) -> None:
        """Numbers in its records, before they are looked up: opening does not read them all.

        Raises
        ------
        UserError
            One is of no thread (``others`` may be -1, as ``stacks``), stack or lock that there is.
        """
        for what, numbers, least, count in (
            ("thread", rows, 0, len(self.threads)),
            ("thread", others, -1, len(self.threads)),
            ("stack", stacks, -1, len(self.stacks)),
            ("lock", locks, 0, len(self.locks)),
        ):
            if numbers is not None and len(numbers):
                for number in (int(numbers.min()), int(numbers.max())):
                    if not least <= number < count:
                        raise _damaged(self.folder, f"it names {what} {number} of {count}")

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
        wrong = wanted[(wanted < 0) | (wanted >= len(self.threads))]
        if len(wrong):
            there = f"rows go from 0 to {len(self.threads) - 1}"
            msg = f"there is no thread {wrong[0]}: "
            raise UserError(msg + (there if len(self.threads) else "there are no threads"))
        return wanted.astype(np.int32)

    def selected(
        self,
        selection: Selection,
        found: npt.NDArray[np.void],
    ) -> npt.NDArray[np.void]:
        """Those of some records, with fields ``stack`` and maybe ``lock``, that a selection keeps.

        By its locks and its function alone: time and threads are whoever's who found them.

        Raises
        ------
        UserError
            There is no such lock, or the function is no regular expression.
        """
        if selection.locks is not None:
            locks = np.asarray(selection.locks, dtype=np.int64)
            wrong = locks[(locks < 0) | (locks >= len(self.locks))]
            if len(wrong):
                msg = f"there is no lock {wrong[0]}: this recording has {len(self.locks)}"
                raise UserError(msg)
            if "lock" in (found.dtype.names or ()):
                found = found[np.isin(found["lock"], locks)]
        if selection.function:
            self.check(stacks=found["stack"])
            used, place = np.unique(found["stack"], return_inverse=True)
            expression = Expression(selection.function, "function")
            finds = [any(expression.finds(text.split(";"))) for text in self.stack_texts(used)]
            found = found[np.array(finds, dtype=bool)[place]]
        return found

    def thread_names(self, rows: Iterable[int]) -> list[str]:
        """The names of threads; "" for -1."""
        names = [*self.threads["name"], ""]
        return [str(names[row]) for row in rows]

    def stack_texts(self, numbers: Iterable[int]) -> list[str]:
        """The texts of stacks; "" for -1."""
        return [self.stacks[number] if number >= 0 else "" for number in numbers]

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
        which = self.intervals[i : i + 1]
        self.check(others=which["other"], stacks=which["stack"])
        self.check(locks=which["lock"][which["lock"] >= 0])
        return {
            "state": STATES[min(one["state"], len(STATES) - 1)],
            "start_ns": int(one["start_ns"]),
            "end_ns": int(one["end_ns"]),
            "cpu": int(one["cpu"]),
            "lock": self.locks[one["lock"]].name if one["lock"] >= 0 else "",
            "holder": self.thread_names([one["other"]])[0],
            "stack": self.stack_texts([one["stack"]])[0],
            "lost": bool(one["flags"] & Flag.LOST),
            "sampled": bool(one["flags"] & Flag.SAMPLED),
        }


# --- opening -------------------------------------------------------------------------------------


def _damaged(folder: Path, why: str) -> UserError:
    msg = f"the recording of threads in {folder} is damaged: {why}. It must be recorded again."
    return UserError(msg)


def _meta(folder: Path) -> dict[str, Any]:
    try:
        meta = json_of(_read(folder / "meta.json"))
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
    missing = [name for name in (*META, "names", "locks", "stacks") if name not in meta]
    if missing:
        raise _damaged(folder, f"meta.json lacks {', '.join(missing)}")
    try:
        _Meta.model_validate(meta)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, wrong["loc"]))
        raise _damaged(folder, f"meta.json: {place}: {wrong['msg'].lower()}") from None
    return dict(meta)


def _read(path: Path) -> bytes:
    with open_to_read(path) as file:
        return file.read()


def _array(folder: Path, name: str, dtype: np.dtype[Any]) -> npt.NDArray[np.void]:
    path = folder / f"{name}.npy"
    try:
        check_regular(path)
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise _damaged(folder, f"{path.name}: {error.strerror or error}") from error
    except (ValueError, EOFError, SyntaxError, TypeError, OverflowError, TokenError) as error:
        raise _damaged(folder, f"{path.name}: {error}") from error
    if array.dtype != dtype or array.ndim != 1:
        raise _damaged(folder, f"{path.name} has other records than it should")
    return array  # type: ignore[no-any-return]
