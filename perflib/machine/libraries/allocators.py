"""Memory allocators of this machine: the C library's own, and others that can be preloaded.

They are found, not assumed: in what the linker knows (``ldconfig -p``), in ``LD_LIBRARY_PATH``,
conda's folder and the usual ones. Of each kind the first that is for this processor counts; any
other is used by its path.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from perflib.machine.libraries.elf import Header, header
from perflib.model.errors import UserError, choose

SYSTEM = "glibc"
INSTALL: Mapping[str, str] = {
    "tcmalloc": "'apt-get install libtcmalloc-minimal4' (Debian), 'dnf install gperftools-libs' "
    "(Fedora)",
    "jemalloc": "'apt-get install libjemalloc2' (Debian), 'dnf install jemalloc' (Fedora)",
    "mimalloc": "'apt-get install libmimalloc2.0' (Debian), 'dnf install mimalloc' (Fedora)",
    "hoard": "build it from its source (emeryberger/Hoard; no distribution packages it), then "
    "install libhoard.so or give its path",
}
# The plain build of each: those for debugging or with hardening behave differently.
_FILES: Mapping[str, re.Pattern[str]] = {
    "tcmalloc": re.compile(r"libtcmalloc(_minimal)?\.so(\.\d+)*"),
    "jemalloc": re.compile(r"libjemalloc\.so(\.\d+)*"),
    "mimalloc": re.compile(r"libmimalloc\.so(\.\d+)*"),
    "hoard": re.compile(r"libhoard\.so(\.\d+)*"),
}
_FOLDERS = ("usr/lib/*-linux-gnu", "usr/lib64", "usr/lib", "usr/local/lib64", "usr/local/lib")
_KNOWN = re.compile(r"^\s*(\S+) \(.*\) => (\S+)$", re.MULTILINE)
_ELF_MACHINES = {
    3: "x86 (32 bits)", 21: "POWER", 22: "s390x", 40: "ARM (32 bits)", 62: "x86-64",
    183: "AArch64", 243: "RISC-V",
}  # fmt: skip
_SHARED_OBJECT = 3


@dataclass(frozen=True)
class Allocator:
    """One allocator: its name, and the file to preload, empty for the C library's own."""

    name: str
    path: str = ""


# --- files ---------------------------------------------------------------------------------------


def _architecture(found: Header) -> str:
    known = _ELF_MACHINES.get(found.machine, f"machine {found.machine} of the ELF list")
    return known if "bits" in known or found.bits == 64 else f"{known} with {found.bits} bits"


@cache
def _here() -> Header:
    """The processor that this Python is built for: what it starts can preload the same."""
    found = header(Path(sys.executable).resolve())
    assert found is not None, "Linux runs ELF files only"
    return found


def refusal(path: str | Path) -> str:
    """Why a file cannot be preloaded on this machine; empty where it can.

    >>> refusal("nowhere/libjemalloc.so")
    "there is no file 'nowhere/libjemalloc.so'"
    """
    place = Path(path)
    if not place.is_file():
        return f"there is no file {str(path)!r}"
    try:
        found = header(place)
    except OSError as error:
        return f"{str(path)!r} cannot be read: {error.strerror}"
    if found is None:
        return f"{str(path)!r} is no shared library (it does not begin as an ELF file does)"
    here = _here()
    if found._replace(kind=here.kind) != here:
        return (
            f"{str(path)!r} is for {_architecture(found)}, and programs here are for "
            f"{_architecture(here)}"
        )
    if found.kind != _SHARED_OBJECT:
        return f"{str(path)!r} is an ELF file, but no shared library"
    return ""


def _linker_knows() -> list[Path]:
    """The files that ``ldconfig -p`` lists; none where it is absent (musl has no such list)."""
    folders = os.pathsep.join([os.environ.get("PATH", os.defpath), "/sbin", "/usr/sbin"])
    program = shutil.which("ldconfig", path=folders)
    if program is None:
        return []
    answer = subprocess.run([program, "-p"], capture_output=True, text=True, check=False)
    return [Path(path) for _, path in _KNOWN.findall(answer.stdout)]


def _candidates(root: Path, environment: Mapping[str, str]) -> Iterable[Path]:
    """All files that may be an allocator, in the order in which they are preferred."""
    folders = [Path(part) for part in environment.get("LD_LIBRARY_PATH", "").split(":") if part]
    if "CONDA_PREFIX" in environment:
        folders.append(Path(environment["CONDA_PREFIX"]) / "lib")
    for folder in folders:
        yield from _files(folder)
    if root == Path("/"):
        yield from _linker_knows()
    for pattern in _FOLDERS:
        for folder in sorted(root.glob(pattern)):
            yield from _files(folder)


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir()) if folder.is_dir() else []
    except PermissionError:
        return []


def allocators(
    root: Path = Path("/"), environment: Mapping[str, str] | None = None
) -> list[Allocator]:
    """The C library's own allocator, and of each other kind the first that is found.

    Parameters
    ----------
    root
        Where the system's folders begin; the linker's list counts for ``/`` alone.
    environment
        Whose LD_LIBRARY_PATH and CONDA_PREFIX are searched; this process's by default.
    """
    variables = os.environ if environment is None else environment
    found: dict[str, str] = {}
    for path in _candidates(root, variables):
        for name, pattern in _FILES.items():
            if name not in found and pattern.fullmatch(path.name) and not refusal(path):
                found[name] = str(path.resolve())
    others = [Allocator(name, found[name]) for name in _FILES if name in found]
    return [Allocator(SYSTEM), *others]


# --- choosing ------------------------------------------------------------------------------------


def chosen(wanted: Sequence[str]) -> tuple[list[Allocator], list[str]]:
    """The allocators of these names and paths; ``all``: the C library's and all that are found.

    Returns
    -------
    The allocators, and a sentence for each known one that is requested and not here.

    Raises
    ------
    UserError
        A name is unknown, a path is no library that can be preloaded here, or nothing is left.
    """
    found = {one.name: one for one in allocators()}
    names = [SYSTEM, *_FILES]
    result: dict[str, Allocator] = {}
    absent: dict[str, str] = {}
    for word in wanted:
        if "/" in word:
            one = _by_path(word, list(found.values()), [*names, *result])
            if all(other.path != one.path for other in result.values()):
                result[one.name] = one
            continue
        if word not in (*names, "all"):
            known = choose("allocator", word, [*names, "all"])
            msg = f"allocators: {known}; or give the absolute path of a shared library"
            raise UserError(msg)
        for name in names if word == "all" else [word]:
            if name in found:
                result.setdefault(name, found[name])
            else:
                absent[name] = f"{name} is not installed: {INSTALL[name]}"
    if not result:
        msg = f"allocators: {'; '.join(absent.values()) or 'none is named'}"
        raise UserError(msg)
    return list(result.values()), list(absent.values())


def _by_path(path: str, found: Sequence[Allocator], taken: Sequence[str]) -> Allocator:
    """One that is found anyway, or a user's own library, named after its file."""
    if not Path(path).is_absolute():
        why = f"{path!r} is not absolute: write {str(Path(path).absolute())!r}"
    else:
        why = refusal(path)
    if why:
        msg = f"allocators: {why}"
        raise UserError(msg)
    real = str(Path(path).resolve())
    for one in found:
        if one.path == real:
            return one
    stem = Path(path).name.split(".so")[0].removeprefix("lib") or Path(path).name
    name, number = stem, 2
    while name in taken:
        name, number = f"{stem}-{number}", number + 1
    return Allocator(name, real)
