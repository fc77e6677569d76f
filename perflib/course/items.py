"""What a lesson asks, as data: predictions, choices, answers by a relation, functions.

An answer is judged by relations that hold on any machine: a prediction is in the interval that
*this* run measured, a verdict follows from *this* run's interval. No item knows a time in ns.
"""

from __future__ import annotations

import inspect
import math
import random
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from perflib.model.errors import UserError, choose

_NEAR = 2.0  # times too large or too small: nearly right
_FACTOR = 1.1  # a prediction this close to an end of the interval counts as within it
_CASES = 40
_SHORT = reprlib.Repr()  # of a case: a trace of hundreds of pages hides what follows it
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 12
_T = TypeVar("_T")
_WHOLE = 1000  # from here on, numbers are shown without decimals


@dataclass(frozen=True)
class Judged:
    """What a check says of one answer: the share of the points (0 to 1), and why."""

    share: float
    says: str
    agrees: bool = False  # of a prediction, which earns its points anyway

    def __post_init__(self) -> None:
        """A share of something: what grades notebooks takes other numbers for full marks."""
        assert 0.0 <= self.share <= 1.0, self.share


@dataclass(frozen=True)
class Measured:
    """A measured quantity, with its interval, that a prediction is compared with.

    ``what`` says in a few words where it is from (``the knee of cpu0``).
    """

    low: float
    value: float
    high: float
    what: str = "measured"

    @property
    def ends(self) -> tuple[float, float, float]:
        """Low end, value, and high end."""
        return self.low, self.value, self.high


@dataclass(frozen=True, kw_only=True)
class Item(ABC):
    """One thing that a lesson asks.

    Parameters
    ----------
    name
        Short, and unique in the lesson: ``iTLB reach``, or the number of the exercise.
    points
        What a right answer earns.
    hints
        What to try next; each wrong answer shows the next one.
    wrong
        Typical wrong answers, each with what leads to it; a test gives them, and the instructor's
        notes list them. Each is one answer, as a student writes it.
    """

    name: str
    points: float = 1.0
    hints: Sequence[str] = ()
    wrong: Sequence[tuple[Any, str]] = ()

    @abstractmethod
    def judge(self, answer: Any, *evidence: Any) -> Judged:
        """What an answer is worth; ``evidence`` is what else the check is given, mostly runs.

        Raises
        ------
        UserError
            The answer is of another kind than what is asked, or what it is about was not given.
        """

    def _asked(self, judging: Callable[..., _T], *given: Any) -> _T:
        signature = inspect.signature(judging)
        try:
            signature.bind(*given)
        except TypeError:
            named = ", ".join(signature.parameters)
            msg = f"give {self.name!r} what it is about, too: lab.check({self.name!r}, {named})"
            raise UserError(msg) from None
        return judging(*given)


@dataclass(frozen=True, kw_only=True)
class Prediction(Item):
    """A quantity that is guessed before it is measured; a guess earns the points, right or wrong.

    Parameters
    ----------
    unit
        Of the guess and of what is measured.
    measured
        The quantity in a run: an interval, or a sentence that says why this run cannot tell.
    """

    unit: str
    measured: Callable[..., Measured | str]
    points: float = 0.5

    def judge(self, answer: Any, *evidence: Any) -> Judged:
        """Compare a guess with a run's interval."""
        guess = number(answer)
        if not evidence:
            return Judged(1.0, f"you predict {guess:g} {self.unit}")
        found = self._asked(self.measured, *evidence)
        if isinstance(found, str):
            return Judged(1.0, f"you predicted {guess:g} {self.unit}; nothing to compare: {found}")
        agrees, says = agree(guess, found, self.unit)
        return Judged(1.0, f"you predicted {guess:g} {self.unit}: {says}", agrees)


