"""A lesson while a student works on it: predictions kept, answers checked, solutions opened."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from perflib.course.items import Choice, Item, Judged, Prediction, number
from perflib.course.lesson import Lesson, declared
from perflib.course.needs import need
from perflib.lab.markup import escape
from perflib.model.errors import UserError, choose
from perflib.model.escape import visible
from perflib.model.run import recording_in
from perflib.store import paths
from perflib.store.files import json_of, replacing

if TYPE_CHECKING:
    from IPython.display import Image

    from perflib.course.widgets import Guess, Question

SOLUTIONS = "PERFLIB_SOLUTIONS"  # in the environment: 1 opens all solutions
_GRADED = "NBGRADER_EXECUTION"  # nbgrader runs a hand-out in its own environment
_SOLUTION = re.compile(r"# Solution (?P<name>.+?)\s*$")
_MARKS = {0.0: "✘", 1.0: "✔"}
_MOST_ATTEMPTS = 1000


class Line(str):
    """A sentence, shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return visible(self)


@dataclass(frozen=True)
class Checked:
    """What a check says: points of an answer, why, and a hint where it is not right yet."""

    name: str
    points: float
    of: float
    says: str
    hint: str = ""
    mark: str = ""  # in place of one by points: not answered; or predicted, right or wrong

    @property
    def right(self) -> bool:
        """Whether it earns all points."""
        return self.points == self.of

    def _words(self) -> str:
        mark = _MARKS.get(self.points / self.of if self.of else 1.0, "◐")
        return f"{self.mark or mark} {self.name}: {self.says} ({self.points:.3g} of {self.of:g})"

    def __repr__(self) -> str:
        hint = f"\n  hint: {self.hint}" if self.hint else ""
        return visible(self._words()) + hint

    def _repr_html_(self) -> str:
        hint = f"<br><em>Hint: {escape(self.hint)}</em>" if self.hint else ""
        colour = "#00695c" if self.right else "#b34700"
        colour = "#6b6b6b" if self.mark else colour
        return (
            f'<div class="perflib-check" role="status" style="border-left: 0.4em solid {colour}; '
            f'padding: 0.2em 0.8em; margin: 0.3em 0">{escape(self._words())}{hint}</div>'
        )


@dataclass(frozen=True, repr=False)
class _Unanswered(Checked):
    """A check that is shown again, in its place, when a button or a field gives the answer."""

    shown: Callable[[Any], None] = field(default=print, repr=False)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        self.shown(display(_bundle(self), raw=True, display_id=True))  # type: ignore[no-untyped-call]


def _bundle(checked: Checked) -> dict[str, str]:
    return {"text/plain": repr(checked), "text/html": checked._repr_html_()}


