"""A notebook's door: its parameters validated, its experiment run."""

from __future__ import annotations

import ast
import itertools
import os
from collections.abc import Iterable, MutableMapping, Sequence
from typing import Any

from perflib import experiments
from perflib.framework.params import Params
from perflib.measure.progress import Reporter
from perflib.model.errors import UserError, choose
from perflib.model.run import Run

__all__ = ["parameters", "run"]

_INJECTED = "# Parameters"  # how papermill's own cell begins


def parameters(name: str, namespace: MutableMapping[str, Any]) -> Params:
    """Validate the plain assignments of a notebook's ``parameters`` cell.

    To be called in the cell after it, with ``globals()``. papermill takes any name and only adds a
    cell; here a name that is no parameter is an error before anything is measured: every name that
    papermill's cell assigns, or the cells of plain assignments just before this one. ``profile``
    names a preset of the experiment. It counts for the parameters that papermill was not given and
    that stand at their defaults in the ``parameters`` cell.

    Raises
    ------
    UserError
        A name that is no parameter (with the nearest one), or a value out of range.
    """
    experiment = experiments.get(name)
    fields = experiment.Params.model_fields
    known = {*fields, "profile"}
    history = namespace.get("In", [])[:-1]
    injected = _assigned([cell for cell in history if cell.startswith(_INJECTED)][-1:])
    unknown = [word for word in injected | _assigned(_plain_cells(history)) if word not in known]
    if unknown:
        raise UserError("; ".join(choose("parameter", word, known) for word in sorted(unknown)))
    given = {
        field: namespace[field]
        for field, info in fields.items()
        if field in namespace and (field in injected or namespace[field] != info.default)
    }
    return experiment.params(given, namespace.get("profile"))


def _plain_cells(history: Sequence[str]) -> list[str]:
    """The last cells of the history, as far as they hold nothing but plain assignments."""
    return list(itertools.takewhile(_is_plain, reversed(history)))


def _is_plain(source: str) -> bool:
    if source.startswith(_INJECTED):
        return True
    try:
        statements = ast.parse(source).body
        for statement in statements:
            if not isinstance(statement, ast.Assign):
                return False
            ast.literal_eval(statement.value)
    except (SyntaxError, ValueError):
        return False
    return bool(statements)


def _assigned(sources: Iterable[str]) -> set[str]:
    return {
        target.id
        for source in sources
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }


def run(name: str, params: Params, tag: str | None = None) -> Run:
    """Measure, with progress shown; an interruption keeps what there is.

    The run is saved and its name printed. It is marked with ``tag``, or with ``PERFLIB_TAG`` in the
    environment: by it a batch finds its runs, so that an exercise's take another tag.
    """
    tag = os.environ.get("PERFLIB_TAG", "") if tag is None else tag
    experiment = experiments.get(name)
    with Reporter(experiment.title) as progress:
        measured = experiment.measure(params, progress, tag=tag)
    print(f"saved as run {measured.id} (stopped: {measured.provenance['stopped']})")
    for problem in measured.provenance["problems"]:
        print(f"on the way: {problem}")
    return measured
