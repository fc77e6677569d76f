"""Write bundles: copy compiled kernels to a folder, and list them in its manifest."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perflib.kernels.bundle import FORMAT, MANIFEST, perflib_version, sha256_of
from perflib.kernels.cache import Build
from perflib.kernels.levels import LEVELS
from perflib.kernels.private import private_cache
from perflib.kernels.sources import Request, digest, request
from perflib.model.errors import UserError
from perflib.store.files import json_of, replacing
from perflib.store.ownership import distrust, make_folder

_GLIBC = re.compile(rb"GLIBC_(\d+)\.(\d+)")

# Of each level: builds, and of those that could not be compiled what the compiler said.
Made = Mapping[str, list[tuple[Request, Build | str]]]


def begun(folder: Path) -> dict[str, list[Request]]:
    """The levels of the bundle that a folder holds; of each, what is to be built again.

    That is what was built from a kernel's source as it was once, and can still be built.

    Raises
    ------
    UserError
        The folder holds something else, or a bundle for another architecture.
    """
    found: dict[str, list[Request]] = {}
    for level, listed in _existing(folder)["levels"].items():
        found[level] = []
        for key, entry in listed["builds"].items():
            wanted = _request(key)
            if wanted is not None and not _is_current(entry, wanted):
                found[level].append(wanted)
    return found


def _request(key: str) -> Request | None:
    """What ``Request.key`` says; ``None`` where the kernel cannot be built so any more."""
    name, variant, copies, define, executable = json.loads(key)
    try:
        return request(name, variant, copies, dict(define), executable)
    except UserError:
        return None


def _is_current(entry: dict[str, Any], wanted: Request) -> bool:
    return bool(entry["provenance"]["source_sha256"] == digest(*wanted.contents))


def _existing(folder: Path) -> dict[str, Any]:
    """The manifest that is added to; an empty one where there is none, or a damaged one."""
    here = os.uname().machine
    empty = {"format": FORMAT, "architecture": here, "levels": {}}
    try:
        if problem := distrust(folder.resolve()):
            msg = f"{problem}: no bundle in {folder} would be trusted (chmod go-w, or another one)"
            raise UserError(msg)
        if not (folder / MANIFEST).exists():
            if folder.exists() and any(folder.iterdir()):
                msg = f"{folder} is not empty and holds no bundle: give a folder of its own"
                raise UserError(msg)
            return empty
        found: dict[str, Any] = json_of((folder / MANIFEST).read_text())
        if found["format"] != FORMAT:
            return empty
        for listed in found["levels"].values():
            _ = listed["lacking"].keys()
            for key, entry in listed["builds"].items():
                _ = _request(key), entry["folder"], entry["files"], entry["glibc"]
                _ = entry["provenance"]["source_sha256"]
        other = found["architecture"]
    except OSError as error:
        raise _unwritable(folder, error) from error
    except (ValueError, KeyError, TypeError, AttributeError):
        return empty
    if other != here:
        msg = f"{folder} holds a bundle for {other}, and this machine is {here}: give another"
        raise UserError(msg)
    return found


def write(folder: Path, made: Made) -> str:
    """Add builds to a bundle, or begin one; the SHA-256 of its manifest.

    The manifest is replaced when all else is in place: who reads the bundle meanwhile has the old
    one or the new one.

    Raises
    ------
    UserError
        The folder holds something else, or cannot be written.
    """
    from filelock import FileLock

    lock = private_cache() / f"bundle-{digest(str(folder.resolve()))[:32]}.lock"
    with FileLock(lock, mode=0o600):
        manifest = _existing(folder)
        try:
            _write(folder, manifest, made)
        except OSError as error:
            raise _unwritable(folder, error) from error
        return _sha256(folder / MANIFEST)


def _write(folder: Path, manifest: dict[str, Any], made: Made) -> None:
    if not folder.exists():
        _folder(folder)
    levels = manifest["levels"]
    for listed in levels.values():
        for key, entry in list(listed["builds"].items()):
            wanted = _request(key)
            if wanted is None or not _is_current(entry, wanted):
                del listed["builds"][key]
    for level, builds in made.items():
        listed = levels.setdefault(level, {"builds": {}, "lacking": {}})
        _folder(folder / level)
        for wanted, built in builds:
            if isinstance(built, str):
                listed["builds"].pop(wanted.key, None)
                listed["lacking"][wanted.key] = built
            else:
                listed["lacking"].pop(wanted.key, None)
                listed["builds"][wanted.key] = _entry(folder / level, built)
    entries = [entry for listed in levels.values() for entry in listed["builds"].values()]
    needed: list[int] = max((entry["glibc"] for entry in entries), default=[])
    manifest["perflib"] = perflib_version()
    manifest["glibc"] = ".".join(map(str, needed))
    with replacing(folder / MANIFEST) as temporary:
        temporary.write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
        temporary.chmod(0o644)
    kept = {entry["folder"] for entry in entries}
    for level in LEVELS:
        for path in (folder / level).glob("*"):
            if f"{level}/{path.name}" not in kept:
                shutil.rmtree(path, ignore_errors=True)


def _entry(folder: Path, built: Build) -> dict[str, Any]:
    """What the manifest says of a build, whose files are copied to a level's folder."""
    sums = {file.name: _sha256(file) for file in built.files}
    target = folder / built.library.parent.name
    if not all((target / name).is_file() and _sha256(target / name) == sums[name] for name in sums):
        temporary = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
        for file in built.files:
            shutil.copyfile(file, temporary / file.name)
        shutil.rmtree(target, ignore_errors=True)
        temporary.replace(target)
    _folder(target)
    for file in built.files:
        (target / file.name).chmod(0o644 if file == built.module else 0o755)
    versions = _GLIBC.findall(built.library.read_bytes())
    return {
        "folder": f"{folder.name}/{target.name}",
        "files": sums,
        "glibc": max(([int(part) for part in found] for found in versions), default=[]),
        "provenance": {
            name: built.provenance[name] for name in built.provenance if name != "bundle"
        },
    }


def _folder(path: Path) -> None:
    """A folder that everybody may read and nobody else may write, whatever the umask is."""
    make_folder(path)
    path.chmod(0o755)


def _sha256(file: Path) -> str:
    status = file.stat()
    return sha256_of(file, status.st_mtime_ns, status.st_size)


def _unwritable(folder: Path, error: OSError) -> UserError:
    return UserError(f"no bundle can be written to {folder}: {error.strerror}")