@dataclass
class Lab:
    """One lesson, and what its student did: made by `lesson`.

    Predictions, choices and the wrong choices that were tried are kept in a file next to the runs:
    they are there when the kernel was restarted. The file is that of the lesson in this folder: a
    copy in another folder, of another student perhaps, begins without answers. A prediction has
    the time at which it was made, so that whether it came before the measurement can be seen.
    """

    lesson: Lesson
    folder: Path = field(default_factory=Path.cwd)
    _checked: dict[str, Checked] = field(default_factory=dict)
    _wrong: dict[str, int] = field(default_factory=dict)
    _answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    _unsaved: bool = False
    _opened: set[str] = field(default_factory=set)
    _written: set[str] = field(default_factory=set)
    _waiting: dict[str, list[tuple[Any, tuple[Any, ...]]]] = field(default_factory=dict)

    def __repr__(self) -> str:
        one = self.lesson
        able = "".join(f"\n  - {objective}" for objective in one.objectives)
        return f"{one.title} ({one.minutes} minutes). Afterwards you can:{able}"

    def environment(self, recorded: str = "") -> pd.DataFrame:
        """What the lesson needs, whether it is here, and what is inconclusive without it.

        Parameters
        ----------
        recorded
            A recorded machine: its runs are there, and nothing is needed here.

        Returns
        -------
        One need a row: ``need``, ``here`` (yes, no, or open: only a measurement can show it),
        ``found``, and ``inconclusive`` (nothing, where the need is met).

        Raises
        ------
        UserError
            There is no such recorded machine.
        """
        from perflib.lab.machine import describe

        machine = describe(recorded)
        rows = [("nothing", "yes", f"recorded: {machine['recorded']}", "–")] if recorded else []
        for name in () if recorded else self.lesson.needs:
            wanted = need(name)
            met, found = wanted.look(machine)
            here = {True: "yes", False: "no", None: "open"}[met]
            rows.append((name, here, found, "–" if met else wanted.without))
        return pd.DataFrame(rows, columns=["need", "here", "found", "inconclusive"])

    def _repr_html_(self) -> str:
        one = self.lesson
        able = "".join(f"<li>{escape(objective)}</li>" for objective in one.objectives)
        return (
            f"<p><strong>{escape(one.title)}</strong> ({one.minutes} minutes). "
            f"Afterwards you can:</p><ul>{able}</ul>"
        )

    # --- predict -----------------------------------------------------------------------------

    def predict(self, name: str, guess: float | None = None, *, unit: str) -> Guess | Line:
        """Keep a prediction; without ``guess``, a field to write it into.

        Parameters
        ----------
        name
            What is predicted, as the lesson calls it.
        guess
            The number.
        unit
            Its unit, as the lesson has it.

        Raises
        ------
        UserError
            The lesson asks for no such prediction, or in another unit, or it is no number.
        """
        item = self._prediction(name)
        if unit != item.unit:
            msg = f"the prediction {name!r} is asked for in {item.unit}, not in {unit}"
            raise UserError(msg)
        if guess is None:
            from perflib.course.widgets import Guess

            return Guess(name, unit, self.guess(name), lambda value: self._put(name, value))
        return Line(self._keep(name, guess))

    def _put(self, name: str, value: str) -> str:
        """Keep what stands in a field; checks that waited for it are shown again."""
        said = self._keep(name, value)
        for cell, given in self._waiting.get(name, ()):
            cell.update(_bundle(self.check(name, *given)), raw=True)
        return said

    def guess(self, name: str) -> float | None:
        """The prediction that is kept under that name, if there is one."""
        return self._kept().get(self._prediction(name).name, {}).get("guess")

    def compare(self, name: str, *evidence: Any) -> Image | Line:
        """A figure: the prediction next to the interval that a run measured.

        Parameters
        ----------
        name
            The prediction.
        evidence
            What the lesson's check takes: mostly a run.
        """
        item = self._prediction(name)
        found = item.measured(*evidence)
        if isinstance(found, str):
            return Line(f"nothing to compare: {found}")
        from perflib.course.figures import compared
        from perflib.framework.plots import drawn, recorded_mark
        from perflib.lab.theme import show

        mark = recorded_mark(_provenance(evidence))
        guess = self.guess(name)
        return show(drawn(lambda: compared(name, item.unit, guess, found), mark))

    def _prediction(self, name: str) -> Prediction:
        predictions = [item for item in self.lesson.items if isinstance(item, Prediction)]
        for item in predictions:
            if item.name == name:
                return item
        raise UserError(choose("prediction", name, (item.name for item in predictions)))

    def _keep(self, name: str, guess: Any) -> str:
        value, before = number(guess), self._kept().get(name, {})
        again = before.get("guess") == value  # a cell that runs twice predicts no later
        where = self._save(name, before if again else {"guess": value, "at": time.time()})
        return f"{where}: you predict {name} = {value:g} {self._prediction(name).unit}"

    # --- keep --------------------------------------------------------------------------------

    def _save(self, name: str, answer: dict[str, Any]) -> str:
        """Keep an answer, and say for how long."""
        self._answers = self._kept() | {name: answer}
        if _GRADED in os.environ:
            return "kept for this grade"
        path = self._file()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as new:
                new.write_text(json.dumps(self._answers))
        except OSError as error:
            self._unsaved = True
            return f"kept until the kernel ends ({error.strerror})"
        self._unsaved = False
        return "kept"

    def _kept(self) -> dict[str, dict[str, Any]]:
        if _GRADED in os.environ or self._unsaved:  # what is on disk is no part of a grade
            return self._answers
        try:
            kept = json_of(self._file().read_text())
            return {str(name): _answer(one) for name, one in kept.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return self._answers  # none yet, or a damaged file

    def _file(self) -> Path:
        folder = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:12]
        return paths.data_dir() / "lessons" / f"{self.lesson.name}-{folder}.json"

    # --- check -------------------------------------------------------------------------------

    def ask(self, name: str) -> Question:
        """A question with answers to choose from, as a widget; `check` takes its answer.

        Raises
        ------
        UserError
            The lesson asks no such question.
        """
        from perflib.course.widgets import Question

        item = self.lesson.item(name)
        if not isinstance(item, Choice):
            msg = f"{name!r} has no answers to choose from: give lab.check({name!r}, ...) yours"
            raise UserError(msg)
        return Question(
            item,
            self._choice(item)["chosen"],
            keep=lambda key: self._save(name, self._choice(item) | {"chosen": key}),
            check=lambda key: self._clicked(item, key),
        )

    def _choice(self, item: Choice) -> dict[str, Any]:
        """The answer that is chosen, if one is, and the wrong ones that were tried."""
        kept = self._kept().get(item.name, {})
        chosen = kept.get("chosen")
        return {
            "chosen": chosen if chosen in item.options else None,
            "tried": [key for key in item.options if key in kept.get("tried", ())],
        }

    def _clicked(self, item: Choice, key: str) -> Checked:
        """What a button's answer is worth: it counts where none is written."""
        checked = self._judged(item, key, ())
        if item.name not in self._written:
            self._checked[item.name] = checked
            for cell, _ in self._waiting.get(item.name, ()):
                cell.update(_bundle(checked), raw=True)
        return checked

    def check(self, name: str, *given: Any) -> Checked:
        """Say what an answer is worth, why, and what to try next.

        Parameters
        ----------
        name
            A prediction or an exercise.
        given
            Of a prediction what it is compared with (a run); of an exercise the answer, and what
            it is about (a run) where its text says so. ``None`` and ``...`` are no answer yet.

        Raises
        ------
        UserError
            The lesson asks no such thing.
        """
        item = self.lesson.item(name)
        answer, evidence = self._answer(item, given)
        if answer is None or answer is ...:
            what = "predicted" if isinstance(item, Prediction) else "answered"
            says, wait = f"not {what} yet", self._waiting.setdefault(name, []).append
            checked = Checked(name, 0.0, item.points, says, mark="○")
            if isinstance(item, Choice | Prediction):
                checked = _Unanswered(**vars(checked), shown=lambda cell: wait((cell, given)))
        else:
            checked = self._judged(item, answer, evidence)
            if isinstance(item, Choice) and given and given[0] is not None:
                self._written.add(name)
        self._checked[name] = checked
        return checked

    def _answer(self, item: Item, given: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        if isinstance(item, Prediction):
            return self.guess(item.name), given
        answer, evidence = (given[0], given[1:]) if given else (None, ())
        if answer is None and isinstance(item, Choice):
            answer = self._choice(item)["chosen"]
        return answer, evidence

    def _judged(self, item: Item, answer: Any, evidence: tuple[Any, ...]) -> Checked:
        try:
            judged = item.judge(answer, *evidence)
        except UserError as error:  # of another kind than asked: no try, and no hint to the answer
            return Checked(item.name, 0.0, item.points, str(error))
        found = judged.share
        if isinstance(item, Choice):
            judged = self._first_try(item, answer, judged)
        says, hint = judged.says, ""
        note = recording_in(_provenance(evidence))
        if note and note not in says:  # a finding's own sentence has it
            says += f" (recorded on {note})"
        if isinstance(item, Prediction) and self._is_late(item.name, evidence):
            says += " (you predicted after it was measured)"
        if found < 1.0 and item.hints:
            hint = item.hints[min(self._wrong.get(item.name, 0), len(item.hints) - 1)]
            self._wrong[item.name] = min(self._wrong.get(item.name, 0) + 1, _MOST_ATTEMPTS)
        mark = "●" if isinstance(item, Prediction) and not judged.agrees else ""
        return Checked(item.name, judged.share * item.points, item.points, says, hint, mark=mark)

    def _first_try(self, item: Choice, answer: Any, judged: Judged) -> Judged:
        """Each wrong answer that was tried costs its share of the points."""
        kept = self._choice(item)
        key, tried = str(answer).strip().lower(), kept["tried"]
        if judged.share < 1.0:
            if key in item.options and key not in tried:
                self._save(item.name, kept | {"tried": [*tried, key]})
        elif tried:
            left = 1 - len(tried) / len(item.options)
            return Judged(left, f"{judged.says} (at try {len(tried) + 1})")
        return judged

    def _is_late(self, name: str, evidence: tuple[Any, ...]) -> bool:
        """Whether the run that a prediction is compared with had begun before it was made."""
        provenance = _provenance(evidence)
        if "recording" in provenance or "start" not in provenance:
            return False
        started = pd.Timestamp(provenance["start"]).timestamp()
        return bool(self._kept()[name]["at"] > started)

    def score(self) -> pd.DataFrame:
        """Everything that the lesson asks, one a row: points so far, and of how many; the total."""
        rows: list[dict[str, Any]] = []
        for item in self.lesson.items:
            done = self._checked.get(item.name)
            rows.append(
                {
                    "name": item.name,
                    "kind": type(item).__name__.lower(),
                    "points": round(done.points, 2) if done else 0.0,
                    "of": item.points,
                    "says": done.says if done else "not checked yet",
                }
            )
        sums = {name: sum(row[name] for row in rows) for name in ("points", "of")}
        rows.append({"name": "total", "kind": "", **sums, "says": ""})
        return pd.DataFrame(rows, columns=["name", "kind", "points", "of", "says"])

    # --- solutions ---------------------------------------------------------------------------

    def open(self, name: str) -> Line:
        """Open the solution of an exercise: its cell, which begins ``# Solution NAME``, runs now.

        Raises
        ------
        UserError
            The lesson asks no such thing.
        """
        self._opened.add(self.lesson.item(name).name)
        return Line(f"the cell that begins '# Solution {name}' runs now")

    def _gate(self, source: list[str]) -> list[str]:
        """A cell's lines; of a solution that is not open, a sentence in its place."""
        found = _SOLUTION.match(source[0]) if source else None
        if found is None or os.environ.get(SOLUTIONS) == "1" or found["name"] in self._opened:
            return source
        said = f"the solution stays closed: lab.open({found['name']!r}) opens it"
        return [f"print({said!r})\n"]


def _answer(kept: Mapping[str, Any]) -> dict[str, Any]:
    """An answer as it is on disk: of a prediction, or of a choice."""
    if "guess" in kept:
        return {key: float(kept[key]) for key in ("guess", "at")}
    chosen = kept["chosen"]
    return {
        "chosen": None if chosen is None else str(chosen),
        "tried": [str(key) for key in kept["tried"]],
    }


def _provenance(evidence: tuple[Any, ...]) -> Mapping[str, Any]:
    """Of the run that an answer is about; empty: it is about none."""
    found: Mapping[str, Any] = getattr(evidence[0], "provenance", {}) if evidence else {}
    return found


def lesson(name: str) -> Lab:
    """What a notebook teaches and asks: predictions, checks, solutions.

    In a notebook, cells that begin ``# Solution NAME`` stay closed until ``lab.open(NAME)``, or
    ``PERFLIB_SOLUTIONS=1`` in the environment.

    Raises
    ------
    UserError
        There is no such lesson; the nearest name is given.
    """
    made = Lab(declared(name))
    _gated(made)
    return made


def _gated(made: Lab) -> None:
    """Let the shell ask this lab, and no earlier one, which solutions are open."""
    from IPython import get_ipython

    shell = get_ipython()
    if shell is None:
        return
    transformers = shell.input_transformers_cleanup
    transformers[:] = [
        one for one in transformers if not isinstance(getattr(one, "__self__", None), Lab)
    ]
    transformers.append(made._gate)  # noqa: SLF001 its own module
