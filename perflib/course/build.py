"""Hand-outs made of the notebooks: a student's version, one with solutions, one for nbgrader.

What a cell is, its tag says: ``answer`` (the student's), ``solution``, ``check``. A solution
belongs to the answer whose identifier ends like its own: ``solution-2`` to ``answer-2``.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from urllib.parse import unquote

from perflib.course.lesson import Lesson, declared, names
from perflib.framework import recordings
from perflib.model.errors import UserError, choose
from perflib.store.files import json_of, replacing
from perflib.store.paths import notebooks_dir

_Cell = dict[str, Any]
Version = Literal["student", "solution", "nbgrader"]

CONFIG = "nbgrader_config.py"
_CONFIG = """\
# nbgrader's settings for hand-outs of perflib; 'nbgrader generate_assignment LESSON' reads them.
c = get_config()
c.CourseDirectory.course_id = "perflib"
c.ClearSolutions.code_stub = {"python": "# your answer"}
"""
_SOLUTION = re.compile(r"# Solution (?P<name>.+?)\s*(?:\n|$)")
_RECORDED = re.compile(r"^recorded = .*$", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[(?P<label>[^\]]+)\]\((?P<target>[^)\s]+)\)")
_BEGIN, _END = "### BEGIN SOLUTION", "### END SOLUTION"
_MISSING = "perflib is missing: pip install 'perflib-jupyter[lab]' into this kernel's environment"
_NEEDED = f'import importlib.util\n\nassert importlib.util.find_spec("perflib"), {_MISSING!r}\n\n'
_ON_PAPER = "\n\n<style>@media print { pre { white-space: pre-wrap !important } }</style>"
_HANDING_IN = """\
**Handing in.**
Write your answers and predictions into the cells, as `answer_2 = 256`.
What you choose with a button, or write into a field, shows you what is right; it is not handed in.
Cells that check you cannot be changed.
"""


@dataclass(frozen=True)
class Handout:
    """A notebook and the lesson that it is.

    Parameters
    ----------
    lesson
        What it teaches and asks.
    notebook
        Its file.
    place
        Where it is below the folder of all notebooks.
    """

    lesson: Lesson
    notebook: Path
    place: PurePosixPath


def handouts(wanted: Sequence[str] = ()) -> list[Handout]:
    """The notebooks that are lessons, in their order.

    Parameters
    ----------
    wanted
        Names of lessons or of their notebooks; all without.

    Raises
    ------
    UserError
        There is no such lesson; the nearest name is given.
    """
    folder = notebooks_dir()
    known = set(names())
    found: dict[str, Handout] = {}
    for path in sorted(folder.glob("*.ipynb")) + sorted(folder.glob("course/*.ipynb")):
        name = _lesson_name(path.stem)
        if name in known:
            place = PurePosixPath(path.relative_to(folder).as_posix())
            found[name] = Handout(declared(name), path, place)
    chosen = [_lesson_name(word.removesuffix(".ipynb")) for word in wanted]
    for word, name in zip(wanted, chosen, strict=True):
        if name not in found:
            raise UserError(choose("lesson", word, found))
    return [one for name, one in found.items() if not wanted or name in chosen]


def _lesson_name(stem: str) -> str:
    digits, _, rest = stem.partition("_")
    return rest if digits.isdigit() else stem


def build(
    folder: Path,
    wanted: Sequence[Handout],
    version: Version,
    recorded: str = "",
    *,
    force: bool = False,
) -> list[Path]:
    """Write hand-outs; either all of them or, where one is refused, none.

    Parameters
    ----------
    folder
        Where to. ``student`` and ``solution`` are there as the notebooks are in perflib;
        ``nbgrader`` is a course of nbgrader, ``source/LESSON/NOTEBOOK.ipynb`` and its settings.
    wanted
        Of `handouts`.
    version
        Which.
    recorded
        A recorded machine that the notebooks read in place of measuring.
    force
        Replace what an earlier call made, as long as nobody has changed it.

    Returns
    -------
    The files written.

    Raises
    ------
    UserError
        A file is there already, the folder cannot be written, there is no such recorded machine,
        or it lacks the run of a notebook. Nothing was written.
    """
    if folder.exists() and not folder.is_dir():
        msg = f"{folder} is no folder: name one, or a new one"
        raise UserError(msg)
    texts: dict[Path, str] = {}
    there = {one.place for one in wanted} if version != "nbgrader" else set()
    for one in wanted:
        place = PurePosixPath("source", one.lesson.name, one.place.name)
        path = folder / (place if version == "nbgrader" else one.place)
        texts[path] = _text(made(one, version, recorded, there))
        _may_be_written(path, force=force)
    config = folder / CONFIG
    if version == "nbgrader" and not config.exists():
        texts[config] = _CONFIG
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path, only_new=not force) as new:
                new.write_text(text, encoding="utf-8")
    except OSError as error:
        msg = f"{error.filename or folder} cannot be written: {error.strerror}; name another folder"
        raise UserError(msg) from error
    return list(texts)


def made(
    handout: Handout, version: Version, recorded: str = "", there: Iterable[PurePosixPath] = ()
) -> dict[str, Any]:
    """One hand-out, as the JSON of a notebook.

    Parameters
    ----------
    handout, version, recorded
        As `build` takes them.
    there
        Notebooks that are handed out with it, as their ``place``: links lead to them alone.

    Raises
    ------
    UserError
        An exercise has no check or two, or the recorded machine does not serve.
    """
    notebook = json.loads(handout.notebook.read_text(encoding="utf-8"))
    cells = [{**cell, "source": _source(cell)} for cell in notebook["cells"]]
    if recorded:
        _set_recorded(cells, handout, recorded)
    cells = _VERSIONS[version](cells, handout)
    there = set(there)
    for cell in cells:
        if cell["cell_type"] == "markdown":
            cell["source"] = _linked(cell["source"], handout.place.parent, there)
    origin = {"lesson": handout.lesson.name, "version": version, "recorded": recorded}
    metadata = {**notebook["metadata"], "perflib": {**origin, "made": _digest(cells)}}
    return {**notebook, "cells": cells, "metadata": metadata}


# --- versions ------------------------------------------------------------------------------------


def _student(cells: list[_Cell], _: Handout) -> list[_Cell]:
    """Without the solutions."""
    return [cell for cell in cells if not _is(cell, "solution")]


def _solution(cells: list[_Cell], _: Handout) -> list[_Cell]:
    """With solutions that always run, and are seen; on paper no line of code is cut off."""
    title = {**cells[0], "source": cells[0]["source"] + _ON_PAPER}
    return [_opened(cell) if _is(cell, "solution") else cell for cell in [title, *cells[1:]]]


def _opened(cell: _Cell) -> _Cell:
    metadata = {key: value for key, value in cell["metadata"].items() if key != "jupyter"}
    source = _SOLUTION.sub(r"# The solution of \g<name>:\n", cell["source"], count=1)
    return {**cell, "metadata": metadata, "source": source}


def _nbgrader(cells: list[_Cell], handout: Handout) -> list[_Cell]:
    """Each solution within its answer's cell; checks end with their points, and are locked."""
    solutions = {_suffix(cell): cell for cell in cells if _is(cell, "solution")}
    answers = {_suffix(cell) for cell in cells if _is(cell, "answer")}
    made_: list[_Cell] = []
    for cell in cells:
        if "import perflib as pl" in cell["source"]:
            cell["source"] = _NEEDED + cell["source"]
        if _is(cell, "answer"):
            made_.append(_answered(cell, cell["source"], solutions.get(_suffix(cell))))
        elif not _is(cell, "solution"):
            made_.append(_grading(cell, handout) if _is(cell, "check") else cell)
        elif _suffix(cell) not in answers and cell["cell_type"] == "code":
            made_.append(_answered(cell, "", cell))
    _every_item_is_checked(made_, handout)
    text = {"cell_type": "markdown", "id": "handing-in", "metadata": {}, "source": _HANDING_IN}
    return [made_[0], text, *made_[1:]]


