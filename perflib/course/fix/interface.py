"""Code to mend, as a notebook and the command line ask for it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perflib.course.fix import problems as shelf
from perflib.course.fix.problem import Problem
from perflib.model.errors import UserError, choose
from perflib.model.run import recording_in

if TYPE_CHECKING:
    import pandas as pd

    from perflib.course.fix.bench import Bench
    from perflib.course.fix.validation import Validated


@dataclass
class Fix:
    """One piece of code to mend; made by `fix`.

    >>> problem = fix("false_sharing")
    >>> problem.title
    'two threads count finds, each in a counter of its own'
    """

    problem: Problem
    _hinted: int = 0
    _possible: Bench | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The problem's name."""
        return self.problem.name

    @property
    def _ways(self) -> list[str]:
        """The solutions, the usual one first."""
        return ["mended", *self.problem.others]

    @property
    def title(self) -> str:
        """What the code does, in a few words."""
        return self.problem.title

    @property
    def code(self) -> str:
        """The C source to mend. Names, arguments and types of its functions stay."""
        from perflib.course.fix.building import shipped

        return shipped(self.problem)

    def copy(self, folder: str | Path = ".") -> Path:
        """Write the source to ``NAME.c`` in a folder, to be edited there.

        Raises
        ------
        UserError
            There is such a file already, or it cannot be written.
        """
        path = Path(folder) / f"{self.name}.c"
        if path.exists():
            msg = f"{path} is there already, with your changes perhaps: name another folder"
            raise UserError(msg)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(self.code)
        except OSError as error:
            msg = f"{path} cannot be written: {error.strerror}"
            raise UserError(msg) from None
        return path

    def validate(
        self,
        source: str | Path | None,
        *,
        seed: int = 1,
        inputs: int = 100,
        patience_s: float = 30.0,
    ) -> Validated:
        """Are the results of changed code the same? On the edge cases and on inputs at random.

        Parameters
        ----------
        source
            The changed C source, or the path of its file; ``None``: there is none yet.
        seed, inputs
            Of the inputs at random, and how many.
        patience_s
            How long the code may be silent before it counts as endless.

        Returns
        -------
        Validated
            True or false, with a sentence: the compiler's error, or the first input that fails.
            Where nothing can be compiled a solution is true, and other code is not tried.

        Raises
        ------
        UserError
            There is no such file.
        """
        from perflib.course.fix.building import code_of, unavailable
        from perflib.course.fix.validation import Validated, validate

        if source is None:
            return Validated(False, "there is no changed code yet", 0)
        code = code_of(source)
        if why := unavailable():
            same = self._same(code)
            known = f"is solution({same[0]!r}), whose results are unchanged; here " if same else ""
            return Validated(bool(same), f"it {known}cannot be tried: {why}", 0)
        return validate(self.problem, code, seed=seed, inputs=inputs, patience_s=patience_s)

    def bench(
        self, source: str | Path | None, *, budget_s: float = 20.0, recorded: str = "", **more: Any
    ) -> Bench:
        """Time changed code compared with the original; it is validated first.

        Parameters
        ----------
        source
            The changed C source, or the path of its file. ``None``: the original is timed next to
            itself, a null test.
        recorded
            A recorded machine: nothing is timed, and what the solution saved there is returned.
        budget_s, more
            See `perflib.course.fix.bench.bench`.

        Raises
        ------
        UserError
            The results are not the same (with what `validate` says), or a number is out of range.
        MeasurementError
            The code crashes or does not end while it is timed.
        """
        from perflib.course.fix.bench import bench
        from perflib.course.fix.building import code_of
        from perflib.measure.progress import Reporter

        code = self.code if source is None else code_of(source)
        if recorded:
            return self._recorded(recorded, code)
        if source is not None and not (validated := self.validate(code)):
            msg = f"{self.name} is not timed: {validated.says}"
            raise UserError(msg)
        if "progress" in more:
            return bench(self.problem, code, budget_s=budget_s, **more)
        with Reporter(self.name) as reporter:
            return bench(self.problem, code, budget_s=budget_s, progress=reporter, **more)

    def _recorded(self, machine: str, code: str) -> Bench:
        """Of the solution that this code is, or else of the usual one."""
        from perflib.course.fix.recorded import recorded_bench

        return recorded_bench(self.name, machine, [*self._same(code), "mended"][0])

    def _same(self, code: str) -> list[str]:
        """The solutions that this code is, comments and spaces apart."""
        return [way for way in self._ways if _bare(self.solution(way)) == _bare(code)]

    def hint(self) -> str:
        """What to look at; the next one each time, the last one again and again."""
        hints = self.problem.hints
        found = hints[min(self._hinted, len(hints) - 1)]
        self._hinted += 1
        return found

    def solution(self, which: str = "mended") -> str:
        """The mended source; ``which`` names another way to mend it.

        Raises
        ------
        UserError
            There is no such way.
        """
        from perflib.course.fix.building import shipped

        if which not in self._ways:
            raise UserError(choose(f"solution of {self.name}", which, self._ways))
        return shipped(self.problem, which)

    def possible(self, *, budget_s: float = 20.0, which: str = "mended", **more: Any) -> Bench:
        """How much the solution saves on this machine, now; the options are those of `bench`."""
        found = self.bench(self.solution(which), budget_s=budget_s, **more)
        if which == "mended":
            self._possible = found
        return found

    @property
    def explanation(self) -> str:
        """What is wrong and why it costs time; how much, as far as `possible` has measured it."""
        measured = "How much that is on this machine, possible() measures."
        if self._possible is not None:
            there = recording_in(self._possible.provenance)
            where = f"As recorded on {there}" if there else "As measured on this machine"
            measured = f"{where}, the solution is {self._possible.compared}."
        ways = [
            f"Another way: solution({key!r}), {says}." for key, says in self.problem.others.items()
        ]
        return " ".join([self.problem.mechanism, *ways, measured])

    def __repr__(self) -> str:
        return (
            f"<fix({self.name!r}): {self.title}; .code, .copy(folder), .validate, .bench, .hint()>"
        )


def _bare(code: str) -> str:
    """C without its comments and spaces."""
    return re.sub(r"/\*.*?\*/|//[^\n]*|\s", "", code, flags=re.DOTALL)


def fix(name: str) -> Fix:
    """A piece of code to mend.

    Raises
    ------
    UserError
        There is none of that name; the nearest is given.
    """
    return Fix(shelf.get(name))


def fixes() -> pd.DataFrame:
    """All pieces of code to mend: ``name``, ``title``, ``threads``."""
    import pandas as pd

    found = [shelf.get(name) for name in shelf.NAMES]
    rows = [{"name": one.name, "title": one.title, "threads": one.threads} for one in found]
    return pd.DataFrame(rows)
