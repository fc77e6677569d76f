"""Mystery machines: one thing is made wrong with this machine, and nobody knows what.

>>> with pl.mystery(7, level="medium") as machine:  # doctest: +SKIP
...     run = pl.experiment("kv_per_core").run(preset="quick")
...     machine.answer(cause="thief", place="cpu1", low=9, high=13)

The trouble is real: a process that takes a core's time, a quota of a control group, a job whose
lock is held too long. The student has every tool of perflib, names the cause with an interval, and
the answer is judged by the known truth. It is hidden from accidents, not from who reads this code.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from perflib.course.mystery.answerable import Answerable
from perflib.course.mystery.causes import CAUSES, LEVELS, Level
from perflib.course.mystery.recorded import RecordedMystery
from perflib.model.errors import UserError, choose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflib.course.mystery.draw import Machine
    from perflib.course.mystery.opened import Opened
    from perflib.course.mystery.truth import Truth

__all__ = ["Mystery", "RecordedMystery", "mystery"]


def mystery(seed: int, level: Level = "easy", *, recorded: str = "") -> Mystery | RecordedMystery:
    """Make one thing wrong with this machine until the result is closed.

    Parameters
    ----------
    seed
        Decides what, where, and how much: the same seed is the same trouble on the same machine.
    level
        ``easy``: few causes, large effects. ``medium``: all causes. ``hard``: small effects, other
        tasks that cost nothing worth naming, and nothing at all more often.
    recorded
        A recorded machine, as experiments take it: then nothing is opened. The case is one of the
        exercises that were recorded there, where there are any.

    Returns
    -------
    It is used as a context manager, or closed by ``close()``; the end of this process closes it,
    too, in whichever way it ends.

    Raises
    ------
    UserError
        The seed or the level is none, another mystery is open, or this is no Linux.
    MeasurementError
        The trouble cannot be made here.
    """
    if level not in LEVELS:
        raise UserError(choose("level", str(level), LEVELS))
    if recorded:
        return RecordedMystery(seed, recorded)
    if sys.platform != "linux":
        msg = "a mystery takes a Linux machine; with recorded='...' the notebook runs without one"
        raise UserError(msg)
    from perflib.course.mystery.draw import draw, this_machine
    from perflib.course.mystery.job import command, number
    from perflib.course.mystery.opened import Opened

    machine = this_machine()
    trouble = draw(seed, level, machine)
    line = "" if machine.job else command(number(trouble, seed))
    return Mystery(seed, level, machine, line, Opened(trouble))


class Mystery(Answerable):
    """One open mystery: made by `mystery`.

    Attributes
    ----------
    seed, level
        As given.
    job
        Parameters of a job to examine, for ``kv_per_core``, ``event_profile`` and ``threads``:
        ``pl.experiment("kv_per_core").run(**machine.job)``. Where the trouble is in the job, it is
        in this one; where not, the job is sound. Empty where there is no compiler.
    tag
        ``None``: what is measured bears the mark of its environment (`RecordedMystery.tag`).
    """

    tag = None

    def __init__(
        self, seed: int, level: Level, machine: Machine, job_command: str, opened: Opened
    ) -> None:
        self.seed = seed
        self.level = level
        given = {"job": "command", "job_command": job_command}
        self.job: dict[str, Any] = given if job_command else {}
        self._machine = machine
        self._opened = opened

    def close(self) -> None:
        """Put everything back. A second time it does nothing."""
        self._opened.close()

    def __repr__(self) -> str:
        state = "open" if self._opened.is_open else "closed: all is as it was"
        return f"mystery {self.seed} ({self.level}), {state}{self._state()}"

    def _here(self) -> dict[str, str]:
        from perflib.course.mystery.draw import impossible

        names = (name for name, cause in CAUSES.items() if self.level in cause.sizes)
        return {name: impossible(name, self._machine) for name in names}

    def _cores(self) -> Sequence[int]:
        return self._machine.cpus

    def _judged_by(self) -> Truth:
        from perflib.course.mystery.draw import draw
        from perflib.course.mystery.truth import measured

        share = self._opened.share_percent()
        return measured(draw(self.seed, self.level, self._machine), self.seed, share)
