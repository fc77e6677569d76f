"""One start of the measured program, and what it reports; its objects linked in any order.

The launcher is a kernel in a worker (``kernels_c/alias_environment.c``): it has its core, its
priority and its memory policy, which the programs that it starts inherit. Each program reports its
addresses, its time and its conditions; nothing else is believed.
"""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perflib.experiments.aliasing.environment.addresses import STACK, STATIC
from perflib.framework.brackets import BRACKET_COLUMNS
from perflib.kernels import build, record
from perflib.measure.process import Out, Worker, WorkerError
from perflib.model.errors import UserError

PADDING = "PERFLIB_PADDING"  # the variable that fills an environment up to its size
LONGEST_VARIABLE = 131072  # with its zero byte (MAX_ARG_STRLEN)
_OBJECTS = ("loop", "table", "buffer")
_NAME = "alias_environment"
_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Program:
    """The executable, and how long its loop runs.

    ``variables``: ``free`` (those on the stack are where the environment leaves them) or ``hold``
    (at a fixed place within their page). ``order``: of its objects, where these were linked.
    """

    path: Path
    iterations: int
    repetitions: int
    variables: str = "free"
    order: str = ""

    def arguments(self, file: str = "-") -> list[str]:
        """Its command line, the name first, which does not depend on where it is."""
        return [_NAME, str(self.iterations), str(self.repetitions), self.variables, file]


@dataclass(frozen=True)
class Start:
    """What the program reported of one start, and what its launcher saw."""

    reported: Mapping[str, float]
    begin_ns: int
    wall_ns: int

    @property
    def fastest(self) -> NDArray[Any]:
        """The bracket around the fastest repetition of the loop."""
        names = [column.name for column in BRACKET_COLUMNS]
        values = tuple(int(self.reported[name]) for name in names)
        return np.array([values], dtype=[(name, np.int64) for name in names])

    @property
    def addresses(self) -> dict[str, int]:
        """Where the five variables were."""
        return {name: int(self.reported[name]) for name in (*STATIC, *STACK)}


# --- programs ------------------------------------------------------------------------------------


def orders(count: int, seed: int) -> list[tuple[str, ...]]:
    """So many orders of the objects; the first has the program first."""
    every = list(itertools.permutations(_OBJECTS))
    picked = np.random.default_rng(seed).permutation(len(every) - 1)[: max(count - 1, 0)] + 1
    return [every[0], *(every[place] for place in sorted(picked))][:count]


def linked(order: Sequence[str], path: Path) -> Path:
    """The program with its objects linked in an order, as ``path``.

    Each order has a path of the same length: it is on the stack, above the variables.
    """
    shutil.copy(build(_NAME, variant="+".join(order), executable=True).library, path)
    return path


# --- one start -----------------------------------------------------------------------------------


def strings(*words: str) -> Any:
    """Words as a kernel takes them: one after the other, each with a zero byte."""
    return np.frombuffer(b"".join(os.fsencode(word) + b"\0" for word in words) or b"\0", np.uint8)


def least_bytes(variables: Mapping[str, str]) -> int:
    """The smallest environment that holds these variables and the one that fills it up.

    >>> least_bytes({"A": "12345"})
    25
    """
    used = sum(len(os.fsencode(f"{name}={value}")) + 1 for name, value in variables.items())
    return used + len(PADDING) + 2


def padded(variables: Mapping[str, str], environment_bytes: int) -> dict[str, str]:
    """The environment with the variable that fills it up to a size, last."""
    return {**variables, PADDING: "x" * (environment_bytes - least_bytes(variables))}


def start(
    worker: Worker,
    program: Program,
    environment_bytes: int,
    *,
    variables: Mapping[str, str],
    randomised: bool = False,
) -> Start:
    """Start the program once and read what it reports.

    Raises
    ------
    UserError
        The system does not take an environment of that size.
    WorkerError
        The program crashed, hung, or reported nothing that can be read.
    """
    arguments, report_type = program.arguments(), record(worker.target, "alias_start_report")
    answer, (report,) = worker.call(
        "alias_start", strings(str(program.path)), strings(*arguments), len(arguments),
        strings(*(f"{name}={value}" for name, value in variables.items())), len(variables),
        environment_bytes, int(randomised), int(1000 * _TIMEOUT_S), Out(report_type, 1),
        timeout_s=2 * _TIMEOUT_S,
    )  # fmt: skip
    if answer == errno.E2BIG:
        msg = (
            f"an environment of {environment_bytes} bytes is larger than this system allows: all "
            f"of it and the arguments may have {os.sysconf('SC_ARG_MAX')} bytes (a quarter of "
            "'ulimit -s', at least 131072), and one variable 131072. Begin smaller "
            "(environment_bytes), or sweep fewer periods"
        )
        raise UserError(msg)
    name = f"{program.path.name} with an environment of {environment_bytes} bytes"
    if answer:
        msg = f"{name} cannot be run: {os.strerror(int(answer))}"
        raise WorkerError(msg)
    if code := os.waitstatus_to_exitcode(int(report["status"][0])):
        how = f"died of signal {-code}" if code < 0 else f"ended with exit status {code}"
        msg = f"{name} {how}"
        raise WorkerError(msg)
    reported = read_line(bytes(report["output"][0]).decode(errors="replace"), name)
    return Start(reported, int(report["begin_ns"][0]), int(report["wall_ns"][0]))


def read_line(line: str, name: str) -> dict[str, float]:
    """The program's line ``i=4210732 j=... sums=1,1,1`` as numbers; the sums must agree."""
    words = dict(word.partition("=")[::2] for word in line.split())
    try:
        sums = set(words.pop("sums").split(","))
        numbers = {
            key: float(value) if "." in value else int(value) for key, value in words.items()
        }
        if len(sums) == 1 and numbers.keys() >= {*STATIC, *STACK, "least_ns"}:
            return numbers
    except (KeyError, ValueError):
        pass
    msg = f"{name} printed something else than its addresses and times: {line[:200]!r}"
    raise WorkerError(msg)
