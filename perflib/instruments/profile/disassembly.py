"""A function's machine code, as binutils' nm and objdump find it in the object's file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from perflib.instruments.profile.objects import build_id
from perflib.instruments.profile.views import COPY
from perflib.model.errors import MeasurementError
from perflib.model.recorded import with_user

_DEBUG_FILES = Path("/usr/lib/debug/.build-id")
_TOOL_TIMEOUT_S = 120
PAGE = 0xFFF  # objects are loaded at whole pages of at least 4 KiB
_TEXT = "tTwWiu"  # nm's letters for what may be code

_SYMBOL = re.compile(r"^([0-9a-f]+) (?:([0-9a-f]+) )?([A-Za-z]) (.+)$", re.MULTILINE)
_VERSION = re.compile(r"@@?(?!plt$).*$")
_ARGUMENTS = re.compile(r"\([^()]*(?:\([^()]*\)[^()]*)*\)(?: const)?(?: \[clone [^\]]*\])*$")
_INSTRUCTION = re.compile(r"^ *([0-9a-f]+):\t(.*)$")
_LINE = re.compile(r"^(\S.*):(\d+)(?: \(discriminator \d+\))?$")


class Place(NamedTuple):
    """Where a function's code begins and ends in its file."""

    address: int
    stop: int


class Instruction(NamedTuple):
    """One instruction as objdump prints it, and the source that it was made of."""

    address: int
    text: str
    source_file: str | None
    source_line: int | None


def instructions(path: Path, function: str) -> pd.DataFrame:
    """A function's machine code, without samples: its ``address`` and ``instruction``.

    Raises
    ------
    MeasurementError
        There is no objdump or nm, or the file has no such function.
    """
    places, _ = find(path, {function})
    listed = disassemble(path, places[0])
    return pd.DataFrame(
        {
            "address": [f"{one.address:#x}" for one in listed],
            "instruction": [one.text for one in listed],
        }
    )


def object_file(name: str, remarks: list[str], build: str = "") -> Path:
    """The file of an object's name; ``build``: the build id that it had when it was profiled.

    Raises
    ------
    MeasurementError
        There is no such file here, or it is another build.
    """
    name = with_user(name)
    if name.startswith("[") or not Path(name).is_absolute():
        msg = f"{name} is no file that can be disassembled"
        if name.startswith("[kernel"):
            msg = f"{name} is the running kernel, of whose code there is no file to disassemble"
        raise MeasurementError(msg)
    path = Path(name.removesuffix(" (deleted)"))
    if not path.is_file():
        msg = f"{path} is not here (removed since, or it is another machine's or a container's)"
        raise MeasurementError(msg)
    here = build_id(path) if build else ""
    if here != build:
        now = f"it is build {here[:12]} now" if here else "it has no build id now"
        msg = f"{path} is not the file that was profiled (build {build[:12]}; {now})"
        raise MeasurementError(msg)
    if str(path) != name and not build:
        remarks.append(f"{path} was deleted while it ran: the file of that name may be another.")
    return path


def tool(*argv: str) -> str:
    """What one of binutils' tools prints.

    Raises
    ------
    MeasurementError
        It is not installed, or cannot read the file.
    """
    path = shutil.which(argv[0])
    if path is None:
        msg = (
            f"{argv[0]} is not installed ('apt-get install binutils', 'dnf install binutils', "
            "'conda install -c conda-forge binutils')"
        )
        raise MeasurementError(msg)
    # Without DEBUGINFOD_URLS: nothing is fetched from a network.
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
    try:
        answer = subprocess.run(
            [path, *argv[1:]],
            capture_output=True, text=True, errors="replace", check=False,
            env=environment, timeout=_TOOL_TIMEOUT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        msg = f"{argv[0]} did not finish with {argv[-1]} within {_TOOL_TIMEOUT_S} s"
        raise MeasurementError(msg) from None
    if answer.returncode:
        errors = (answer.stderr.strip().splitlines() or [f"exit status {answer.returncode}"])[-1]
        msg = f"{argv[0]} cannot read {argv[-1]} ({errors})"
        raise MeasurementError(msg)
    return answer.stdout


def _tables(path: Path) -> Iterable[tuple[str, ...]]:
    """What to ask nm for: all symbols, then the exported, then those of a separate debug file."""
    yield ("--synthetic", str(path))
    yield ("--dynamic", str(path))
    if build := build_id(path):
        debug = _DEBUG_FILES / build[:2] / f"{build[2:]}.debug"
        if debug.is_file():
            yield (str(debug),)


def find(path: Path, names: set[str]) -> tuple[list[Place], bool]:
    """Where the functions of these names are, and whether they are copies of one (then the first).

    A profile's C++ names have no arguments where nm's have them.

    Raises
    ------
    MeasurementError
        There is no nm, it cannot read the file, or no such name is in it.
    """
    copied = re.compile(rf"(?:{'|'.join(map(re.escape, names))}){COPY}")
    for demangle in ((), ("--demangle",)):
        for table in _tables(path):
            listed = tool("nm", "--defined-only", "--print-size", *demangle, *table)
            symbols = [
                (int(address, 16), int(size or "0", 16), _VERSION.sub("", name))
                for address, size, kind, name in _SYMBOL.findall(listed)
                if kind in _TEXT
            ]
            found = {s[:2] for s in symbols if names & _spellings(s[2], bool(demangle))}
            copies = sorted(s[:2] for s in symbols if not found and copied.fullmatch(s[2]))
            if found or copies:
                every = np.unique([address for address, _, _ in symbols])
                chosen = sorted(found) or copies[:1]
                return [_place(address, size, every) for address, size in chosen], bool(copies)
    shown = ", ".join(sorted(names))
    msg = f"{path} has no symbol {shown} (stripped, changed since, or the function is inlined)"
    raise MeasurementError(msg)


def _spellings(name: str, demangled: bool) -> set[str]:
    if not demangled:
        return {name}
    bare = _ARGUMENTS.sub("", name)
    return {name, bare, bare.rpartition(" ")[2]}  # a template's name begins with what it returns


def _place(address: int, size: int, every: np.ndarray) -> Place:
    if size:
        return Place(address, address + size)
    after = every[every > address]  # assembly without .size, and the procedure linkage table
    return Place(address, int(after[0]) if len(after) else address + PAGE)


def disassemble(path: Path, place: Place) -> list[Instruction]:
    """The instructions of one function.

    Raises
    ------
    MeasurementError
        There is no objdump, it cannot read the file, or finds no code there.
    """
    listed = tool(
        "objdump", "--disassemble", "--line-numbers", "--demangle", "--wide", "--no-show-raw-insn",
        f"--start-address={place.address}", f"--stop-address={place.stop}", str(path),
    )  # fmt: skip
    made = []
    source: tuple[str | None, int | None] = (None, None)
    for line in listed.splitlines():
        if found := _INSTRUCTION.match(line):
            text = " ".join(found[2].split())
            made.append(Instruction(int(found[1], 16), text, *source))
        elif found := _LINE.match(line):
            source = (found[1], int(found[2]))
    if not made:
        msg = f"objdump finds no code in {path} at {place.address:#x}"
        raise MeasurementError(msg)
    return made
