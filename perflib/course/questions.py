"""What a lesson asks, from its file of prose.

``lessons/NAME.toml`` has the title of a lesson, its minutes, objectives and needs, and a table for
each item, in the order of the notebook: its points, unit and hints. A question with ``answers`` to
choose from has for each of them why it is right or what it overlooks (``because``), and of a
typical wrong one what leads to it (``misled_by``). One whose answer is a number has the numbers
``between`` which it is right, and what is said then (``right``) and ``otherwise``. All others are
judged by the lesson's module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perflib.course.items import Choice, Item, Relation
from perflib.course.relations import near


def question(name: str, **table: Any) -> Item:
    """One that no run decides."""
    return _choice(name, **table) if "answers" in table else _number(name, **table)


def _choice(name: str, answers: Mapping[str, Mapping[str, str]], **others: Any) -> Choice:
    return Choice(
        name=name,
        options={key: one["text"] for key, one in answers.items()},
        because={key: one["because"] for key, one in answers.items()},
        wrong=[(key, one["misled_by"]) for key, one in answers.items() if "misled_by" in one],
        **others,
    )


def _number(
    name: str,
    between: tuple[float, float],
    right: str,
    otherwise: str,
    wrong: Sequence[tuple[float, str]],
    **others: Any,
) -> Relation:
    holds = near(*between, right, otherwise)
    return Relation(name=name, holds=holds, wrong=[(one, why) for one, why in wrong], **others)
