"""Misses of caches, TLBs and branch predictors by function, simulated by valgrind's cachegrind.

What is simulated is simpler than a processor: instructions in order, nothing prefetched or
speculated, the least recently used line replaced, the threads one after another on one core, user
code only. So its misses are those that the program's accesses make; a processor hides many.
A TLB is simulated as a cache whose lines are pages, in a run of its own: a page counts once for an
access that is in it.

It takes 50 to 100 times as long as the program alone. Valgrind before 3.24 ends at an instruction
of AVX-512; C libraries ask it what it can and use none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from perflib.instruments.simulators.geometry import CacheLevel, Geometry
from perflib.instruments.simulators.run import SimulatorError, find_program, find_tool, run_under
from perflib.machine.scratch import scratch
from perflib.model.errors import MeasurementError

VALGRIND_INSTALL = "'apt-get install valgrind' (Debian, Ubuntu), 'dnf install valgrind' (Fedora)"

# What cachegrind calls them; of two events the sum.
CACHES: Mapping[str, tuple[str, ...]] = {
    "instructions": ("Ir",),
    "L1i misses": ("I1mr",),
    "LL misses of instructions": ("ILmr",),
    "loads": ("Dr",),
    "stores": ("Dw",),
    "L1d misses of loads": ("D1mr",),
    "L1d misses of stores": ("D1mw",),
    "LL misses of loads": ("DLmr",),
    "LL misses of stores": ("DLmw",),
    "branches": ("Bc", "Bi"),
    "mispredicted branches": ("Bcm", "Bim"),
}
TLBS: Mapping[str, tuple[str, ...]] = {
    "instructions": ("Ir",),
    "iTLB misses": ("I1mr",),
    "dTLB misses": ("D1mr", "D1mw"),
    "STLB misses": ("ILmr", "DLmr", "DLmw"),
}
_UNKNOWN = "???"
_LARGE = CacheLevel.fitted(1 << 30, 16, 4096)  # in place of a second level that is not known


@dataclass(frozen=True)
class _Counts:
    """By function and source file: cachegrind's events."""

    events: tuple[str, ...]
    of: dict[tuple[str, str], list[int]]


def cachegrind_counts(
    argv: Sequence[str],
    shape: Geometry,
    *,
    tlbs: bool = False,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 600.0,
) -> pd.DataFrame:
    """Simulate a program's caches and branches, or its TLBs.

    Parameters
    ----------
    argv
        The program; its output is thrown away. Scripts run in their interpreter.
    shape
        What is simulated.
    tlbs
        The TLBs in place of the caches.
    environment
        The program's whole environment (this process's by default).
    timeout_s
        When to give up.

    Returns
    -------
    pandas.DataFrame
        ``counter`` (a key of `CACHES` or `TLBS`), ``symbol``, ``source_file`` (empty: not
        known), ``simulated_count``, ``tool``; a row for each counter of each function that is
        not 0.

    Raises
    ------
    UserError
        No such program, no valgrind, or the geometry has no TLBs.
    MeasurementError
        The program or valgrind failed.
    """
    find_program(argv, environment)
    counters = dict(TLBS if tlbs else CACHES)
    if tlbs:
        if shape.tlbs is None:
            msg = f"the TLBs of {shape.name} are not known"
            raise MeasurementError(msg)
        first_i, first_d, last = shape.tlbs
        if last is None:
            del counters["STLB misses"]
    else:
        first_i, first_d, last = shape.L1i, shape.L1d, shape.LL
    simulated = {"I1": first_i, "D1": first_d, "LL": last or _LARGE}
    options = ["--cache-sim=yes", "--branch-sim=yes"] + [
        f"--{name}={one.size_bytes},{one.ways},{one.line_bytes}" for name, one in simulated.items()
    ]
    return _under(argv, options, counters, environment, timeout_s)