@dataclass(frozen=True, kw_only=True)
class Choice(Item):
    """A question in prose with answers to choose from; each wrong one explains itself.

    Parameters
    ----------
    question
        One sentence.
    options
        Key and answer: ``{"a": "..."}``.
    right
        The key of the right one.
    because
        For every key, why it is right or what it overlooks.
    """

    question: str
    options: Mapping[str, str]
    right: str
    because: Mapping[str, str]

    def __post_init__(self) -> None:
        """Every answer explains itself."""
        assert self.right in self.options, self.name
        assert self.because.keys() == self.options.keys(), self.name

    def judge(self, answer: Any, *evidence: Any) -> Judged:  # noqa: ARG002 a choice needs none
        """Whether the right option was chosen."""
        key = str(answer).strip().lower()
        if key not in self.options:
            raise UserError(choose("answer", str(answer), self.options))
        return Judged(float(key == self.right), self.because[key])


@dataclass(frozen=True, kw_only=True)
class Relation(Item):
    """An answer that must agree with the run it is about.

    Parameters
    ----------
    holds
        Called with the answer and the evidence; returns a `Judged`, or a share of 0 or 1 and why.
    """

    holds: Callable[..., Judged]

    def judge(self, answer: Any, *evidence: Any) -> Judged:
        """Ask the relation."""
        return self._asked(self.holds, answer, *evidence)


@dataclass(frozen=True, kw_only=True)
class Code(Item):
    """A function to write; it is called with cases that the student does not see.

    Parameters
    ----------
    reference
        A function that is right.
    cases
        Arguments of one call, drawn at random: called with a ``random.Random``.
    same
        Whether two results are the same; equality, or closeness of numbers, otherwise.
    always
        Cases that are tried in any case, before those drawn.
    """

    reference: Callable[..., Any]
    cases: Callable[[random.Random], tuple[Any, ...]]
    same: Callable[[Any, Any], bool] | None = None
    always: Sequence[tuple[Any, ...]] = ()

    def judge(self, answer: Any, *evidence: Any) -> Judged:  # noqa: ARG002 the cases are enough
        """Call the student's function; the first case that fails is shown."""
        if not callable(answer):
            msg = f"exercise {self.name} asks for a function, and this is {answer!r}"
            raise UserError(msg)
        drawn = random.Random(self.name)
        cases = [*self.always, *(self.cases(drawn) for _ in range(_CASES))]
        for case in cases:
            expected = self.reference(*case)
            try:
                found = answer(*case)
            except Exception as error:  # noqa: BLE001 a student's function may raise anything
                return Judged(0.0, f"{_call(case)} raises {type(error).__name__}: {error}")
            if not (self.same or _same)(found, expected):
                return Judged(0.0, f"{_call(case)} returns {found!r}, not {expected!r}")
        return Judged(1.0, f"right in {len(cases)} cases that you did not see")


def number(answer: Any) -> float:
    """An answer as a finite number; of a text, a comma is its decimal point.

    Raises
    ------
    UserError
        It is none.
    """
    try:
        found = float(answer.replace(",", ".") if isinstance(answer, str) else answer)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        msg = f"{answer!r} is no number: give one like 2.5, without its unit"
        raise UserError(msg)
    return found


def agree(guess: float, found: Measured, unit: str) -> tuple[bool, str]:
    """Whether a guess is in an interval (within a tenth), and a sentence that compares them."""
    low, value, high = (f"{end:.4g}" if abs(end) < _WHOLE else f"{end:.0f}" for end in found.ends)
    where = f"{found.what}: {value} {unit} [{low}, {high}]"
    if found.low / _FACTOR <= guess <= found.high * _FACTOR:
        return True, f"that agrees with {where}"
    if found.low / _NEAR <= guess <= found.high * _NEAR:
        return False, f"that is near {where}"
    return False, f"that is too {'small' if guess < found.low else 'large'}, {where}"


def _same(found: Any, expected: Any) -> bool:
    if isinstance(expected, float) and not isinstance(found, bool):
        try:
            return math.isclose(found, expected, rel_tol=1e-6, abs_tol=1e-12)
        except TypeError:
            return False
    try:
        return bool(found == expected)
    except (TypeError, ValueError):  # arrays: the item has a comparison of its own
        return False


def _call(case: tuple[Any, ...]) -> str:
    return f"your function({', '.join(map(_SHORT.repr, case))})"
