"""iTLB misses and 4K aliases of a program, simulated by our plugin of QEMU's user-mode emulation.

The program's instructions are emulated one by one and counted (kernels_c/tools/qemu_counters.c).
The counts are exact for the model, and the model is simpler than a processor:

- in program order: nothing is speculated, prefetched or reordered, so a miss that a processor
  would hide counts as much as one that it would wait for;
- user mode only: the kernel's instructions and accesses are not seen, and other programs do not
  interfere;
- each thread has TLBs and a store buffer of its own, as if it had a core of its own; a forked
  child is not counted, and a program started by ``exec`` loses the counts;
- addresses are QEMU's. The stack moves with the size of the environment as it does natively (16
  bytes for 16 bytes), but what is above it differs by a constant. There is no address-space
  randomisation: a program that does the same (prints no times) gives the same counts;
- a repeated string instruction (``rep movs``) counts once a repetition;
- an emulated processor without AVX-512: a library that chooses its code by CPUID chooses another.

It takes 20 to 80 times as long as the program alone (loads and stores cost more than blocks).

Whatever is simulated is *labelled* so: counts stand in the column ``simulated_count`` and nowhere
else, and ``source`` begins with ``simulated:``. Measured counts are never mixed with them.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import pandas as pd

from perflib import kernels
from perflib.instruments.simulators.models import StoreBufferModel, TlbModel
from perflib.instruments.simulators.run import (
    SimulatorError,
    find_program,
    find_tool,
    run_under,
)
from perflib.machine.libraries.elf import header, read_elf
from perflib.machine.scratch import scratch
from perflib.model.errors import MeasurementError, UserError, choose

T = TypeVar("T")
COLUMNS = ("counter", "simulated_count", "symbol", "object", "place", "source", "tool", "model")
Grouping = Literal["program", "symbol", "place"]
_GROUPINGS = ("program", "symbol", "place")
QEMU_INSTALL = (
    "'apt-get install qemu-user' (Debian 12, Ubuntu; that of Debian 13 has no plugins), "
    "'dnf install qemu-user' (Fedora)"
)
QEMU_HERE = f"qemu-{platform.machine()}"
_MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}


def qemu_counts(
    argv: Sequence[str],
    *,
    tlb: TlbModel | None = None,
    store_buffer: StoreBufferModel | None = None,
    by: Grouping = "program",
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 600.0,
) -> pd.DataFrame:
    """Simulate how often instruction fetch misses a TLB, and how often a load is a 4K alias.

    Parameters
    ----------
    argv
        The program; its output is thrown away.
    tlb, store_buffer
        The models; one that is ``None`` is left out.
    by
        One row a counter for the whole ``program``, or one for each ``symbol`` or ``place``
        (address, as ``objdump`` prints it) that is not 0, the most first.
    environment
        The program's whole environment (this process's by default). It is QEMU's, too: what
        ``LD_PRELOAD`` names is loaded into both.
    timeout_s
        When to give up.

    Returns
    -------
    pandas.DataFrame
        The columns ``COLUMNS``. Counters: ``iTLB misses`` and, with a second level, ``iTLB walks``;
        ``4K aliases``, an instruction once, however many parts its load has; of the whole program
        ``instructions`` and, with a store buffer, ``loads`` and ``stores``, too.

    Raises
    ------
    UserError
        No such program, or no QEMU.
    MeasurementError
        The program or QEMU failed.

    Examples
    --------
    >>> qemu_counts(["kv", "--events", "2"], tlb=TlbModel(64, 8))  # doctest: +SKIP
    """
    if by not in _GROUPINGS:
        raise UserError(choose("grouping (by=)", by, _GROUPINGS))
    options = _options(tlb, store_buffer)
    lines, version = under_plugin("qemu_counters", argv, options, environment, timeout_s)
    return _table(read_lines(lines, _counts), tlb, store_buffer, by, version)


# --- the emulator ------------------------------------------------------------------------------


def under_plugin(
    plugin: str,
    argv: Sequence[str],
    options: Sequence[str],
    environment: Mapping[str, str] | None,
    timeout_s: float,
) -> tuple[list[str], str]:
    """Run a program under one of our plugins: the lines that it wrote, and QEMU's version.

    Raises
    ------
    UserError
        No such program, or no QEMU.
    MeasurementError
        The program or QEMU failed, or left no whole file.
    """
    program = find_program(argv, environment)
    qemu, version = emulator(program)
    with scratch() as folder:
        out = folder / "counts"
        given = [_plugin(plugin, version), f"out={_comma(out)}", *options]
        line = [qemu, "-0", argv[0], "-plugin", ",".join(given), str(program), *argv[1:]]
        try:
            pid = run_under(line, argv, environment=environment, timeout_s=timeout_s)
        except SimulatorError as failure:
            raise _explained(failure, version) from failure
        return whole_lines(out.with_name(f"counts.{pid}")), version


def whole_lines(path: Path) -> list[str]:
    """The lines that a plugin wrote.

    Raises
    ------
    MeasurementError
        There are none, or not all.
    """
    try:
        lines = path.read_text(errors="surrogateescape").splitlines()
    except FileNotFoundError:
        lines = []
    if not lines or not lines[-1].startswith("threads "):  # the last line says that it is whole
        msg = (
            "the simulated program left no counts: it was replaced by another program (exec), or "
            "QEMU was killed. Name the program itself, not what starts it (env, nice, taskset)"
        )
        raise MeasurementError(msg)
    return lines


def read_lines(lines: list[str], read: Callable[[list[str]], T]) -> T:
    """What a plugin's lines say; ``read`` raises ValueError or OverflowError where they are none.

    Raises
    ------
    MeasurementError
        The lines are damaged.
    """
    try:
        return read(lines)
    except (ValueError, OverflowError) as error:
        msg = f"the simulated program's counts are damaged ({error}): simulate it again"
        raise MeasurementError(msg) from error


def _comma(path: Path) -> str:
    """QEMU reads a doubled comma as one."""
    return str(path).replace(",", ",,")


def emulator(program: Path) -> tuple[str, str]:
    """The emulator for a program: its path, and its name with its version.

    Raises
    ------
    UserError
        It is no program that can be emulated, or there is no emulator.
    """
    try:
        found = header(program)
        script = found is None and program.read_bytes().startswith(b"#!")
    except OSError as error:
        msg = f"{program} cannot be read: {error.strerror}"
        raise UserError(msg) from error
    if script:
        msg = f"{program} is a script: name the program that runs it first, and then the script"
        raise UserError(msg)
    if found is None or (found.bits, found.order) != (64, "little"):
        msg = f"{program} is no 64-bit little-endian program (ELF)"
        raise UserError(msg)
    if found.machine not in _MACHINES:
        known = ", ".join(f"{name} ({number})" for number, name in _MACHINES.items())
        msg = f"{program} is for machine {found.machine} of the ELF list; simulated are: {known}"
        raise UserError(msg)
    return find_tool(f"qemu-{_MACHINES[found.machine]}", QEMU_INSTALL)


def _plugin(kernel: str, version: str) -> str:
    """The compiled plugin, for the plugin API of this QEMU."""
    major = re.search(r" (\d+)", version)
    newer = major is not None and int(major[1]) >= 9
    return _comma(kernels.build(kernel, variant="api2" if newer else None).library)


def _options(tlb: TlbModel | None, store_buffer: StoreBufferModel | None) -> list[str]:
    options: dict[str, object] = {}
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


def _counts(lines: list[str]) -> _Counts:
    """The counts in the plugin's lines; ValueError and OverflowError where they are none."""
    totals: dict[str, int] = {}
    maps: list[tuple[int, int, int, str]] = []
    places: list[tuple[int, ...]] = []
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "map":
            extent, _, offset, _, _, *file = rest.split(maxsplit=5)
            start, _, end = extent.partition("-")
            if file and file[0].startswith("/"):
                maps.append((int(start, 16), int(end, 16), int(offset, 16), file[0]))
        elif kind == "place":
            places.append(tuple(map(int, rest.split())))
        else:
            totals[kind] = int(rest)
    if lacking := {"guest_base", "instructions", "loads", "stores"} - totals.keys():
        msg = f"no {', '.join(sorted(lacking))}"
        raise ValueError(msg)
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
                symbol, _ = elf.code.at(inside) or ("[unknown]", 0)
                return symbol, Path(file).name, f"{inside:#x}"
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
    unknown = {"symbol": "", "object": "", "place": ""}
    table = rows.assign(
        **{name: text for name, text in unknown.items() if name not in rows},
        source="simulated: qemu plugin",
        tool=version,
        model=described,
    )
    return table[list(COLUMNS)].reset_index(drop=True)


def _ranked(
    where: pd.DataFrame, counts: pd.Series[int], keys: list[str], name: str
) -> pd.DataFrame:
    """The counts by place, the most first; places where there is none are left out."""
    rows = where.assign(simulated_count=counts)[counts > 0]
    ranked = rows.groupby(keys)["simulated_count"].sum().reset_index()
    order = [False, *[True] * len(keys)]
    return ranked.sort_values(["simulated_count", *keys], ascending=order).assign(counter=name)
