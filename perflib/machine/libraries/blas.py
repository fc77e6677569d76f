"""Every BLAS library of this machine: Python's own and the system's, and what each reports.

A file that looks like a BLAS is opened in a process of its own (``blas_probe``), since two of them
in one process would share symbols, and searched for ``cblas_dgemv`` and for what sets it to use one
thread. Names differ: those that come with numpy and scipy put ``scipy_`` before and ``64_`` (where
their integers have 64 bits) after every name.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perflib.model.errors import UserError, choose

# What makes each library use one thread, before it is loaded.
ONE_THREAD: Mapping[str, str] = {
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "BLIS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
INSTALL = (
    "'apt-get install libopenblas0-pthread libblis4-pthread libblas3' (Debian), 'dnf install "
    "openblas blis blas' (Fedora), 'pip install mkl' or 'pip install numpy' (which brings its own)"
)
_FILES = re.compile(
    r"lib(scipy_|\w*_)?(openblas|blis|mkl_rt|atlas|satlas|tatlas|cblas|blas|flexiblas)[\w.-]*\.so"
)
_FOLDERS = ("openblas*", "blis*", "blas*", "atlas*", "mkl*")  # Debian's, besides the linker's own
_SYSTEM = ("usr/lib", "usr/lib64", "usr/local/lib", "usr/lib/*-linux-gnu")
_WRAPPERS = re.compile(r"lib(c?blas|lapack)[\w.-]*\.so")
_PROBE_S = 30.0


@dataclass(frozen=True)
class Blas:
    """One library that has ``cblas_dgemv``.

    Parameters
    ----------
    name
        Short and unique here: ``openblas-numpy``, ``openblas-pthread``, ``blis-pthread``, ``mkl``,
        ``reference``.
    kind
        ``openblas``, ``mkl``, ``blis``, ``atlas``, or ``reference`` for one that gives no sign of
        being another.
    path
        The file.
    dgemv, set_threads
        The names of its functions; ``set_threads`` is empty where it has none.
    version, core_type, threading
        What it says of itself, as threadpoolctl reads it: ``SkylakeX`` or ``Zen`` is the kind of
        core that it chose its code for. Empty where it is silent.
    """

    name: str
    kind: str
    path: str
    dgemv: str
    set_threads: str
    version: str = ""
    core_type: str = ""
    threading: str = ""


def candidates(
    root: Path = Path("/"), environment: Mapping[str, str] | None = None, python: Path | None = None
) -> list[Path]:
    """Files that may be a BLAS: the linker's folders, ``LD_LIBRARY_PATH``, Python's and conda's.

    Parameters
    ----------
    root
        Where the system's folders begin.
    environment
        Whose LD_LIBRARY_PATH, MKLROOT and CONDA_PREFIX are searched; this process's by default.
    python
        The Python installation whose packages are searched; this one by default.
    """
    variables = os.environ if environment is None else environment
    prefix = Path(sys.prefix) if python is None else python
    packages = sorted(prefix.glob("lib*/python*/site-packages"))
    folders = [folder for place in packages for folder in sorted(place.glob("*.libs"))]
    folders.append(prefix / "lib")
    folders += [Path(part) for part in variables.get("LD_LIBRARY_PATH", "").split(":") if part]
    folders += [
        Path(variables[name]) / "lib" for name in ("MKLROOT", "CONDA_PREFIX") if name in variables
    ]
    for pattern in _SYSTEM:
        for folder in sorted(root.glob(pattern)):
            folders.append(folder)
            folders += [sub for name in _FOLDERS for sub in sorted(folder.glob(name))]
    found: dict[Path, None] = {}
    for folder in folders:
        if folder.is_dir():
            files = [path for path in sorted(folder.iterdir()) if _FILES.match(path.name)]
            real = [path.resolve() for path in files if path.is_file()]
            found |= dict.fromkeys(real)
    return [path for path in found if not _is_a_wrapper(path, list(found))]


def _is_a_wrapper(path: Path, all_: Sequence[Path]) -> bool:
    """Is it an interface of the one next to it, as Debian's openblas-pthread/libblas.so.3 is?"""
    siblings = [other for other in all_ if other.parent == path.parent and other != path]
    own = [other for other in siblings if re.match(r"lib(openblas|blis|\w*atlas)", other.name)]
    return bool(own) and _WRAPPERS.match(path.name) is not None


