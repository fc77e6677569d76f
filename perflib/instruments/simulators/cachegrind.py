"""Cache misses and branch mispredictions of a program, simulated by Valgrind's cachegrind.

The model: two first-level caches and a last level (nothing between them), set-associative, least
recently used out, write-allocate; the branch predictor of a processor of about 2004. In program
order, nothing speculated or prefetched, the kernel's side not seen, one thread at a time (threads
share the caches). An access that crosses a line's border is one miss at most. It takes 50 to 100
times as long as the program alone. Source: Valgrind's manual, chapter Cachegrind.

A TLB is a cache of translations: with lines as long as a page, the misses of the same simulator are
those of a TLB (``cachegrind_tlb``).
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from perflib.instruments.simulators.qemu import HASWELL_ITLB, TlbModel
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
from perflib.machine.hardware.caches import Cache, caches
from perflib.model.errors import MeasurementError, UserError

__all__ = [
    "EVENTS",
    "VALGRIND_INSTALL",
    "CacheGeometry",
    "CachegrindCounts",
    "cachegrind",
    "cachegrind_tlb",
    "geometry_of",
    "parse_cachegrind",
]

VALGRIND_INSTALL = (
    "'apt-get install valgrind' (Debian, Ubuntu), 'dnf install valgrind' (Fedora, RHEL), "
    "'conda install -c conda-forge valgrind'"
)

# What cachegrind counts, and what a table calls it.
EVENTS = {
    "Ir": "instructions",
    "I1mr": "I1 misses",
    "ILmr": "LL instruction misses",
    "Dr": "loads",
    "D1mr": "D1 load misses",
    "DLmr": "LL load misses",
    "Dw": "stores",
    "D1mw": "D1 store misses",
    "DLmw": "LL store misses",
    "Bc": "conditional branches",
    "Bcm": "conditional branches mispredicted",
    "Bi": "indirect branches",
    "Bim": "indirect branches mispredicted",
}
_TLB_EVENTS = {"I1mr": "iTLB misses", "D1mr": "dTLB load misses", "D1mw": "dTLB store misses"}
_TLB_SECOND = {"ILmr": "iTLB walks", "DLmr": "dTLB load walks", "DLmw": "dTLB store walks"}

_LEAST_LINE = 32  # "must be equal to or larger than the maximum register size": AVX
_MOST_BYTES = (1 << 31) - 1  # its sizes are ints


@dataclass(frozen=True)
class CacheGeometry:
    """A cache for the simulator.

    Raises
    ------
    UserError
        What cachegrind cannot simulate: a line that is no power of two or below 32 bytes, a number
        of sets (size / line / ways) that is no power of two, a cache of one line or above 2 GiB.
    """

    size_bytes: int
    ways: int
    line_bytes: int = 64

    def __post_init__(self) -> None:
        size, ways, line = self.size_bytes, self.ways, self.line_bytes
        if not power_of_two(line) or line < _LEAST_LINE:
            problem = f"a line has a power of two of bytes from {_LEAST_LINE} on"
        elif ways < 1 or size % (line * ways) or not power_of_two(size // (line * ways)):
            problem = "the number of sets (size / line / ways) must be a power of two"
        elif not line < size <= _MOST_BYTES:
            problem = f"its size must be more than a line and at most {_MOST_BYTES} bytes"
        else:
            return
        msg = f"cachegrind cannot simulate {size} bytes in {ways} ways of {line} bytes: {problem}"
        raise UserError(msg)

    def option(self, name: str) -> str:
        """Valgrind's option."""
        return f"--{name}={self.size_bytes},{self.ways},{self.line_bytes}"


def geometry_of(cache: Cache) -> CacheGeometry | None:
    """The nearest geometry that can be simulated; ``None`` where too little is known.

    The line stays as it is; the sets become the power of two below, and the ways what it then takes
    to keep the size within half a way (105 MiB in 15 ways becomes 104 MiB in 26 ways). Cachegrind
    does the same for the sizes that it accepts.
    """
    if not cache.ways or not cache.line_bytes:
        return None
    sets = cache.size_bytes // (cache.ways * cache.line_bytes)
    if not sets:
        return None
    sets = 1 << (sets.bit_length() - 1)
    ways = round(cache.size_bytes / (sets * cache.line_bytes))
    try:
        return CacheGeometry(sets * ways * cache.line_bytes, ways, cache.line_bytes)
    except UserError:
        return None


