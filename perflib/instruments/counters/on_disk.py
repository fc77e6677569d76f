"""Counts on disk as they come: a tail that is appended to, and Parquet files that it becomes.

Each interval is written in one piece before the next begins, so a process that is killed loses one
interval at most. The files stay below a bound: when they would pass it, the oldest intervals are
merged into longer ones, in which nothing that was counted is lost but *when* within the interval.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.model.errors import MeasurementError, UserError
from perflib.store.files import json_of
from perflib.store.regular import open_regular
from perflib.store.run_files import read_table, write_parquet

RECORD = np.dtype(
    [
        ("time_ns", "<i8"),
        ("elapsed_ns", "<i8"),
        ("counter", "<i8"),
        ("value", "<f8"),
        ("on_ns", "<f8"),
        ("all_ns", "<f8"),
    ]
)
"""One counter in one interval: when the interval ended (CLOCK_REALTIME) and how long it was, the
counter's number, what was counted (NaN: it could not be read), how long it was on a counter and how
long it should have been, summed over threads or CPUs."""

_TAIL, _NAMES = "tail", "counters.json"
_ROWS = 1 << 16  # of a Parquet file
_FLUSH_S = 1.0  # at most this much is lost when the *machine* dies
_MERGED = 4  # intervals that become one
_COARSEST = 12  # 4 to the power of it: from a tenth of a second to three weeks


class CountFiles:
    """The folder of one recording; open it again to continue.

    Parameters
    ----------
    folder
        Made where there is none.
    most_bytes
        The bound of all Parquet files together; the tail next to them has 3 MB at most.

    Attributes
    ----------
    merged
        How often old intervals were merged.

    Raises
    ------
    MeasurementError
        The folder cannot be written.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.folder = folder
        self.merged = 0
        self._most_bytes = most_bytes
        self._synced_s = time.monotonic()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for left in folder.glob("*.new"):  # of a process that was killed while it wrote
                left.unlink()
            self._tail = open_regular(
                folder / _TAIL, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644
            )
            size = os.fstat(self._tail).st_size
            self._rows = size // RECORD.itemsize
            self._mend()
        except OSError as error:
            msg = f"counts cannot be written into {folder}: {error.strerror}"
            raise MeasurementError(msg) from error

    def _mend(self) -> None:
        """Put right what a process left that was killed at a bad moment: nothing is there twice."""
        for path in self._files():
            begin, end, level = _span(path)
            others = map(_span, self._files())
            if any(b <= begin and end <= e and level < merged for b, e, merged in others):
                path.unlink()  # it was merged into another
        last_ns = max((_span(path)[1] for path in self._files()), default=0)
        rows = self._of_tail()
        if len(rows) and rows["time_ns"][0] <= last_ns:  # it had become a file
            self._rows = 0
        elif len(rows):  # killed while an interval was written: a part of it is none
            _, counts = np.unique(rows["time_ns"], return_counts=True)
            if len(counts) > 1 and counts[-1] < counts[-2]:
                self._rows -= int(counts[-1])
        os.ftruncate(self._tail, self._rows * RECORD.itemsize)  # a record that was cut off, too

    def close(self) -> None:
        """Let go of the tail, which stays."""
        if self._tail >= 0:
            os.close(self._tail)
            self._tail = -1

    def names(self, wanted: Iterable[Sequence[str]]) -> list[list[str]]:
        """What the numbers of the records stand for: as it was when the first was written.

        Raises
        ------
        MeasurementError
            The file of names cannot be written.
        UserError
            It is damaged.
        """
        path = self.folder / _NAMES
        try:
            if not path.exists():
                new = path.with_suffix(".new")
                new.write_text(json.dumps([list(one) for one in wanted]), encoding="utf-8")
                new.replace(path)
            found = json_of(path.read_text(encoding="utf-8"))
            return [[str(word) for word in one] for one in found]
        except OSError as error:
            raise self._refused(error) from error
        except (ValueError, TypeError) as error:
            msg = f"{path} is damaged: {error}"
            raise UserError(msg) from error

    def append(self, rows: NDArray[Any]) -> None:
        """One interval. It survives the death of this process from here on.

        Raises
        ------
        MeasurementError
            The disk is full, or the file too large.
        """
        data = memoryview(np.ascontiguousarray(rows, dtype=RECORD).tobytes())
        end = self._rows * RECORD.itemsize
        try:
            while data:
                data = data[os.write(self._tail, data) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._tail, end)
            raise self._refused(error) from error
        self._rows += len(rows)
        if time.monotonic() - self._synced_s > _FLUSH_S:
            os.fdatasync(self._tail)
            self._synced_s = time.monotonic()
        if self._rows >= _ROWS:
            self._pack()

    def rows(self) -> Iterator[NDArray[Any]]:
        """All that was recorded, the oldest first, a piece at a time.

        Raises
        ------
        UserError
            A file is damaged.
        """
        for path in self._files():
            yield _read(path)
        yield self._of_tail()

    def _of_tail(self) -> NDArray[Any]:
        size = self._rows * RECORD.itemsize
        return np.frombuffer(os.pread(self._tail, size, 0), dtype=RECORD)

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("counts-*.parquet"), key=_span)

    def _pack(self) -> None:
        """Make a Parquet file of the tail; killed in between, its rows are in both (`_mend`)."""
        rows = self._of_tail()
        self._write(rows, 0)
        os.ftruncate(self._tail, 0)
        self._rows = 0
        self._bound()

    def _write(self, rows: NDArray[Any], level: int) -> Path:
        begin, end = rows["time_ns"][0] - rows["elapsed_ns"][0], rows["time_ns"][-1]
        path = self.folder / f"counts-{begin:020d}-{end:020d}-{level:02d}.parquet"
        new = path.with_suffix(".new")
        import duckdb

        try:
            write_parquet(pd.DataFrame(rows), new, {})
            new.replace(path)
        except (OSError, duckdb.Error) as error:
            new.unlink(missing_ok=True)
            raise self._refused(error) from error
        return path

    def _bound(self) -> None:
        """Merge the oldest files of the finest level until all together are small enough."""
        while len(files := self._files()) > 1:
            if sum(path.stat().st_size for path in files) <= self._most_bytes:
                return
            older = files[:-1]  # the newest stay as they came
            finest = min(_span(path)[2] for path in older)
            if finest == _COARSEST:
                return
            both = [path for path in older if _span(path)[2] == finest][:2]
            rows = np.concatenate([_read(path) for path in both])
            self._write(coarser(rows, _MERGED), finest + 1)
            self.merged += 1
            for path in both:
                path.unlink()

    def _refused(self, error: Exception) -> MeasurementError:
        msg = (
            f"counts cannot be written into {self.folder}: {error}. What was counted "
            "before is kept: make room, then 'perflib run --resume'"
        )
        return MeasurementError(msg)


