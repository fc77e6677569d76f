"""A notebook's parameters: the assignments of its cell and papermill's, validated."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, MutableMapping, Sequence
from typing import Any

from perflib.framework import configured
from perflib.framework.experiment import Experiment
from perflib.framework.params import Params
from perflib.model.errors import UserError, choose
from perflib.store.files import json_of

_INJECTED = "# Parameters"  # how papermill's own cell begins
_BESIDE = {"preset", "conditions", "recorded"}  # what a cell may assign that is no parameter itself


def parameters(experiment: Experiment, namespace: MutableMapping[str, Any]) -> Params:
    """Validate the plain assignments of a notebook's ``parameters`` cell.

    To be called in the cell after it, with ``globals()``. papermill takes any name and only adds a
    cell; here a name that is no parameter is an error before anything is measured: every name that
    papermill's cell assigns, or the cells of plain assignments just before this one. ``preset``
    names one of the experiment's, ``conditions`` holds parameters that all experiments share, by
    name. A preset, and the defaults of a configuration file, count for what neither papermill nor
    the cell sets otherwise than it is by default.

    Raises
    ------
    UserError
        A name that is no parameter (with the nearest one), or a value out of range.
    """
    fields = experiment.Params.model_fields
    injected = given_names(namespace, {*fields, *_BESIDE})
    conditions = _conditions(namespace.get("conditions", {}))
    for name in conditions:
        if name not in Params.model_fields:
            raise UserError(choose("condition", str(name), Params.model_fields))
    given = dict(conditions)
    given |= {
        field: namespace[field]
        for field, info in fields.items()
        if field in namespace and (field in injected or namespace[field] != info.default)
    }
    return configured.params(experiment, given, namespace.get("preset"))


def given_names(namespace: MutableMapping[str, Any], known: Iterable[str]) -> set[str]:
    """The names that papermill's cell assigns.

    Raises
    ------
    UserError
        That cell, or the cells of plain assignments just before this one, assign another name
        than a ``known`` one.
    """
    known = set(known)
    history = namespace.get("In", [])[:-1]
    injected = _assigned([cell for cell in history if cell.startswith(_INJECTED)][-1:])
    unknown = (injected | _assigned(_plain_cells(history))) - known
    if unknown:
        raise UserError("; ".join(choose("parameter", word, known) for word in sorted(unknown)))
    return injected


def _conditions(given: object) -> dict[str, Any]:
    """Conditions by name; ``papermill -p`` hands a JSON object over as text."""
    found = given
    if isinstance(given, str):
        try:
            found = json_of(given)
        except ValueError:
            found = None
    if not isinstance(found, dict):
        msg = f'conditions: {given!r} has no names; write {{"budget_s": 30}}'
        raise UserError(msg)
    return found


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
