"""What is the same of an open mystery and of a recorded one: one answer, then the truth."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

from perflib.course.mystery.causes import CAUSES
from perflib.model.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from perflib.course.mystery.judge import Verdict
    from perflib.course.mystery.truth import Truth


class Answerable(ABC):
    """A mystery that takes one answer, and shows the truth after it."""

    _verdict: Verdict | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Put everything back. A second time it does nothing."""

    @abstractmethod
    def _cores(self) -> Sequence[int]:
        """The cores that an answer may name."""

    @abstractmethod
    def _judged_by(self) -> Truth | str:
        """The truth, which is only made now; or why nothing can be judged."""

    @abstractmethod
    def _here(self) -> Mapping[str, str]:
        """The causes to choose from, each with why it is impossible here; empty: it is possible."""

    @property
    def causes(self) -> pd.DataFrame:
        """What may be wrong: what each cause does, its place and size, where it is examined."""
        import pandas as pd

        rows = {
            name: {
                "does": CAUSES[name].does,
                "place": CAUSES[name].place or "none",
                "size (percent)": CAUSES[name].size,
                "examined in": CAUSES[name].notebook,
                "here": why or "possible",
            }
            for name, why in self._here().items()
        }
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("cause")

    def _state(self) -> str:
        """What its text says of an answer."""
        return "" if self._verdict is None else f", answered ({self._verdict.points:.0f} points)"

    def answer(
        self,
        cause: str,
        place: str | int = "",
        low: float | None = None,
        high: float | None = None,
        unit: str = "percent",
    ) -> Verdict:
        """Say what is wrong. It is judged at once, and the truth is shown: there is one answer.

        Parameters
        ----------
        cause
            Of ``causes``.
        place
            The core, function or lock, where the cause has a place.
        low, high
            The interval of its size; what is measured stands in ``causes``.
        unit
            Of the interval: ``percent`` or ``fraction``.

        Raises
        ------
        UserError
            There is no such cause, core or unit, the interval is reversed, or an answer was given.
        """
        from perflib.course.mystery.judge import Answer, Verdict, judge

        if self._verdict is not None:
            msg = "this mystery is answered: the first answer counts. machine.truth shows the truth"
            raise UserError(msg)
        given = Answer.checked(cause, place, low, high, unit, self._cores())
        truth = self._judged_by()
        if isinstance(truth, str):
            self._verdict = Verdict((), f"nothing is judged: {truth}", None)
        else:
            self._verdict = judge(given, truth)
        return self._verdict

    @property
    def verdict(self) -> Verdict | None:
        """What the answer was worth; ``None`` before it."""
        return self._verdict

    @property
    def truth(self) -> Truth | str:
        """What was wrong, after the answer; why, where none is known.

        Raises
        ------
        UserError
            There is no answer yet.
        """
        if self._verdict is None:
            msg = (
                "the truth is shown after the answer: machine.answer(cause=..., low=..., high=...)"
            )
            raise UserError(msg)
        return self._verdict.truth or self._verdict.explanation