def _answered(cell: _Cell, stub: str, solution: _Cell | None) -> _Cell:
    """The stub with its solution, before the field or question that the stub ends with."""
    lines = stub.splitlines()
    body = ast.parse(stub).body
    shown = bool(body) and isinstance(body[-1], ast.Expr) and lines[-1].startswith("lab.")
    last = body[-1].lineno - 1 if shown else len(lines)
    solved = _SOLUTION.sub("", solution["source"], count=1).strip("\n") if solution else ""
    source = "\n".join(filter(None, [*lines[:last], _BEGIN, solved, _END, *lines[last:]]))
    graded = _graded(cell, solution=True)
    return {**cell, "metadata": {"tags": ["answer"], "nbgrader": graded}, "source": source}


def _grading(cell: _Cell, handout: Handout) -> _Cell:
    item = handout.lesson.item(_checked(cell, handout))
    *before, call = ast.parse(cell["source"]).body
    lines = cell["source"].splitlines()[: call.lineno - 1] if before else []
    lines = [f"assert 'lab' in globals(), {_MISSING!r}", *lines]
    lines += [f"checked = {ast.get_source_segment(cell['source'], call)}"]
    lines += ["print(checked)", "float(checked.points)  # of these nbgrader makes the grade"]
    metadata = {**cell["metadata"], "nbgrader": _graded(cell, points=item.points)}
    return {**cell, "metadata": metadata, "source": "\n".join(lines)}


def _graded(cell: _Cell, *, points: float | None = None, solution: bool = False) -> dict[str, Any]:
    """What nbgrader keeps of a cell, in the third version of its schema."""
    graded = {
        "schema_version": 3,
        "grade_id": cell["id"],
        "grade": points is not None,
        "solution": solution,
        "locked": not solution,
        "task": False,
        "cell_type": cell["cell_type"],
    }
    return graded if points is None else {**graded, "points": float(points)}


