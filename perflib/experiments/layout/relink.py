"""A program linked again from the same objects, in random orders: Mytkowicz's second factor.

The order decides where functions and static data are placed, and nothing that the program computes.
"""

from __future__ import annotations

import math
import random
import re
import shlex
import subprocess
from pathlib import Path

from perflib.model.errors import MeasurementError, UserError

_OBJECT = re.compile(r"[^\s'\"=,]+\.o(?![\w.])")
_OUTPUT = "{output}"
_AFTER_O = re.compile(r"(?<=\s-o)\s+(?:'[^']*'|\"[^\"]*\"|\S+)")
_MAX_LINK_S = 600.0
_TRIES = 50


def check_link_line(line: str) -> None:
    """Say what a link line lacks.

    Raises
    ------
    UserError
        It cannot be split into words, names fewer than two objects, or has no place for the output.
    """
    try:
        shlex.split(line)
    except ValueError as error:
        msg = f"relink: {line!r} cannot be split into words: {error}"
        raise UserError(msg) from None
    if len(set(_OBJECT.findall(line))) < 2:
        msg = (
            f"relink: {line!r} names fewer than two objects (*.o), so there is no order: give the "
            "whole line that links the program, as in 'gcc -o job a.o b.o -lm'"
        )
        raise UserError(msg)
    if _OUTPUT not in line and not _AFTER_O.search(line):
        msg = (
            f"relink: {line!r} does not say where the program goes: '-o job', or {_OUTPUT} where "
            "its path belongs, as in 'make LINK=\"a.o b.o\" OUT={output}'"
        )
        raise UserError(msg)


def orders(line: str, count: int, seed: int) -> list[tuple[str, ...]]:
    """So many different orders of a link line's objects, the given one first; all, if fewer.

    >>> orders("gcc -o job a.o b.o -lm", 4, 1)
    [('a.o', 'b.o'), ('b.o', 'a.o')]
    """
    objects = _OBJECT.findall(line)
    wanted = min(count, math.factorial(min(len(objects), 20)))
    generator = random.Random(f"link/{seed}")
    found = {tuple(objects): None}
    for _ in range(_TRIES * count):  # objects that are named twice have fewer orders
        if len(found) >= wanted:
            break
        found.setdefault(tuple(generator.sample(objects, len(objects))))
    return list(found)


def words(line: str, order: tuple[str, ...], output: str) -> list[str]:
    """The words of a link line with its objects in an order, writing to ``output``.

    >>> words("gcc -o job a.o b.o -lm", ("b.o", "a.o"), "/tmp/job")
    ['gcc', '-o', '/tmp/job', 'b.o', 'a.o', '-lm']
    >>> words("make LINK='a.o b.o' OUT={output}", ("b.o", "a.o"), "/tmp/job")
    ['make', 'LINK=b.o a.o', 'OUT=/tmp/job']
    """
    others = iter(order)
    line = _OBJECT.sub(lambda _: next(others), line)
    place = shlex.quote(output)
    if _OUTPUT in line:
        return shlex.split(line.replace(_OUTPUT, place))
    return shlex.split(_AFTER_O.sub(lambda _: f" {place}", line, count=1))


def link(line: str, order: tuple[str, ...], output: Path) -> None:
    """Link the program in an order.

    Raises
    ------
    MeasurementError
        The line fails, or makes no program where it should.
    """
    argv = words(line, order, str(output))
    said = f"relink: {shlex.join(argv)!r}"
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_MAX_LINK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        msg = f"{said} cannot be run: {error}"
        raise MeasurementError(msg) from error
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["(nothing)"]
        msg = f"{said} ended with status {done.returncode}; its errors end with: {lines[-1]}"
        raise MeasurementError(msg)
    if not output.is_file():
        msg = f"{said} made no program there"
        raise MeasurementError(msg)
