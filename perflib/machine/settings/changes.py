"""Settings of the whole machine, changed for a while because the user named them, and put back.

``with settings({"thp": "always"}) as record:`` writes what it is about to change into a journal,
starts the guard (`settings.guard`), and only then changes anything. It is put back after success,
an exception, Ctrl-C, and ``kill -9`` of every process but the guard. Where the guard died as well,
the next measurement puts it back: every ``with settings(...)`` does so first (`restore_leftovers`),
and nothing that does not measure changes a setting.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from perflib.machine.settings import guard
from perflib.machine.settings.knobs import knob
from perflib.model.errors import MeasurementError, UserError
from perflib.store.paths import data_dir


class SystemSettings:
    """Settings requested by name (`settings.knobs`), in force inside the ``with`` block.

    What processes left changed that were killed is put back first, even where none is requested:
    a measurement is not to be made under another's settings.

    One process at a time may change settings. What could not be put back, because somebody else
    changed it meanwhile, is a `RuntimeWarning` at the block's end.

    Attributes
    ----------
    changes : dict
        For each setting its value ``before`` and ``now``, for the provenance.
    notes : list of str
        What the user should know: leftovers put back at the start, problems at the end.

    Raises
    ------
    UserError
        An unknown setting or value, one that this machine lacks, that may not be written or does
        not take the value, or another process that is changing settings. Nothing is then changed.
    """

    def __init__(self, requested: Mapping[str, str], root: Path = Path("/")) -> None:
        self.changes: dict[str, dict[str, str | None]] = {}
        self.notes: list[str] = []
        self._requested = {name: knob(name).check(value) for name, value in requested.items()}
        self._root = root
        self._journal = Path()
        self._file: int | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.notes += restore_leftovers()
        if self._requested:
            try:
                self._lock_journal()
                planned = self._plan()
                self._start_journal([change for _, change in planned])
                self._start_guard()
                for name, change in planned:
                    self._set(name, change)
                self._verify()
            except BaseException:
                self._finish()
                raise
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        for problem in self._finish():
            self.notes.append(problem)
            warnings.warn(f"system settings: {problem}", RuntimeWarning, stacklevel=2)

    def _lock_journal(self) -> None:
        folder = _private_folder()
        self._journal = folder / f"{_boot()}.journal"
        try:
            self._file = _lock(self._journal, create=True)
        except OSError as error:
            raise _no_journal(folder, error) from error
        if self._file is None:
            raise UserError(_busy(self._journal))
        _, left = guard.read_journal(self._file)
        if left:
            path, old = left[0]["path"], left[0]["old"]
            msg = (
                f"{path} was left changed by a process that was killed, and cannot be put back. "
                f"By hand: echo {old} | sudo tee {path}"
            )
            raise UserError(msg)

    def _plan(self) -> list[tuple[str, dict[str, str]]]:
        """Each file to change, with the value it has and the one it is to have."""
        planned = []
        for name, value in self._requested.items():
            switch = knob(name)
            paths = switch.paths(self._root)
            if not paths:
                msg = f"{name}={value}: this machine has no such setting (no {switch.patterns[0]})"
                raise UserError(msg)
            self.changes[name] = {"before": switch.read(self._root), "now": value}
            for path in paths:
                try:
                    old = guard.read_setting(str(path))
                except OSError as error:
                    raise self._refused(name, path, error) from None
                new = switch.encode(value, path)
                if old != new:
                    planned.append((name, {"path": str(path.absolute()), "old": old, "new": new}))
        return planned

    def _refused(self, name: str, path: Path | str, error: OSError) -> UserError:
        value = self._requested[name]
        return UserError(
            f"{name}={value}: {path}: {error.strerror or error}. Every setting is as it was. "
            f"It takes root, and a container may forbid it; by hand, on the machine itself: "
            f"{knob(name).command(value, self._root)}"
        )

    def _start_journal(self, changes: list[dict[str, str]]) -> None:
        assert self._file is not None
        try:
            os.ftruncate(self._file, 0)
            self._write({"pid": os.getpid(), "host": platform.node()}, *changes)
            _sync_folder(self._journal.parent)
        except OSError as error:
            raise _no_journal(self._journal.parent, error) from error

    def _write(self, *lines: Mapping[str, Any]) -> None:
        assert self._file is not None
        text = "".join(json.dumps(line) + "\n" for line in lines).encode()
        os.pwrite(self._file, text, os.fstat(self._file).st_size)
        os.fsync(self._file)

    def _start_guard(self) -> None:
        assert self._file is not None
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, str(self._journal), str(self._file)],
            stdin=subprocess.PIPE,  # only this process has the write end: Python's are O_CLOEXEC
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(self._file,),
            start_new_session=True,
            cwd="/",
        )
        assert self._guard.stdout is not None
        if self._guard.stdout.readline() != b"ready\n":
            msg = f"the guard of the system settings does not start: {self._guard.args!r}"
            raise MeasurementError(msg)

    def _set(self, name: str, change: dict[str, str]) -> None:
        path, new = change["path"], change["new"]
        try:
            guard.write_setting(path, new)
            obtained = guard.read_setting(path)
        except OSError as error:
            raise self._refused(name, path, error) from None
        if obtained != new:  # the kernel made something else of it, and that is to be undone too
            self._write({**change, "new": obtained})
            msg = (
                f"{name}={self._requested[name]}: {path} reads {obtained!r} after {new!r} was "
                f"written. Every setting is put back to what it was."
            )
            raise UserError(msg)

    def _verify(self) -> None:
        for name, value in self._requested.items():
            now = knob(name).read(self._root)
            if now != value:
                msg = f"{name}={value} was set, but reads {now!r}. It is put back to what it was."
                raise UserError(msg)

    def _finish(self) -> list[str]:
        """Have everything put back, by the guard or, where it died, by this process."""
        problems: list[str] | None = None
        try:
            if self._guard is not None:
                answer, _ = self._guard.communicate()  # closes the pipe, waits for the end
                if answer.endswith(b"\n"):
                    problems = json.loads(answer)[1]
            if problems is None and self._file is not None and self._journal.exists():
                problems = guard.put_back(self._file, str(self._journal)).problems
        finally:
            if self._file is not None:
                os.close(self._file)
            self._file = self._guard = None
        return problems or []


def settings(requested: Mapping[str, str], root: Path = Path("/")) -> SystemSettings:
    """Change settings of the machine for a while: ``with settings({"thp": "always"}):``.

    ``root`` is where ``sys`` and ``proc`` are.
    """
    return SystemSettings(requested, root)


def restore_leftovers() -> list[str]:
    """Put back what processes changed that were killed together with their guards.

    Returns
    -------
    list of str
        What was done, and what could not be, in sentences to print; empty when all was well.
    """
    folder = data_dir() / "restore"
    journals = sorted(folder.glob("*.journal")) if os.access(folder, os.R_OK | os.X_OK) else []
    sentences: list[str] = []
    try:
        for journal in journals:
            sentences += _restore(_private_folder() / journal.name)
    except (OSError, UserError) as error:
        sentences.append(f"system settings may be left changed, see {folder}: {error}")
    return sentences


def _restore(journal: Path) -> list[str]:
    file = _lock(journal, create=False)
    if file is None:
        return []
    try:
        header, changes = guard.read_journal(file)
        if journal.stem == _boot():
            outcome = guard.put_back(file, str(journal))
            who = f"process {header.get('pid')} was killed while it had system settings changed"
            return [f"{who}: {sentence}." for sentence in [*outcome.done, *outcome.problems]]
        if header.get("host") == platform.node() or not changes:
            journal.unlink()  # this machine restarted since, which reset every setting
        return []
    finally:
        os.close(file)


def _no_journal(folder: Path, error: OSError) -> UserError:
    return UserError(
        f"the list of settings to put back cannot be kept in {folder} ({error.strerror}): nothing "
        "was changed. PERFLIB_HOME names another folder."
    )


def _boot() -> str:
    """Which machine, since which start: homes are shared between machines, settings are not."""
    file = Path("/proc/sys/kernel/random/boot_id")
    return file.read_text().strip() if file.is_file() else platform.node()


def _private_folder() -> Path:
    """The journals' folder: what stands in it is written to system files, so it must be ours."""
    folder = data_dir() / "restore"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _no_journal(folder, error) from error
    status = folder.lstat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o022 or folder.is_symlink():
        msg = (
            f"{folder} belongs to another user or can be written by others: no setting is changed "
            "or put back from it. Remove it, or set PERFLIB_HOME to a folder of your own."
        )
        raise UserError(msg)
    return folder


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(journal: Path, *, create: bool) -> int | None:
    """The journal, open and locked; ``None`` where another process has the lock."""
    import fcntl

    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    while True:
        try:
            file = os.open(journal, flags, 0o600)
        except FileNotFoundError:
            if create:
                raise
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        if os.fstat(file).st_nlink:
            return file
        os.close(file)  # its owner removed it between the two calls


def _busy(journal: Path) -> str:
    try:
        file = os.open(journal, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # it ended just now
        pid = "that has just ended"
    else:
        pid = str(guard.read_journal(file)[0].get("pid", "that is starting"))
        os.close(file)
    return (
        f"process {pid} is changing system settings, and one at a time may: wait until it has "
        "ended, then try again."
    )
