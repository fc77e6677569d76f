"""One trial of ``allocators``: a fresh process under one allocator, its addresses and times."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from perflib.experiments.aliasing.addresses import LINE_BYTES, PERIOD_BYTES
from perflib.experiments.aliasing.allocators.claims import AGAIN, NEW
from perflib.experiments.aliasing.allocators.table import FUNCTIONS, PLACES, TIMED
from perflib.framework.brackets import BRACKET_COLUMNS, bracket_columns
from perflib.framework.results import results
from perflib.kernels import build
from perflib.machine.libraries.allocators import Allocator
from perflib.measure.conditions import Conditions, check, observe, violated
from perflib.measure.launch import command
from perflib.measure.process import WorkerError
from perflib.measure.schedule import Columns
from perflib.model.errors import MeasurementError

_ITEM_BYTES = 4
_VISITS = 5
_TIMEOUT_S = 120.0
# What the program prints of a sample: addresses, calls, core, checksum, and these.
_BEFORE_BRACKET = 5
_BRACKET = np.dtype(
    [(name, np.int64) for name in ("start_ns", "time_ns", *(one.name for one in BRACKET_COLUMNS))]
)


class Configuration(NamedTuple):
    """An allocator on a core; both count from 0."""

    core: int
    allocator: int


class Work(NamedTuple):
    """What every process does.

    ``sizes``: in bytes, of ``pairs`` pairs of buffers whose addresses are recorded in the first
    ``processes`` rounds. ``timed``: function and bytes of all that is timed, ``sample_ns`` each.
    ``control``: where a far buffer is meant, the one at the same distance is used again.
    """

    sizes: Sequence[int]
    pairs: int
    processes: int
    timed: Sequence[tuple[str, int]]
    sample_ns: int
    control: bool = False


class AllocatorTrials:
    """Starts the program anew for every trial, with the allocator preloaded.

    Parameters
    ----------
    configurations
        What a trial's number means.
    allocators, conditions
        Those that configurations count.
    work
        What each process does.
    level
        The compiler's optimisation: the kernel's variant.
    seed
        Of the order of the places.
    """

    def __init__(
        self,
        configurations: Sequence[Configuration],
        allocators: Sequence[Allocator],
        conditions: Sequence[Conditions],
        work: Work,
        *,
        level: str,
        seed: int,
    ) -> None:
        self._configurations = configurations
        self._allocators = allocators
        self._conditions = conditions
        self._work = work
        self._seed = seed
        self._build = build("allocator_pairs", variant=level, executable=True)
        self._obtained: list[dict[str, Any]] = []
        self._checksums: dict[tuple[str, int], int] = {}
        self._problems: dict[str, None] = {}

    @property
    def violated(self) -> list[str]:
        """Conditions that are not in force, and what was wrong with some samples."""
        lacking = [text for obtained in self._obtained for text in obtained["violated"]]
        return list(dict.fromkeys([*lacking, *self._problems]))

    def provenance(self) -> dict[str, Any]:
        """The program, and the conditions of each configuration: requested and observed."""
        return {"kernel": self._build.provenance, "conditions": self._obtained}

    def observe(self) -> None:
        """Start each configuration once and read back the conditions of its process.

        Raises
        ------
        MeasurementError
            The program does not run with that allocator, or does not use it.
        """
        self._obtained = []
        for configuration in self._configurations:
            wanted = self._wanted(configuration)
            with self._started(configuration) as process:
                self._verify(configuration, process)
                obtained = observe(process.pid, wanted.environment)
                self._end(configuration, process, "")
            sentences = violated(wanted, obtained)
            self._obtained.append(
                {"requested": asdict(wanted), "obtained": obtained, "violated": sentences}
            )

    def take(self, round_: int, which: int) -> Columns:
        """One process: pairs that are new, what is timed, then pairs after all is freed."""
        wanted, work = self._configurations[which], self._work
        sizes = work.sizes if round_ < work.processes else ()
        places = self._places(round_, which)
        commands = [f"new {size} {work.pairs}" for size in sizes]
        for (function, size), order in zip(work.timed, places, strict=True):
            digits = "".join(str(1 if work.control and place == 2 else place) for place in order)
            elements = size // _ITEM_BYTES
            commands.append(f"time {FUNCTIONS[function]} {elements} {work.sample_ns} {digits}")
        commands += ["release", *(f"again {size} {work.pairs}" for size in sizes)]
        begin_ns = time.monotonic_ns()
        with self._started(wanted) as process:
            self._verify(wanted, process)
            lines = iter(self._end(wanted, process, "\n".join(commands)))
        rows = list(self._pairs(lines, NEW, sizes, begin_ns))
        for (function, size), order in zip(work.timed, places, strict=True):
            rows += self._times(lines, wanted, function, size, order)
        next(lines)  # of the release
        rows += self._pairs(lines, AGAIN, sizes, begin_ns)
        common = {
            "cpu": self._conditions[wanted.core].cpu,
            "allocator": self._allocators[wanted.allocator].name,
        }
        names = (*common, *rows[0])
        columns = {name: [{**common, **row}[name] for row in rows] for name in names}
        return columns | results(columns.pop("expected"), columns.pop("found"))

    def _places(self, round_: int, which: int) -> list[list[int]]:
        """For each timed function and size the order of the places, random in each visit."""
        draw = random.Random(f"{self._seed}/{round_}/{which}")
        count = len(PLACES)
        return [
            [place for _ in range(_VISITS) for place in draw.sample(range(count), count)]
            for _ in self._work.timed
        ]

    # --- the process -----------------------------------------------------------------------------

    def _wanted(self, of: Configuration) -> Conditions:
        path = self._allocators[of.allocator].path
        conditions = self._conditions[of.core]
        return replace(conditions, preload=(path, *conditions.preload)) if path else conditions

    @contextmanager
    def _started(self, of: Configuration) -> Iterator[subprocess.Popen[str]]:
        wanted = self._wanted(of)
        check(wanted)
        argv, environment = command(wanted, [str(self._build.library)])
        process = subprocess.Popen(
            argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        watchdog = threading.Timer(_TIMEOUT_S, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()
            process.communicate()

    def _verify(self, of: Configuration, process: subprocess.Popen[str]) -> None:
        """Read from which file malloc comes: mapped is not yet used."""
        assert process.stdout is not None
        malloc, libc = (process.stdout.readline().strip() for _ in range(2))
        if not libc:
            self._end(of, process, "")
            libc = malloc = "an unknown file"
        one = self._allocators[of.allocator]
        if _same(malloc, one.path or libc):
            return
        if one.path:
            msg = f"{one.name}: {one.path} is preloaded, but malloc comes from {malloc}: it has "
            msg += "none of its own, or cannot be loaded here"
        else:
            msg = f"{one.name}: malloc comes from {malloc}, not from the C library ({libc}): unset "
            msg += "LD_PRELOAD and the parameter 'preload'"
        raise MeasurementError(msg)

    def _end(self, of: Configuration, process: subprocess.Popen[str], commands: str) -> list[str]:
        """Give it the commands and its input's end; what it answers, by line."""
        output, errors = process.communicate(commands and commands + "\n")
        code = process.returncode
        if code == 0:
            return output.splitlines()
        name = self._allocators[of.allocator].name
        if code == -signal.SIGKILL:
            how = f"was killed (after {_TIMEOUT_S:g} s at the latest, or for want of memory)"
        elif code < 0:
            how = f"ended by signal {signal.Signals(-code).name}"
        else:
            how = f"ended with exit status {code}"
        msg = f"{name}: the program with this allocator {how}"
        raise WorkerError(f"{msg}; it reported: {errors.strip()[-500:]}" if errors.strip() else msg)

    # --- what it says ----------------------------------------------------------------------------

    def _pairs(
        self, lines: Iterator[str], state: str, sizes: Sequence[int], begin_ns: int
    ) -> Iterator[dict[str, Any]]:
        for size in sizes:
            for _ in range(self._work.pairs):
                first, second = map(int, next(lines).split())
                yield {**_row(state, size, first, second), "start_ns": begin_ns}

    def _times(
        self,
        lines: Iterator[str],
        of: Configuration,
        function: str,
        size: int,
        order: Sequence[int],
    ) -> Iterator[dict[str, Any]]:
        cpu = self._conditions[of.core].cpu
        found = [list(map(int, next(lines).split())) for _ in order]
        given = next(
            second - first
            for (first, second, *_), place in zip(found, order, strict=True)
            if place == 0
        )
        timed = np.array([tuple(values[_BEFORE_BRACKET:]) for values in found], _BRACKET)
        bracketed = bracket_columns(timed)
        for number, (place, values) in enumerate(zip(order, found, strict=True)):
            first, second, calls, on, checksum = values[:_BEFORE_BRACKET]
            expected = self._checksums.setdefault((function, size), checksum)
            far = PERIOD_BYTES // 2 + given % LINE_BYTES
            distance = far if place == 2 and not self._work.control else given
            checks = {
                f"{function}: the process migrated from cpu{cpu}": cpu in (None, on),
                f"{function}: its result differs from sample to sample": checksum == expected,
                f"{function}: the buffers are not where they should be": (
                    (second - first - distance) % PERIOD_BYTES == 0
                ),
            }
            self._problems.update({words: None for words, right in checks.items() if not right})
            yield {
                **_row(TIMED, size, first, second),
                "function": function,
                "place": PLACES[place],
                "calls": calls,
                "time_ns": float(timed["time_ns"][number]),
                "start_ns": int(timed["start_ns"][number]),
                **{name: each[number] for name, each in bracketed.items()},
                "ok": all(checks.values()),
                "expected": expected,
                "found": checksum,
            }


def _row(state: str, size: int, first: int, second: int) -> dict[str, Any]:
    return {
        "state": state,
        "size_bytes": size,
        "first_address": first,
        "second_address": second,
        "function": "",
        "place": "",
        "calls": None,
        "time_ns": None,
        **{column.name: None for column in BRACKET_COLUMNS},
        "start_ns": 0,
        "ok": True,
        "expected": None,
        "found": None,
    }


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other) and Path(other).exists()
