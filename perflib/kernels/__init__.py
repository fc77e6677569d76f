"""C kernels: compiled on demand, cached for the user alone, loaded through cffi.

``kernels_c/NAME.c`` (or in ``readers``, ``tools``) begins with a comment whose last part, after a
line ``@kernel``, is TOML:

    flags = ["-O2"]              the compiler's flags, and no others
    link = ["-lm"]               the linker's flags
    copied = "NAME_part.inc"     C whose machine code is repeated ``copies`` times (see copies.py)
    [define]
    SIZE = 64                    preprocessor definitions, with the values that ``define`` replaces
    [variants.slow]              a second variant of the same source
    flags = ["-O0"]

The declarations between ``// @interface`` and ``// @end`` are C for the compiler and cffi alike,
so an interface stands in one place. cffi's out-of-line ABI mode parses them once; afterwards
loading costs a ``dlopen``. No flag of the Python build and no environment variable (CFLAGS,
CPATH ...) reaches the compiler: the source, the flags and the compiler decide, and are the key.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perflib.kernels.records import declarations, included, open_interface, parsed, record
from perflib.model.errors import MeasurementError, UserError, choose
from perflib.model.paths import cache_dir, kernels_dir

__all__ = [
    "BASE_FLAGS",
    "Build",
    "Kernel",
    "Source",
    "build",
    "compiler",
    "load",
    "names",
    "open_library",
    "record",
    "source",
]

BASE_FLAGS = ("-std=gnu11", "-Wall", "-Wextra")
_FORMAT = 2  # part of every key: raised when the way kernels are built changes


@dataclass(frozen=True)
class Source:
    """One kernel's source as declared: its file, its flags, its interface and its variants."""

    name: str
    path: Path
    cdef: str
    flags: tuple[str, ...]
    link: tuple[str, ...]
    copied: Path | None
    define: dict[str, int]
    variants: dict[str, dict[str, Any]]

    def options(self, variant: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Compiler and linker flags of a variant (``None``: the kernel as it stands)."""
        if variant is None:
            return self.flags, self.link
        if variant not in self.variants:
            raise UserError(choose(f"variant of kernel {self.name!r}", variant, self.variants))
        changed = self.variants[variant]
        return tuple(changed.get("flags", self.flags)), tuple(changed.get("link", self.link))

    def definitions(self, wanted: Mapping[str, int] | None) -> dict[str, int]:
        """Every definition that the kernel declares, with the values wanted instead of its own."""
        values: dict[str, Any] = {**self.define, **(wanted or {})}
        for name, value in values.items():
            if name not in self.define:
                raise UserError(choose(f"definition of kernel {self.name!r}", name, self.define))
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                msg = f"kernel {self.name!r}: {name} must be a positive whole number, not {value!r}"
                raise UserError(msg)
        return values


@dataclass(frozen=True)
class Build:
    """A compiled kernel on disk: what a worker needs to load it, and where it came from."""

    name: str
    library: Path
    module: Path | None
    provenance: dict[str, Any]


@dataclass(frozen=True)
class Kernel:
    """A loaded kernel: ``kernel.lib.function(...)``, with cffi's ``ffi`` beside it."""

    build: Build
    lib: Any
    ffi: Any


def names() -> list[str]:
    """Every kernel there is, those in ``readers`` and ``tools`` among them."""
    return sorted(_files())


def _files() -> dict[str, Path]:
    return {path.stem: path for path in kernels_dir().glob("**/*.c")}


def source(name: str) -> Source:
    """Read a kernel's declarations from its C file."""
    path = _files().get(name)
    if path is None:
        raise UserError(choose("kernel", name, names()))
    return _parse(path, path.stat().st_mtime_ns)


@functools.cache
def _parse(path: Path, _mtime_ns: int) -> Source:
    text = path.read_text()
    comment = text.partition("*/")[0]
    head, marker, declared = comment.partition("@kernel")
    if not marker or not head.startswith("/*"):
        msg = f"{path}: the first comment has no '@kernel' part (flags, link, variants)"
        raise UserError(msg)
    toml = "\n".join(re.sub(r"^\s*\* ?", "", line) for line in declared.splitlines())
    try:
        options = tomllib.loads(toml)
    except tomllib.TOMLDecodeError as error:
        msg = f"{path}: the '@kernel' part is no TOML: {error}"
        raise UserError(msg) from None
    copied = options.get("copied")
    return Source(
        name=path.stem,
        path=path,
        cdef=declarations(path),
        flags=tuple(options.get("flags", ())),
        link=tuple(options.get("link", ())),
        copied=path.parent / copied if copied else None,
        define=options.get("define", {}),
        variants=options.get("variants", {}),
    )


# --- the compiler ------------------------------------------------------------------------------


def compiler() -> tuple[str, str]:
    """The C compiler's path and its version line; ``PERFLIB_CC`` names another than gcc."""
    wanted = os.environ.get("PERFLIB_CC")
    for candidate in [wanted] if wanted else ["gcc", "cc", "clang"]:
        path = shutil.which(candidate)
        if path:
            status = Path(path).stat()
            return path, _compiler_version(path, status.st_mtime_ns)
    searched = f"PERFLIB_CC={wanted!r}" if wanted else "none of gcc, cc, clang"
    msg = (
        f"no C compiler: {searched} is on PATH. Install one: 'apt-get install gcc libc6-dev' "
        "(Debian, Ubuntu), 'dnf install gcc' (Fedora, RHEL), "
        "'conda install -c conda-forge c-compiler'."
    )
    raise UserError(msg)


def _version_file(path: str, mtime_ns: int) -> Path:
    tag = hashlib.sha256(f"{path}\0{mtime_ns}".encode()).hexdigest()[:24]
    return _private_cache() / f"compiler-{tag}"


@functools.cache
def _compiler_version(path: str, mtime_ns: int) -> str:
    remembered = _version_file(path, mtime_ns)
    if remembered.is_file():
        _check_owner(remembered)
        return remembered.read_text()
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    version = (answer.stdout.splitlines() or ["unknown"])[0]
    temporary = remembered.with_suffix(f".{os.getpid()}")
    try:
        temporary.write_text(version)
        temporary.chmod(0o600)
        temporary.replace(remembered)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _unusable(error) from error
    return version


def _run_compiler(name: str, arguments: list[str], where: Path) -> None:
    path, _ = compiler()
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TMPDIR": str(where)}
    answer = subprocess.run(
        [path, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    if answer.returncode:
        msg = f"kernel {name!r} does not compile; {path} says:\n{answer.stderr.strip()}"
        raise MeasurementError(msg)


# --- the cache ---------------------------------------------------------------------------------


def _check_owner(path: Path) -> None:
    """Refuse to load what another user owns or could have written."""
    status = path.lstat()
    if status.st_uid != os.geteuid():
        problem = f"belongs to user id {status.st_uid}, not to you ({os.geteuid()})"
    elif stat.S_ISLNK(status.st_mode):
        problem = "is a symbolic link"
    elif status.st_mode & 0o022:
        problem = f"can be written by others (mode {status.st_mode & 0o777:o})"
    else:
        return
    msg = (
        f"{path} {problem}: nothing is loaded from it. Remove it, or set PERFLIB_CACHE to a "
        "folder of your own."
    )
    raise UserError(msg)


def _private_cache() -> Path:
    """The cache folder: made 0700, and checked to be the user's alone."""
    folder = cache_dir()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_owner(folder)
        if folder.stat().st_mode & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise _unusable(error) from error
    return folder


def _unusable(error: OSError) -> UserError:
    msg = f"the kernel cache cannot be used: {error}. Set PERFLIB_CACHE to another folder."
    return UserError(msg)


def _included(declared: Source) -> list[Path]:
    """The kernel's other files: its copied part, and every header of ours that either includes."""
    copied = [declared.copied] if declared.copied else []
    return sorted([*copied, *included([declared.path, *copied])])


def _digest(*parts: str | bytes) -> str:
    state = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        state.update(len(raw).to_bytes(8, "little") + raw)
    return state.hexdigest()


def build(
    name: str,
    *,
    variant: str | None = None,
    copies: int | None = None,
    define: Mapping[str, int] | None = None,
    executable: bool = False,
) -> Build:
    """Compile a kernel, or find it compiled.

    Parameters
    ----------
    name
        The kernel: a file of ``kernels_c``.
    variant
        One of the variants that the kernel declares.
    copies
        How often the code of the kernel's ``copied`` file stands in the library; only for a kernel
        that declares one.
    define
        Values of preprocessor definitions that the kernel declares, such as the number of its
        functions; the others keep the value they are declared with.
    executable
        A program instead of a library (``PERFLIB_MAIN`` is defined for its ``main``).

    Raises
    ------
    UserError
        No such kernel, variant or definition, a definition that is no positive whole number, no
        compiler, or a cache that is not the user's own.
    MeasurementError
        The compiler refused the source; its own words are in the message.
    """
    declared = source(name)
    flags, link = declared.options(variant)
    defined = declared.definitions(define)
    if copies is not None and declared.copied is None:
        msg = f"kernel {name!r} declares no 'copied' part: its code cannot be repeated"
        raise UserError(msg)
    copies = (copies or 1) if declared.copied else None
    path, version = compiler()
    text = declared.path.read_bytes()
    headers = [file.read_bytes() for file in _included(declared)]
    key_parts = [_FORMAT, os.uname().machine, name, path, version, flags, link, copies, executable]
    key = _digest(json.dumps([*key_parts, sorted(defined.items())]), text, *headers)[:32]
    folder = _private_cache() / f"{name}-{key}"
    library = folder / (name if executable else f"{name}.so")
    module = None if executable else folder / f"_{name}.py"
    files = [library] if module is None else [library, module]
    if not all(file.exists() for file in files):  # new, or a cleaner of old files was here
        try:
            given = (*flags, *(f"-D{name}={value}" for name, value in defined.items()))
            _compile_once(declared, files, given, link, copies, executable)
        except OSError as error:
            raise _unusable(error) from error
    for part in (folder, *files):
        _check_owner(part)
    provenance = {
        "kernel": name,
        "variant": variant,
        "copies": copies,
        "define": defined,
        "source_sha256": _digest(text, *headers),
        "compiler": path,
        "compiler_version": version,
        "flags": [*BASE_FLAGS, *flags],
        "link": list(link),
    }
    return Build(name, library, module, provenance)


def _compile_once(
    declared: Source,
    files: list[Path],
    flags: tuple[str, ...],
    link: tuple[str, ...],
    copies: int | None,
    executable: bool,
) -> None:
    """Compile into a folder of its own and move it into place, one process at a time."""
    from filelock import FileLock

    folder = files[0].parent
    with FileLock(f"{folder}.lock", mode=0o600):
        if all(file.exists() for file in files):
            return
        building = f".building-{folder.name}-"
        for leftover in (folder, *folder.parent.glob(f"{building}*")):  # of a killed build
            shutil.rmtree(leftover, ignore_errors=True)
        temporary = Path(tempfile.mkdtemp(prefix=building, dir=folder.parent))
        try:
            _compile(declared, temporary, flags, link, copies, executable)
            for file in files:  # whatever the umask is
                (temporary / file.name).chmod(0o700)
            temporary.replace(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _compile(
    declared: Source,
    where: Path,
    flags: tuple[str, ...],
    link: tuple[str, ...],
    copies: int | None,
    executable: bool,
) -> None:
    name = declared.name
    common = [*BASE_FLAGS, *flags, f"-I{kernels_dir()}"]
    inputs = [str(declared.path)]
    if declared.copied is not None:
        from perflib.kernels.copies import repeat

        single, repeated = where / "single.s", where / "copies.s"
        _run_compiler(
            name,
            [*common, "-fPIC", "-S", "-x", "c", str(declared.copied), "-o", str(single)],
            where,
        )
        repeat(single, repeated, copies or 1)
        inputs.append(str(repeated))
    if executable:
        _run_compiler(
            name, [*common, "-DPERFLIB_MAIN", *inputs, "-o", str(where / name), *link], where
        )
    else:
        arguments = ["-fPIC", "-shared", *inputs, "-o", str(where / f"{name}.so"), *link]
        _run_compiler(name, [*common, *arguments], where)
        _emit_interface(declared, where / f"_{name}.py")
    for leftover in where.glob("*.s"):
        leftover.unlink()


def _emit_interface(declared: Source, target: Path) -> None:
    ffi = parsed(declared.cdef, declared.path)
    ffi.set_source(f"_{declared.name}", None)
    with contextlib.redirect_stdout(io.StringIO()):  # cffi says "generating ..."
        ffi.emit_python_code(str(target))


# --- loading -----------------------------------------------------------------------------------


@functools.cache  # and so kept: a function of a library that was let go would crash
def open_library(library: str, module: str) -> tuple[Any, Any]:
    """``(lib, ffi)`` of a build; all that a worker needs, without the compiler's side."""
    ffi = open_interface(module)
    return ffi.dlopen(library), ffi


def load(
    name: str,
    *,
    variant: str | None = None,
    copies: int | None = None,
    define: Mapping[str, int] | None = None,
) -> Kernel:
    """Compile (or find) and load a kernel into *this* process.

    For tools and tests. What is measured runs in a worker process: see ``perflib.measure``.

    >>> load("probe").lib.probe_answer()  # doctest: +SKIP
    42
    """
    built = build(name, variant=variant, copies=copies, define=define)
    lib, ffi = open_library(str(built.library), str(built.module))
    return Kernel(built, lib, ffi)
