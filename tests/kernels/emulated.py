"""Kernels of another processor, called as those of this one: cross-compiled, and emulated.

A test with the mark ``arm64`` runs twice: here, and with kernels for aarch64 under qemu-aarch64.
What it calls is the same: ``kernels.load`` and ``kernels.build``, a kernel's ``lib`` and ``ffi``.
Arguments are copied for the time of a call, so a kernel must not keep their addresses.
"""

from __future__ import annotations

import functools
import os
import shutil
import struct
import subprocess
import tempfile
import weakref
from pathlib import Path
from typing import Any

import pytest

from perflib import kernels
from perflib.kernels import Build, Kernel, compiling
from perflib.kernels.levels import BASELINE
from perflib.kernels.sources import Request, request

CC, QEMU = "aarch64-linux-gnu-gcc", "qemu-aarch64"
SERVER = Path(__file__).parents[1] / "kernels_c/emulated.c"
_REAL = ("double", "float")
_build_here = kernels.build
_built: dict[str, Build] = {}


def missing() -> str:
    """Why nothing can be emulated here; empty where it can."""
    if os.uname().machine == "aarch64":
        return "kernels for aarch64 need no emulator here"
    absent = shutil.which(CC) is None or shutil.which(QEMU) is None
    packages = "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
    return f"apt-get install {packages}" if absent else ""


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="perflib-aarch64-")


@functools.cache
def emulator() -> list[str]:
    """The emulator's command, with the folder of the other processor's libraries."""
    words = [CC, "-print-file-name=libc.so.6"]
    found = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    return [QEMU, "-L", str(Path(found).resolve().parents[1])]


@functools.cache
def compiled(source: Path, *flags: str) -> Path:
    """A C file of the tests for the other processor."""
    made = Path(_folder().name, source.stem)
    subprocess.run([CC, "-O1", source, "-o", made, *flags], check=True)
    return made


def compiled_kernel(wanted: Request, level: str = BASELINE) -> Path:
    """A kernel's library or program, made by its own flags for the other processor."""
    where = Path(tempfile.mkdtemp(dir=_folder().name))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PERFLIB_CC", CC)
        patched.setattr(compiling, "_check_linked", lambda *_: None)  # it is not for this machine
        compiling.compile_into(where, wanted, level)
    return where / (wanted.source.name + ("" if wanted.executable else ".so"))


def build(name: str, **options: Any) -> Build:
    """As ``kernels.build``; a program is a script that runs it under the emulator."""
    wanted = request(name, **options)
    if wanted.key not in _built:
        here, made = _build_here(name, **options), compiled_kernel(wanted)
        if wanted.executable:
            command = made.with_name("run") / name
            command.parent.mkdir()
            command.write_text(f'#!/bin/sh\nexec {" ".join(emulator())} {made} "$@"\n')
            command.chmod(0o700)
            made = command
        _built[wanted.key] = Build(name, made, here.module, here.provenance)
    return _built[wanted.key]


def load(name: str, **options: Any) -> Kernel:
    """As ``kernels.load``. Its declarations are those of the kernel that was built here."""
    here, built = kernels.opened(_build_here(name, **options)), build(name, **options)
    ffi = Ffi(here.ffi, Emulated(built.library))
    return Kernel(built, Lib(here.lib, ffi), ffi)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


class Emulated:
    """A library that is open in an emulator: see emulated.c."""

    def __init__(self, library: Path) -> None:
        words = [*emulator(), str(compiled(SERVER, "-ldl")), str(library)]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        weakref.finalize(self, _end, process)
        self._in, self._out = process.stdin, process.stdout
        self.room = int.from_bytes(self.request(b"", answers=8), "little")

    def request(self, content: bytes, answers: int = 0) -> bytes:
        """Make a request; its answer has so many bytes."""
        assert self._in is not None
        assert self._out is not None
        self._in.write(content)
        self._in.flush()
        answer = self._out.read(answers)
        assert len(answer) == answers, "the library's process ended"
        return answer

    def read(self, address: int, size: int) -> bytes:
        """What is in its memory."""
        return self.request(struct.pack("<c2Q", b"R", address, size), size)

    def call(self, name: str, whole: list[int], real: list[bytes], *, is_real: bool) -> bytes:
        """Call a function; the eight bytes that it returned."""
        words = struct.pack("<16Q", *whole, *[0] * (16 - len(whole)))
        given = words[:64] + b"".join(real).ljust(64, b"\0") + words[64:]
        head = struct.pack("<c2Q", b"C", len(name), is_real)
        return self.request(head + name.encode() + given, 8)


