"""Whose files are loaded: those of the user and of nobody else; the user's cache folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from perflib.model.errors import UserError
from perflib.model.paths import cache_dir

__all__ = ["check_owner", "distrust", "private_cache", "unusable"]


def distrust(path: Path, owners: set[int]) -> str:
    """What another user than the owners has, or could have, made of a file; empty: nothing.

    >>> distrust(Path("/proc/self/exe"), {os.geteuid()})
    'is a symbolic link'
    """
    status = path.lstat()
    if status.st_uid not in owners:
        allowed = " or ".join(["root"] * (0 in owners - {os.geteuid()}) + ["you"])
        return f"belongs to user id {status.st_uid}, not to {allowed} ({os.geteuid()})"
    if stat.S_ISLNK(status.st_mode):
        return "is a symbolic link"
    if status.st_mode & 0o022:
        return f"can be written by others (mode {status.st_mode & 0o777:o})"
    return ""


def check_owner(path: Path) -> None:
    """Refuse to load what another user owns or could have written.

    Raises
    ------
    UserError
        Another user does, or could have.
    """
    if problem := distrust(path, {os.geteuid()}):
        msg = (
            f"{path} {problem}: nothing is loaded from it. Remove it, or set PERFLIB_CACHE to a "
            "folder of your own."
        )
        raise UserError(msg)


def private_cache() -> Path:
    """The cache folder: made 0700, and checked to be the user's alone."""
    folder = cache_dir()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_owner(folder)
        if folder.stat().st_mode & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise unusable(error) from error
    return folder


def unusable(error: OSError) -> UserError:
    """What is said where the cache cannot be read or written."""
    msg = f"the kernel cache cannot be used: {error}. Set PERFLIB_CACHE to another folder."
    return UserError(msg)
