"""Cache lines that a program's threads share, found by our plugin of QEMU's user-mode emulation.

All accesses of all threads are seen (``kernels_c/tools/qemu_lines.c``), so no hardware counter is
needed. Which lines several threads use, which bytes of them each writes, and where in the program,
is what the program does. How often a line moves between cores is a bound: each thread has a core
with an infinite cache, and threads that want a line at the same time take turns at it, access by
access. A processor's core keeps a line for some accesses, so it moves less often there.

A transfer is false sharing if none of the words that were accessed was written by another thread
last (after Torrellas, Lam and Hennessy 1994): only the line is shared.

What a thread did with a line before another one came is not counted, and threads that live for
milliseconds may miss each other. User mode only; a forked child is not seen. It takes 20 to 100
times as long as the program alone, and a microsecond more for each turn that a thread waits for.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perflib.instruments.simulators.geometry import LINE_BYTES
from perflib.instruments.simulators.qemu import read_lines, under_plugin
from perflib.instruments.threads.symbols import Symbols

TRANSFERS = "line transfers"
FALSE = "false line transfers"
LINES = "shared lines"
ACCESSES = "accesses to shared lines"
WRITES = "writes to shared lines"
_NAMED = 3  # variables or functions in a name
_MAX_GROUPS = 40  # groups of lines


@dataclass(frozen=True)
class _Share:
    thread: int
    accesses: int
    writes: int
    touched: int
    written: int
    place: int


@dataclass
class _Line:
    address: int
    transfers: int
    false: int
    shares: list[_Share]


@dataclass
class _Found:
    instructions: int
    symbols: Symbols
    guest_base: int
    lines: list[_Line]

    def function(self, share: _Share) -> str:
        """Where a thread accesses a line most; of a file without symbols, the file."""
        return self.symbols.name(share.place + self.guest_base).partition("+0x")[0]

    def name(self, line: _Line) -> str:
        """The variables on a line; of memory that has no name, the functions that write there."""
        begin = line.address + self.guest_base
        variables = self.symbols.objects_within(begin, begin + LINE_BYTES)
        writers = sorted({self.function(one) for one in line.shares if one.writes})
        named = variables or writers
        words = ", ".join(named[:_NAMED]) + (", ..." if len(named) > _NAMED else "")
        return words if variables else f"memory of {words}"


def shared_lines(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 600.0,
) -> pd.DataFrame:
    """Which cache lines the threads of a program share, and who uses which of their bytes.

    Parameters
    ----------
    argv
        The program; its output is thrown away.
    environment
        The program's whole environment (this process's by default).
    timeout_s
        When to give up.

    Returns
    -------
    pandas.DataFrame
        ``counter``, ``symbol``, ``function``, ``thread``, ``bytes``, ``simulated_count``, ``tool``.
        Of the whole program ``instructions``; of each variable, or memory without a name by the
        functions that write there, `LINES`, `TRANSFERS` and `FALSE`, those with most transfers
        first; of each of its threads (0: the first) and the function that accesses it most,
        `ACCESSES` and `WRITES`, with the ``bytes`` of its lines that it touches or writes.

    Raises
    ------
    UserError
        No such program, or no QEMU.
    MeasurementError
        The program or QEMU failed.
    """
    lines, version = under_plugin("qemu_lines", argv, [], environment, timeout_s)
    return _table(read_lines(lines, _read)).assign(tool=version)


def _read(text: list[str]) -> _Found:
    """The plugin's lines; ValueError where they are none."""
    maps: list[str] = []
    lines: list[_Line] = []
    totals: dict[str, int] = {}
    for row in text:
        kind, _, rest = row.partition(" ")
        if kind == "map":
            maps.append(rest)
        elif kind == "line":
            address, transfers, false = _numbers(rest)
            lines.append(_Line(address, transfers, false, []))
        elif kind == "share":
            if not lines:
                msg = "a thread without a line"
                raise ValueError(msg)
            thread, accesses, writes, touched, written, place = _numbers(rest)
            share = _Share(thread, accesses, writes, touched, written, place)
            lines[-1].shares.append(share)
        else:
            (totals[kind],) = _numbers(rest)
    if lacking := {"guest_base", "instructions"} - totals.keys():
        msg = f"no {', '.join(sorted(lacking))}"
        raise ValueError(msg)
    symbols = Symbols.from_maps("\n".join(maps))
    return _Found(totals["instructions"], symbols, totals["guest_base"], lines)


def _numbers(words: str) -> list[int]:
    found = [int(word) for word in words.split()]
    if any(not 0 <= one < 1 << 64 for one in found):
        msg = f"no counts of 64 bits: {words}"
        raise ValueError(msg)
    return found


def _table(found: _Found) -> pd.DataFrame:
    groups: dict[str, list[_Line]] = {}
    for line in found.lines:
        if line.transfers:
            groups.setdefault(found.name(line), []).append(line)
    rows: list[tuple[str, str, str, int, str, int]] = []

    def add(counter: str, symbol: str, count: int, *who: Any) -> None:
        function, thread, mask = who or ("", -1, 0)
        rows.append((counter, symbol, function, thread, _ranges(mask), count))

    add("instructions", "", found.instructions)
    if not groups:
        add(TRANSFERS, "", 0)
        add(FALSE, "", 0)
    order = sorted(groups, key=lambda name: -sum(one.transfers for one in groups[name]))
    for name in order[:_MAX_GROUPS]:
        mine = groups[name]
        add(LINES, name, len(mine))
        add(TRANSFERS, name, sum(one.transfers for one in mine))
        add(FALSE, name, sum(one.false for one in mine))
        of_threads: dict[tuple[str, int], list[_Share]] = {}
        for share in (share for line in mine for share in line.shares):
            of_threads.setdefault((found.function(share), share.thread), []).append(share)
        for who, shares in sorted(of_threads.items()):
            touched = functools.reduce(operator.or_, (one.touched for one in shares))
            written = functools.reduce(operator.or_, (one.written for one in shares))
            add(ACCESSES, name, sum(one.accesses for one in shares), *who, touched)
            if written:
                add(WRITES, name, sum(one.writes for one in shares), *who, written)
    columns = ["counter", "symbol", "function", "thread", "bytes", "simulated_count"]
    return pd.DataFrame(rows, columns=columns)


def _ranges(mask: int) -> str:
    """Bytes of a line, a bit each, in words.

    >>> _ranges(0xFF00)
    '8-15'
    >>> _ranges(1 << 63 | 0xF)
    '0-3, 63'
    """
    found: list[str] = []
    first = None
    for byte in range(LINE_BYTES + 1):
        inside = bool(mask >> byte & 1)
        if inside and first is None:
            first = byte
        elif not inside and first is not None:
            found.append(f"{first}-{byte - 1}" if first < byte - 1 else str(first))
            first = None
    return ", ".join(found)
