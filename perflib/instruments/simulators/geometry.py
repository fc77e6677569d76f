"""Caches and TLBs to simulate: this machine's, a named processor's, or some of one's own."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from perflib.machine.hardware.known_tlbs import published_tlbs, tlbs_of
from perflib.machine.hardware.tlbs import Tlb
from perflib.model.errors import UserError, choose
from perflib.model.sentences import size

HERE = "here"
_TABLE = Path(__file__).with_name("geometries.toml")
_PAGE_BYTES = 4096
LINE_BYTES = 64
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}
_MAX_BYTES = 1 << 31  # of a cache: cachegrind counts its sets in an int
_TLBS = {"iTLB": ("instruction",), "dTLB": ("data", "load")}


@dataclass(frozen=True)
class CacheLevel:
    """One cache, or a TLB as a cache whose lines are pages; the least recently used line leaves.

    Parameters
    ----------
    size_bytes, ways, line_bytes
        The number of sets (size / ways / line) must be a power of two: see `fitted`.
    """

    size_bytes: int
    ways: int
    line_bytes: int = LINE_BYTES

    @classmethod
    def fitted(cls, size_bytes: int, ways: int, line_bytes: int = LINE_BYTES) -> Self:
        """Of about that size where the number of sets is no power of two: with more ways.

        >>> CacheLevel.fitted(30 << 20, 12)
        CacheLevel(size_bytes=31457280, ways=15, line_bytes=64)
        """
        lines = max(1, size_bytes // line_bytes)
        sets = 1 << (max(1, lines // max(1, ways)).bit_length() - 1)
        ways = max(1, round(lines / sets))
        return cls(sets * ways * line_bytes, ways, line_bytes)

    def __str__(self) -> str:
        """In words, for a table: ``32 KiB, 8 ways`` or ``64 entries, 8 ways``."""
        if self.line_bytes == _PAGE_BYTES:
            return f"{self.size_bytes // _PAGE_BYTES} entries, {self.ways} ways"
        return f"{size(self.size_bytes)}, {self.ways} ways"


@dataclass(frozen=True)
class Geometry:
    """What is simulated; a TLB that is ``None`` is not known, and left out.

    Parameters
    ----------
    name
        As it was requested.
    L1i, L1d, LL
        The caches of the first level, and the last level, which holds both.
    iTLB, dTLB, STLB
        TLBs for pages of 4 KiB: of instructions, of loads and stores, and of the second level.
    source
        Where the numbers are from.
    """

    name: str
    L1i: CacheLevel
    L1d: CacheLevel
    LL: CacheLevel
    iTLB: CacheLevel | None = None  # noqa: N815 the field's own spelling
    dTLB: CacheLevel | None = None  # noqa: N815 the field's own spelling
    STLB: CacheLevel | None = None
    source: str = ""

    @property
    def levels(self) -> dict[str, CacheLevel]:
        """By name, those that are known."""
        every = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: level for name, level in every.items() if isinstance(level, CacheLevel)}

    @property
    def tlbs(self) -> tuple[CacheLevel, CacheLevel, CacheLevel | None] | None:
        """Those of instructions, of data and of the second level; ``None``: not known."""
        return (self.iTLB, self.dTLB, self.STLB) if self.iTLB and self.dTLB else None


def named() -> tuple[str, ...]:
    """The processors whose caches and TLBs are published here."""
    return tuple(_published())


def geometry(words: str, machine: Mapping[str, Any]) -> Geometry:
    """What a name, or a description such as ``Haswell L1i=64K:8 iTLB=32:4``, stands for.

    Parameters
    ----------
    words
        ``here``, or a name of `named`; then levels that are to be another: a cache as size and
        ways (``LL=8M:16``), a TLB as entries and ways. Levels alone change those of ``here``.
    machine
        The description of this machine (`perflib.machine.describe`).

    Raises
    ------
    UserError
        There is no such processor or level, its numbers are none, or this machine does not say
        what its caches are.
    """
    levels = re.findall(r"\S+=\S*", words)
    name = " ".join(re.sub(r"\S+=\S*", " ", words).split()) or HERE
    published = _published()
    if name != HERE and name not in published:
        raise UserError(choose("geometry", name, [HERE, *published]))
    base = _here(machine) if name == HERE else published[name]
    changed = dict(_level(one) for one in levels)
    source = "; ".join(filter(None, [base.source, "changed: " + ", ".join(levels)]))
    return replace(base, name=words.strip(), source=source, **changed) if levels else base


def _level(word: str) -> tuple[str, CacheLevel]:
    name, _, numbers = word.partition("=")
    known = [part.name for part in fields(Geometry) if part.name not in ("name", "source")]
    if name not in known:
        raise UserError(choose("level of a geometry", name, known))
    is_tlb = name.endswith("TLB")
    found = re.fullmatch(r"(\d{1,9})([KM]?):(\d{1,6})", numbers)
    if found is None or (is_tlb and found[2]):
        what = "entries:ways, as iTLB=64:8" if is_tlb else "size:ways, as L1d=32K:8 or LL=8M:16"
        msg = f"{name}={numbers!r} is no geometry: write {what}"
        raise UserError(msg)
    line = _PAGE_BYTES if is_tlb else LINE_BYTES
    size_bytes = int(found[1]) * (_PAGE_BYTES if is_tlb else _UNITS[found[2]])
    ways = int(found[3])
    if not line * max(1, ways) <= size_bytes <= _MAX_BYTES or ways < 1:
        msg = (
            f"{name}={numbers} is not possible: it must hold at least one line of {line} bytes in "
            f"each way, and at most {size(_MAX_BYTES)}"
        )
        raise UserError(msg)
    level = CacheLevel.fitted(size_bytes, ways, line)
    if (level.size_bytes, level.ways) != (size_bytes, ways):
        sets = size_bytes / line / ways
        msg = f"{name}={numbers} has {sets:g} sets, and their number must be a power of two"
        raise UserError(msg)
    return name, level


def _here(machine: Mapping[str, Any]) -> Geometry:
    caches = machine.get("caches") or ()
    found = {
        "L1i": _cache(caches, "instruction", first=True),
        "L1d": _cache(caches, "data", first=True),
        "LL": _cache(caches, "unified", first=False),
    }
    if missing := [name for name, level in found.items() if level is None]:
        msg = (
            f"this machine does not say what its {', '.join(missing)} is: name a processor "
            f"({', '.join(named())}), or give the levels"
        )
        raise UserError(msg)
    known = tlbs_of(machine)
    return Geometry(HERE, **found, **_tlbs(known.tlbs), source=known.origin)  # type: ignore[arg-type]


def _cache(caches: Iterable[Mapping[str, Any]], kind: str, *, first: bool) -> CacheLevel | None:
    ours = sorted((one for one in caches if one["kind"] == kind), key=lambda one: int(one["level"]))
    if not ours or not (chosen := ours[0 if first else -1]).get("ways"):
        return None
    return CacheLevel.fitted(
        min(chosen["size_bytes"], _MAX_BYTES), chosen["ways"], chosen["line_bytes"] or LINE_BYTES
    )


def _tlbs(tlbs: Iterable[Tlb]) -> dict[str, CacheLevel]:
    """The TLBs for pages of 4 KiB; a second level of several parts is one of their sum."""
    with_pages = [tlb for tlb in tlbs if _PAGE_BYTES in tlb.page_bytes and tlb.ways]
    found = {}
    for name, kinds in _TLBS.items():
        ours = [tlb for tlb in with_pages if tlb.level == 1 and tlb.kind in kinds]
        if ours:
            entries, ways = ours[0].entries, ours[0].ways or 1
            found[name] = CacheLevel.fitted(entries * _PAGE_BYTES, ways, _PAGE_BYTES)
    second = [tlb for tlb in with_pages if tlb.level == 2 and tlb.kind in ("unified", "data")]
    if second:
        entries, ways = (sum(getattr(tlb, what) for tlb in second) for what in ("entries", "ways"))
        found["STLB"] = CacheLevel.fitted(entries * _PAGE_BYTES, ways, _PAGE_BYTES)
    return found


def _published() -> dict[str, Geometry]:
    found = {}
    for name, row in tomllib.loads(_TABLE.read_text(encoding="utf-8")).items():
        caches = {
            level: CacheLevel.fitted(row[level][0] << 10, row[level][1])
            for level in ("L1i", "L1d", "LL")
        }
        known = published_tlbs(name)
        source = f"{row['source']}. TLBs: {known.source}"
        found[name] = Geometry(name, **caches, **_tlbs(known.tlbs), source=source)
    return found
