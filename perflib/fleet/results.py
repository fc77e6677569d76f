"""Results: one file a key and its checksum. Done means that both are there and agree."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from perflib.fleet.plan import Plan
from perflib.store.files import replacing


def result(plan: Plan, key: str) -> Path:
    """The place of a key's result, once there is one."""
    return plan.folder / "results" / f"{key}.parquet"


def is_done(plan: Plan, key: str) -> bool:
    """Whether a key has its result: a file that is what its checksum says."""
    file = result(plan, key)
    try:
        said = file.with_suffix(".sha256").read_text().split()
        return said[:1] == [sha256_of(file)]
    except (OSError, UnicodeDecodeError):
        return False


def sha256_of(file: Path) -> str:
    """The SHA-256 of a file."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def publish(plan: Plan, key: str, made: Path, attempt: str) -> Path:
    """Put a measured file into its place, or, where the key has its result, among the second ones.

    A file there that is not whole is moved aside; nothing is replaced or removed.

    Returns
    -------
    Path
        Where it is now.

    Raises
    ------
    OSError
        It cannot be written.
    """
    target, second = result(plan, key), plan.folder / "second"
    if is_done(plan, key):
        target = second / f"{key}.{attempt}.parquet"
    else:
        for left in (target, target.with_suffix(".sha256")):
            if left.exists():
                left.rename(second / f"{key}.{attempt}.damaged{left.suffix}")
    try:
        _copy(made, target)
    except FileExistsError:  # somebody published meanwhile
        target = second / f"{key}.{attempt}.parquet"
        _copy(made, target)
    with replacing(target.with_suffix(".sha256")) as temporary:  # the last: it says that all is in
        temporary.write_text(f"{sha256_of(made)}  {target.name}\n")
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return target


def _copy(made: Path, target: Path) -> None:
    with replacing(target, only_new=True) as temporary:
        shutil.copyfile(made, temporary)


def second_results(plan: Plan) -> dict[str, list[Path]]:
    """The second results of keys, and what was damaged; by key."""
    found: dict[str, list[Path]] = {}
    for path in sorted((plan.folder / "second").glob("*.parquet")):
        found.setdefault(path.name.partition(".")[0], []).append(path)
    return found
