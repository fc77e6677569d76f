"""Whose files are loaded: those of the user and of nobody else; the user's cache folder.

A library is checked by its name here and loaded by its name elsewhere, in a worker or by a job. In
between nobody can exchange it, because nobody else may write to any folder on the way to it.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from perflib.model.errors import UserError
from perflib.store.ownership import distrust, make_folder
from perflib.store.paths import cache_dir

_FULL = (errno.ENOSPC, errno.EDQUOT)


def check_owner(path: Path) -> None:
    """Refuse to load what another user owns, could have written, or could exchange.

    Raises
    ------
    UserError
        Another user does, or could have.
    """
    if problem := distrust(path, root=False):
        msg = (
            f"{problem}: nothing is loaded from it. Remove it, or set PERFLIB_CACHE to a "
            "folder of your own."
        )
        raise UserError(msg)


def private_cache() -> Path:
    """The cache folder: made 0700, and checked to be the user's alone."""
    folder = cache_dir()
    try:
        check_owner(folder)  # before anything is made in a stranger's folder
        make_folder(folder, 0o700)
        check_owner(folder)
        if folder.stat().st_mode & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise unusable(error) from error
    return folder


def check_runnable(path: Path, variable: str = "PERFLIB_CACHE") -> None:
    """Refuse a folder from which the kernel would neither load a library nor start a program.

    Raises
    ------
    UserError
        It is on a file system that is mounted ``noexec``.
    """
    if os.statvfs(path).f_flag & os.ST_NOEXEC:
        msg = f"{path} is on a file system mounted with noexec: nothing there can be executed. "
        raise UserError(msg + f"Set {variable} to a folder elsewhere.")


def unusable(error: OSError) -> UserError:
    """The message where the cache cannot be read or written."""
    first = "Free some space there, or set" if error.errno in _FULL else "Set"
    msg = f"the kernel cache cannot be used: {error}. {first} PERFLIB_CACHE to another folder."
    return UserError(msg)
