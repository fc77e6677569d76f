"""Opening what a user names, or a file of a store: a file, and nothing that never ends."""

from __future__ import annotations

import errno
import os
import stat
from io import FileIO
from pathlib import Path

# A pipe is opened at once so; for files that means nothing. Windows has only the last.
_FLAGS = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_BINARY"))
NO_FILE = {
    stat.S_IFDIR: "it is a directory, not a file",
    stat.S_IFCHR: "it is a device, not a file",
    stat.S_IFBLK: "it is a device, not a file",
    stat.S_IFIFO: "it is a pipe, not a file",
    stat.S_IFSOCK: "it is a socket, not a file",
}
"""What else there may be in a file's place, as a reason not to read it."""


def open_to_read(path: Path) -> FileIO:
    """Open a file to read it as bytes, without a buffer.

    A pipe that nobody writes to does not keep the caller waiting, and a device without an end is
    not read: neither is opened.

    Raises
    ------
    OSError
        There is none, it may not be read, or is no file; ``strerror`` says why.
    """
    return FileIO(open_regular(path, os.O_RDONLY))


def open_regular(path: Path, flags: int, mode: int = 0o600) -> int:
    """A descriptor of a file, opened as the flags say; raises as `open_to_read`."""
    descriptor = os.open(path, flags | _FLAGS, mode)
    try:
        _check(os.fstat(descriptor).st_mode, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_regular(path: Path) -> os.stat_result:
    """The status of a file that a library opens by its name; raises as `open_to_read`."""
    status = path.stat()
    _check(status.st_mode, path)
    return status


def _check(mode: int, path: Path) -> None:
    if not stat.S_ISREG(mode):
        reason = NO_FILE.get(stat.S_IFMT(mode), "it is no file")
        raise OSError(errno.EINVAL, reason, str(path))
