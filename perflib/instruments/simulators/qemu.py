"""iTLB misses and 4K aliases of a program, simulated by our plugin of QEMU's user-mode emulation.

The program's instructions are emulated one by one and counted by tools/qemu_counters.c. The
counts are exact for the model, and the model is simpler than a processor:

- in program order: nothing is speculated, prefetched or reordered, so a miss that a processor
  would hide counts as much as one that it would wait for;
- user mode only: the kernel's instructions and accesses are not seen, and other programs do not
  disturb;
- each thread has TLBs and a store buffer of its own, as if it had a core of its own; a forked
  child is not counted, and a program started by ``exec`` loses the counts;
- addresses are QEMU's. The stack moves with the size of the environment as it does natively (16
  bytes for 16 bytes), but what lies above it differs by a constant. There is no address-space
  randomisation: a program that does the same (prints no times) gives the same counts;
- a repeated string instruction (``rep movs``) counts once a repetition;
- an emulated processor without AVX-512: a library that chooses its code by CPUID chooses another.

It takes 20 to 80 times as long as the program alone (loads and stores are dearer than blocks).
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from perflib import kernels
from perflib.instruments.simulators.elf import machine_of, read_elf
from perflib.instruments.simulators.run import (
    Grouping,
    SimulatorError,
    check_grouping,
    find_program,
    find_tool,
    labelled,
    power_of_two,
    run_under,
)
from perflib.machine.hardware import cpuid
from perflib.machine.hardware.tlbs import decode_tlbs
from perflib.model.errors import MeasurementError, UserError

__all__ = [
    "HASWELL_ITLB",
    "HASWELL_STORES",
    "QEMU_INSTALL",
    "StoreBufferModel",
    "TlbModel",
    "aliases",
    "itlb_misses",
    "itlb_of_this_machine",
    "qemu_counts",
]

QEMU_INSTALL = (
    "'apt-get install qemu-user' (Debian 12, Ubuntu; that of Debian 13 has no plugins), "
    "'dnf install qemu-user' (Fedora)"
)
_MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}
_MOST_ENTRIES = 1 << 20


@dataclass(frozen=True)
class TlbModel:
    """A set-associative TLB that replaces the least recently used entry of a set.

    Parameters
    ----------
    entries, ways
        How many pages it holds, and how many places each may choose from.
    page_bytes
        The size of a page: a power of two.
    second_level
        ``(entries, ways)`` of a second level, asked when the first misses; none by default.

    Raises
    ------
    UserError
        A page or a number of sets (entries / ways) that is no power of two, or more ways than
        entries.
    """

    entries: int
    ways: int
    page_bytes: int = 4096
    second_level: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if not power_of_two(self.page_bytes):
            msg = f"a page has a power of two of bytes (4096, 2097152), not {self.page_bytes}"
            raise UserError(msg)
        for entries, ways in ((self.entries, self.ways), self.second_level or (1, 1)):
            if not 1 <= ways <= entries <= _MOST_ENTRIES:
                msg = (
                    f"a TLB of {entries} entries in {ways} ways is not possible: "
                    f"1 <= ways <= entries <= {_MOST_ENTRIES}"
                )
                raise UserError(msg)
            if entries % ways or not power_of_two(entries // ways):
                msg = (
                    f"a TLB of {entries} entries in {ways} ways has {entries / ways:g} sets; the "
                    "number of sets (entries / ways) must be a power of two"
                )
                raise UserError(msg)

    def __str__(self) -> str:
        """In words, for the column ``model``."""
        text = f"TLB of {self.entries} entries, {self.ways} ways, pages of {self.page_bytes} B, LRU"
        if self.second_level:
            text += "; second level {} entries, {} ways".format(*self.second_level)
        return text


@dataclass(frozen=True)
class StoreBufferModel:
    """Which stores a load can still collide with.

    Parameters
    ----------
    stores
        The last so many stores.
    window_instructions
        And none that is more instructions old than this; ``None``: however old.
    """

    stores: int
    window_instructions: int | None = None

    def __post_init__(self) -> None:
        window = self.window_instructions
        if not 1 <= self.stores <= _MOST_ENTRIES or (window is not None and window < 1):
            msg = (
                "a store buffer holds at least one store, for at least one instruction; not "
                f"stores={self.stores}, window_instructions={window}"
            )
            raise UserError(msg)

    def __str__(self) -> str:
        """In words, for the column ``model``."""
        text = f"store buffer of {self.stores} stores, low 12 bits compared"
        if self.window_instructions is not None:
            text += f", none older than {self.window_instructions} instructions"
        return text


# Intel 64 and IA-32 Architectures Optimization Reference Manual, on the Haswell microarchitecture:
# the core's buffers (42 stores; Skylake: 56) and its TLBs.
HASWELL_ITLB = TlbModel(128, 4, 4096, (1024, 8))
HASWELL_STORES = StoreBufferModel(42)


def itlb_of_this_machine(page_bytes: int = 4096) -> TlbModel | None:
    """The instruction TLB that this processor owns up to; ``None`` where it does not.

    Also where a model with a power of two of sets cannot have its geometry.
    """
    tlbs = decode_tlbs(cpuid.leaves_or_reason()[0])
    levels = {
        tlb.level: (tlb.entries, tlb.ways)
        for tlb in tlbs
        if tlb.kind in ("instruction", "unified") and page_bytes in tlb.page_bytes and tlb.ways
    }
    try:
        return TlbModel(*levels[1], page_bytes, levels.get(2))
    except (KeyError, UserError):
        return None


def itlb_misses(
    argv: Sequence[str],
    *,
    entries: int = HASWELL_ITLB.entries,
    ways: int = HASWELL_ITLB.ways,
    page_bytes: int = 4096,
    second_level: tuple[int, int] | None = None,
    by: Grouping = "program",
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 600.0,
) -> pd.DataFrame:
    """Simulate how often instruction fetch misses a TLB.

    Parameters
    ----------
    argv
        The program; its output is thrown away.
    entries, ways, page_bytes, second_level
        See ``TlbModel``; by default the first level of a Haswell core.
    by
        One row a counter for the whole ``program``, or one for each ``symbol`` or ``place``
        (address, as ``objdump`` prints it) that misses, the most first.
    environment
        The program's whole environment (this process's by default). It is QEMU's, too: what
        ``LD_PRELOAD`` names is loaded into both.
    timeout_s
        When to give up.

    Returns
    -------
    pandas.DataFrame
        The columns of ``run.COLUMNS``. Counters: ``instructions`` (only
        of the whole program), ``iTLB misses`` and, with a second level, ``iTLB walks``.

    Raises
    ------
    UserError
        A geometry that is not possible, no such program, or no QEMU.
    MeasurementError
        The program or QEMU failed.

    Examples
    --------
    >>> itlb_misses(["kv", "--events", "2"], entries=64, ways=8)  # doctest: +SKIP
    """
    tlb = TlbModel(entries, ways, page_bytes, second_level)
    return qemu_counts(argv, tlb=tlb, by=by, environment=environment, timeout_s=timeout_s)


def aliases(
    argv: Sequence[str],
    *,
    store_buffer: int = HASWELL_STORES.stores,
    window_instructions: int | None = None,
    by: Grouping = "program",
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 600.0,
) -> pd.DataFrame:
    """Simulate how often a load meets a store whose address differs by a multiple of 4 KiB.

    A processor compares the low 12 bits first, and delays the load. The model: among the stores
    still in the buffer the youngest that overlaps the load in the low 12 bits decides; if the whole
    addresses overlap, it forwards its value, and else the load is an alias. An executed instruction
    counts once, however many parts its load has.

    Parameters are those of ``itlb_misses``, and ``StoreBufferModel``'s (by default a Haswell
    core's); the counters are ``instructions``, ``loads``, ``stores`` (only of the whole program)
    and ``4K aliases``. Errors as there.
    """
    buffer = StoreBufferModel(store_buffer, window_instructions)
    return qemu_counts(
        argv, store_buffer=buffer, by=by, environment=environment, timeout_s=timeout_s
    )


def qemu_counts(
    argv: Sequence[str],
    *,
    tlb: TlbModel | None = None,
    store_buffer: StoreBufferModel | None = None,
    by: Grouping = "program",
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 600.0,
) -> pd.DataFrame:
    """``itlb_misses`` and ``aliases`` in one run; a model that is ``None`` is left out."""
    check_grouping(by)
    program = find_program(argv, environment)
    qemu, version = _emulator(program)
    with tempfile.TemporaryDirectory(prefix="perflib-") as folder:
        out = Path(folder) / "counts"
        plugin = ",".join([_plugin(version), *_options(out, tlb, store_buffer)])
        line = [qemu, "-0", argv[0], "-plugin", plugin, str(program), *argv[1:]]
        try:
            pid = run_under(line, argv, environment=environment, timeout_s=timeout_s)
        except SimulatorError as failure:
            raise _explained(failure, version) from failure
        counts = _read(out.with_name(f"counts.{pid}"))
    return _table(counts, tlb, store_buffer, by, version)


# --- the emulator ------------------------------------------------------------------------------


def _emulator(program: Path) -> tuple[str, str]:
    """The emulator for a program: its path, and its name with its version."""
    machine = machine_of(program)
    if machine not in _MACHINES:
        known = ", ".join(f"{name} ({number})" for number, name in _MACHINES.items())
        msg = f"{program} is for a machine (ELF number {machine}) that is not simulated: {known}"
        raise UserError(msg)
    return find_tool(f"qemu-{_MACHINES[machine]}", QEMU_INSTALL)


def _plugin(version: str) -> str:
    """The compiled plugin, for the plugin API of this QEMU; QEMU reads a doubled comma as one."""
    major = re.search(r" (\d+)", version)
    newer = major is not None and int(major[1]) >= 9
    library = kernels.build("qemu_counters", variant="api2" if newer else None).library
    return str(library).replace(",", ",,")


def _options(out: Path, tlb: TlbModel | None, store_buffer: StoreBufferModel | None) -> list[str]:
    options: dict[str, object] = {"out": str(out).replace(",", ",,")}
    if tlb is not None:
        options |= {"entries": tlb.entries, "ways": tlb.ways}
        options["page_shift"] = tlb.page_bytes.bit_length() - 1
        if tlb.second_level is not None:
            options["second_entries"], options["second_ways"] = tlb.second_level
    if store_buffer is not None:
        options["stores"] = store_buffer.stores
        options["window"] = store_buffer.window_instructions or 0
    return [f"{name}={value}" for name, value in options.items()]


def _explained(failure: SimulatorError, version: str) -> MeasurementError:
    """What QEMU's own words mean for the user."""
    if re.search(r"unknown option '-?plugin'", failure.tail):
        msg = f"{version} was built without plugins. Install another: {QEMU_INSTALL}"
    elif "requires API version" in failure.tail:
        msg = (
            f"{version} has another version of the plugin API than those that are known (1, and 2 "
            f"from QEMU 9 on). It says:\n{failure.tail}\nInstall another: {QEMU_INSTALL}"
        )
    else:
        return failure
    return MeasurementError(msg)


