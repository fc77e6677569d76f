"""The C compiler: where it is, and how a kernel is compiled by it."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import io
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from perflib.kernels.private import check_owner, private_cache, unusable
from perflib.kernels.records import parsed
from perflib.kernels.sources import BASE_FLAGS, Request, Source
from perflib.model.errors import MeasurementError, UserError
from perflib.store import paths
from perflib.store.files import replacing

_PATIENCE_S = 300.0  # the largest kernel takes 30 s of CPU time
_MAX_S = 1e6
_VERSION_CHARACTERS = 200
_MOST_BYTES, _POLL_S = 4 << 20, 0.2  # of what it prints
_MOST_SHOWN = 20_000  # characters
_ELF_HEADER_BYTES = 64
_ELF_64_BIT = 2
_SHARED = 3  # a library, or a position-independent program


def _patience_s() -> float:
    """How long a compiler may take; ``PERFLIB_CC_TIMEOUT_S`` names another limit."""
    wish = os.environ.get("PERFLIB_CC_TIMEOUT_S") or _PATIENCE_S
    try:
        limit_s = float(wish)
    except ValueError:
        limit_s = 0.0
    if not 0 < limit_s <= _MAX_S:
        msg = f"PERFLIB_CC_TIMEOUT_S={wish}: it must be a number of seconds, for example 600"
        raise UserError(msg)
    return limit_s


def compiler() -> tuple[str, str]:
    """The C compiler's command and its version line; ``PERFLIB_CC`` names another than gcc.

    The command is a path, or a line of words as a shell reads it: ``/usr/bin/ccache gcc``.

    Raises
    ------
    UserError
        There is none.
    """
    wanted = os.environ.get("PERFLIB_CC", "").strip()
    for candidate in [wanted] if wanted else ["gcc", "cc", "clang"]:
        if words := _words(candidate):
            found = [path for word in words if (path := shutil.which(word))]  # ccache runs gcc
            programs = tuple((path, Path(path).stat().st_mtime_ns) for path in found)
            return shlex.join(words), _version(*words, programs=programs)
    searched = f"PERFLIB_CC={wanted!r} is no program" if wanted else "none of gcc, cc, clang is"
    msg = (
        f"no C compiler: {searched} on PATH. Install one: 'apt-get install gcc libc6-dev' "
        "(Debian, Ubuntu), 'dnf install gcc' (Fedora, RHEL), "
        "'conda install -c conda-forge c-compiler'. Or set PERFLIB_KERNELS to what 'perflib build' "
        "made where there is one."
    )
    raise UserError(msg)


def _words(line: str) -> list[str]:
    """A command, its program found on PATH: a path, or several words; empty: it is none."""
    words = [line]
    if shutil.which(line) is None:
        with contextlib.suppress(ValueError):  # a quotation mark is open
            words = shlex.split(line)
    path = shutil.which(words[0])
    return [path, *words[1:]] if path else []


@functools.cache
def _version(*words: str, programs: tuple[tuple[str, int], ...]) -> str:
    tag = hashlib.sha256(repr((words, programs)).encode()).hexdigest()[:24]
    remembered = private_cache() / f"compiler-{tag}"
    if remembered.is_file():
        check_owner(remembered)
        return remembered.read_text()
    _, printed, _ = _output_of([*words, "--version"])
    version = _printable((printed.splitlines() or [""])[0]) or "unknown"
    try:
        with replacing(remembered) as temporary:
            temporary.write_text(version)
            temporary.chmod(0o600)
    except OSError as error:
        raise unusable(error) from error
    return version


def _printable(line: str) -> str:
    """What a program that may not be a compiler says of itself, fit for a terminal and a record."""
    return "".join(sign for sign in line if sign.isprintable())[:_VERSION_CHARACTERS].strip()


def _output_of(
    argv: Sequence[str | Path], environment: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Run the compiler: its exit status, its output, its errors.

    It leads a process group of its own, which ends with this call, however that ends.
    """
    limit_s = _patience_s()
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=None if environment is None else dict(environment),
            process_group=0,
        )
    except OSError as error:
        msg = f"the C compiler {argv[0]} cannot be started: {error.strerror}"
        raise UserError(msg) from error
    fault = f"did not end within {limit_s:g} s"
    deadline = time.monotonic() + limit_s
    with process:
        while True:
            left_s = deadline - time.monotonic()
            try:
                out, errors = process.communicate(timeout=min(_POLL_S, left_s))
                break
            except BaseException as error:
                if isinstance(error, subprocess.TimeoutExpired):
                    if max(len(error.output or b""), len(error.stderr or b"")) > _MOST_BYTES:
                        fault = f"printed more than {_MOST_BYTES >> 20} MiB"
                    elif left_s > _POLL_S:
                        continue
                os.killpg(process.pid, signal.SIGKILL)  # it is not yet waited for
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                msg = (
                    f"the C compiler {argv[0]} {fault} and was killed. Try "
                    "it by hand; PERFLIB_CC names another, PERFLIB_CC_TIMEOUT_S gives it longer."
                )
                raise MeasurementError(msg) from error
    return process.returncode, out, errors


