"""A run while it is being measured: a file to which every trial is appended as it ends.

The first line holds what is needed to continue (experiment, parameters, provenance, plan). Each
other line is one trial; a line ``pilot`` adds to the plan what was measured before the first
trial. A process killed in the middle of a line loses that trial and no other: the cut line is
dropped and the trial is taken again. (A machine that dies may leave a damaged line; what follows
it is dropped as well.)
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import time
from pathlib import Path
from typing import Any, Self

from perflib.model.errors import MeasurementError, UserError
from perflib.store.files import json_of
from perflib.store.ownership import (
    check_writable,
    distrust_status,
    make_folder,
)
from perflib.store.regular import open_regular

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FLUSH_S = 1.0  # at most this much is lost when the *machine* dies; a killed process loses nothing


class Journal:
    """An append-only record of one run; only one process has it open."""

    def __init__(self, path: Path, header: dict[str, Any], trials: list[dict[str, Any]]) -> None:
        import fcntl

        self.path = path
        self.header = header
        self.trials = trials
        self.piloted = False
        self._file = _opened(path)
        self._synced = time.monotonic()
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            if not isinstance(error, BlockingIOError):
                raise
            msg = f"run {path.stem} is being measured right now, by another process"
            raise UserError(msg) from None

    @property
    def recordings(self) -> Path:
        """The folder next to the run for what is too large for its file; nobody has made it yet."""
        return self.path.with_name(f"{self.path.name.removesuffix('.journal')}.recordings")

    @classmethod
    def create(cls, path: Path, header: dict[str, Any]) -> Self:
        """Begin the journal of a new run."""
        try:
            check_writable(path.parent)
            make_folder(path.parent)
            os.close(
                open_regular(path, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
            )  # no two runs share one
            journal = cls(path, header, [])
        except OSError as error:
            msg = f"the run's journal cannot be made: {error}"
            raise MeasurementError(msg) from error
        try:
            journal._write(header)
        except BaseException:
            journal.close(remove=True)
            raise
        return journal

    @classmethod
    def reopen(cls, path: Path) -> Self:
        """Continue the journal of a run that was killed or interrupted.

        Raises
        ------
        UserError
            There is none, another process has it, or another user could have written it.
        MeasurementError
            It is damaged, or cannot be opened.
        """
        if not path.is_file():
            others = ", ".join(sorted(other.stem for other in path.parent.glob("*.journal")))
            msg = f"there is no unfinished run {path.stem!r}; unfinished: {others or 'none'}"
            raise UserError(msg)
        try:
            journal = cls(path, {}, [])
        except OSError as error:
            msg = f"the journal {path} cannot be opened: {error.strerror}"
            raise MeasurementError(msg) from error
        try:
            journal._file.seek(0)
            raw = journal._file.read()
            records, whole_bytes = _whole_records(raw)
            if b"\n" not in raw:  # killed before its first line was whole
                path.unlink(missing_ok=True)
                msg = f"run {path.stem} had measured nothing: its journal is removed, start anew"
                raise UserError(msg)
            if not records or not isinstance(records[0].get("plan", {}), dict):
                msg = f"{path} is damaged: remove it and start anew"
                raise MeasurementError(msg)
            os.ftruncate(journal._file.fileno(), whole_bytes)
        except BaseException as error:
            journal.close()
            if not isinstance(error, OSError):
                raise
            msg = f"the journal {path} cannot be read and written: {error.strerror}"
            raise MeasurementError(msg) from error
        journal.header = records[0]
        for record in records[1:]:
            if "pilot" in record:
                journal.header["plan"] = {**journal.header.get("plan", {}), **record["pilot"]}
                journal.piloted = True
            else:
                journal.trials.append(record)
        return journal

    def add_to_plan(self, pilot: dict[str, Any]) -> None:
        """Record what a pilot measured: a resumed run does not measure it again."""
        self._write({"pilot": pilot})
        self.header["plan"] |= pilot
        self.piloted = True

    def append(self, trial: dict[str, Any]) -> None:
        """Record one trial; it survives the death of this process from here on."""
        self._write(trial)
        self.trials.append(
            trial
        )  # before the disk has it, which takes long enough to be interrupted
        self._sync()

    def _write(self, record: dict[str, Any]) -> None:
        line = memoryview(json.dumps(record, separators=(",", ":")).encode() + b"\n")
        end = os.fstat(self._file.fileno()).st_size
        try:
            while line:
                line = line[self._file.write(line) :]
        except BaseException as error:
            with contextlib.suppress(OSError):  # else the cut line is dropped when it is read
                os.ftruncate(self._file.fileno(), end)
            if not isinstance(error, OSError):
                raise
            raise self._refused(error) from error

    def _sync(self) -> None:
        if time.monotonic() - self._synced > _FLUSH_S:
            try:
                os.fdatasync(self._file.fileno())
            except OSError as error:
                raise self._refused(error) from error
            self._synced = time.monotonic()

    def _refused(self, error: OSError) -> MeasurementError:
        remedy = "make room" if error.errno in _FULL else "make it writable"
        kept = f"Nothing was measured yet: {remedy} and start anew"
        if self.trials:
            kept = (
                f"The {len(self.trials)} trials before are in it: {remedy}, then "
                f"'perflib run --resume {self.path.stem}'"
            )
        msg = f"the journal {self.path} cannot be written: {error}. {kept}"
        return MeasurementError(msg)

    def close(self, *, remove: bool = False) -> None:
        """Let go of the file; ``remove`` it once its run is saved.

        One that cannot be removed stays: who resumes it saves the same run again.
        """
        if remove:
            with contextlib.suppress(OSError):
                self.path.unlink()
        with contextlib.suppress(OSError):  # some file systems report a failed write so late
            self._file.close()


def _opened(path: Path) -> io.FileIO:
    """The file, if it is ours: what a journal says is executed (its parameters may name a job)."""
    file = io.FileIO(open_regular(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW), "r+")
    if problem := distrust_status(os.fstat(file.fileno())):
        file.close()
        msg = f"{path} {problem}: nobody goes on with it, because it may name a job to start"
        raise UserError(msg)
    return file


def _whole_records(raw: bytes) -> tuple[list[dict[str, Any]], int]:
    """The records up to the first line that is cut off or damaged, and their length in bytes."""
    records: list[dict[str, Any]] = []
    end = 0
    for line in raw.splitlines(keepends=True):
        try:
            record = json_of(line) if line.endswith(b"\n") else None
        except ValueError:
            record = None
        if not isinstance(record, dict) or not isinstance(record.get("pilot", {}), dict):
            break
        records.append(record)
        end += len(line)
    return records, end
