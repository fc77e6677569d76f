"""Follow a log file that another process writes: its new bytes, and when they were seen.

inotify wakes the reader some 0.2 ms after a line is written. It says nothing of what another
computer writes to a network file system, so the reader also polls every 50 ms; where that finds
what inotify kept silent about, ``remarks`` says so, because a line's time is then 50 ms coarse.

Logs are rotated in two ways, and both are followed. The file is renamed and a new one takes its
name: the job may write to the old one until it opens the new one, so the new one is taken up, and
the old one read to its end, when something stands in the new one. Or the file is copied and cut
to nothing (copytruncate): reading begins at its start again. What is written and cut away between
two polls is lost, and so is a cut that is made up for before the next poll.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Self

from perflib.machine.processes import is_gone
from perflib.model.errors import MeasurementError, UserError

if TYPE_CHECKING:
    from inotify_simple import INotify

POLL_S = 0.05
"""How often the file is polled where inotify is silent, and how soon an end is noticed."""

_CHUNK_BYTES = 1 << 16


class LogFollower:
    r"""The new bytes of a log, for `perflib.instruments.joblog.joblog.parse`, until an end comes.

    Following begins when this is made: what stands in the file by then is skipped. Use it in a
    ``with`` statement.

    Parameters
    ----------
    path
        The log, or a symbolic link to it. It need not be there yet.
    pid
        The job: reading ends when it has ended and all it wrote is read.
    timeout_s
        When to stop reading.
    wait_s
        How long a log that is not there is waited for.
    stop
        Set it, from another thread, to end.
    from_start
        Read what stands in the log already, too.

    Attributes
    ----------
    remarks : list of str
        What a reader should know of how the log was followed, in sentences.

    Raises
    ------
    UserError
        It is no ordinary file, or may not be read.
    MeasurementError
        It does not appear within ``wait_s`` (raised while reading).

    Examples
    --------
    >>> import os, tempfile
    >>> from pathlib import Path
    >>> log = Path(tempfile.mkdtemp(), "log")
    >>> _ = log.write_bytes(b"old\n")
    >>> with LogFollower(log, timeout_s=10) as follower:
    ...     with log.open("ab") as job:
    ...         _ = job.write(b"new\n")
    ...     arrival_ns, chunk = next(iter(follower))
    >>> chunk
    b'new\n'
    """

    def __init__(
        self,
        path: Path,
        *,
        pid: int | None = None,
        timeout_s: float = float("inf"),
        wait_s: float = 60.0,
        stop: Event | None = None,
        from_start: bool = False,
    ) -> None:
        self.remarks: list[str] = []
        self._path = Path(path)
        self._pid = pid
        self._timeout_s = timeout_s
        self._wait_s = wait_s
        self._stop = stop
        self._file: int | None = None
        self._offset = 0
        self._half_line = False
        self._after_cut = False
        self._inotify = self._watcher()
        try:
            self._file = self._opened()
            if self._file is not None and not from_start:
                self._offset = os.fstat(self._file).st_size
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the file and the watch."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._inotify is not None:
            self._inotify.close()

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """``(arrival_ns, bytes)`` on CLOCK_MONOTONIC, as they come; never empty."""
        begun, gone = time.monotonic(), False
        while not (self._stop is not None and self._stop.is_set()):
            if chunk := self._read():
                self._half_line = not chunk.endswith(b"\n")
                yield time.monotonic_ns(), chunk
            elif self._begin_anew():
                if self._half_line:  # its rest will not come
                    self._half_line = False
                    yield time.monotonic_ns(), b"\n"
            elif gone:  # and what it wrote before was read since
                return
            else:
                self._wait(begun)
                gone = self._pid is not None and is_gone(self._pid)
            if time.monotonic() - begun >= self._timeout_s:
                return

    # --- reading -------------------------------------------------------------------------------

    def _read(self) -> bytes:
        """The next bytes, none if there are none yet."""
        try:
            while self._file is not None:
                if self._after_cut:  # a job that does not append continues behind a hole
                    self._offset = os.lseek(self._file, self._offset, os.SEEK_DATA)
                chunk = os.pread(self._file, _CHUNK_BYTES, self._offset)
                self._offset += len(chunk)
                if not (self._after_cut and chunk):
                    return chunk
                if chunk := chunk.lstrip(b"\0"):
                    self._after_cut = False
                    return chunk
        except OSError as error:
            # Nothing but a hole; a file that was removed on the server of a network file system.
            if error.errno not in (errno.ENXIO, errno.ESTALE):
                msg = f"the log {self._path} cannot be read any more: {error.strerror}"
                raise MeasurementError(msg) from error
        return b""

    def _begin_anew(self) -> bool:
        """Take up a new file, or the start of one that was cut; whether there was either."""
        if self._file is not None and os.fstat(self._file).st_size < self._offset:
            self._offset, self._after_cut = 0, True
            return True
        try:
            there = self._path.stat()
        except OSError:  # removed, or not there yet: the open file is read on
            return False
        if self._file is not None:
            here = os.fstat(self._file)
            if os.path.samestat(here, there):
                return False
            if not there.st_size:
                self._watch(self._path, "MODIFY")
                return False
        opened = self._opened()
        if opened is None:
            return False
        if self._file is not None:
            os.close(self._file)
        self._file, self._offset, self._after_cut = opened, 0, False
        return True

    def _opened(self) -> int | None:
        # A log that appears, or one that takes another's place, is noticed at once.
        self._watch(self._path.parent, "CREATE", "MOVED_TO")
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            msg = f"the log {self._path} cannot be read: {error.strerror}"
            raise UserError(msg) from error
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            msg = f"the log {self._path} is no ordinary file: only one that stays can be followed"
            raise UserError(msg)
        self._watch(f"/proc/self/fd/{file}", "MODIFY")
        return file

    # --- waiting -------------------------------------------------------------------------------

    def _watcher(self) -> INotify | None:
        from inotify_simple import INotify  # not where there is no Linux: a log is read there, too

        try:
            return INotify()
        except OSError as error:
            self._no_watch(error)
            return None

    def _watch(self, path: Path | str, *what: str) -> None:
        from inotify_simple import flags

        if self._inotify is None:
            return
        try:
            self._inotify.add_watch(path, sum(flags[name] for name in what))
        except FileNotFoundError:  # a folder that has still to be made: what looking is for
            pass
        except OSError as error:
            self._no_watch(error)

    def _no_watch(self, error: OSError) -> None:
        limit = {errno.EMFILE: "max_user_instances", errno.ENOSPC: "max_user_watches"}.get(
            error.errno or 0
        )
        hint = f" (sysctl fs.inotify.{limit} is the limit)" if limit else ""
        self._remark(f"inotify cannot be used: {error.strerror}{hint}")

    def _remark(self, why: str) -> None:
        text = f"{why}; the log is polled every {1e3 * POLL_S:g} ms, and its lines' times are "
        text += "no better than that"
        if not self.remarks:
            self.remarks.append(text)

    def _wait(self, begun: float) -> None:
        """Until something changes, or it is time to poll."""
        if self._file is None and time.monotonic() - begun > self._wait_s:
            msg = (
                f"there is no log {self._path} after {self._wait_s:g} s: is its name right, and "
                "has the job begun?"
            )
            raise MeasurementError(msg)
        if self._inotify is None:
            time.sleep(POLL_S)
        elif not self._notified(POLL_S) and self._is_longer() and not self._notified(0):
            self._remark(
                "the log grew and inotify was silent, as it is on network file systems and for "
                "mapped files"
            )

    def _notified(self, timeout_s: float) -> bool:
        """Whether inotify reports anything."""
        assert self._inotify is not None
        return bool(list(self._inotify.read(timeout=int(1000 * timeout_s))))

    def _is_longer(self) -> bool:
        return self._file is not None and os.fstat(self._file).st_size > self._offset
