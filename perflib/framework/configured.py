"""An experiment as its user has it: with the defaults and presets of the configuration files.

Every interface for people goes this way (command line, Python, forms, notebooks, batch), so that
all agree. An investigation does not: its plan says itself what every run needs. What was measured
with is recorded as ordinary parameters, wherever each came from.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping
from typing import Any

from perflib.framework.experiment import Experiment
from perflib.framework.params import Params
from perflib.model.errors import UserError, choose
from perflib.store import config


def params(experiment: Experiment, given: Mapping[str, Any], preset: str | None = None) -> Params:
    """The parameters of a run: the user's defaults, changed by a preset, then by what is given.

    Raises
    ------
    UserError
        There is no such preset, a value is wrong, or a file has what it may not.
    """
    known = presets(experiment)
    if preset is not None and preset not in known:
        raise UserError(choose("preset", preset, known))
    chosen = known[preset] if preset else {}
    values = {**_defaults(experiment), **chosen, **given}
    try:
        return experiment.Params.make(values)
    except UserError as error:
        tables = config.defaults(experiment.name)
        tables += config.presets(experiment.name).get(preset or "", [])
        if not any(set(table.values) - set(given) for table in tables):
            raise
        msg = f"{error}. Some values come from {' and '.join(table.origin for table in tables)}"
        raise UserError(msg) from None


def presets(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """Those that the experiment declares, changed by the files', and the files' own."""
    found = {name: dict(values) for name, values in experiment.presets.items()}
    for name, tables in config.presets(experiment.name).items():
        found[name] = found.get(name, {}) | _values(experiment, tables)
    return found


def documentation(experiment: Experiment) -> dict[str, Any]:
    """``experiment.documentation()`` with the defaults and presets that count here."""
    described = experiment.documentation()
    if own := _defaults(experiment):
        effective = params(experiment, {}).model_dump(mode="json")
        for entry in described["parameters"]:
            if entry["name"] in own:
                entry["default"] = effective[entry["name"]]
    described["presets"] = presets(experiment)
    return described


def _defaults(experiment: Experiment) -> dict[str, Any]:
    return _values(experiment, config.defaults(experiment.name))


def _values(experiment: Experiment, tables: Iterable[config.Parameters]) -> dict[str, Any]:
    """The parameters of some tables, each compared with what the experiment takes."""
    found: dict[str, Any] = {}
    for table in tables:
        for name, value in table.values.items():
            if problem := _problem(experiment.Params, name, value, table.trusted):
                msg = f"{table.origin}: {problem}"
                raise UserError(msg)
        found |= table.values
    return found


def _problem(takes: type[Params], name: str, value: Any, trusted: bool) -> str:
    """What is wrong with a value by itself; empty if nothing is."""
    if name not in takes.model_fields:
        return choose("parameter", name, takes.model_fields)
    if not trusted and _is_text(takes.model_fields[name].annotation):
        return (
            f"parameter {name!r} is text, which may name a program to run or a library to load: "
            f"write it into {config.user_path()}, or give it with -p"
        )
    try:
        takes.make({name: value})
    except UserError as error:
        # What does not go together with the other defaults may go together with what is given.
        return str(error) if str(error).startswith(f"parameter {name!r}") else ""
    return ""


def _is_text(annotation: Any) -> bool:
    """Whether a value may be text of any kind: not a number, nor one of a few words."""
    parts = [part for part in typing.get_args(annotation) if not isinstance(part, str)]
    return annotation is str or any(map(_is_text, parts))
