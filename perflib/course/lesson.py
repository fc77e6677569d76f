"""A lesson: what a notebook teaches, how long it takes, and what it asks."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perflib.course.items import Item
from perflib.course.questions import question
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
    def of(cls, name: str, judged: Mapping[str, Callable[..., Item]]) -> Lesson:
        """The lesson whose prose, and the order of what it asks, is in ``lessons/NAME.toml``.

        Parameters
        ----------
        name
            Its name.
        judged
            What judges an item that a run or code decides: a kind of item that takes its prose.
        """
        path = Path(__file__).parent / "lessons" / f"{name}.toml"
        prose = tomllib.loads(path.read_text(encoding="utf-8"))
        tables = prose.pop("items")
        assert judged.keys() <= tables.keys(), name
        judging = dict.fromkeys(tables, question) | dict(judged)
        items = [judging[one](name=one, **table) for one, table in tables.items()]
        return cls(name=name, items=items, **prose)

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
