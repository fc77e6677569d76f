"""Directives for tables that the code already holds: each is written once, in the code.

``lesson-points LESSON`` and ``wrong-answers LESSON`` show what a lesson's items earn, and typical
wrong answers. ``recorded-keys`` shows what a run records, ``permissions`` what an instrument must
be allowed, ``symptoms`` which notebook and experiment explain what one sees. A lesson that does
not exist fails the build with a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

__all__ = ["lesson_points", "permissions", "recorded_keys", "setup", "symptoms", "wrong_answers"]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["--"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def lesson_points(lesson: str) -> str:
    """The items of a lesson with their points, as a Markdown table."""
    from perflib.course.lesson import declared

    items = declared(lesson).items
    rows = [[_text(one.name), type(one).__name__.lower(), f"{one.points:g}"] for one in items]
    total = ["all", f"{len(items)} items", f"{sum(one.points for one in items):g}"]
    return _table(("item", "kind", "points"), [*rows, total])


def wrong_answers(lesson: str) -> str:
    """The typical wrong answers of a lesson, with what the check answers, as a Markdown table."""
    from perflib.course.lesson import declared

    rows = [
        [_text(item.name), _answer(answer), _text(why), _text(_says(item, answer))]
        for item in declared(lesson).items
        for answer, why in item.wrong
    ]
    return _table(("item", "answer", "what leads to it", "what to say"), rows)


def recorded_keys() -> str:
    """Every key that a run's provenance may hold, as a Markdown table."""
    from perflib.model.recorded import RECORDED

    shown = {"host": "`host-1`", "process": "`process-1`", "job": "`job-1`"}
    rows = [
        [
            f"`{row.place}`" if row.place else "",
            ", ".join(f"`{key}`" for key in row.keys.split()),
            _text(row.holds),
            shown.get(row.anonymous, row.anonymous),
        ]
        for row in RECORDED
    ]
    return _table(("place", "keys", "what they hold", "in an anonymous export"), rows)


def permissions() -> str:
    """What instruments must be allowed, and what grants it, as a Markdown table."""
    from perflib.machine.doctor.permissions import PERMISSIONS

    head = ("name", "system call or file", "used for")
    ways = ("podman, docker: `run`", "Apptainer", "no container")
    rows = [
        [f"`{one.name}`", _text(one.call), _text(one.used_for)]
        + [_command(way) for way in (one.image, one.apptainer, one.elsewhere)]
        for one in PERMISSIONS
    ]
    return _table((*head, *ways), rows)


def symptoms() -> str:
    """What one sees, what it may be, and which notebook and experiment find out."""
    from perflib.lab.symptoms import symptoms as known

    rows = []
    for one in known():
        links = [f"[{_short(name)}](../notebooks/{name}.ipynb)" for name in one.notebooks]
        links += [f"[{one.page.replace('_', ' ')}]({one.page}.md)"] if one.page else []
        run = [f"`{name}`" for name in one.experiments] + ([one.how] if one.how else [])
        rows.append([_text(one.see), _text(one.may_be), ", ".join(links), ", ".join(run)])
    return _table(("what you see", "what it may be", "notebook", "experiment"), rows)


def _short(notebook: str) -> str:
    """A notebook's number, or its name."""
    number = notebook.partition("_")[0]
    return number if number.isdigit() else notebook.replace("_", " ")


def _says(item: Any, answer: Any) -> str:
    """What the check answers: a choice explains itself, anything else gets the first hint."""
    return str(item.because[answer] if hasattr(item, "because") else item.hints[0])


def _answer(answer: Any) -> str:
    """An answer as a student writes it; a function by what it says of itself."""
    if callable(answer):
        return _text((answer.__doc__ or "a function").partition("\n")[0].rstrip("."))
    if isinstance(answer, str) and "\n" in answer:
        return "C source"
    if isinstance(answer, dict) and len(answer) > len(set(answer.values())) == 1:
        return f"`{next(iter(answer.values()))}` for all"
    return f"`{answer}`"


def _command(text: str) -> str:
    return f"`{text}`" if re.match(r"--|sudo", text) else _text(text or "nothing")


def _text(text: str) -> str:
    """Text as text: no sign of it is one of Markdown's."""
    return re.sub(r"([\\`*_{}\[\]<>#|$])", r"\\\1", text)


class _Made(SphinxDirective):
    """A table made by a function."""

    make: ClassVar[Callable[..., str]]

    def run(self) -> list[nodes.Node]:
        """The table, or an error that names the nearest lesson."""
        from perflib.model.errors import UserError

        try:
            text = type(self).make(*self.arguments)
        except UserError as error:
            raise self.error(str(error)) from error
        return self.parse_text_to_nodes(text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directives."""
    for name, make, arguments in (
        ("lesson-points", lesson_points, 1),
        ("wrong-answers", wrong_answers, 1),
        ("recorded-keys", recorded_keys, 0),
        ("permissions", permissions, 0),
        ("symptoms", symptoms, 0),
    ):
        made = {"make": staticmethod(make), "required_arguments": arguments}
        app.add_directive(name, type(name, (_Made,), made))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
