"""On which instructions of a function are the samples, and what does its source say there?

The object is disassembled by binutils' objdump between the addresses that its tables of symbols
give the function; a sample's place in it is its offset in the function, which holds wherever the
object was loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.instruments.profile.disassembly import (
    PAGE,
    Instruction,
    Place,
    disassemble,
    find,
    object_file,
)
from perflib.instruments.profile.views import Weight, leaves, weights
from perflib.model.errors import MeasurementError, UserError, choose


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

    def lines(self, around: int | None = None) -> list[str]:
        """The instructions for a terminal; ``around``: only so many next to one with samples."""
        hit = self.table["percent"] > 0
        return listing(self.table, None if around is None else hit, around or 0, 10, _line)

    def __str__(self) -> str:
        return "\n".join([f"{self.function} in {self.object}", *self.remarks, *self.lines(10)])


def listing(
    table: pd.DataFrame,
    hit: pd.Series[bool] | None,
    around: int,
    margin: int,
    line: Callable[[Mapping[Any, Any]], str],
) -> list[str]:
    """The lines of those instructions that are ``hit`` and next to one (``None``: of all).

    Each source line stands before its first instruction, at ``margin`` and ten columns.
    """
    rows = table.to_dict("records")
    shown = set(range(len(rows)))
    if hit is not None:
        near = range(-around, around + 1)
        shown = {at + step for at in hit.to_numpy().nonzero()[0].tolist() for step in near}
    lines, source_before = [], None
    for at, row in enumerate(rows):
        if at not in shown:
            if at == 0 or at - 1 in shown:
                lines.append(f"{'':{margin}}{'...':>8}")
            continue
        source = (row["source_file"], row["source_line"])
        if isinstance(source[0], str) and source != source_before:
            text = row["source_text"].strip() if isinstance(row["source_text"], str) else ""
            lines.append(f"{'':{margin + 10}}{Path(source[0]).name}:{source[1]}  {text}")
            source_before = source
        lines.append(line(row))
    return lines


def _line(row: Mapping[Any, Any]) -> str:
    share = f"{row['percent']:6.1f} %" if row["percent"] else ""
    offset = f"+{row['offset']:#x}" if row["offset"] >= 0 else "none"
    printed = row["instruction"] if isinstance(row["instruction"], str) else "?"
    return f"{share:8}  {offset:>8}  {printed}"


def annotate(
    samples: pd.DataFrame,
    function: str,
    object_name: str | None = None,
    weight: Weight = "samples",
    builds: Mapping[str, str] | None = None,
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
    builds
        The build ids that objects had when they were profiled, as a run's provenance has them
        (``objects``): the file of another build is not shown.

    Raises
    ------
    UserError
        No sample is in such a function, or none in that object; the nearest names are given.

    Examples
    --------
    ``annotate(samples, "kv_locate").table.nlargest(5, "samples")``
    """
    return located(samples, function, object_name, weight, builds).annotation


class Located(NamedTuple):
    """An annotation, and of each of the function's samples in which row of it it is."""

    annotation: Annotation
    samples: pd.DataFrame
    rows: NDArray[np.int64]


def located(
    samples: pd.DataFrame,
    function: str,
    object_name: str | None = None,
    weight: Weight = "samples",
    builds: Mapping[str, str] | None = None,
) -> Located:
    """The same as ``annotate`` makes, with the samples that it is made of."""
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
    places: list[Place] = []
    code: list[list[Instruction]] = []
    where = np.zeros(len(mine), dtype=np.int64)
    try:
        path = object_file(chosen, remarks, (builds or {}).get(chosen, ""))
        places, copies = find(path, set(map(str, mine["symbol"].unique())) | {function})
        code = [disassemble(path, place) for place in places]
        if not copies:
            where = _assign(starts, places, path, remarks)
    except MeasurementError as error:
        remarks.append(f"{error}: only the offsets are shown.")

    if (lost := int(counts[offsets < 0].sum())) and lost != counts.sum():
        remarks.append(f"{lost} of {counts.sum()} {weight} have no offset in the function.")
    elif lost:
        remarks.append("No sample has an offset: print them with 'perf script -F +symoff'.")
    table, rows = _table(places, code, where, offsets, counts)
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
    shown = table.rename(columns={"samples": weight})
    return Located(Annotation(function, chosen, shown, tuple(remarks)), mine, rows)


def _object(objects: pd.Series, function: str, wanted: str | None) -> tuple[str, list[str]]:
    """The object to disassemble, and a remark if the function has samples in others as well."""
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


# --- samples on instructions ---------------------------------------------------------------------


def _assign(starts: np.ndarray, places: list[Place], path: Path, remarks: list[str]) -> np.ndarray:
    """In which place each sample is, by where its function began when it ran.

    An object is loaded at whole pages, so the function keeps its place within a page.
    """
    addresses = np.array([place.address for place in places])
    distinct, of_sample = np.unique(starts, return_inverse=True)
    chosen = np.zeros(len(distinct), dtype=np.int64)
    unsure = moved = False
    for i, start in enumerate(distinct):
        fitting = np.flatnonzero((addresses & PAGE) == (start & PAGE))
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
    places: list[Place],
    code: list[list[Instruction]],
    where: np.ndarray,
    offsets: np.ndarray,
    counts: np.ndarray,
) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """The rows of the annotation, and in which of them each sample is."""
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
    keys = pd.MultiIndex.from_frame(made[["place", "offset"]])
    of_sample = keys.get_indexer(pd.MultiIndex.from_arrays([where, offsets])).astype(np.int64)
    made["samples"] = made["samples"].fillna(0).astype(np.int64)
    made["percent"] = 100.0 * made["samples"] / max(int(made["samples"].sum()), 1)
    for column in ("address", "source_line"):
        made[column] = made[column].astype("Int64")
    for column in ("instruction", "source_file"):
        made[column] = made[column].astype("str")
    order = ["offset", "address", "instruction", "samples", "percent", "source_file", "source_line"]
    return made[order], of_sample


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
