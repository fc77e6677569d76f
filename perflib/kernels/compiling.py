"""The C compiler: where it is, and how a kernel is compiled by it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from perflib.kernels.private import check_owner, private_cache, unusable
from perflib.kernels.records import parsed
from perflib.kernels.sources import BASE_FLAGS, Request, Source
from perflib.model import paths
from perflib.model.errors import MeasurementError, UserError
from perflib.model.files import replacing

__all__ = ["compile_into", "compiler"]


def compiler() -> tuple[str, str]:
    """The C compiler's path and its version line; ``PERFLIB_CC`` names another than gcc.

    Raises
    ------
    UserError
        There is none.
    """
    wanted = os.environ.get("PERFLIB_CC")
    for candidate in [wanted] if wanted else ["gcc", "cc", "clang"]:
        path = shutil.which(candidate)
        if path:
            status = Path(path).stat()
            return path, _version(path, status.st_mtime_ns)
    searched = f"PERFLIB_CC={wanted!r}" if wanted else "none of gcc, cc, clang"
    msg = (
        f"no C compiler: {searched} is on PATH. Install one: 'apt-get install gcc libc6-dev' "
        "(Debian, Ubuntu), 'dnf install gcc' (Fedora, RHEL), "
        "'conda install -c conda-forge c-compiler'. Or set PERFLIB_KERNELS to what 'perflib build' "
        "made where there is one."
    )
    raise UserError(msg)


@functools.cache
def _version(path: str, mtime_ns: int) -> str:
    tag = hashlib.sha256(f"{path}\0{mtime_ns}".encode()).hexdigest()[:24]
    remembered = private_cache() / f"compiler-{tag}"
    if remembered.is_file():
        check_owner(remembered)
        return remembered.read_text()
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    version = (answer.stdout.splitlines() or ["unknown"])[0]
    try:
        with replacing(remembered) as temporary:
            temporary.write_text(version)
            temporary.chmod(0o600)
    except OSError as error:
        raise unusable(error) from error
    return version


def _run(name: str, where: Path, arguments: Sequence[str | Path]) -> None:
    path, _ = compiler()
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TMPDIR": str(where)}
    answer = subprocess.run(
        [path, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    if answer.returncode:
        msg = f"kernel {name!r} does not compile; {path} says:\n{answer.stderr.strip()}"
        raise MeasurementError(msg)


def compile_into(where: Path, wanted: Request, level: str) -> None:
    """Compile for a level: to ``NAME`` in a folder, or to ``NAME.so`` and cffi's ``_NAME.py``.

    Raises
    ------
    MeasurementError
        The compiler refused the source; its own words are in the message.
    """
    declared, name = wanted.source, wanted.source.name
    defined = (f"-D{macro}={value}" for macro, value in wanted.define.items())
    common = [*defined, f"-I{paths.kernels_dir()}"]
    inputs = _objects(where, wanted, [*wanted.level_flags(level), *common]) or [declared.path]
    common = [*BASE_FLAGS, *wanted.flags(level), *common]
    if declared.copied is not None:
        from perflib.kernels.copies import repeat

        single, repeated = where / "single.s", where / "copies.s"
        copied: list[str | Path] = ["-fPIC", "-S", "-x", "c", declared.copied, "-o", single]
        _run(name, where, [*common, *copied])
        repeat(single, repeated, wanted.copies or 1)
        inputs.append(repeated)
    if not wanted.executable:
        arguments = ["-fPIC", "-shared", *inputs, "-o", where / f"{name}.so", *wanted.link]
        _run(name, where, [*common, *arguments])
        _emit_interface(declared, where / f"_{name}.py")
    elif inputs[0] == declared.path:
        arguments = ["-DPERFLIB_MAIN", *inputs, "-o", where / name, *wanted.link]
        _run(name, where, [*common, *arguments])
    else:
        _run(name, where, [*inputs, "-o", where / name, *wanted.link])
    for leftover in (*where.glob("*.s"), *where.glob("*.o")):
        leftover.unlink()


def _objects(where: Path, wanted: Request, common: Sequence[str]) -> list[str | Path]:
    """The objects of a variant ``a+b``, compiled, in that order."""
    parts = wanted.source.parts(wanted.variant)
    if len(parts) == 1:
        return []
    objects: list[str | Path] = []
    for number, part in enumerate(parts):
        flags = (*BASE_FLAGS, *part.get("flags", wanted.source.flags), *common, "-DPERFLIB_MAIN")
        objects.append(where / f"{number}.o")
        _run(wanted.source.name, where, [*flags, wanted.source.path, "-o", objects[-1]])
    return objects


def _emit_interface(declared: Source, target: Path) -> None:
    ffi = parsed(declared.cdef, declared.path)
    ffi.set_source(f"_{declared.name}", None)
    with contextlib.redirect_stdout(io.StringIO()):  # cffi says "generating ..."
        ffi.emit_python_code(str(target))
