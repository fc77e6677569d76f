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
from perflib.model import config
from perflib.model.errors import UserError, choose

__all__ = ["documentation", "params", "presets"]


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
    return experiment.Params.make({**_defaults(experiment), **chosen, **given})


def presets(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """Those that the experiment declares, changed by the files', and the files' own."""
    found = {name: dict(values) for name, values in experiment.presets.items()}
    for name, tables in config.presets(experiment.name).items():
        found[name] = found.get(name, {}) | _values(experiment, tables)
    return found


def documentation(experiment: Experiment) -> dict[str, Any]:
    """``experiment.documentation()`` with the defaults and presets that count here."""
    described = experiment.documentation()
    own = _defaults(experiment)
    effective = experiment.Params.make(own).model_dump(mode="json")
    described["parameters"] = [
        {**entry, "default": effective[entry["name"]]} if entry["name"] in own else entry
        for entry in described["parameters"]
    ]
    described["presets"] = presets(experiment)
    return described


def _defaults(experiment: Experiment) -> dict[str, Any]:
    return _values(experiment, config.defaults(experiment.name))


def _values(experiment: Experiment, tables: Iterable[config.Parameters]) -> dict[str, Any]:
    """The parameters of some tables, each compared with what the experiment takes."""
    found: dict[str, Any] = {}
    for table in tables:
        try:
            experiment.Params.make(table.values)
        except UserError as error:
            msg = f"{table.origin}: {error}"
            raise UserError(msg) from None
        for name in table.values:
            if not table.trusted and _is_text(experiment.Params.model_fields[name].annotation):
                msg = f"{table.origin}: parameter {name!r} is text, which may name a program to "
                msg += f"run or load: write it into {config.user_path()}, or give it with -p"
                raise UserError(msg)
        found |= table.values
    return found


def _is_text(annotation: Any) -> bool:
    """Whether a value may be text of any kind: not a number, nor one of a few words."""
    parts = [part for part in typing.get_args(annotation) if not isinstance(part, str)]
    return annotation is str or any(map(_is_text, parts))