def coarser(rows: NDArray[Any], times: int) -> NDArray[Any]:
    """So many successive intervals of each counter as one; a gap between two is not bridged."""
    table = pd.DataFrame(rows)
    ends = np.unique(rows["time_ns"])
    begins = pd.Series(rows["time_ns"] - rows["elapsed_ns"]).groupby(rows["time_ns"]).min()
    gap = np.concatenate([[False], begins.to_numpy()[1:] > ends[:-1] + 1])
    part = pd.Series(np.cumsum(gap), index=ends)
    within = part.groupby(part).cumcount() // times
    table["part"] = table["time_ns"].map(part)
    table["bin"] = table["time_ns"].map(within)
    grouped = table.groupby(["part", "bin", "counter"], sort=True)
    summed = grouped[["elapsed_ns", "on_ns", "all_ns"]].sum()
    summed["value"] = grouped["value"].sum(min_count=1)  # of unknown ones only it is unknown
    summed["time_ns"] = grouped["time_ns"].max()
    summed = summed.sort_values(["time_ns", "counter"])
    found: NDArray[Any] = np.zeros(len(summed), dtype=RECORD)
    for name, column in summed.reset_index().items():
        if name in (RECORD.names or ()):
            found[str(name)] = column.to_numpy()
    return found


def _span(path: Path) -> tuple[int, int, int]:
    """When a file's intervals begin and end, and how often they were merged."""
    _, begin, end, level = path.stem.split("-")
    return int(begin), int(end), int(level)


def _read(path: Path) -> NDArray[Any]:
    try:
        table = read_table(path)
        rows: NDArray[Any] = np.zeros(len(table), dtype=RECORD)
        for name in RECORD.names or ():
            rows[name] = table[name].to_numpy()
    except (KeyError, TypeError, ValueError) as error:
        msg = f"{path} is damaged: {error}"
        raise UserError(msg) from error
    return rows