def instruction_counts(
    argv: Sequence[str], *, environment: Mapping[str, str] | None = None, timeout_s: float = 600.0
) -> pd.DataFrame:
    """Count a program's instructions by function, in user code; nothing else is simulated.

    It takes some 20 times as long as the program alone. Parameters, columns and errors are those
    of `cachegrind_counts`.
    """
    find_program(argv, environment)
    options = ["--cache-sim=no", "--branch-sim=no"]
    return _under(argv, options, {"instructions": ("Ir",)}, environment, timeout_s)


def _under(
    argv: Sequence[str],
    options: Sequence[str],
    counters: Mapping[str, Sequence[str]],
    environment: Mapping[str, str] | None,
    timeout_s: float,
) -> pd.DataFrame:
    """Run a program under cachegrind, and read the counters."""
    valgrind, version = find_tool("valgrind", VALGRIND_INSTALL)
    with scratch() as folder:
        out = folder / "counts"
        line = [valgrind, "--tool=cachegrind", "-q", *options]
        line += [f"--cachegrind-out-file={str(out).replace('%', '%%')}", "--", *argv]
        try:
            run_under(line, argv, environment=environment, timeout_s=timeout_s)
        except SimulatorError as failure:
            raise _explained(failure, version) from failure
        found = read_counts(out, counters)
    return found.assign(tool=version)


def read_counts(path: Path, counters: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """A file of cachegrind as rows; each counter is the sum of some of its events.

    Raises
    ------
    MeasurementError
        It is none, it ends too early, or its functions do not add up to its summary.
    """
    try:
        with path.open(encoding="utf-8", errors="surrogateescape") as lines:
            counts = _counts(lines, path, {one for of in counters.values() for one in of})
    except OSError as error:
        msg = f"the simulator wrote no counts: {path}: {error.strerror}"
        raise MeasurementError(msg) from error
    rows = []
    places = {counter: [counts.events.index(one) for one in of] for counter, of in counters.items()}
    for (file, symbol), values in counts.of.items():
        for counter, which in places.items():
            if number := sum(values[place] for place in which):
                rows.append((counter, symbol, file, number))
    return pd.DataFrame(rows, columns=["counter", "symbol", "source_file", "simulated_count"])


def _counts(lines: Iterable[str], path: Path, needed: Collection[str]) -> _Counts:
    events: tuple[str, ...] = ()
    summary: list[int] = []
    file = symbol = ""
    totals: dict[tuple[str, str], list[int]] = {}
    try:
        for line in lines:
            key, _, rest = line.rstrip("\n").partition("=" if line[:3] in ("fl=", "fn=") else ": ")
            if key == "fl":
                file = "" if rest == _UNKNOWN else rest
            elif key == "fn":
                symbol = "[unknown]" if rest == _UNKNOWN else rest
            elif key == "events":
                events = tuple(rest.split())
            elif key == "summary":
                summary = [int(word) for word in rest.split()]
            elif line[:1].isdigit():
                values = [int(word) for word in line.split()[1:]]
                so_far = totals.setdefault((file, symbol), [0] * len(events))
                for place, value in enumerate(values):  # zeros at the end may be left out
                    so_far[place] += value
    except (ValueError, IndexError) as error:
        msg = f"{path} is no file of cachegrind: {error}"
        raise MeasurementError(msg) from error
    if missing := set(needed) - set(events):
        msg = f"{path} is no file of cachegrind with {', '.join(sorted(missing))}"
        raise MeasurementError(msg)
    if [sum(column) for column in zip(*totals.values(), strict=True)] != summary:
        msg = f"{path} is damaged: its functions do not add up to its summary"
        raise MeasurementError(msg)
    return _Counts(events, totals)


def _explained(failure: SimulatorError, version: str) -> MeasurementError:
    if "unhandled instruction" in failure.tail or "Unrecognised instruction" in failure.tail:
        msg = (
            f"{failure}\n{version} does not know an instruction of the program (AVX-512 before "
            "3.24): compile it for an older processor, such as -march=haswell"
        )
        return MeasurementError(msg)
    return failure
