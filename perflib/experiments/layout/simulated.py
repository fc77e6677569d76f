"""Simulated 4K aliases and instruction-TLB misses of the program in the layouts that it had.

Where a machine has no counters, an emulator counts what a layout changes: loads that look like
earlier stores in their low 12 bits, and code that an instruction TLB misses. It has the
environment, the program's name, the order of linking, the heap's offset and the allocator of a
layout, and it never randomises addresses: so only layouts without ASLR have a count. Of two
builds that are compared function by function it is each function's instructions that count.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from perflib.experiments.layout import LayoutParams
from perflib.experiments.layout.factors import CARRIED, COUNTED, Layout, conditions
from perflib.experiments.layout.programs import Programs
from perflib.framework.starts import start
from perflib.instruments.profile.builds import canonical
from perflib.instruments.simulators.cachegrind import instruction_counts
from perflib.instruments.simulators.models import HASWELL_ITLB, HASWELL_STORES, itlb_of_this_machine
from perflib.instruments.simulators.qemu import qemu_counts
from perflib.kernels import build as build_kernel
from perflib.model.errors import MeasurementError, PerflibError, UserError

_ALIASING = "alias_environment"
_ITERATIONS = 100_000  # of the aliasing loop: it is emulated some 20 times as slowly
_SHIFT_ITERATIONS = "64"
_ROUNDED = 16  # bytes, on a stack
_PAGE = 4096
_INSTRUCTIONS_SHARE = 10_000  # of all instructions, from which a function is recorded
_OF_THE_STACK = re.compile(r"\binc=(\d+)")  # the address of one of its variables


def simulated_counts(
    params: LayoutParams,
    programs: Programs,
    folder: Path,
    base_bytes: int,
    layouts: Sequence[tuple[str, Layout]],
) -> dict[str, Any]:
    """Count in as many of the layouts as time allows, those of most starts first.

    Parameters
    ----------
    params, programs
        Of the run; ``simulating_s`` is how long it may take.
    folder
        For what the program writes meanwhile.
    base_bytes
        The environment's size without padding.
    layouts
        Of each start that had no ASLR: its build and its layout.

    Returns
    -------
    ``model`` and ``tool`` in words, and ``rows``: ``build``, what of ``CARRIED`` was varied,
    ``shift_bytes`` (by which the emulator's stack is higher, and its environment is larger for
    that), ``instructions``, and each of ``COUNTED`` in 1000 of them.

    Raises
    ------
    UserError, MeasurementError
        No QEMU, no start ended in time, or the first one failed.
    """
    deadline = time.monotonic() + params.simulating_s
    shifts = _Shifts(params, folder, base_bytes)
    wanted = _distinct(layouts, params.seed)
    tlb = itlb_of_this_machine() or HASWELL_ITLB
    tools: set[str] = set()

    def simulate(one: tuple[str, Layout]) -> dict[str, Any] | PerflibError | None:
        build, layout = one
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return None
        argv = programs.command(build, layout)
        shift = shifts.of(argv, base_bytes + layout.get("environment", 0))
        if params.job == "aliasing":  # as many letters: they are on the stack
            argv[1] = str(min(params.iterations, _ITERATIONS)).zfill(len(argv[1]))
        try:
            environment = _environment(params, layout, base_bytes + shift)
            table = qemu_counts(
                argv, tlb=tlb, store_buffer=HASWELL_STORES, environment=environment,
                timeout_s=left_s,
            )  # fmt: skip
        except (UserError, MeasurementError) as error:
            return error
        tools.update(map(str, table["tool"]))
        counts = dict(zip(table["counter"], table["simulated_count"], strict=True))
        instructions = float(counts["instructions"])
        return {
            "build": build,
            **_key(layout),
            "shift_bytes": shift,
            "instructions": instructions,
            **{name: 1e3 * float(counts.get(name, 0)) / instructions for name in COUNTED},
        }

    for build, layout in wanted:  # links and shifts are made one after the other
        shifts.of(programs.command(build, layout), base_bytes + layout.get("environment", 0))
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    try:
        found = list(pool.map(simulate, wanted))
    finally:  # Ctrl-C: what has not begun does not begin
        pool.shutdown(cancel_futures=True)
    rows = [one for one in found if isinstance(one, dict)]
    failed = next((one for one in found if isinstance(one, PerflibError)), None)
    if not rows and failed is not None:
        raise failed
    return {
        "model": f"{tlb}; {HASWELL_STORES}",
        "tool": ", ".join(sorted(tools)),
        "rows": rows,
    }


def simulated_instructions(
    params: LayoutParams, programs: Programs, base_bytes: int, builds: Sequence[str]
) -> dict[str, Any]:
    """Count the instructions of each build's functions in one start, without ASLR.

    Returns
    -------
    ``tool`` in words, and ``counts`` of each build's functions, but for those with less than a ten
    thousandth of all.

    Raises
    ------
    UserError, MeasurementError
        No valgrind, or a start did not end in ``simulating_s``.
    """

    def simulate(build: str) -> pd.DataFrame:
        environment = _environment(params, {}, base_bytes)
        argv = programs.command(build, {})
        return instruction_counts(argv, environment=environment, timeout_s=params.simulating_s)

    with ThreadPoolExecutor(len(builds)) as pool:
        tables = dict(zip(builds, pool.map(simulate, builds), strict=True))
    counts = {}
    for build, table in tables.items():
        names = [canonical(str(name)) for name in table["symbol"]]
        of_function = table["simulated_count"].groupby(names).sum()
        least = of_function.sum() / _INSTRUCTIONS_SHARE
        counts[build] = {str(name): int(one) for name, one in of_function.items() if one >= least}
    return {"tool": str(tables[builds[0]]["tool"].iloc[0]), "counts": counts}


def _key(layout: Layout) -> dict[str, Any]:
    """What of a layout an emulated start has; an allocator by its name."""
    found = {name: layout[name] for name in CARRIED if name in layout}
    if "allocator" in found:
        found["allocator"] = found["allocator"]["name"]
    return found


def _distinct(layouts: Sequence[tuple[str, Layout]], seed: int) -> list[tuple[str, Layout]]:
    """One of each that an emulator can distinguish: those of most starts first, then by chance."""
    every: dict[tuple[Any, ...], list[tuple[str, Layout]]] = {}
    for build, layout in layouts:
        every.setdefault((build, *_key(layout).items()), []).append((build, layout))
    groups = list(every.values())
    random.Random(f"simulated/{seed}").shuffle(groups)
    return [group[0] for group in sorted(groups, key=len, reverse=True)]


def _environment(params: LayoutParams, layout: Layout, base_bytes: int) -> dict[str, str]:
    carried: Mapping[str, Any] = {name: layout[name] for name in CARRIED if name in layout}
    return conditions(params, carried, base_bytes).process_environment()


class _Shifts:
    """By how many bytes, modulo 4096, the emulator's stack is higher.

    It arranges a stack as the kernel does but for a constant, which our own program reports. Both
    round addresses to 16 bytes, at other places: so the constant is one of each residue of what
    is on the stack in all.
    """

    def __init__(self, params: LayoutParams, folder: Path, base_bytes: int) -> None:
        self._wanted = replace(conditions(params, {}, base_bytes), aslr=False, cpu=None)
        self._base_bytes, self._folder = base_bytes, folder
        self._program = str(build_kernel(_ALIASING, executable=True).library)
        self._known: dict[int, int] = {}

    def of(self, argv: Sequence[str], environment_bytes: int) -> int:
        """That of a start."""
        residue = _on_stack(argv, environment_bytes) % _ROUNDED
        if residue not in self._known:
            self._known[residue] = self._measured(residue)
        return self._known[residue]

    def _measured(self, residue: int) -> int:
        argv = [self._program, _SHIFT_ITERATIONS, "1", "free", str(self._folder / "addresses")]
        argv[-1] += "x" * ((residue - _on_stack(argv, self._base_bytes)) % _ROUNDED)
        file = Path(argv[-1])
        start(argv, self._wanted, self._folder)
        native = _address(file)
        environment = self._wanted.process_environment()
        qemu_counts(argv, store_buffer=HASWELL_STORES, environment=environment)
        return (_address(file) - native) % _PAGE


def _address(file: Path) -> int:
    """Where the program says that its stack was."""
    said = file.read_text()
    found = _OF_THE_STACK.search(said)
    if found is None:
        msg = f"the program says nothing of its stack: {said[:80]!r}"
        raise MeasurementError(msg)
    return int(found[1])


def _on_stack(argv: Sequence[str], environment_bytes: int) -> int:
    """Bytes of the strings there: environment, arguments, and the program's path once more."""
    return environment_bytes + sum(len(os.fsencode(word)) + 1 for word in (*argv, argv[0]))
