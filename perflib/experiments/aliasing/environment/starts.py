"""One start of the measured program, and what it says of itself; its objects linked in any order.

The launcher is a kernel in a worker (``kernels_c/alias_environment.c``): it has its core, its
priority and its memory policy, which the programs that it starts inherit. Each program reports its
addresses, its time and what it got; nothing is believed that it did not say.
"""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perflib.kernels import build, compiler
from perflib.measure.process import Out, Worker, WorkerError
from perflib.model.errors import MeasurementError, UserError

__all__ = [
    "PAGE",
    "STACK",
    "STATIC",
    "Program",
    "Start",
    "least_bytes",
    "linked",
    "orders",
    "pairs_of",
    "read_line",
    "start",
]

PAGE = 4096
_WIDTH = 4  # bytes of an access: all five variables are of type int
STACK, STATIC = ("inc", "g"), ("i", "j", "k")
_OBJECTS = ("loop", "table", "buffer")
_NAME = "alias_environment"
_REPORT = np.dtype([("begin_ns", "i8"), ("wall_ns", "i8"), ("status", "i8"), ("said", "S512")])
_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Program:
    """The executable, and how long its loop runs.

    ``variables``: ``free`` (those on the stack lie where the environment leaves them) or ``hold``
    (at a fixed place within their page). ``order``: of its objects, where these were linked.
    """

    path: Path
    iterations: int
    repetitions: int
    variables: str = "free"
    order: str = ""

    def arguments(self, file: str = "-") -> list[str]:
        """Its command line, the name first, which does not depend on where it lies."""
        return [_NAME, str(self.iterations), str(self.repetitions), self.variables, file]


@dataclass(frozen=True)
class Start:
    """What one start of the program said of itself, and what its launcher saw."""

    said: Mapping[str, float]
    begin_ns: int
    wall_ns: int

    @property
    def addresses(self) -> dict[str, int]:
        """Where the five variables lay."""
        return {name: int(self.said[name]) for name in (*STATIC, *STACK)}


def pairs_of(addresses: Mapping[str, int]) -> list[str]:
    """Which variable on the stack looks like which static one: ``inc-i``, ``g-j`` ...

    An access is 4 bytes wide, so two look alike where they are less than 4 bytes apart in the low
    12 bits; aligned as they are that is where these agree.

    >>> pairs_of({"i": 0x4010, "j": 0x4014, "k": 0x4018, "g": 0x7FFE101C, "inc": 0x7FFE1018})
    ['inc-k']
    """
    return [
        f"{stack}-{static}"
        for stack in STACK
        for static in STATIC
        if (addresses[stack] - addresses[static] + _WIDTH - 1) % PAGE < 2 * _WIDTH - 1
    ]


# --- programs ------------------------------------------------------------------------------------


def orders(count: int, seed: int) -> list[tuple[str, ...]]:
    """So many orders of the objects; the source's own (the program first) is the first."""
    every = list(itertools.permutations(_OBJECTS))
    picked = np.random.default_rng(seed).permutation(len(every) - 1)[: max(count - 1, 0)] + 1
    return [every[0], *(every[place] for place in sorted(picked))][:count]


def linked(order: Sequence[str], path: Path) -> Path:
    """Link the program's objects in an order; the executable."""
    objects = {name: build(_NAME, variant=name, executable=True) for name in _OBJECTS}
    words = [compiler()[0], *(str(objects[name].library) for name in order), "-o", str(path)]
    answer = subprocess.run(words, capture_output=True, text=True, check=False)
    if answer.returncode:
        msg = f"the objects cannot be linked in the order {', '.join(order)}: {answer.stderr}"
        raise MeasurementError(msg)
    return path


# --- one start -----------------------------------------------------------------------------------


def strings(*words: str) -> Any:
    """Words as a kernel takes them: one after the other, each with a zero byte."""
    return np.frombuffer(b"".join(os.fsencode(word) + b"\0" for word in words) or b"\0", np.uint8)


def least_bytes(worker: Worker, variables: Mapping[str, str]) -> int:
    """The smallest environment that holds these variables and the one that fills it up."""
    block = strings(*(f"{name}={value}" for name, value in variables.items()))
    found, _ = worker.call("alias_least_bytes", block, len(variables), timeout_s=_TIMEOUT_S)
    return int(found)


def start(
    worker: Worker,
    program: Program,
    environment_bytes: int,
    *,
    variables: Mapping[str, str],
    randomised: bool = False,
) -> Start:
    """Start the program once and read what it says.

    Raises
    ------
    UserError
        The system does not take an environment of that size.
    WorkerError
        The program crashed, hung, or said nothing that can be read.
    """
    arguments = program.arguments()
    answer, (report,) = worker.call(
        "alias_start", strings(str(program.path)), strings(*arguments), len(arguments),
        strings(*(f"{name}={value}" for name, value in variables.items())), len(variables),
        environment_bytes, int(randomised), int(1000 * _TIMEOUT_S), Out(_REPORT, 1),
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
    said = read_line(bytes(report["said"][0]).decode(errors="replace"), name)
    return Start(said, int(report["begin_ns"][0]), int(report["wall_ns"][0]))


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
    msg = f"{name} said something else than its addresses and times: {line[:200]!r}"
    raise WorkerError(msg)
