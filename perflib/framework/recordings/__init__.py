"""Recorded runs: measured once, on machines that are named, and given in place of measuring.

A recorded machine is a folder of runs, as `perflib export` writes them, and of an ``about.toml``
that says what the machine is. Those that travel with perflib are in this folder (README.md
there says how they are made); the path of any other folder serves as well. A recorded run is never
given for other parameters than those it was measured with.
"""

from __future__ import annotations

import functools
import json
import re
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perflib.framework.experiment import Experiment
from perflib.framework.params import Params
from perflib.machine.hardware import microarch
from perflib.model.errors import MeasurementError, UserError, choose
from perflib.model.run import is_exercise
from perflib.store.reading import read_records, read_run

if TYPE_CHECKING:
    from perflib.model.run import Run

__all__ = [
    "Recording",
    "described",
    "experiments_in",
    "folder_of",
    "machine_for",
    "machines",
    "recorded",
    "recordings",
]

_ABOUT = "about.toml"
_ANALYSIS = "_percent"  # thresholds of the analysis end so: they change no sample
_MAX_NAMED = 3
_ASKED_FOR = re.compile(r'pl\.experiment\(\s*"(\w+)"')


@dataclass(frozen=True)
class Recording:
    """One recorded run, without its samples.

    Parameters
    ----------
    machine
        The name of the recorded machine.
    title
        What that machine is, in a few words.
    path
        The run's file.
    experiment
        Which experiment it is a run of.
    params, provenance
        The run's.
    """

    machine: str
    title: str
    path: Path
    experiment: str
    params: dict[str, Any]
    provenance: dict[str, Any]


def machines() -> dict[str, str]:
    """The recorded machines that travel with perflib: name and title."""
    folders = sorted(path.parent for path in Path(__file__).parent.glob(f"*/{_ABOUT}"))
    return {folder.name: _title(folder) for folder in folders}


@functools.cache
def recordings(machine: str) -> tuple[Recording, ...]:
    """The runs of a recorded machine, oldest first.

    Parameters
    ----------
    machine
        Its name, or the path of a folder of runs.

    Raises
    ------
    UserError
        There is no such machine; the nearest name is given.
    """
    folder = folder_of(machine)
    paths = sorted(folder.glob("*.parquet"))
    found = [
        Recording(
            machine,
            _title(folder),
            path,
            record["experiment"],
            record["params"],
            record["provenance"],
        )
        for path, record in zip(paths, read_records(paths), strict=True)
    ]
    if not found:
        msg = f"{folder} holds no runs: 'perflib export RUN... --out {folder}' puts some there"
        raise UserError(msg)
    return tuple(sorted(found, key=lambda one: str(one.provenance.get("start", ""))))


