"""A notebook's door: its parameters validated, its experiment run."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, MutableMapping
from typing import Any

from perflib import experiments
from perflib.errors import UserError, choose
from perflib.experiments.params import Params
from perflib.measure.progress import Reporter
from perflib.run import Run

__all__ = ["parameters", "run"]

_PLAIN = (type(None), bool, int, float, str, list, dict)
_OF_IPYTHON = {"In", "Out", "exit", "quit"}
_CHECKED = "_perflib_checked"
_INJECTED = "# Parameters"  # how papermill's own cell begins


def parameters(name: str, namespace: MutableMapping[str, Any]) -> Params:
    """Validate the plain assignments of a notebook's ``parameters`` cell.

    To be called in the cell after it, with ``globals()``. papermill takes any name and only adds a
    cell; here a name that is no parameter is an error before anything is measured. ``profile``
    names a preset of the experiment. It counts for the parameters that papermill was not given and
    that stand at their defaults in the ``parameters`` cell.

    When the cell is run once more, only the names of the cells just before it are looked at: a
    notebook that went on has other names by then.

    Raises
    ------
    UserError
        A name that is no parameter (with the nearest one), or a value out of range.
    """
    experiment = experiments.get(name)
    fields = experiment.Params.model_fields
    known = {*fields, "profile"}
    cells = _cells_before(namespace.get("In", []))
    names = _assigned(cells) if namespace.get(_CHECKED) else _plain_names(namespace)
    unknown = [word for word in names if word not in known]
    for word in unknown:
        namespace.pop(word, None)  # so that a corrected cell can be run again
    if unknown:
        raise UserError("; ".join(choose("parameter", word, known) for word in unknown))
    injected = _assigned(cells[-1:]) if cells and cells[-1].startswith(_INJECTED) else set()
    given = {
        field: namespace[field]
        for field, info in fields.items()
        if field in namespace and (field in injected or namespace[field] != info.default)
    }
    validated = experiment.params(given, namespace.get("profile"))
    namespace[_CHECKED] = True
    return validated


def _plain_names(namespace: MutableMapping[str, Any]) -> list[str]:
    return [
        name
        for name, value in namespace.items()
        if isinstance(value, _PLAIN) and not name.startswith("_") and name not in _OF_IPYTHON
    ]


def _cells_before(history: list[str]) -> list[str]:
    """The cells run just before this one that hold nothing but plain assignments."""
    cells: list[str] = []
    for source in reversed(history[:-1]):
        if _assigned([source]) == set():
            break
        cells.insert(0, source)
    return cells


def _assigned(sources: Iterable[str]) -> set[str]:
    """The names that cells of plain assignments assign; none for any other cell."""
    names: set[str] = set()
    for source in sources:
        try:
            for statement in ast.parse(source).body:
                assert isinstance(statement, ast.Assign)
                ast.literal_eval(statement.value)
                names |= {part.id for part in statement.targets if isinstance(part, ast.Name)}
        except (AssertionError, SyntaxError, ValueError):
            return set()
    return names


def run(name: str, params: Params) -> Run:
    """Measure, with progress shown; an interruption keeps what there is.

    The run is saved and its name printed. ``PERFLIB_TAG`` in the environment marks it, so that a
    batch finds its runs.
    """
    experiment = experiments.get(name)
    with Reporter(experiment.title) as progress:
        measured = experiment.measure(params, progress, tag=os.environ.get("PERFLIB_TAG", ""))
    print(f"saved as run {measured.id} (stopped: {measured.provenance['stopped']})")
    for problem in measured.provenance["problems"]:
        print(f"on the way: {problem}")
    return measured
