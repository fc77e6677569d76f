"""Temporary folders of measurements: what a killed process left is removed by the next."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "perflib-scratch-"


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder, removed at the end, even where ``kill -9`` is the end.

    A folder is in use while its lock is held, which the kernel releases however its process ends.
    Before one is made, this user's that are not in use are removed.

    Raises
    ------
    OSError
        None can be made.
    """
    import fcntl

    top = Path(tempfile.gettempdir())
    for left in top.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another process removes it as well
            _remove_unused(left)
    folder = Path(tempfile.mkdtemp(prefix=".perflib-new-"))
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: nobody gets one
            fcntl.flock(lock, fcntl.LOCK_EX)
        locked = folder.with_name(folder.name.replace(".perflib-new-", _PREFIX))
        folder = folder.rename(locked)  # has its name once it has its lock
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_unused(folder: Path) -> None:
    import fcntl

    if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        return
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