def cachegrind(
    argv: Sequence[str],
    *,
    I1: CacheGeometry | None = None,  # noqa: N803 - the names of Valgrind's options
    D1: CacheGeometry | None = None,  # noqa: N803
    LL: CacheGeometry | None = None,  # noqa: N803
    branches: bool = True,
    by: Grouping = "program",
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 600.0,
) -> pd.DataFrame:
    """Simulate caches and branch prediction of a program.

    Parameters
    ----------
    argv
        The program; its output is thrown away.
    I1, D1, LL
        Level 1 for instructions and for data, and the last level. By default this machine's (see
        ``geometry_of``), or where it does not say, Valgrind's idea of them; the column ``model``
        says what was simulated.
    branches
        Whether branches are simulated, too.
    by
        One row a counter for the whole ``program``, or one for each ``symbol`` or ``place`` (a line
        of source, where the program has debugging information) that is not 0, the most first.
    environment
        The program's whole environment (this process's by default). Valgrind adds to it.
    timeout_s
        When to give up.

    Returns
    -------
    pandas.DataFrame
        The columns of ``run.COLUMNS``; the counters are the values of
        ``EVENTS``. ``object`` is the source file, ``???`` where it is not known.

    Raises
    ------
    UserError
        A geometry that is not possible, no such program, or no Valgrind.
    MeasurementError
        The program or Valgrind failed; AVX-512, which Valgrind 3.19 does not know, is named.

    Examples
    --------
    >>> cachegrind(["kv", "--events", "2"], by="symbol")  # doctest: +SKIP
    """
    given = {"I1": I1, "D1": D1, "LL": LL}
    geometries = {name: geometry for name, geometry in given.items() if geometry is not None}
    rounded: list[str] = []
    for name, (cache, geometry) in _this_machine().items():
        if name not in geometries:
            geometries[name] = geometry
            if (cache.size_bytes, cache.ways) != (geometry.size_bytes, geometry.ways):
                rounded.append(f"nearest possible to {cache} of {cache.ways} ways")
    options = [geometry.option(name) for name, geometry in geometries.items()]
    options.append(f"--branch-sim={'yes' if branches else 'no'}")
    counts, version = _simulate(argv, options, by, environment, timeout_s)
    model = "; ".join([*(f"{name}: {text}" for name, text in counts.geometries.items()), *rounded])
    return _table(counts, EVENTS, by, version, model)


