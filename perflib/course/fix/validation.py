"""Are the results the same? Code to mend against its specification in Python, on many inputs."""

from __future__ import annotations

import random
import reprlib
from collections.abc import Iterator
from dataclasses import dataclass

from perflib.course.fix.building import CodeError, built
from perflib.course.fix.examine import PATIENCE_S, Examined, examine
from perflib.course.fix.problem import Case, Problem
from perflib.model.escape import lines

# Of each input, by threads: the same must come out; two threads may miss each other.
_REPEATS = {1: 2, 2: 8}
_BEFORE = 1000  # FIX_BEFORE of the harness


@dataclass(frozen=True)
class Validated:
    """Whether the results are unchanged.

    Parameters
    ----------
    ok
        They are, for all inputs.
    says
        A sentence: on how many inputs, or the first input that fails and how.
    inputs
        How many inputs gave the right results before one did not.
    failing
        The first input that fails; ``None`` where there is none, or the code does not compile.
    """

    ok: bool
    says: str
    inputs: int
    failing: Case | None = None

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        return lines(f"{'✔' if self.ok else '✘'} {self.says}")


def cases(problem: Problem, seed: int, count: int) -> Iterator[Case]:
    """The inputs that are always tried, and as many more at random, from small to large."""
    yield from problem.always
    draw = random.Random(f"{problem.name}/{seed}")
    for number in range(count):
        yield problem.draw(draw, number / max(1, count - 1))


def validate(
    problem: Problem,
    code: str,
    *,
    seed: int = 1,
    inputs: int = 100,
    patience_s: float = PATIENCE_S,
) -> Validated:
    """Compare what code computes with what is specified.

    Parameters
    ----------
    code
        The C source, in place of the problem's own.
    seed, inputs
        Of the inputs at random, and how many there are next to those that are always tried.
    patience_s
        How long the code may be silent.

    Returns
    -------
    Validated
        Also where the code does not compile, crashes or never ends: nothing of that is an error.

    Raises
    ------
    UserError
        There is no compiler.
    """
    try:
        build = built(problem, code)
    except CodeError as error:
        return Validated(False, str(error), 0)
    tried = list(cases(problem, seed, inputs))
    expected = [problem.expected(case) for case in tried]
    asked = [(problem.words(case), len(words)) for case, words in zip(tried, expected, strict=True)]
    examined = examine(
        [build], {"inputs": asked, "repeats": _REPEATS[problem.threads]}, patience_s=patience_s
    )
    return _judged(problem, tried, expected, examined)


def _judged(
    problem: Problem, tried: list[Case], expected: list[list[int]], examined: Examined
) -> Validated:
    answers = [answer for answer in examined.answers if "out" in answer]
    repeats = _REPEATS[problem.threads]
    for number, answer in enumerate(answers):
        place = number // repeats
        if place >= len(tried):  # what it forks answers as well, in its place or next to it
            return Validated(False, "it answers more often than it is asked", len(tried))
        fault = _wrong(problem, tried[place], expected[place], answer, again=number % repeats > 0)
        if fault:
            return Validated(False, f"{_shown(tried[place])}: {fault}", place, tried[place])
    done = len(answers) // repeats
    if examined.fault and done < len(tried):
        if not examined.answers:
            return Validated(False, f"it cannot be loaded: it {examined.fault}", 0)
        return Validated(False, f"{_shown(tried[done])}: it {examined.fault}", done, tried[done])
    if done < len(tried) or examined.fault:  # after the last input, or no fault and no answer
        said = examined.fault or "ends without all of its answers"
        return Validated(False, f"after the last input it {said}", done)
    if examined.left:
        return Validated(False, f"it {examined.left}", done)
    return Validated(True, f"the results are unchanged on {done} inputs", done)


def _wrong(
    problem: Problem, case: Case, expected: list[int], answer: dict[str, object], *, again: bool
) -> str:
    if answer["code"] == _BEFORE:
        return "it writes to memory next to one of its arrays"
    if answer["code"]:
        return "it finds no memory, or says so"
    out = answer["out"]
    assert isinstance(out, list)
    for place, (found, right) in enumerate(zip(out, expected, strict=True)):
        if found != right:
            what = problem.place(case, place)
            once = " when it is called again; the first time it was right" if again else ""
            return f"{what} is {_signed(found)}, not {_signed(right)}{once}"
    return ""


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


def _shown(case: Case) -> str:
    """An input as a reader takes it in; long lists are cut."""
    short = reprlib.Repr()
    short.maxlist = short.maxtuple = 8
    short.maxlong, short.maxother = 30, 80
    return ", ".join(f"{name} = {short.repr(value)}" for name, value in case.items())