# --- its counts --------------------------------------------------------------------------------


class _Counts(NamedTuple):
    totals: dict[str, int]
    maps: list[tuple[int, int, int, str]]  # host addresses, file offset, file
    places: pd.DataFrame


def _read(path: Path) -> _Counts:
    """Read what the plugin wrote; its last line says that it is whole."""
    try:
        lines = path.read_text(errors="surrogateescape").splitlines()
    except FileNotFoundError:
        lines = []
    if not lines or not lines[-1].startswith("threads "):
        msg = (
            "the simulated program left no counts: it was replaced by another program (exec), or "
            "QEMU was killed. Name the program itself, not what starts it (env, nice, taskset)"
        )
        raise MeasurementError(msg)
    totals: dict[str, int] = {}
    maps: list[tuple[int, int, int, str]] = []
    places: list[tuple[int, ...]] = []
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "map":
            extent, _, offset, _, _, file = rest.split(maxsplit=5)
            start, _, end = extent.partition("-")
            maps.append((int(start, 16), int(end, 16), int(offset, 16), file))
        elif kind == "place":
            places.append(tuple(map(int, rest.split())))
        else:
            totals[kind] = int(rest)
    columns = ["address", "iTLB misses", "iTLB walks", "4K aliases"]
    table = pd.DataFrame(places, columns=columns).astype("int64").groupby("address").sum()
    return _Counts(totals, maps, table.reset_index())


