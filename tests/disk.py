"""Disks that are full: a small tmpfs where it may be mounted, a limit on files everywhere."""

from __future__ import annotations

import contextlib
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(folder: Path, size_kib: int) -> Iterator[Path]:
    """A file system of its own that holds ``size_kib``; skips the test where none can be made."""
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if mount is None or umount is None:
        pytest.skip("there is no mount command")
    folder.mkdir()
    made = subprocess.run(
        [mount, "-t", "tmpfs", "-o", f"size={size_kib}k,mode=0700", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        reason = (made.stderr.splitlines() or ["mount failed"])[0]
        pytest.skip(f"a tmpfs may not be mounted here: {reason}")
    try:
        yield folder
    finally:
        subprocess.run([umount, str(folder)], check=True)


@contextlib.contextmanager
def files_no_larger_than(size_bytes: int) -> Iterator[None]:
    """Writing beyond this fails, as on a full disk: part of the data is written before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