def _checked(cell: _Cell, handout: Handout) -> str:
    """Which exercise a cell checks: its last line is one call, ``lab.check("NAME", ...)``."""
    body = ast.parse(cell["source"]).body
    match body[-1] if body else None:
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(attr="check"), args=[ast.Constant(value=str(name)), *_]
            )
        ):
            return name
    msg = f'{handout.place}: the cell {cell["id"]} must end with one lab.check("NAME", ...)'
    raise UserError(msg)


def _every_item_is_checked(cells: list[_Cell], handout: Handout) -> None:
    graded = [cell["metadata"].get("nbgrader", {}) for cell in cells]
    total = sum(one["points"] for one in graded if one.get("grade"))
    count = sum(one.get("grade", False) for one in graded)
    items = handout.lesson.items
    if (count, total) != (len(items), sum(item.points for item in items)):
        msg = f"{handout.place}: each of the {len(items)} exercises needs one cell with the tag "
        msg += f"'check', and there are {count}, of {total:g} points"
        raise UserError(msg)


_VERSIONS: dict[Version, Callable[[list[_Cell], Handout], list[_Cell]]] = {
    "student": _student,
    "solution": _solution,
    "nbgrader": _nbgrader,
}


# --- cells ---------------------------------------------------------------------------------------


def _source(cell: _Cell) -> str:
    return "".join(cell["source"])  # a text, or a list of its lines


def _is(cell: _Cell, tag: str) -> bool:
    of_solution = tag == "solution" and _SOLUTION.match(cell["source"]) is not None
    return tag in cell["metadata"].get("tags", []) or of_solution


def _suffix(cell: _Cell) -> str:
    return str(cell["id"]).partition("-")[2]


def lacking(handout: Handout, recorded: str) -> list[str]:
    """The experiments that a notebook asks for and of which a recorded machine has no run."""
    measured = {one.experiment for one in recordings.recordings(recorded)}
    return sorted(recordings.experiments_in(handout.notebook) - measured)


def _set_recorded(cells: list[_Cell], handout: Handout, recorded: str) -> None:
    """Let the notebook read a recorded machine, which must have runs of all that it asks for."""
    if missing := lacking(handout, recorded):
        msg = f"{handout.place} asks for {', '.join(missing)}, of which {recorded} has no run: "
        msg += "name another recorded machine ('perflib list --recorded'), or other lessons"
        raise UserError(msg)
    machine = str(Path(recorded).absolute()) if "/" in recorded else recorded
    for cell in cells:
        if "parameters" in cell["metadata"].get("tags", []) and _RECORDED.search(cell["source"]):
            cell["source"] = _RECORDED.sub(
                lambda _: f"recorded = {json.dumps(machine)}", cell["source"]
            )
            return
    msg = f"{handout.place} cannot be read from a recorded machine: its parameters have no "
    msg += "'recorded'"
    raise UserError(msg)


def _linked(text: str, folder: PurePosixPath, there: Iterable[PurePosixPath]) -> str:
    """A text whose links to files that are not handed out are plain words."""

    def link(found: re.Match[str]) -> str:
        path, _, _ = found["target"].partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return found[0]
        parts: list[str] = []
        for part in (folder / unquote(path)).parts:
            parts = parts[:-1] if part == ".." else [*parts, part]
        return found[0] if PurePosixPath(*parts) in there else found["label"]

    return _LINK.sub(link, text)


# --- files ---------------------------------------------------------------------------------------


def _digest(cells: Iterable[_Cell]) -> str:
    """What shows whether somebody has changed a hand-out: outputs do not count."""
    kept = [(cell["cell_type"], _source(cell)) for cell in cells]
    return hashlib.sha256(json.dumps(kept).encode()).hexdigest()[:16]


def _text(notebook: dict[str, Any]) -> str:
    lines = [{**c, "source": c["source"].splitlines(keepends=True)} for c in notebook["cells"]]
    return json.dumps({**notebook, "cells": lines}, indent=1, ensure_ascii=False) + "\n"


def _may_be_written(path: Path, *, force: bool) -> None:
    """Whether a hand-out may take this place; else why not."""
    if not (path.exists() or path.is_symlink()):
        return
    if not force:
        msg = f"{path} exists already: name another folder, or --force, which replaces hand-outs "
        msg += "that nobody has changed"
        raise UserError(msg)
    try:
        before = json_of(path.read_text(encoding="utf-8"))
        unchanged = before["metadata"]["perflib"]["made"] == _digest(before["cells"])
    except (OSError, ValueError, TypeError, KeyError):
        unchanged = False
    if not unchanged:
        msg = f"{path} is not as 'perflib course build' made it, so --force leaves it: move it away"
        raise UserError(msg)