def _locate(counts: _Counts, address: int) -> tuple[str, str, str]:
    """The symbol, object and address in it of an address of the program."""
    host = address + counts.totals["guest_base"]
    for start, end, offset, file in counts.maps:
        if start <= host < end:
            elf = read_elf(Path(file))
            inside = elf.address(host - start + offset)
            if inside is not None:
                return elf.function(inside) or "[unknown]", Path(file).name, f"{inside:#x}"
    return "[unknown]", "[unknown]", f"{address:#x}"


def _table(
    counts: _Counts,
    tlb: TlbModel | None,
    store_buffer: StoreBufferModel | None,
    by: Grouping,
    version: str,
) -> pd.DataFrame:
    models: dict[str, object] = {}
    if tlb is not None:
        models["iTLB misses"] = tlb
        if tlb.second_level is not None:
            models["iTLB walks"] = tlb
    if store_buffer is not None:
        models["4K aliases"] = store_buffer
    places = counts.places
    if by == "program":
        plain = ["instructions", *(["loads", "stores"] if store_buffer is not None else [])]
        totals = {name: counts.totals[name] for name in plain}
        totals |= {name: int(places[name].sum()) for name in models}
        rows = pd.DataFrame({"counter": [*totals], "simulated_count": [*totals.values()]})
    else:
        found = [_locate(counts, int(address)) for address in places["address"]]
        where = pd.DataFrame(found, columns=["symbol", "object", "place"], index=places.index)
        keys = ["symbol", "object", *(["place"] if by == "place" else [])]
        parts = [_ranked(where, places[name], keys, name) for name in models]
        rows = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["counter"])
    described = [str(models.get(name, "every one executed")) for name in rows["counter"]]
    table = labelled(rows, source="qemu plugin", tool=version, model="")
    return table.assign(model=described)


def _ranked(
    where: pd.DataFrame, counts: pd.Series[int], keys: list[str], name: str
) -> pd.DataFrame:
    """The counts by place, the most first; places where there is none are left out."""
    rows = where.assign(simulated_count=counts)[counts > 0]
    ranked = rows.groupby(keys)["simulated_count"].sum().reset_index()
    order = [False, *[True] * len(keys)]
    return ranked.sort_values(["simulated_count", *keys], ascending=order).assign(counter=name)
