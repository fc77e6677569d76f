"""Bundles: kernels compiled once, by ``perflib build``, for machines that have no compiler.

A bundle is a folder. ``bundle.json`` says what it is for (perflib's version, the architecture, the
C library) and lists its builds with the SHA-256 of each file; ``PERFLIB_KERNELS`` names the folder
that kernels are taken from. It is only read, so that many machines can share it. What it is not
for, what differs from its manifest, and what another user than root could have written is refused.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perflib.kernels.cache import Build, files_in
from perflib.kernels.levels import LEVELS, levels_here
from perflib.kernels.private import check_runnable
from perflib.kernels.sources import Request, digest
from perflib.model.errors import MeasurementError, PerflibError, UserError
from perflib.store.files import json_of
from perflib.store.ownership import distrust

FORMAT = 1
MANIFEST = "bundle.json"


@dataclass(frozen=True)
class Bundle:
    """A bundle as one machine uses it: the builds of the best level that its processor has.

    ``lacking`` has, of builds that could not be compiled where it was made, what the compiler said.
    """

    folder: Path
    sha256: str
    level: str
    builds: dict[str, dict[str, Any]]
    lacking: dict[str, str]

    def find(self, wanted: Request) -> Build | None:
        """A build, its files compared with the manifest; ``None`` where it is not in the bundle.

        Raises
        ------
        UserError
            The kernel's source here is not what the bundle was built from, or a file is not what
            the manifest says.
        """
        entry = self.builds.get(wanted.key)
        if entry is None:
            return None
        if entry["provenance"]["source_sha256"] != digest(*wanted.contents):
            msg = (
                f"kernel {wanted.source.name!r} in this perflib is not what the bundle "
                f"{self.folder} was built from: build it again with 'perflib build {self.folder}'"
            )
            raise UserError(msg)
        folder = self.folder / entry["folder"]
        provenance = {**entry["provenance"], "bundle": self.mark(compiled_here=False)}
        built = Build(wanted.source.name, *files_in(folder, wanted), provenance)
        with _readable():
            for path in (folder.parent, folder, *built.files):
                _check_owner(path)
            for file in built.files:
                status = file.stat()
                if sha256_of(file, status.st_mtime_ns, status.st_size) != entry["files"][file.name]:
                    problem = f"{file} is not what its manifest says (the SHA-256 differs)"
                    raise _distrusted(problem)
        return built

    def mark(self, *, compiled_here: bool) -> dict[str, Any]:
        """What a run's provenance says of the bundle that its machine uses."""
        return {"sha256": self.sha256, "level": self.level, "compiled_here": compiled_here}

    def without(self, wanted: Request) -> PerflibError:
        """The message on a build that is not in the bundle, where no compiler is, either."""
        if words := self.lacking.get(wanted.key):
            return MeasurementError(f"where the bundle {self.folder} was made, {words}")
        if (wanted.variant, wanted.executable) not in wanted.source.bundled():
            return UserError(
                f"{wanted} is in no bundle, and there is no C compiler here: install gcc, or "
                "choose what does not need it"
            )
        options = [f"--kernel {wanted.source.name}"]
        options += [f"--copies {wanted.copies}"] if wanted.copies is not None else []
        options += [
            f"--define {name}={value}"
            for name, value in wanted.define.items()
            if value != wanted.source.define[name]
        ]
        return UserError(
            f"{wanted} is not in the bundle {self.folder} ({self.level}), and there is no C "
            f"compiler here. Where there is one: perflib build {self.folder} {' '.join(options)}"
        )


@functools.cache
def sha256_of(path: Path, _mtime_ns: int, _size: int) -> str:
    """The SHA-256 of a file, read once as long as it does not change."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def perflib_version() -> str:
    """The version of perflib that a bundle belongs to."""
    from importlib.metadata import version

    return version("perflib-jupyter")


def active() -> Bundle | None:
    """The bundle that ``PERFLIB_KERNELS`` names, if it is set.

    Raises
    ------
    UserError
        It cannot be used here.
    """
    named = os.environ.get("PERFLIB_KERNELS")
    return open_bundle(Path(named)) if named else None


def open_bundle(named: Path) -> Bundle:
    """Open a bundle for this machine.

    Raises
    ------
    UserError
        It is no bundle, is damaged, fits another machine or perflib, or others could write to it.
    """
    folder = named.resolve()
    manifest = folder / MANIFEST
    with _readable():
        if not folder.is_dir():
            msg = f"PERFLIB_KERNELS={named}: there is no such folder"
            raise UserError(msg)
        if not manifest.exists():
            msg = (
                f"{named} holds no bundle of kernels (no {MANIFEST}): make one with "
                f"'perflib build {named}', or unset PERFLIB_KERNELS"
            )
            raise UserError(msg)
        for path in (named.parent, folder, manifest):  # named may be a link
            _check_owner(path)
        check_runnable(folder, "PERFLIB_KERNELS")
        status = manifest.stat()
        return _read(folder, status.st_mtime_ns, status.st_size)


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """What cannot be read is named in a sentence."""
    try:
        yield
    except OSError as error:
        problem = f"{error.filename} cannot be read ({error.strerror})"
        raise _distrusted(problem) from error


def _check_owner(path: Path) -> None:
    if problem := distrust(path):
        raise _distrusted(problem)


def _distrusted(problem: str) -> UserError:
    msg = f"{problem}: nothing is loaded from this bundle. Copy it or build it again."
    return UserError(msg)


@functools.cache
def _read(folder: Path, _mtime_ns: int, _size: int) -> Bundle:
    manifest = folder / MANIFEST
    try:
        raw = manifest.read_bytes()
        found = json_of(raw)
        if found["format"] != FORMAT:
            msg = f"{manifest} has format {found['format']}, which this perflib does not read"
            raise UserError(msg)
        _check_machine(folder, found)
        level = _best_level(folder, list(found["levels"]))
        builds, lacking = found["levels"][level]["builds"], found["levels"][level]["lacking"]
        for entry in builds.values():
            _ = entry["folder"], entry["files"], entry["provenance"]["source_sha256"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"{manifest} is damaged ({error!r}): copy or build the bundle again"
        raise UserError(msg) from None
    return Bundle(folder, hashlib.sha256(raw).hexdigest(), level, builds, lacking)


def _check_machine(folder: Path, found: dict[str, Any]) -> None:
    here = os.uname().machine
    if found["architecture"] != here:
        msg = f"the bundle {folder} is for {found['architecture']}, and this machine is {here}"
        raise UserError(msg)
    if found["perflib"] != perflib_version():
        msg = (
            f"the bundle {folder} was built by perflib {found['perflib']}, and this is "
            f"{perflib_version()}: build it again with 'perflib build {folder}'"
        )
        raise UserError(msg)
    needed, libc = found["glibc"], _glibc()
    if needed and (not libc or _numbers(libc) < _numbers(needed)):
        has = f"glibc {libc}" if libc else "another C library"
        msg = (
            f"the bundle {folder} needs glibc {needed}, and this system has {has}: build it on the "
            "oldest system that it is for"
        )
        raise UserError(msg)


def _glibc() -> str:
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):  # another C library
        return ""
    return version if name == "glibc" else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def _best_level(folder: Path, levels: list[str]) -> str:
    usable = [level for level in levels_here() if level in levels]
    if not usable:
        has = levels_here()[-1]
        msg = (
            f"the bundle {folder} is for {' and '.join(sorted(levels, key=LEVELS.index))} alone, "
            f"and this processor has {has}: 'perflib build {folder} --march {has}' adds that, "
            "where there is a compiler"
        )
        raise UserError(msg)
    return usable[-1]
