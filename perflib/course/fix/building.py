"""A student's code compiled with the harness of its problem, by the flags that the harness has."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

from perflib.course.fix.problem import Problem
from perflib.kernels import Build, source
from perflib.kernels.bundle import active
from perflib.kernels.cache import compiled
from perflib.kernels.compiling import compiler
from perflib.kernels.levels import BASELINE
from perflib.kernels.sources import request
from perflib.machine.scratch import scratch
from perflib.model.errors import MeasurementError, UserError
from perflib.store import paths

_MOST_BYTES = 1 << 20
_ERRORS = re.compile(r"\berror:|undefined reference|multiple definition")
_MOST_ERRORS = 3
_LONGEST = 240  # letters of one of the compiler's lines


class CodeError(MeasurementError):
    """A student's code is wrong: it does not compile, or crashes, or never ends."""


def shipped(problem: Problem, suffix: str = "") -> str:
    """The code to mend; with a suffix (``mended``) another version of it."""
    name = f"{problem.name}_{suffix}" if suffix else problem.name
    return (paths.kernels_dir() / "fix" / f"{name}.inc").read_text()


def code_of(given: object) -> str:
    """Code that is given as text, or as the path of a file that has it.

    Raises
    ------
    UserError
        There is no such file, or it is no text.
    """
    if not isinstance(given, str | Path):
        msg = f"{type(given).__name__} is no C source: give its text, or the path of its file"
        raise UserError(msg)
    if isinstance(given, str) and "\n" in given:
        text = given
    else:
        path = Path(given)
        try:
            if path.stat().st_size > _MOST_BYTES:
                msg = f"{path}: more than 1 MiB: that is no source of ours"
                raise UserError(msg)
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            msg = f"{path} is no text in UTF-8: give the C source"
            raise UserError(msg) from None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            msg = f"{path}: {reason}. Give the C source as text, or the path of its file"
            raise UserError(msg) from None
    if (
        "\0" in text
        or len(text) > _MOST_BYTES
        or any("\ud800" <= sign <= "\udfff" for sign in text)
    ):
        msg = "the code is no text: it has a NUL or half a character, or more than 1 MiB"
        raise UserError(msg)
    return text


def unavailable() -> str:
    """Why no code can be compiled and run here; empty where it can."""
    try:
        compiler()
    except UserError as error:
        return str(error)
    return "" if sys.platform == "linux" else "its harness takes Linux"


def built(problem: Problem, code: str) -> Build:
    """Compile code in place of the problem's own: flags, harness and interface stay.

    Raises
    ------
    CodeError
        It does not compile; the compiler's first errors are in the message.
    UserError
        There is no compiler.
    """
    kernel = f"fix_{problem.name}"
    wanted, harness = request(kernel), source(kernel).path
    with scratch() as folder:
        mixed = folder / harness.name
        mixed.write_text(_mixed(problem, harness, code), encoding="utf-8")
        bundle = active()
        level = BASELINE if bundle is None else bundle.level
        try:
            return compiled(replace(wanted, source=replace(wanted.source, path=mixed)), level)
        except MeasurementError as error:
            raise CodeError(_refused(problem, str(error), mixed)) from None


def _mixed(problem: Problem, harness: Path, code: str) -> str:
    """The harness with this code where it includes its own; errors name the code's own lines."""
    lines = harness.read_text().splitlines()
    at = lines.index(f'#include "fix/{problem.name}.inc"')
    before, after = lines[:at], lines[at + 1 :]
    own = [f'#line 1 "{problem.name}.c"', code, f'#line {at + 2} "{harness.name}"']
    return "\n".join([*before, *own, *after, ""])


def _refused(problem: Problem, said: str, mixed: Path) -> str:
    lines = [line.strip().replace(f"{mixed.parent}/", "") for line in said.splitlines()]
    errors = [line for line in lines if _ERRORS.search(line)] or lines[-_MOST_ERRORS:]
    shown = [line[:_LONGEST] for line in errors[:_MOST_ERRORS]]
    more = len(errors) - len(shown)
    end = [f"... and {more} more"] if more > 0 else []
    harness = any(line.startswith(mixed.name) for line in shown)
    hint = (
        ["The calls of the harness do not fit: names, arguments and types of the functions stay."]
        if harness
        else []
    )
    return "\n".join([f"{problem.name}.c does not compile:", *shown, *end, *hint])
