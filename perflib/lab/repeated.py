"""A form's run in words: how long it takes, and how the same run is made without the form."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from perflib.framework import configured
from perflib.framework.experiment import Experiment
from perflib.framework.params import Params
from perflib.machine.cpulist import format_cpus
from perflib.model.errors import UserError
from perflib.store.query import query

_MINUTES_FROM_S = 180.0
_LAST = """
    SELECT date_diff('second', "start", "end") AS took_s, (params->>'budget_s')::DOUBLE AS budget_s
    FROM runs WHERE experiment = '{}' AND stopped <> 'interrupted' AND "end" IS NOT NULL
    ORDER BY "start" DESC LIMIT 1
"""


def differing(experiment: Experiment, params: Params, preset: str | None) -> dict[str, Any]:
    """Of a run's parameters those that differ from the preset, or from the defaults."""
    usual = configured.params(experiment, {}, preset).model_dump(mode="json")
    given = params.model_dump(mode="json")
    return {name: value for name, value in given.items() if value != usual[name]}


def call(name: str, given: Mapping[str, Any], preset: str | None, recorded: str = "") -> str:
    """The call that makes a run in a notebook's cell.

    >>> call("numa", {"cores": [0, 1]}, "quick")
    'pl.experiment("numa").run(preset="quick", cores=[0, 1])'
    """
    words = [f'preset="{preset}"'] if preset else []
    words += [f"{name}={value!r}" for name, value in given.items()]
    words += [f'recorded="{recorded}"'] if recorded else []
    return f'pl.experiment("{name}").run({", ".join(words)})'


def command(name: str, given: Mapping[str, Any], preset: str | None, recorded: str = "") -> str:
    """The command that makes a run.

    >>> command("numa", {"cores": [0, 1], "memory_node": None}, "quick")
    'perflib run numa --preset quick -p cores=0,1 -p memory_node=none'
    """
    words = ["perflib", "run", name, *(("--preset", preset) if preset else ())]
    for parameter, value in given.items():
        words += ["-p", f"{parameter}={_word(value)}"]
    return shlex.join([*words, *(("--recorded", recorded) if recorded else ())])


def _word(value: Any) -> str:
    """A value as ``-p`` reads it."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ",".join(f"{name}={setting}" for name, setting in value.items())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def last_took(name: str) -> str:
    """How long the last saved run of an experiment took that was not stopped; or nothing."""
    try:
        rows = query(_LAST.format(name))
    except UserError:  # no run is saved
        return ""
    if rows.empty:
        return ""
    took_s, budget_s = float(rows["took_s"][0]), float(rows["budget_s"][0])
    return f"The last saved run took {_time(took_s)} in all, with budget_s={budget_s:g}."


def foretold(params: Params, last: str = "") -> str:
    """How long a run will take, and what it costs whoever else uses the machine."""
    cpus = format_cpus(params.resolved_cores())
    most = f"Run measures for {_time(params.budget_s)} at most, on CPU {cpus}"
    said = [f"{most}; precision_percent may end it earlier. Preparation comes before that.", last]
    if params.fifo_priority is not None:
        said.append("Meanwhile nothing of ordinary priority runs on these CPUs.")
    if params.settings:
        changed = ", ".join(f"{name}={value}" for name, value in params.settings.items())
        said.append(f"It sets {changed} for the whole machine, and puts it back.")
    return " ".join(filter(None, said))


def _time(seconds: float) -> str:
    return f"{seconds:g} s" if seconds < _MINUTES_FROM_S else f"{seconds / 60:.3g} min"
