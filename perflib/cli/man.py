"""Manual pages, made from what the commands' help says: one for perflib, one for each command.

``hatch_build.py`` calls it when a wheel is built; ``python -m perflib.cli.man FOLDER`` by hand.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from perflib.cli import cli


def write(folder: Path, version: str) -> list[Path]:
    """Write every page; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    top = click.Context(cli, info_name="perflib", **cli.context_settings)
    paths = []
    for context in _contexts(top):
        path = folder / f"{_title(context)}.1"
        path.write_text(page(context, version), encoding="utf-8")
        paths.append(path)
    return paths


def _contexts(context: click.Context) -> Iterator[click.Context]:
    """A command, and those below it that help shows."""
    yield context
    for name, command in _commands(context):
        yield from _contexts(click.Context(command, info_name=name, parent=context))


def _commands(context: click.Context) -> Iterator[tuple[str, click.Command]]:
    group = context.command
    if isinstance(group, click.Group):
        found = ((name, group.get_command(context, name)) for name in group.list_commands(context))
        yield from ((name, one) for name, one in found if one is not None and not one.hidden)


def _title(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def page(context: click.Context, version: str) -> str:
    """One page, in the macros of man(7); it has no date, so that builds of one source are alike."""
    command = context.command
    title = _title(context)
    lines = [f'.TH "{title.upper()}" "1" "" "perflib {version}" "perflib"']
    lines += [".SH NAME", f"{_escaped(title)} \\- {_escaped(command.get_short_help_str(200))}"]
    usage = " ".join(command.collect_usage_pieces(context))
    lines += [".SH SYNOPSIS", f"\\fB{_escaped(context.command_path)}\\fR {_escaped(usage)}"]
    lines += [".SH DESCRIPTION", *_paragraphs(inspect.cleandoc(command.help or ""))]
    records = (param.get_help_record(context) for param in command.get_params(context))
    lines += [".SH OPTIONS", *_items(record for record in records if record)]
    if isinstance(command, click.Group):
        short = ((name, one.get_short_help_str(200)) for name, one in _commands(context))
        lines += [".SH COMMANDS", *_items((f"{title}-{name}(1)", text) for name, text in short)]
    head, _, examples = (command.epilog or "").partition("Examples:\n")
    del head
    if examples:
        lines += [".SH EXAMPLES", ".nf", *map(_escaped, examples.splitlines()), ".fi"]
    lines += [".SH ENVIRONMENT AND FILES", "\\fBperflib config\\fR shows what counts, and why."]
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        yield ".PP"
        yield _escaped(" ".join(paragraph.split()))


def _items(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, text in pairs:
        yield from (".TP", f"\\fB{_escaped(name)}\\fR", _escaped(text))


def _escaped(text: str) -> str:
    """Text as text: no sign of it is a request or an escape of roff."""
    plain = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{plain}" if plain.startswith(".") else plain


if __name__ == "__main__":
    from importlib.metadata import version as installed_version

    for written in write(Path(sys.argv[1]), installed_version("perflib-jupyter")):
        click.echo(written)
