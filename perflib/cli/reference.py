"""The command that shows what there is: list; and the reference page that is made from the same.

``make reference`` writes docs/reference.md, and a page an experiment below docs/reference, by
running this module.
"""

from __future__ import annotations

import os
import re
import string
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
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


def reference() -> dict[str, str]:
    """The whole reference as Markdown, by file in docs: ``reference.md``, and one an experiment."""
    from perflib.experiments import NAMES, get

    shared = _shared()
    documents = [get(name).documentation() for name in NAMES]
    lines = [
        "# Reference",
        "",
        "What every experiment takes, measures, claims and shows.",
        "`make reference` writes these pages from what the experiments declare.",
        "`perflib list NAME` shows one of them.",
        "",
        "A word in braces, such as `{cpu}`, stands for what a claim is about, or for a number.",
        "",
        "## Experiments",
        "",
        *(f"- [{one['name']}](reference/{one['name']}.md): {one['question']}" for one in documents),
        "",
        "## Parameters of every experiment",
        "",
        *map(_parameter, shared.parameters),
        "",
        "## Claims of every comparison of two runs",
        "",
        *(line for claim in shared.claims for line in _claim(claim)),
        "",
        *_investigation(),
    ]
    pages = {f"reference/{one['name']}.md": _alone(one, shared) for one in documents}
    return {"reference.md": "\n".join(lines), **pages}


def _alone(document: Mapping[str, Any], shared: _Shared) -> str:
    """An experiment's page: its section, and the figures of a recorded run."""
    page = _page(document, shared, _Shared([], []))
    notebook = document["notebook"]
    link = f"[{notebook}.ipynb](../../notebooks/{notebook}.ipynb)"
    page = page.replace(f"Notebook: `{notebook}.ipynb`.", f"Notebook: {link}.", 1)
    lines = [re.sub(r"^##", "#", line) for line in page.splitlines()]
    return "\n".join(
        [*lines, "", "## Figures", "", f"```{{figures}} {document['name']}", "```", ""]
    )


def _investigation() -> Iterator[str]:
    """The words of an investigation's cause, and the rules of its plan."""
    from perflib.investigation.causes import CAUSES
    from perflib.investigation.rules import RULES

    yield from ("## The investigation", "", "### Words of `cause`", "")
    yield from (f"- `{word}`: {cause.means}" for word, cause in CAUSES.items())
    yield from ("", "### Rules, walked from the top", "")
    for rule in RULES:
        yield f"- `{rule.name}` ({rule.part}), when {rule.when}: `{rule.experiment}`"
        yield f"  - why: {_readable(rule.why)}"
        more = f", {rule.per_core_s:g} s more for each core beyond two" if rule.per_core_s else ""
        yield f"  - for {rule.least_s:g} to {rule.most_s:g} s{more}"
    yield ""


class _Shared(NamedTuple):
    """What experiments have in common."""

    parameters: Sequence[Mapping[str, Any]]
    claims: Sequence[Mapping[str, Any]]


def _shared() -> _Shared:
    from perflib.framework.params import Params, describe_fields
    from perflib.model.claims import CHANGED

    return _Shared(describe_fields(Params), [CHANGED.documentation()])


def experiment_page(document: Mapping[str, Any]) -> str:
    """One experiment as Markdown, from what ``Experiment.documentation`` gives."""
    shared = _shared()
    return _page(document, shared, shared)


def _page(document: Mapping[str, Any], shared: _Shared, shown: _Shared) -> str:
    """An experiment's own things, and below them those of the shared ones that are to be shown."""
    own = [entry for entry in document["parameters"] if entry not in shared.parameters]
    redefined = {entry["name"] for entry in own}
    others = [entry for entry in shown.parameters if entry["name"] not in redefined]
    claims = [claim for claim in document["claims"] if claim not in shared.claims]
    sections = {
        "Parameters": map(_parameter, own),
        "Parameters of every experiment": map(_parameter, others),
        "Presets": (
            f"- `{name}`: " + ", ".join(f"`{key}={_value(value)}`" for key, value in values.items())
            for name, values in document["presets"].items()
        ),
        "Columns of its samples (`perflib analyse` needs those marked)": map(
            _column, document["columns"]
        ),
        "Claims": (line for claim in (*claims, *shown.claims) for line in _claim(claim)),
        "Tables, `run.table(name)`": _named(document["tables"]),
        "Plots, `run.plot(name)`": _named(document["plots"]),
    }
    lines = [f"## {document['name']}", "", document["question"]]
    lines += [f"Notebook: `{document['notebook']}.ipynb`.", ""]
    for title, items in sections.items():
        if listed := list(items):
            lines += [f"### {title}", "", *listed, ""]
    return "\n".join(lines)


def _parameter(entry: Mapping[str, Any]) -> str:
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


def _claim(claim: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"- `{_readable(claim['subject'])}` ({claim['kind']} `{claim['name']}`): "
        f"{_readable(claim['exact'])}."
    )
    yield f"  - its effect: {claim['quantity']} ({claim['unit']})"
    for verdict, sentence in claim["plain"].items():
        yield f"  - {verdict}: “{_readable(sentence)}”"


def _readable(template: str) -> str:
    """A template with its fields' names only: ``{size:size}`` is ``{size}``."""
    parts = string.Formatter().parse(template)
    return "".join(text + (f"{{{name}}}" if name else "") for text, name, _, _ in parts)


def _named(described: Mapping[str, str]) -> Iterable[str]:
    return (f"- `{name}`: {what}" for name, what in described.items())


if __name__ == "__main__":
    os.environ["PERFLIB_CONFIG"] = "none"  # the page is everybody's
    for file, text in reference().items():
        path = Path(sys.argv[1], file)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