def cachegrind_tlb(
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
    """Simulate TLBs as caches whose lines are pages: the check on our plugin, and data TLB misses.

    The instruction and the data TLB have the same geometry. With a ``second_level`` its misses
    (``iTLB walks``, ``dTLB load walks`` ...) are counted too; it holds code and data alike, where
    the plugin's holds code alone. Parameters otherwise as of ``counters.itlb_misses``.
    """
    tlb = TlbModel(entries, ways, page_bytes, second_level)
    first = CacheGeometry(entries * page_bytes, ways, page_bytes)
    options = [first.option("I1"), first.option("D1")]
    names = _TLB_EVENTS
    if second_level is not None:
        second = CacheGeometry(second_level[0] * page_bytes, second_level[1], page_bytes)
        options.append(second.option("LL"))
        names = names | _TLB_SECOND
    names = {"Ir": EVENTS["Ir"], "Dr": EVENTS["Dr"], "Dw": EVENTS["Dw"]} | names
    counts, version = _simulate(argv, options, by, environment, timeout_s)
    return _table(counts, names, by, version, f"for code and for data each a {tlb}")


def _this_machine() -> dict[str, tuple[Cache, CacheGeometry]]:
    """Of the first CPU: level 1 for instructions and data, and its last level."""
    found: dict[str, tuple[Cache, CacheGeometry]] = {}
    every = caches()
    mine = [cache for cache in every if every[0].shared_cpus[0] in cache.shared_cpus]
    for cache in mine:  # by level: the last one stays
        kinds = {"instruction": "I1", "data": "D1"} if cache.level == 1 else {"unified": "LL"}
        geometry = geometry_of(cache)
        if cache.kind in kinds and geometry is not None:
            found[kinds[cache.kind]] = cache, geometry
    return found


def _simulate(
    argv: Sequence[str],
    options: list[str],
    by: Grouping,
    environment: Mapping[str, str] | None,
    timeout_s: float,
) -> tuple[CachegrindCounts, str]:
    check_grouping(by)
    find_program(argv, environment)
    valgrind, version = find_tool("valgrind", VALGRIND_INSTALL)
    with tempfile.TemporaryDirectory(prefix="perflib-") as folder:
        out = Path(folder, "%p")  # each forked child has its own
        simulator = [
            valgrind,
            "--command-line-only=yes",  # nothing of the user's .valgrindrc
            "--tool=cachegrind",
            "--cache-sim=yes",
            "--show-below-main=yes",  # else _start is called "(below main)"
            f"--cachegrind-out-file={out}",
            *options,
            *argv,
        ]
        try:
            pid = run_under(simulator, argv, environment=environment, timeout_s=timeout_s)
        except SimulatorError as failure:
            raise _explained(failure, version) from failure
        try:
            lines = out.with_name(str(pid)).read_text(errors="replace").splitlines()
        except FileNotFoundError:
            msg = (
                "the simulated program left no counts: it was replaced by another program (exec). "
                "Name the program itself, not what starts it (env, nice, taskset)"
            )
            raise MeasurementError(msg) from None
    return parse_cachegrind(lines), version


def _explained(failure: SimulatorError, version: str) -> MeasurementError:
    """What Valgrind's own words mean for the user."""
    unknown = re.search(r"unhandled instruction bytes: ((?:0x[0-9A-F]+ ?)+)", failure.tail)
    if unknown is None:
        return failure
    prefix = unknown[1].split()[0]
    which = "an AVX-512 instruction" if prefix == "0x62" else "an instruction"
    msg = (
        f"{version} met {which} that it does not know ({unknown[1].strip()}). Compile the program "
        "for an older processor: -march=haswell"
    )
    return MeasurementError(msg)


# --- its output --------------------------------------------------------------------------------


@dataclass(frozen=True)
class CachegrindCounts:
    """What a cachegrind.out file holds.

    ``lines`` has a row for each line of source (columns file, function, line, and one for each
    event); ``geometries`` are the simulated caches, in cachegrind's words.
    """

    geometries: dict[str, str]
    events: list[str]
    lines: pd.DataFrame


def parse_cachegrind(lines: Iterable[str]) -> CachegrindCounts:
    """Read the text of a cachegrind.out file.

    Raises
    ------
    MeasurementError
        It is malformed, cut short, or its lines do not add up to its summary; says where.
    """
    geometries: dict[str, str] = {}
    events: list[str] = []
    summary: list[int] | None = None
    file = function = "???"
    rows: list[list[object]] = []
    for number, line in enumerate(lines, start=1):
        try:
            if line.startswith("desc:"):
                name, found, text = line[5:].partition(" cache:")
                if found:
                    geometries[name.strip()] = " ".join(text.split())
            elif line.startswith("events:"):
                events = line[7:].split()
            elif line.startswith(("fl=", "fi=", "fe=")):
                file = line[3:]
            elif line.startswith("fn="):
                function = line[3:]
            elif line.startswith("summary:"):
                summary = _numbers(line[8:].split(), events)
            elif line.strip() and not line.startswith(("cmd:", "#")):
                place, *counts = line.split()
                rows.append([file, function, int(place), *_numbers(counts, events)])
        except ValueError as error:
            msg = f"cachegrind's output cannot be read, line {number}: {line[:80]!r} ({error})"
            raise MeasurementError(msg) from None
    if not events or summary is None:
        missing = "'summary:' line (it was cut short)" if events else "'events:' line"
        msg = f"cachegrind's output has no {missing}"
        raise MeasurementError(msg)
    table = pd.DataFrame(rows, columns=["file", "function", "line", *events])
    table[events] = table[events].astype("int64")
    if [int(total) for total in table[events].sum()] != summary:
        msg = "cachegrind's output contradicts itself: its lines do not add up to its summary"
        raise MeasurementError(msg)
    return CachegrindCounts(geometries, events, table)


def _numbers(words: list[str], events: list[str]) -> list[int]:
    """The counts of a line; '.' is none, and so is what is left out at its end."""
    if not events:
        msg = "counts before the 'events:' line"
        raise ValueError(msg)
    if len(words) > len(events):
        msg = f"{len(words)} counts of {len(events)} events"
        raise ValueError(msg)
    counts = [0 if word == "." else int(word) for word in words]
    if any(not 0 <= count < 1 << 62 for count in counts):
        msg = "a count is negative or too large"
        raise ValueError(msg)
    return counts + [0] * (len(events) - len(counts))


def _table(
    counts: CachegrindCounts, names: Mapping[str, str], by: Grouping, version: str, model: str
) -> pd.DataFrame:
    lines = counts.lines.rename(columns={"function": "symbol", "file": "object"})
    events = [event for event in names if event in counts.events]
    if by == "program":
        totals = [int(lines[event].sum()) for event in events]
        rows = pd.DataFrame({"counter": [names[e] for e in events], "simulated_count": totals})
        return labelled(rows, source="cachegrind", tool=version, model=model)
    keys = ["object", "symbol"]
    if by == "place":
        keys.append("place")
        lines["place"] = lines["object"] + ":" + lines["line"].astype(str)
    grouped = lines.groupby(keys, as_index=False)[events].sum()
    parts = []
    for event in events:
        part = grouped[[*keys, event]].rename(columns={event: "simulated_count"})
        part = part[part["simulated_count"] > 0].assign(counter=names[event])
        order = [False, *[True] * len(keys)]
        parts.append(part.sort_values(["simulated_count", *keys], ascending=order))
    rows = pd.concat(parts, ignore_index=True)
    return labelled(rows, source="cachegrind", tool=version, model=model)
