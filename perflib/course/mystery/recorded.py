"""Mysteries on a recorded machine: exercises that were recorded, whose truth is how they were made.

Nothing is made wrong; a recorded run is examined in place of one that is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perflib.course.mystery.answerable import Answerable
from perflib.course.mystery.causes import CAUSES, NOTHING
from perflib.course.mystery.draw import check_seed

if TYPE_CHECKING:
    from perflib.course.mystery.truth import Truth

_LIVE = "a mystery needs a Linux machine that measures; leave 'recorded' empty there"
_CPUS = (0, 1)

CASES: Mapping[str, tuple[tuple[str, str, str, float], ...]] = {
    "intel-guest": (
        ("exercise", "thief", "cpu1", 20.0),
        ("exercise fifo", "thief", "cpu1", 7.0),
        ("exercise quota", "quota", "", 50.0),
        ("exercise plain", NOTHING, "", 0.0),
    ),
}
"""Of a recorded machine: tag of a run of ``kv_per_core``, and the cause, place and size (percent)
that notebook 01 and its guest's notebook set when it was recorded."""


class RecordedMystery(Answerable):
    """In place of an open mystery where runs are recorded; used in the same way.

    Attributes
    ----------
    seed
        As given: decides which of the recorded exercises it is.
    job
        Empty: no job was recorded with a trouble.
    """

    def __init__(self, seed: int, recorded: str) -> None:
        check_seed(seed)
        self.seed = seed
        self.job: dict[str, Any] = {}
        self._recorded = recorded

    def close(self) -> None:
        """There is nothing to put back."""

    @property
    def _cases(self) -> tuple[tuple[str, str, str, float], ...]:
        return CASES.get(self._recorded, ())

    @property
    def tag(self) -> str | None:
        """The mark of the run to examine: ``kv.run(recorded=recorded, tag=machine.tag)``."""
        return self._cases[self.seed % len(self._cases)][0] if self._cases else None

    def __repr__(self) -> str:
        if not self._cases:
            return f"no mystery is open: {_LIVE}"
        return f"mystery {self.seed}, recorded on {self._recorded}{self._state()}"

    def _here(self) -> dict[str, str]:
        able = {cause for _, cause, *_ in self._cases} | {NOTHING}
        return {name: "" if name in able else _LIVE for name in CAUSES}

    def _cores(self) -> Sequence[int]:
        return _CPUS

    def _judged_by(self) -> Truth | str:
        from perflib.course.mystery.truth import set_when_recorded

        if not self._cases:
            return _LIVE
        _, cause, place, percent = self._cases[self.seed % len(self._cases)]
        return set_when_recorded(cause, place, percent)
