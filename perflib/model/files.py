"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

__all__ = ["replacing"]


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside the wanted one, which takes its place once it is written, and on the disk.

    It is new, and its name cannot be foreseen: nobody can have put a link there.

    Raises
    ------
    OSError
        It cannot be written; what was there is unchanged.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