def probe(
    paths: Iterable[Path | str], environment: Mapping[str, str] | None = None
) -> tuple[list[Blas], dict[str, str]]:
    """Open each file in a process of its own.

    Parameters
    ----------
    paths
        The files.
    environment
        Variables of those processes in addition to the inherited ones; ``OPENBLAS_CORETYPE`` for
        example makes OpenBLAS choose its code for another core.

    Returns
    -------
    The libraries that have ``cblas_dgemv``, each named uniquely; and of the other files, by path,
    why they are not used.
    """
    variables = {**os.environ, **ONE_THREAD, **(environment or {})}
    started = {
        str(path): subprocess.Popen(
            [sys.executable, "-P", "-m", "perflib.machine.libraries.blas_probe", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
            text=True,
        )
        for path in paths
    }
    libraries: list[Blas] = []
    refused: dict[str, str] = {}
    for path, process in started.items():
        try:
            answered, errors = process.communicate(timeout=_PROBE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            refused[path] = f"opening it took more than {_PROBE_S:g} s"
            continue
        if process.returncode:
            last = (errors.strip().splitlines() or ["without a message"])[-1]
            refused[path] = f"opening it ended with status {process.returncode}: {last}"
            continue
        answer = json.loads(answered)
        if "refused" in answer:
            refused[path] = answer["refused"]
            continue
        name = _unique(_name(path, answer["kind"]), [library.name for library in libraries])
        libraries.append(Blas(name=name, path=path, **answer))
    return libraries, refused


def _name(path: str, kind: str) -> str:
    """The kind, with the package that brought it or the folder that distinguishes variants."""
    folder = Path(path).parent.name
    if folder.endswith(".libs"):
        return f"{kind}-{folder.removesuffix('.libs')}"
    return folder if folder.startswith(f"{kind}-") else kind


def _unique(name: str, taken: Sequence[str]) -> str:
    number = 2
    unique = name
    while unique in taken:
        unique, number = f"{name}-{number}", number + 1
    return unique


def blas_libraries(
    more: Iterable[str] = (), environment: Mapping[str, str] | None = None
) -> tuple[list[Blas], dict[str, str]]:
    """All that are found here, and those named by path; see ``probe`` for what comes back."""
    paths = dict.fromkeys([*map(Path, more), *candidates()])
    return probe(paths, environment)


def chosen(wanted: Sequence[str], environment: Mapping[str, str] | None = None) -> list[Blas]:
    """The libraries of these names or paths; ``all``: every one that is found.

    Raises
    ------
    UserError
        No BLAS is found at all, there is none of a name, or a file is no BLAS.
    """
    paths = [word for word in wanted if "/" in word]
    found, refused = blas_libraries(paths, environment)
    for path in paths:
        if path in refused:
            msg = f"blas: {path} cannot be used: {refused[path]}"
            raise UserError(msg)
    if not found:
        msg = f"blas: no BLAS library is found here. Install one: {INSTALL}; or give its path"
        raise UserError(msg)
    names = {library.name: library for library in found}
    result: dict[str, Blas] = {}
    for word in wanted:
        if word == "all":
            result |= {name: names[name] for name in names if names[name].path not in paths}
        elif "/" in word:
            result |= {one.name: one for one in found if one.path == word}
        elif word in names:
            result[word] = names[word]
        else:
            raise UserError("blas: " + choose("BLAS library", word, [*names, "all"]))
    return list(result.values())
