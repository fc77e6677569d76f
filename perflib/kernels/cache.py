"""Kernels compiled once, and kept for the user alone."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perflib.kernels.compiling import compile_into, compiler
from perflib.kernels.private import check_owner, check_runnable, private_cache, unusable
from perflib.kernels.sources import BASE_FLAGS, Request, digest

_FORMAT = 2  # part of every key: raised when the way kernels are built changes


@dataclass(frozen=True)
class Build:
    """A compiled kernel on disk: what a worker needs to load it, and where it came from."""

    name: str
    library: Path
    module: Path | None
    provenance: dict[str, Any]

    @property
    def files(self) -> list[Path]:
        """All of it."""
        return [self.library] if self.module is None else [self.library, self.module]


def files_in(folder: Path, wanted: Request) -> tuple[Path, Path | None]:
    """Where a folder has the library, or the program, and cffi's module."""
    name = wanted.source.name
    if wanted.executable:
        return folder / name, None
    return folder / f"{name}.so", folder / f"_{name}.py"


def compiled(wanted: Request, level: str) -> Build:
    """Compile a kernel for a level of the architecture, or find it compiled.

    Raises
    ------
    UserError
        There is no compiler, or the cache is not the user's own.
    MeasurementError
        The compiler refused the source.
    """
    name, link, contents = wanted.source.name, wanted.link, wanted.contents
    flags = wanted.flags(level)
    path, version = compiler()
    key_parts = [
        _FORMAT, os.uname().machine, name, path, version, flags, link, wanted.copies,
        wanted.executable, sorted(wanted.define.items()),
    ]  # fmt: skip
    key = digest(json.dumps(key_parts), *contents)[:32]
    folder = private_cache() / f"{name}-{key}"
    check_runnable(folder.parent)
    built = Build(
        name,
        *files_in(folder, wanted),
        {
            "kernel": name,
            "variant": wanted.variant,
            "copies": wanted.copies,
            "define": wanted.define,
            "source_sha256": digest(*contents),
            "compiler": path,
            "compiler_version": version,
            "flags": [*BASE_FLAGS, *flags],
            "link": list(link),
            "bundle": None,
        },
    )
    if not all(file.exists() for file in built.files):  # new, or a cleaner of old files was here
        try:
            _compile_once(folder, built, wanted, level)
        except OSError as error:
            raise unusable(error) from error
    for part in (folder, *built.files):
        check_owner(part)
    return built


def _compile_once(folder: Path, built: Build, wanted: Request, level: str) -> None:
    """Compile into a folder of its own and move it into place, one process at a time."""
    from filelock import FileLock

    with FileLock(f"{folder}.lock", mode=0o600):
        if all(file.exists() for file in built.files):
            return
        building = f".building-{folder.name}-"
        for leftover in (folder, *folder.parent.glob(f"{building}*")):  # of a killed build
            shutil.rmtree(leftover, ignore_errors=True)
        temporary = Path(tempfile.mkdtemp(prefix=building, dir=folder.parent))
        try:
            compile_into(temporary, wanted, level)
            for file in built.files:  # whatever the umask is
                (temporary / file.name).chmod(0o700)
            temporary.replace(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
