"""An answer compared with the truth: points for the cause, the place and the interval, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

from perflib.course.mystery.causes import CAUSES, NOTHING
from perflib.course.mystery.truth import Truth
from perflib.lab.markup import escape
from perflib.lab.tables import Table
from perflib.model.errors import UserError, choose
from perflib.model.escape import visible

_UNITS = {"percent": 1.0, "fraction": 100.0}
_OF_CAUSE, _OF_PLACE, _OF_SIZE = 50, 20, 30
_LEAST_WIDTH = 2.0  # percentage points: an interval that narrow is never too wide
_NOTHING_WIDTH = 5.0  # a limit of what may have stayed unseen that says something
_TOO_WIDE = 1 / 3  # of the points


@dataclass(frozen=True)
class Answer:
    """A cause, its place and the interval of its size in percent (none: not given)."""

    cause: str
    place: str
    interval: tuple[float, float] | None

    @classmethod
    def checked(
        cls,
        cause: str,
        place: str | int,
        low: float | None,
        high: float | None,
        unit: str,
        cpus: Sequence[int],
    ) -> Answer:
        """An answer as it is given, checked.

        Raises
        ------
        UserError
            There is no such cause, unit or core; the interval is reversed, or has one end only.
        """
        if cause not in CAUSES:
            raise UserError(choose("cause", str(cause), CAUSES))
        if unit not in _UNITS:
            raise UserError(choose("unit", str(unit), _UNITS))
        ends = [_end(name, end, _UNITS[unit]) for name, end in (("low", low), ("high", high))]
        if (low is None) != (high is None):
            msg = "the interval has one end only: give low=... and high=..."
            raise UserError(msg)
        if low is not None and ends[0] > ends[1]:
            msg = f"the interval is reversed: low={low:g} is above high={high:g}"
            raise UserError(msg)
        named = str(place).strip()
        if CAUSES[cause].place == "core" and named:
            number = named.lower().removeprefix("cpu").removeprefix("core").strip()
            named = f"cpu{number}"
            known = [f"cpu{cpu}" for cpu in cpus]
            if named not in known:
                raise UserError(choose("core", str(place), known))
        return cls(cause, named, None if low is None else (ends[0], ends[1]))


def _end(name: str, end: object, factor: float) -> float:
    if end is None:
        return math.nan
    if isinstance(end, bool) or not isinstance(end, Real) or not math.isfinite(end):
        msg = f"{name}={end!r}: a finite number"
        raise UserError(msg)
    return factor * float(end)


@dataclass(frozen=True)
class Judged:
    """One part of an answer: what was answered, what is true, its points, and why."""

    what: str
    answered: str
    true: str
    points: float
    of: float
    why: str


@dataclass(frozen=True)
class Verdict:
    """What an answer is worth.

    Parameters
    ----------
    parts
        Cause, place (where the cause has one) and size.
    explanation
        What would have shown the cause.
    truth
        What was wrong; ``None`` where there was no mystery.
    """

    parts: tuple[Judged, ...]
    explanation: str
    truth: Truth | None

    @property
    def points(self) -> float:
        """What the answer earns, of 100."""
        return sum(part.points for part in self.parts)

    @property
    def right(self) -> bool:
        """Whether it earns all points."""
        return bool(self.parts) and all(part.points == part.of for part in self.parts)

    def _headline(self) -> str:
        if self.truth is None:
            return self.explanation
        return f"{self.points:.0f} of 100 points. It was {self.truth}."

    def __repr__(self) -> str:
        lines = [self._headline()]
        for part in self.parts:
            points = f"{part.points:.0f} of {part.of:.0f}"
            lines.append(f"  {part.what:6s} {points:9s} you: {part.answered}; true: {part.true}. "
                         f"{part.why}")  # fmt: skip
        if self.truth is not None:
            lines += [
                f"  What shows it: {self.explanation}",
                f"  Its size is from {self.truth.how}.",
            ]
        return "\n".join(map(visible, lines))

    def _repr_html_(self) -> str:
        if self.truth is None:
            return f"<p>{escape(self.explanation)}</p>"
        rows = [
            [part.what, part.answered, part.true, f"{part.points:.0f} of {part.of:.0f}", part.why]
            for part in self.parts
        ]
        shown = Table(("part", "answered", "true", "points", "why"), rows, {})
        return (
            f'<div role="status"><p><strong>{escape(self._headline())}</strong></p>{shown.html()}'
            f"<p>What shows it: {escape(self.explanation)} "
            f"Its size is from {escape(self.truth.how)}.</p></div>"
        )


def judge(answer: Answer, truth: Truth) -> Verdict:
    """Compare an answer with the truth."""
    nothing = answer.cause == NOTHING
    right = answer.cause == truth.cause or (nothing and truth.is_negligible)
    kind = CAUSES[truth.cause].place
    of_place = _OF_PLACE if kind and not (nothing and right) else 0
    of_cause = _OF_CAUSE + (_OF_PLACE - of_place) / 2
    of_size = _OF_SIZE + (_OF_PLACE - of_place) / 2
    parts = [_cause(answer, truth, right=right, of=of_cause)]
    comparable = right or CAUSES[answer.cause].place == kind
    if of_place:
        parts.append(_place(answer, truth, kind, of_place, comparable=comparable))
    comparable = right or CAUSES[answer.cause].size == CAUSES[truth.cause].size
    parts.append(_size(answer, truth, of_size, comparable=comparable))
    return Verdict(tuple(parts), CAUSES[truth.cause].shown_by, truth)


def _cause(answer: Answer, truth: Truth, *, right: bool, of: float) -> Judged:
    why = "Right."
    if not right:
        why = f"{answer.cause} would have shown otherwise: {CAUSES[answer.cause].shown_by}"
    elif answer.cause != truth.cause:
        why = "Right: what was made costs nothing on this processor."
    return Judged("cause", answer.cause, truth.cause, of if right else 0.0, of, why)


def _place(answer: Answer, truth: Truth, kind: str, of: float, *, comparable: bool) -> Judged:
    given = answer.place or "none"
    if comparable and answer.place.lower() == truth.place.lower():
        return Judged("place", given, truth.place, of, of, "Right.")
    why = f"Its place is a {kind}."
    if truth.cpu is not None and answer.place.lower().removeprefix("cpu") == str(truth.cpu):
        why = f"That core is right, but what is asked for is a {kind} of the job."
    elif comparable and answer.place:
        why = f"Another {kind} than that."
    return Judged("place", given, truth.place, 0.0, of, why)


def _size(answer: Answer, truth: Truth, of: float, *, comparable: bool) -> Judged:
    size = truth.size
    limit = answer.cause == NOTHING
    true = f"{size.effect:.1f} [{size.low:.1f}, {size.high:.1f}] %"
    if limit and truth.cause == NOTHING:
        true = "0 %"
    if answer.interval is None:
        return Judged("size", "none", true, 0.0, of, "No interval: give low=... and high=...")
    low, high = answer.interval
    given = f"[{low:.1f}, {high:.1f}] %"
    if not comparable:
        return Judged("size", given, true, 0.0, of, "It is an interval of something else.")
    if high < size.low or low > size.high:
        off = size.low - high if high < size.low else low - size.high
        side = "below" if high < size.low else "above"
        why = f"The interval is {side} the true size by {off:.1f} points: too narrow, or biased."
        return Judged("size", given, true, 0.0, of, why)
    most = _NOTHING_WIDTH if limit else max(_LEAST_WIDTH, size.effect)
    if (high if limit else high - low) > most:
        why = f"It contains the true size, but is wider than {most:.1f} points: it says too little."
        return Judged("size", given, true, of * _TOO_WIDE, of, why)
    return Judged("size", given, true, of, of, "It contains the true size.")
