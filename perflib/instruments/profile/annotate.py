"""On which instructions of a function are the samples, and what does its source say there?

The object is disassembled by binutils' objdump between the addresses that its tables of symbols
give the function; a sample's place in it is its offset in the function, which holds wherever the
object was loaded.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from perflib.instruments.profile.views import COPY, Weight, leaves, weights
from perflib.model.errors import MeasurementError, UserError, choose
from perflib.model.recorded import with_user

__all__ = ["Annotation", "annotate", "instructions"]

_DEBUG_FILES = Path("/usr/lib/debug/.build-id")
_TOOL_TIMEOUT_S = 120
_PAGE = 0xFFF  # objects are loaded at whole pages of at least 4 KiB
_TEXT = "tTwWiu"  # nm's letters for what may be code

_SYMBOL = re.compile(r"^([0-9a-f]+) (?:([0-9a-f]+) )?([A-Za-z]) (.+)$", re.MULTILINE)
_VERSION = re.compile(r"@@?(?!plt$).*$")
_ARGUMENTS = re.compile(r"\([^()]*(?:\([^()]*\)[^()]*)*\)(?: const)?(?: \[clone [^\]]*\])*$")
_INSTRUCTION = re.compile(r"^ *([0-9a-f]+):\t(.*)$")
_LINE = re.compile(r"^(\S.*):(\d+)(?: \(discriminator \d+\))?$")
_BUILD_ID = re.compile(r"Build ID: ([0-9a-f]{4,})")


@dataclass(frozen=True)
class Annotation:
    """A function's instructions with their samples; ``str`` lists them near the samples.

    ``table`` has one row an instruction, in the order of addresses: offset (bytes from the
    function's begin, -1 for samples without one), address (in the object's file), instruction,
    samples (or period), percent (of the function's), source_file, source_line, source_text.
    Offsets with samples but no instruction have rows of their own, so none is lost.
    ``remarks`` are sentences on what could not be found, or should not be trusted.
    """

    function: str
    object: str
    table: pd.DataFrame
    remarks: tuple[str, ...]

    def text(self, around: int | None = None) -> str:
        """The list for a terminal; with ``around`` only so many instructions next to a sample."""
        rows = self.table.to_dict("records")
        shown = set(range(len(rows)))
        if around is not None:
            hit = np.flatnonzero(self.table["percent"] > 0)
            shown = {int(at) + step for at in hit for step in range(-around, around + 1)}
        lines = [f"{self.function} in {self.object}", *self.remarks]
        source_before = None
        for at, row in enumerate(rows):
            if at not in shown:
                if at == 0 or at - 1 in shown:
                    lines.append(f"{'':8}  {'...':>8}")
                continue
            source = (row["source_file"], row["source_line"])
            if isinstance(source[0], str) and source != source_before:
                text = row["source_text"].strip() if isinstance(row["source_text"], str) else ""
                lines.append(f"{'':20}{Path(source[0]).name}:{source[1]}  {text}")
                source_before = source
            share = f"{row['percent']:6.1f} %" if row["percent"] else ""
            offset = f"+{row['offset']:#x}" if row["offset"] >= 0 else "none"
            printed = row["instruction"] if isinstance(row["instruction"], str) else "?"
            lines.append(f"{share:8}  {offset:>8}  {printed}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text(around=10)


class _Place(NamedTuple):
    address: int
    stop: int


class _Instruction(NamedTuple):
    address: int
    text: str
    source_file: str | None
    source_line: int | None


def annotate(
    samples: pd.DataFrame,
    function: str,
    object_name: str | None = None,
    weight: Weight = "samples",
) -> Annotation:
    """The instructions of a function with the samples on each, and the source where there is any.

    Where the object cannot be read (missing, deleted, stripped, the kernel, no objdump), the table
    has the offsets alone and a remark says why. Whether the file is still the one that was
    profiled shows in the samples: they must be on instructions, and the function at the same
    place of a page; a change that keeps both goes unseen. A table from ``merge_copies`` shows the
    first of the equal copies with the samples of all.

    A sample is *behind* the instruction that took the time, by the skid: one or a few
    instructions with a hardware counter, none with precise events (PEBS, IBS). With cpu-clock,
    and above all in a virtual machine, the interrupt arrives late by an unknown time: samples
    gather behind slow instructions and where interrupts are allowed again, and a single
    instruction's percentage means little. Look at the loop, not at the line.

    Parameters
    ----------
    samples
        The table that ``perfscript.read`` makes, or a part of it.
    function
        A name as in ``symbol``, or as in the stacks.
    object_name
        The function's object, as in ``object`` or its file name alone; without it the one with
        most of the function's samples.
    weight
        ``"samples"`` or ``"period"``.

    Raises
    ------
    UserError
        No sample is in such a function, or none in that object; the nearest names are given.

    Examples
    --------
    ``annotate(samples, "kv_locate").table.nlargest(5, "samples")``
    """
    leaf = leaves(samples)
    kept = ((samples["symbol"] == function) | (leaf == function)).to_numpy()
    if not kept.any():
        known = set(map(str, leaf.unique())) | set(map(str, samples["symbol"].unique()))
        raise UserError(choose("function", function, known))
    chosen, others = _object(samples.loc[kept, "object"], function, object_name)
    mine = samples[kept & (samples["object"] == chosen).to_numpy()]
    counts = weights(mine, weight)
    offsets = mine["offset"].to_numpy()
    starts = mine["ip"].to_numpy().astype(np.int64) - offsets
    starts[(offsets < 0) | (mine["ip"].to_numpy() == 0)] = -1

    remarks = others
    places: list[_Place] = []
    code: list[list[_Instruction]] = []
    where = np.zeros(len(mine), dtype=np.int64)
    try:
        path = _file(chosen, remarks)
        places, copies = _find(path, set(map(str, mine["symbol"].unique())) | {function})
        code = [_disassemble(path, place) for place in places]
        if not copies:
            where = _assign(starts, places, path, remarks)
    except MeasurementError as error:
        remarks.append(f"{error}: only the offsets are shown.")

    if (lost := int(counts[offsets < 0].sum())) and lost != counts.sum():
        remarks.append(f"{lost} of {counts.sum()} {weight} have no offset in the function.")
    elif lost:
        remarks.append("No sample has an offset: print them with 'perf script -F +symoff'.")
    table = _table(places, code, where, offsets, counts)
    strays = table["instruction"].isna() & (table["offset"] >= 0)
    if code and (stray := int(table.loc[strays, "samples"].sum())):
        remarks.append(
            f"{stray} of {counts.sum()} {weight} are on no instruction: {chosen} is not the file "
            "that was profiled, or its symbols are others."
        )
    if code:
        _add_source(table, path.stat().st_mtime, remarks)
    else:
        table["source_text"] = table["source_file"]
    return Annotation(function, chosen, table.rename(columns={"samples": weight}), tuple(remarks))


def instructions(path: Path, function: str) -> pd.DataFrame:
    """A function's machine code, without samples: its ``address`` and ``instruction``.

    Raises
    ------
    MeasurementError
        There is no objdump or nm, or the file has no such function.
    """
    places, _ = _find(path, {function})
    listed = _disassemble(path, places[0])
    return pd.DataFrame(
        {
            "address": [f"{one.address:#x}" for one in listed],
            "instruction": [one.text for one in listed],
        }
    )


def _object(objects: pd.Series, function: str, wanted: str | None) -> tuple[str, list[str]]:
    """The object to look into, and a remark if the function has samples in others as well."""
    counts = objects.astype(str).value_counts()
    names = [str(name) for name in counts.index]
    if wanted is not None:
        fitting = [name for name in names if wanted in (name, Path(name).name)]
        if not fitting:
            raise UserError(choose(f"object of {function!r}", wanted, names))
        return fitting[0], []
    if len(names) == 1:
        return names[0], []
    others = _some([f"{name} ({counts[name]})" for name in names[1:]])
    return names[0], [f"The function has samples in other objects too: {others}."]


# --- the object's file ---------------------------------------------------------------------------


def _file(name: str, remarks: list[str]) -> Path:
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
    if str(path) != name:
        remarks.append(f"{path} was deleted while it ran: the file of that name may be another.")
    return path


def _tool(*argv: str) -> str:
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
    build_id = _BUILD_ID.search(_tool("readelf", "--notes", str(path)))
    if build_id:
        debug = _DEBUG_FILES / build_id[1][:2] / f"{build_id[1][2:]}.debug"
        if debug.is_file():
            yield (str(debug),)


def _find(path: Path, names: set[str]) -> tuple[list[_Place], bool]:
    """Where the functions of these names are, and whether they are copies of one (then the first).

    A profile's C++ names have no arguments where nm's have them.
    """
    copied = re.compile(rf"(?:{'|'.join(map(re.escape, names))}){COPY}")
    for demangle in ((), ("--demangle",)):
        for table in _tables(path):
            listed = _tool("nm", "--defined-only", "--print-size", *demangle, *table)
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


def _place(address: int, size: int, every: np.ndarray) -> _Place:
    if size:
        return _Place(address, address + size)
    after = every[every > address]  # assembly without .size, and the procedure linkage table
    return _Place(address, int(after[0]) if len(after) else address + _PAGE)


def _disassemble(path: Path, place: _Place) -> list[_Instruction]:
    listed = _tool(
        "objdump", "--disassemble", "--line-numbers", "--demangle", "--wide", "--no-show-raw-insn",
        f"--start-address={place.address}", f"--stop-address={place.stop}", str(path),
    )  # fmt: skip
    made = []
    source: tuple[str | None, int | None] = (None, None)
    for line in listed.splitlines():
        if found := _INSTRUCTION.match(line):
            text = " ".join(found[2].split())
            made.append(_Instruction(int(found[1], 16), text, *source))
        elif found := _LINE.match(line):
            source = (found[1], int(found[2]))
    if not made:
        msg = f"objdump finds no code in {path} at {place.address:#x}"
        raise MeasurementError(msg)
    return made


# --- samples on instructions ---------------------------------------------------------------------


def _assign(starts: np.ndarray, places: list[_Place], path: Path, remarks: list[str]) -> np.ndarray:
    """In which place each sample is, by where its function began when it ran.

    An object is loaded at whole pages, so the function keeps its place within a page.
    """
    addresses = np.array([place.address for place in places])
    distinct, of_sample = np.unique(starts, return_inverse=True)
    chosen = np.zeros(len(distinct), dtype=np.int64)
    unsure = moved = False
    for i, start in enumerate(distinct):
        fitting = np.flatnonzero((addresses & _PAGE) == (start & _PAGE))
        exact = np.flatnonzero(addresses == start)
        if start < 0:
            unsure |= len(places) > 1
        elif len(exact) == 1 or len(fitting) == 1:
            chosen[i] = (exact if len(exact) else fitting)[0]
        elif len(fitting):
            unsure = True
            chosen[i] = fitting[0]
        else:
            moved = True
    if moved:
        remarks.append(
            f"The function began elsewhere when it ran than it does in {path}: the file was "
            "changed since."
        )
    if len(places) > 1:
        remarks.append(f"{path} has {len(places)} functions of this name, one after the other.")
    if unsure:
        remarks.append("Samples that may be in either are with the first.")
    return chosen[of_sample]


def _table(
    places: list[_Place],
    code: list[list[_Instruction]],
    where: np.ndarray,
    offsets: np.ndarray,
    counts: np.ndarray,
) -> pd.DataFrame:
    rows = [
        (number, line.address - place.address, line.address, *line[1:])
        for number, (place, lines) in enumerate(zip(places, code, strict=True))
        for line in lines
    ]
    columns = ["place", "offset", "address", "instruction", "source_file", "source_line"]
    lines = pd.DataFrame(rows, columns=columns)
    hits = pd.DataFrame({"place": where, "offset": offsets, "samples": counts})
    hits = hits.groupby(["place", "offset"], as_index=False).sum()
    for column in ("place", "offset"):
        lines[column] = lines[column].astype(np.int64)
    made = lines.merge(hits, how="outer", on=["place", "offset"])
    made["samples"] = made["samples"].fillna(0).astype(np.int64)
    made["percent"] = 100.0 * made["samples"] / max(int(made["samples"].sum()), 1)
    for column in ("address", "source_line"):
        made[column] = made[column].astype("Int64")
    for column in ("instruction", "source_file"):
        made[column] = made[column].astype("str")
    order = ["offset", "address", "instruction", "samples", "percent", "source_file", "source_line"]
    return made[order]


def _add_source(table: pd.DataFrame, built_s: float, remarks: list[str]) -> None:
    """Add the column source_text, and remarks on source files that are missing or newer."""
    texts: dict[str, list[str]] = {}
    missing, newer = [], []
    for name in map(str, table["source_file"].dropna().unique()):
        path = Path(name)
        try:
            texts[name] = path.read_text(errors="replace").splitlines()
            if path.stat().st_mtime > built_s:
                newer.append(name)
        except OSError:
            missing.append(name)
    numbers = table["source_line"].fillna(0).astype(int)
    table["source_text"] = pd.Series(
        [
            text[number - 1] if 0 < number <= len(text := texts.get(name, [])) else None
            for name, number in zip(table["source_file"], numbers, strict=True)
        ],
        index=table.index,
        dtype="str",
    )
    if missing:
        remarks.append(f"Source that is not here: {_some(missing)}.")
    if newer:
        remarks.append(f"Source changed after the object was built: {_some(newer)}.")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more