def _run(name: str, where: Path, arguments: Sequence[str | Path], made: Path) -> None:
    command, _ = compiler()
    words = shlex.split(command)
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TMPDIR": str(where)}
    if len(words) > 1:  # what ccache and distcc are configured by
        own = {name for name in os.environ if name.startswith(("CCACHE_", "DISTCC_"))}
        environment |= {name: os.environ[name] for name in {"HOME", *own} & os.environ.keys()}
    status, _, errors = _output_of([*words, *arguments], environment)
    if status:
        for number in (errno.ENOSPC, errno.EDQUOT):
            if os.strerror(number) in errors:
                raise unusable(OSError(number, os.strerror(number), str(where.parent)))
        how = f"died of signal {-status}" if status < 0 else "says"
        if status == -signal.SIGKILL or "Killed signal" in errors:
            how = "was killed, perhaps for want of memory (see dmesg); it says"
        if len(errors := errors.strip()) > _MOST_SHOWN:
            errors = f"{errors[:_MOST_SHOWN]}\n... and {len(errors) - _MOST_SHOWN} characters more"
        msg = f"kernel {name!r} does not compile; {command} {how}:\n{errors}".rstrip(":\n")
        raise MeasurementError(msg)
    if not made.is_file():
        msg = f"kernel {name!r} does not compile; {command} reports success, but made no "
        raise MeasurementError(msg + made.name)


def _check_linked(made: Path, name: str, symbols: Sequence[str] | None = None) -> None:
    """Refuse what is not whole or not what was wanted, before the cache keeps it for good.

    It is a library with all ``symbols``; where there is no such list, a program. Loading what is
    cut off may kill the process. Read by hand, as pyelftools takes long to import.
    """
    with Path(sys.executable).open("rb") as running:
        here = running.read(_ELF_HEADER_BYTES)
    data = made.read_bytes()
    header = data[:_ELF_HEADER_BYTES]
    wrong = "is no ELF file of this processor"
    if len(header) == len(here) and (header[:6], header[18:20]) == (here[:6], here[18:20]):
        missing = [symbol for symbol in symbols or [] if f"\0{symbol}\0".encode() not in data]
        wrong = f"lacks {', '.join(missing)}" if missing else ""
        if header[4] == _ELF_64_BIT:
            order: Literal["little", "big"] = "little" if header[5] == 1 else "big"
            entry, sections = (int.from_bytes(header[at : at + 8], order) for at in (24, 40))
            size, count = (int.from_bytes(header[at : at + 2], order) for at in (58, 60))
            shared = int.from_bytes(header[16:18], order) == _SHARED and not entry
            wrong = wrong if symbols is not None or not shared else "is no program, but a library"
            wrong = "is cut off" if len(data) < sections + size * count else wrong
    if wrong:
        path, version = compiler()
        msg = (
            f"kernel {name!r} does not compile; {path} ({version}) reports success, but "
            f"{made.name} {wrong}: is it a C compiler for this machine?"
        )
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
        _run(name, where, [*common, *copied], single)
        repeat(single, repeated, wanted.copies or 1)
        inputs.append(repeated)
    inputs += _pieces(where, wanted, level)
    if not wanted.executable:
        made = where / f"{name}.so"
        arguments = ["-fPIC", "-shared", *inputs, "-o", made, *wanted.link]
        _run(name, where, [*common, *arguments], made)
        _check_linked(made, name, _emit_interface(declared, where / f"_{name}.py"))
    elif inputs[0] == declared.path:
        arguments = ["-DPERFLIB_MAIN", *inputs, "-o", where / name, *wanted.link]
        _run(name, where, [*common, *arguments], where / name)
    else:
        _run(name, where, [*inputs, "-o", where / name, *wanted.link], where / name)
    if wanted.executable:
        _check_linked(where / name, name)
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
        arguments = [*flags, wanted.source.path, "-o", objects[-1]]
        _run(wanted.source.name, where, arguments, where / f"{number}.o")
    return objects


def _pieces(where: Path, wanted: Request, level: str) -> list[Path]:
    """The objects of a variant's pieces, compiled side by side, one process for each CPU."""
    if wanted.pieces is None:
        return []
    source, count, declared = wanted.pieces
    added = wanted.level_flags(level)
    flags = (*BASE_FLAGS, *declared, *added, f"-I{paths.kernels_dir()}", "-fPIC", "-x", "c", "-c")
    objects = [where / f"piece_{number:04d}.o" for number in range(count)]

    def made(number: int) -> None:
        arguments: list[str | Path] = [*flags, f"-DPIECE={number}", source, "-o", objects[number]]
        _run(wanted.source.name, where, arguments, objects[number])

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(made, range(count)))
    return objects


def _emit_interface(declared: Source, target: Path) -> list[str]:
    """Write cffi's module; the functions that it declares."""
    ffi = parsed(declared.cdef, declared.path)
    ffi.set_source(f"_{declared.name}", None)
    with contextlib.redirect_stdout(io.StringIO()):  # cffi says "generating ..."
        ffi.emit_python_code(str(target))
    kinds = (key.split() for key in ffi._parser._declarations)  # noqa: SLF001 (none is public)
    return [name for kind, name in kinds if kind == "function"]