class Pointer:
    """An address in the emulated process; it has the fields of the struct that is there."""

    def __init__(self, address: int, ffi: Ffi, kind: Any) -> None:
        self.address, self._ffi, self._kind = address, ffi, kind

    def __eq__(self, other: object) -> bool:  # with NULL
        return isinstance(other, Pointer) == (self.address != 0)

    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        here = self._ffi.here
        copy = here.new(here.getctype(self._kind.item, "*"))
        here.buffer(copy)[:] = self._ffi.emulated.read(self.address, here.sizeof(copy[0]))
        return getattr(copy, name)


class Ffi:
    """cffi's ``ffi``, for which a number cast to a pointer is an address in the emulator."""

    def __init__(self, here: Any, emulated: Emulated) -> None:
        self.here, self.emulated = here, emulated
        self.buffers: dict[int, Any] = {}  # by their address, which is so never another's

    def __getattr__(self, name: str) -> Any:
        return getattr(self.here, name)

    def from_buffer(self, *words: Any, **options: Any) -> Any:
        """As cffi's."""
        made = self.here.from_buffer(*words, **options)
        self.buffers[int(self.here.cast("uintptr_t", made))] = words[-1]
        return made

    def cast(self, kind: str, value: Any) -> Any:
        """As cffi's."""
        if isinstance(value, int) and "*" in kind:
            return Pointer(value, self, self.here.typeof(kind))
        return self.here.cast(kind, value)

    def buffer(self, of: Any, size: int = -1) -> Any:
        """As cffi's; of memory in the emulator, its bytes."""
        if isinstance(of, Pointer):
            return self.emulated.read(of.address, size)
        return self.here.buffer(of, size)

    def string(self, of: Any) -> Any:
        """As cffi's."""
        if isinstance(of, Pointer):
            return self.emulated.read(of.address, 64).partition(b"\0")[0]
        return self.here.string(of)


class Lib:
    """A library's functions and constants."""

    def __init__(self, here: Any, ffi: Ffi) -> None:
        self._here, self._ffi = here, ffi

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._here, name)
        return functools.partial(self._call, name, found) if callable(found) else found

    def _call(self, name: str, function: Any, *values: Any) -> Any:
        ffi, kind = self._ffi.here, self._ffi.here.typeof(function)
        whole, real = [], []
        copies = Copies(self._ffi)
        for value, wanted in zip(values, kind.args, strict=True):
            if wanted.kind == "pointer":
                whole.append(copies.address(value, wanted))
            elif wanted.cname in _REAL:
                real.append(bytes(ffi.buffer(ffi.new(f"{wanted.cname} *", value))).ljust(8, b"\0"))
            else:
                whole.append(int(ffi.cast(wanted, value)) % 2**64)
        result = kind.result
        answer = self._ffi.emulated.call(name, whole, real, is_real=result.cname in _REAL)
        copies.back()
        if result.kind == "pointer":
            return Pointer(int.from_bytes(answer, "little"), self._ffi, result)
        if result.kind != "void":
            return ffi.from_buffer(f"{result.cname} *", bytearray(answer))[0]
        return None


class Copies:
    """What the arguments of a call point to, copied to the emulator, and back."""

    def __init__(self, ffi: Ffi) -> None:
        self._ffi, self._at = ffi, ffi.emulated.room
        self._made: list[tuple[Any, int, bytes]] = []

    def address(self, value: Any, kind: Any) -> int:
        """Where the copy is."""
        ffi = self._ffi.here
        if isinstance(value, Pointer):
            return value.address
        if isinstance(value, bytes):
            return self._copied(None, value + b"\0")
        if isinstance(value, list):
            value = ffi.new(ffi.getctype(kind.item, "[]"), value)
        if not value:
            return 0
        known = self._ffi.buffers.get(int(ffi.cast("uintptr_t", value)))
        memory = ffi.buffer(value, -1 if known is None else memoryview(known).nbytes)
        item = ffi.typeof(value).item
        if item.kind != "pointer":
            return self._copied(memory, bytes(memory))
        places = [self.address(one, item) for one in value]
        return self._copied(None, struct.pack(f"<{len(places)}Q", *places))

    def _copied(self, memory: Any, content: bytes) -> int:
        address: int = self._at
        self._at += len(content) + -len(content) % 64
        head = struct.pack("<c2Q", b"W", address, len(content))
        self._ffi.emulated.request(head + content)
        self._made.append((memory, address, content))
        return address

    def back(self) -> None:
        """What the call changed."""
        for memory, address, content in self._made:
            found = content if memory is None else self._ffi.emulated.read(address, len(content))
            if found != content:
                memory[:] = found
