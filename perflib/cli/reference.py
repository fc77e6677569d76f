"""The command that shows what there is: list.

The reference of the documentation (``docs/_ext/reference_pages.py``) is made from the same.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import click

from perflib.cli.names import EXPERIMENT
from perflib.cli.output import examples, json_option, print_json, put, quiet, show

_SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


@click.command(
    "list",
    epilog=examples("perflib list", "perflib list kv_per_core", "perflib list --recorded"),
)
@click.argument("name", required=False, type=EXPERIMENT, metavar="[NAME]")
@click.option("--recorded", is_flag=True, help="Recorded runs instead, of all experiments or NAME.")
@json_option
def list_(name: str | None, recorded: bool, as_json: bool) -> None:
    """List the experiments, or show all of one (NAME).

    All of one: its parameters, presets, columns of samples, claims, tables and plots. Defaults and
    presets are those that count here, with your configuration files; with -q the names alone.
    """
    from perflib.experiments import NAMES, get

    if recorded:
        _list_recorded(name, as_json)
        return
    if quiet() and not as_json:
        for one in NAMES if name is None else [name]:
            put(one)
        return
    from perflib.framework.configured import documentation

    if name is not None:
        document = documentation(get(name))
        if as_json:
            print_json(document)
        else:
            for line in experiment_page(document).splitlines():
                blanks = len(line) - len(line.lstrip())
                show(line.strip(), " " * blanks, " " * (blanks + 2))
        return
    experiments = [get(name) for name in NAMES]
    if as_json:  # 'profiles' is what presets were called once
        documents = [documentation(experiment) for experiment in experiments]
        print_json({"experiments": [{**one, "profiles": one["presets"]} for one in documents]})
        return
    for experiment in experiments:
        show(f"{experiment.question}  [{experiment.notebook}.ipynb]", f"{experiment.name:17s} ")


def _list_recorded(name: str | None, as_json: bool) -> None:
    """The recorded machines, and what each has runs of, with the parameters that were changed."""
    from perflib.framework import recordings
    from perflib.lab.interface import experiment

    every = [
        (machine, [one for one in recordings.recordings(machine) if name in (None, one.experiment)])
        for machine in recordings.machines()
    ]
    if as_json:
        kept = ("machine", "title", "experiment", "params")
        rows = [{key: getattr(one, key) for key in kept} for _, runs in every for one in runs]
        print_json({"recorded": rows})
        return
    for machine, runs in every:
        if not runs:
            continue
        if quiet():
            put(machine)
            continue
        show(f"{machine}: {runs[0].title}")
        for one in runs:
            changed = experiment(one.experiment).changed(one.params).items()
            tag = " (an exercise)" if one.provenance.get("tag") == "exercise" else ""
            words = " ".join(f"{key}={_value(value)}" for key, value in changed)
            show(f"{words or 'as by default'}{tag}", f"  {one.experiment:17s} ")


class Shared(NamedTuple):
    """What experiments have in common."""

    parameters: Sequence[Mapping[str, Any]]
    claims: Sequence[Mapping[str, Any]]


def shared_by_all() -> Shared:
    """Parameters and claims of every experiment."""
    from perflib.framework.params import Params, describe_fields
    from perflib.model.claims import CHANGED

    return Shared(describe_fields(Params), [CHANGED.documentation()])


def experiment_page(document: Mapping[str, Any]) -> str:
    """One experiment as Markdown, from what ``Experiment.documentation`` gives."""
    shared = shared_by_all()
    return own_page(document, shared, shared)


def own_page(document: Mapping[str, Any], shared: Shared, shown: Shared) -> str:
    """An experiment's own things, and below them those of the shared ones that are to be shown."""
    own = [entry for entry in document["parameters"] if entry not in shared.parameters]
    redefined = {entry["name"] for entry in own}
    others = [entry for entry in shown.parameters if entry["name"] not in redefined]
    claims = [claim for claim in document["claims"] if claim not in shared.claims]
    sections = {
        "Parameters": map(parameter_line, own),
        "Parameters of every experiment": map(parameter_line, others),
        "Presets": (
            f"- `{name}`: " + ", ".join(f"`{key}={_value(value)}`" for key, value in values.items())
            for name, values in document["presets"].items()
        ),
        "Columns of its samples (`perflib analyse` needs those marked)": map(
            _column, document["columns"]
        ),
        "Claims": (line for claim in (*claims, *shown.claims) for line in claim_lines(claim)),
        "Tables, `run.table(name)`": _named(document["tables"]),
        "Plots, `run.plot(name)`": _named(document["plots"]),
    }
    lines = [f"## {document['name']}", "", document["question"]]
    lines += [f"Notebook: `{document['notebook']}.ipynb`.", ""]
    for title, items in sections.items():
        if listed := list(items):
            lines += [f"### {title}", "", *listed, ""]
    return "\n".join(lines)


def parameter_line(entry: Mapping[str, Any]) -> str:
    """A parameter with its unit, default, meaning, type and bounds."""
    unit = f" [{entry['unit']}]" if entry["unit"] else ""
    bounds = "".join(f", {_SIGNS[sign]} {_value(limit)}" for sign, limit in entry["bounds"].items())
    default = f"`{entry['name']}`{unit} = `{_value(entry['default'])}`"
    return f"- {default}: {entry['help']} ({entry['type']}{bounds})"


def _value(value: Any) -> str:
    """A value as it can be written at the command line."""
    if value in (None, "", [], {}):
        return "none"
    if isinstance(value, list):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _column(column: Mapping[str, Any]) -> str:
    unit = f" [{column['unit']}]" if column["unit"] else ""
    role = "" if column["role"] == "other" else f", {column['role']}"
    needed = ", needed" if column["required"] else ""
    return f"- `{column['name']}`{unit}: {column['help']} ({column['type']}{role}{needed})"


def claim_lines(claim: Mapping[str, Any]) -> Iterator[str]:
    """A claim, its effect, and its sentences by verdict."""
    yield (
        f"- `{readable(claim['subject'])}` ({claim['kind']} `{claim['name']}`): "
        f"{readable(claim['exact'])}."
    )
    yield f"  - its effect: {claim['quantity']} ({claim['unit']})"
    for verdict, sentence in claim["plain"].items():
        yield f"  - {verdict}: “{readable(sentence)}”"


def readable(template: str) -> str:
    """A template with its fields' names only: ``{size:size}`` is ``{size}``."""
    parts = string.Formatter().parse(template)
    return "".join(text + (f"{{{name}}}" if name else "") for text, name, _, _ in parts)


def _named(described: Mapping[str, str]) -> Iterable[str]:
    return (f"- `{name}`: {what}" for name, what in described.items())
