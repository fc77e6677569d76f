"""Starting something as an ordinary user, from tests that root runs."""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ORDINARY = 54321  # nobody's number: a user without a name, a home or groups
_TOP = Path(__file__).parents[1]


@functools.cache
def _missing() -> str:
    if os.geteuid() != 0:
        return "only root can start something as another user"
    if shutil.which("setpriv") is None or shutil.which("unshare") is None:
        return "no setpriv: apt-get install util-linux"
    tried = subprocess.run(
        as_ordinary([sys.executable, "-c", ""]), capture_output=True, check=False
    )
    return "" if tried.returncode == 0 else "this container lets nobody become another user"


def needs_two_users() -> None:
    """Skip where there is no second user to become."""
    if why := _missing():
        pytest.skip(why)


def as_ordinary(argv: Sequence[str]) -> list[str]:
    """How root starts a command as an ordinary user without any capability.

    Python may lie in root's own home, which is closed to others: there, in a mount namespace of its
    own, the command sees what the tests need of it and nothing else.
    """
    lines = []
    wanted = sorted({Path(sys.base_prefix), Path(sys.prefix), _TOP})
    inside = {path: top for path in wanted if (top := _closed(path))}
    if inside:
        stash = Path("/mnt")
        places = {path: stash / str(number) for number, path in enumerate(inside)}
        lines.append(f"mount -t tmpfs none {stash}")
        lines += [f"mkdir {place} && mount --bind {path} {place}" for path, place in places.items()]
        lines += [f"mount -t tmpfs -o mode=755 none {top}" for top in sorted(set(inside.values()))]
        lines += [f"mkdir -p {path} && mount --move {places[path]} {path}" for path in inside]
    become = ["setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups"]
    become += ["--inh-caps=-all", "--bounding-set=-all"]
    lines.append(f"exec {shlex.join([*become, *argv])}")
    return ["unshare", "--mount", "--fork", "--kill-child", "sh", "-c", " && ".join(lines)]


def _closed(path: Path) -> Path | None:
    """The uppermost folder on the way to a path that others may not enter."""
    return next((one for one in reversed(path.parents) if not one.stat().st_mode & 0o001), None)