def experiments_in(notebook: Path) -> set[str]:
    """The experiments that a notebook's cells of code ask for."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return {name for source in code for name in _ASKED_FOR.findall(source)}


def machine_for(notebook: Path) -> str:
    """Which recorded machine, of those that travel with perflib, serves a notebook best.

    The one with runs of most of its experiments; of several that with the most runs of them, for
    exercises need some, too; then that with the most runs.
    """
    wanted = experiments_in(notebook)
    has = {
        name: [one.experiment for one in recordings(name) if one.experiment in wanted]
        for name in machines()
    }
    return max(has, key=lambda name: (len(set(has[name])), len(has[name]), len(recordings(name))))


def described(machine: str) -> dict[str, Any]:
    """The description of a recorded machine, as its runs carry it; ``recorded`` says which it is.

    Raises
    ------
    UserError
        There is no such machine.
    """
    first = recordings(machine)[0]  # runs that are added later change nothing
    return {
        **microarch.described(first.provenance["machine"]),
        "recorded": f"{machine}: {first.title}",
    }


def recorded(
    experiment: Experiment, machine: str, params: Params, tag: str = "", *, named_only: bool = False
) -> Run:
    """The recorded run with these parameters; provenance ``recording`` says where it is from.

    All parameters of the experiment's own must be the recorded ones (with ``named_only`` those
    that ``params`` were made with), but for thresholds of the analysis, which count as they are
    given. Conditions (``budget_s``, ``cores``, ``seed`` ...) and the tag choose among several.

    Raises
    ------
    UserError
        There is no such machine, or no such run of it; says what the nearest differs in.
    """
    ours = [one for one in recordings(machine) if one.experiment == experiment.name]
    if not ours:
        others = ", ".join(sorted({one.experiment for one in recordings(machine)}))
        msg = f"no run of {experiment.name} was recorded on {machine} (there are: {others}): "
        msg += "leave 'recorded' empty to measure here"
        raise UserError(msg)
    wanted = params.model_dump(mode="json")
    has = [experiment.current_params(one.params).model_dump(mode="json") for one in ours]
    differ = [_differences(wanted, one) for one in has]
    if named_only:  # what nobody named is what was recorded
        fits = [one for one in differ if not params.model_fields_set.intersection(one)]
        fewest = min((len(one) for one in fits), default=0)
        differ = [[] if one in fits and len(one) == fewest else one for one in differ]
    nearest = min(range(len(ours)), key=lambda i: len(differ[i]))
    if differ[nearest]:
        raise UserError(_no_such(experiment, machine, wanted, has[nearest], differ[nearest]))
    exact = [i for i in range(len(ours)) if not differ[i]]
    chosen = min(exact, key=lambda i: _unlike(wanted, has[i], tag, ours[i]))
    return _given(ours[chosen], _with_thresholds(has[chosen], wanted))


def _own(name: str) -> bool:
    return name not in Params.model_fields


def _differences(wanted: dict[str, Any], has: dict[str, Any]) -> list[str]:
    """The parameters of the experiment's own in which samples may differ."""
    return [
        name
        for name, value in wanted.items()
        if _own(name) and not name.endswith(_ANALYSIS) and has[name] != value
    ]


def _unlike(wanted: dict[str, Any], has: dict[str, Any], tag: str, one: Recording) -> int:
    """How many conditions differ; an exercise's run is given for that exercise alone."""
    has_tag = str(one.provenance.get("tag") or "")
    other = is_exercise(tag) != is_exercise(has_tag)
    conditions = [bool(has[name] != value) for name, value in wanted.items() if not _own(name)]
    return sum(conditions) + len(wanted) * (other + (has_tag not in ("", tag)))


def _with_thresholds(has: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    return has | {
        name: value for name, value in wanted.items() if _own(name) and name.endswith(_ANALYSIS)
    }


def _given(one: Recording, params: dict[str, Any]) -> Run:
    run = read_run(one.path)
    day = str(run.provenance.get("start", ""))[:10]
    note = {"machine": one.machine, "title": one.title, "day": day}
    known = {"machine": microarch.described(run.provenance.get("machine", {})), "recording": note}
    return replace(run, params=params, provenance={**run.provenance, **known})


def _no_such(
    experiment: Experiment,
    machine: str,
    wanted: dict[str, Any],
    nearest: dict[str, Any],
    differ: list[str],
) -> str:
    parts = [f"{name} = {wanted[name]!r} ({nearest[name]!r})" for name in differ[:_MAX_NAMED]]
    more = f" and {len(differ) - _MAX_NAMED} more" if len(differ) > _MAX_NAMED else ""
    return (
        f"no run of {experiment.name} with these parameters was recorded on {machine}; the nearest "
        f"one differs (its own in brackets) in {', '.join(parts)}{more}: give what was recorded, "
        "or leave 'recorded' empty to measure here"
    )


def folder_of(machine: str) -> Path:
    """Where the runs of a recorded machine are, with the files that they left.

    Raises
    ------
    UserError
        There is no such machine; the nearest name is given.
    """
    own = Path(__file__).parent / machine
    if machine in machines():
        return own
    if "/" in machine and Path(machine).is_dir():
        return Path(machine)
    msg = choose("recorded machine", machine, machines())
    msg += "; or the path of a folder of runs, with a '/' in it"
    raise UserError(msg)


def _title(folder: Path) -> str:
    """What the machine is, in the words of its ``about.toml``; a folder need not have one."""
    about = folder / _ABOUT
    if not about.is_file():
        return "runs of your own"
    try:
        title = tomllib.loads(about.read_text())["title"]
    except (OSError, ValueError, KeyError) as error:
        msg = f'{about} has no title: write title = "..." into it ({error})'
        raise MeasurementError(msg) from error
    return str(title)
