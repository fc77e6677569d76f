"""Files that are written whole or not at all; texts from files of others."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def replacing(path: Path, *, only_new: bool = False) -> Iterator[Path]:
    """A file next to the wanted one, which takes its place once it is written, and on the disk.

    It is new, and its name cannot be foreseen: nobody can have put a link there. With ``only_new``
    no file is replaced, also none that somebody puts there meanwhile.

    It is not locked meanwhile: NFS and 9p make of ``flock`` a lock of ranges, and DuckDB, which
    writes into it, would wait for its own process.

    Raises
    ------
    OSError
        It cannot be written; what was there is unchanged.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    try:
        yield temporary
        with temporary.open("r+b") as written:  # Windows flushes what can be written
            os.fsync(written.fileno())
        if only_new:
            _place(temporary, path)
        else:
            temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _place(temporary: Path, path: Path) -> None:
    """Give a file its name, which no other may have: a link is refused then, and a rename not."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        temporary.replace(path)


def json_of(text: str | bytes) -> Any:
    """What JSON says; any fault of it is a ValueError, also that it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        msg = "it is nested too deeply"
        raise ValueError(msg) from None
