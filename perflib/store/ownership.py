"""Whose a file is: what another user made, or can exchange, is neither loaded nor gone on with.

What is checked by name and used by name later holds only where nobody can exchange a part of the
name in between. So `distrust` walks the whole way, links included: every folder must belong to this
user or to root, and nobody else may write to it. In a folder with the sticky bit (``/tmp``)
everybody may write, but only a file's owner, whom the next step checks, can exchange that file.
What is opened once is better checked by its descriptor: `distrust_status`.
"""

from __future__ import annotations

import errno
import functools
import os
import stat
from pathlib import Path
from typing import Literal

from perflib.model.errors import UserError

Group = Literal["none", "private", "any"]
"""Which group may write to what is trusted."""

_MOST_LINKS = 40  # as Linux has it


def distrust(path: Path, *, root: bool = True, group: Group = "none") -> str:
    """What another user has, or could have, made of a file or a folder; empty: nothing.

    Parameters
    ----------
    path
        Where it is. What does not exist is judged by the folders above it.
    root
        Whether it may be root's; a folder above it always may.
    group
        Which group may write to it, and to folders above it: ``any`` that was let in by a umask or
        by chmod; one that is ``private`` to the user; ``none``, and above it a private one.

    Raises
    ------
    OSError
        A part of the path cannot be looked at.
    """
    steps, found = _steps(path.absolute())
    last = steps.pop() if found else None
    for place, status in steps:
        if stat.S_ISLNK(status.st_mode):  # its mode says nothing
            problem = _distrust_owner(status.st_uid, root=True, above=True)
        else:
            problem = _distrust_folder(status, "any" if group == "any" else "private")
        if problem:
            return f"{place} {problem}"
    if last is None:
        return ""
    place, status = last
    problem = distrust_status(status, root=root, group=group)
    return f"{place} {problem}" if problem else ""


def distrust_status(status: os.stat_result, *, root: bool = True, group: Group = "private") -> str:
    """The same of one file by its status, without its place.

    >>> distrust_status(Path("/proc/self/exe").lstat())
    'is a symbolic link'
    """
    if problem := _distrust_owner(status.st_uid, root=root, above=False):
        return problem
    if stat.S_ISLNK(status.st_mode):
        return "is a symbolic link"
    return _distrust_mode(status, group)


def check_writable(folder: Path) -> None:
    """Refuse to write what is to be read again into a folder where another user could exchange it.

    Raises
    ------
    UserError
        It is another user's, or everybody may write to it.
    """
    try:
        problem = distrust(folder, group="any")
    except OSError:
        return  # who writes there says it better
    if problem:
        msg = (
            f"{problem}: nothing is written to {folder}, because another user could exchange it. "
            "Set PERFLIB_HOME to a folder of your own."
        )
        raise UserError(msg)


def make_folder(folder: Path, mode: int = 0o755) -> None:
    """Make a folder, and those above it that are missing so that nobody else may write to them.

    Raises
    ------
    OSError
        It cannot be made, or is no folder.
    """
    missing = [one for one in folder.parents if not one.exists()]
    for above in reversed(missing):
        above.mkdir(mode=0o755, exist_ok=True)
    folder.mkdir(mode=mode, exist_ok=True)


def _steps(path: Path) -> tuple[list[tuple[Path, os.stat_result]], bool]:
    """Every folder and link on the way to a file, and the file; whether all of them exist."""
    place, links = Path("/"), 0
    steps = [(place, place.lstat())]
    waiting = list(reversed(path.parts[1:]))
    while waiting:
        name = waiting.pop()
        if name == "..":
            place = place.parent
            continue
        step = place / name
        try:
            status = step.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return steps, False
        steps.append((step, status))
        if not waiting or not stat.S_ISLNK(status.st_mode):
            place = step
            continue
        if (links := links + 1) > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = step.readlink()
        if target.is_absolute():
            place = Path("/")
        waiting += reversed(target.parts[target.is_absolute() :])
    return steps, True


def _distrust_folder(status: os.stat_result, group: Group) -> str:
    problem = _distrust_owner(status.st_uid, root=True, above=True)
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    return problem or ("" if sticky else _distrust_mode(status, group))


def _distrust_owner(owner: int, *, root: bool, above: bool) -> str:
    you = os.geteuid()
    trusted = {you, 0} if root else {you}
    if owner in trusted or (above and owner == _unmapped()):
        return ""
    allowed = "root or you" if 0 in trusted - {you} else "you"
    return f"belongs to user id {owner}, not to {allowed} ({you})"


def _distrust_mode(status: os.stat_result, group: Group) -> str:
    others = bool(status.st_mode & stat.S_IWOTH)
    if status.st_mode & stat.S_IWGRP and group != "any":
        others |= group == "none" or not _is_private(status.st_gid)
    return f"can be written by others (mode {status.st_mode & 0o777:o})" if others else ""


def _is_private(group: int) -> bool:
    """Whether nobody but this user and root is in a group.

    So it is with the group of a user's own that many systems make; umask 002 is usual there.
    """
    import grp
    import pwd

    try:
        user, named = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    own = group == user.pw_gid and named.gr_name == user.pw_name
    return own and set(named.gr_mem) <= {user.pw_name}


@functools.cache
def _unmapped() -> int | None:
    """In a user namespace without the host's root: whom files of root, among others, belong to.

    A container without privileges shows ``/`` so. There root is indistinguishable from others.
    """
    try:
        mapped = Path("/proc/self/uid_map").read_text().split()
        if mapped == ["0", "0", "4294967295"]:
            return None
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return None
