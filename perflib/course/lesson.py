"""A lesson: what a notebook teaches, how long it takes, and what it asks."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perflib.course.items import Item
from perflib.course.questions import questions
from perflib.model.errors import UserError, choose


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """What one notebook teaches.

    Parameters
    ----------
    name
        That of its module, and of the notebook without its number.
    title
        As the notebook's heading has it.
    minutes
        What a student needs for all of it.
    objectives
        What a student can do afterwards, one sentence each, beginning with a verb.
    items
        What it asks, in the notebook's order.
    needs
        Of a machine, by the names in `perflib.course.needs`: without these, parts of it are
        inconclusive. The environment check at the beginning says which are there.
    """

    name: str
    title: str
    minutes: int
    objectives: Sequence[str]
    items: Sequence[Item]
    needs: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Names are unique: answers are kept by them."""
        assert len({item.name for item in self.items}) == len(self.items), self.name

    @classmethod
    def of(cls, name: str, items: Sequence[Item | str]) -> Lesson:
        """The lesson whose prose is in ``lessons/NAME.toml``.

        Parameters
        ----------
        name
            Its name.
        items
            What it asks, in the notebook's order: a name is that of a question in the file.
        """
        path = Path(__file__).parent / "lessons" / f"{name}.toml"
        prose = tomllib.loads(path.read_text(encoding="utf-8"))
        asked = questions(prose.pop("questions"))
        assert asked.keys() == {one for one in items if isinstance(one, str)}, name
        every = [asked[one] if isinstance(one, str) else one for one in items]
        return cls(name=name, items=every, **prose)

    def item(self, name: str) -> Item:
        """What is asked under that name.

        Raises
        ------
        UserError
            Nothing is; the nearest name is given.
        """
        for item in self.items:
            if item.name == name:
                return item
        raise UserError(choose("exercise", name, (item.name for item in self.items)))


def names() -> list[str]:
    """The lessons that there are."""
    folder = Path(__file__).parent / "lessons"
    return sorted(path.stem for path in folder.glob("[!_]*.py"))


def declared(name: str) -> Lesson:
    """The lesson of that name; a notebook's name with its number serves as well.

    Raises
    ------
    UserError
        There is none; the nearest name is given.
    """
    digits, _, rest = name.partition("_")
    wanted = rest if digits.isdigit() else name
    if wanted not in names():
        raise UserError(choose("lesson", wanted, names()))
    lesson: Lesson = importlib.import_module(f"perflib.course.lessons.{wanted}").LESSON
    return lesson
