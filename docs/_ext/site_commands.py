"""The directive ``commands``: every command of the command line, from what its help says."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

__all__ = ["command_pages", "setup"]


def command_pages() -> str:
    """All commands as Markdown, in the order in which help lists them."""
    from perflib.cli import cli

    top = click.Context(cli, info_name="perflib", **cli.context_settings)
    return "\n".join(line for name, one in _commands(top) for line in _page(name, one, top))


def _commands(context: click.Context) -> Iterator[tuple[str, click.Command]]:
    group = context.command
    assert isinstance(group, click.Group)
    found = ((name, group.get_command(context, name)) for name in group.list_commands(context))
    return ((name, one) for name, one in found if one is not None and not one.hidden)


def _page(
    name: str, command: click.Command, parent: click.Context, level: str = "##"
) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (f"{level} {context.command_path}", "")
    yield from ("```", f"{context.command_path} {usage}", "```", "")
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield from (_escaped(" ".join(paragraph.split())), "")
    records = [param.get_help_record(context) for param in command.get_params(context)]
    for option, text in filter(None, records):
        yield f"- `{option}`: {_escaped(text)}" if text else f"- `{option}`"
    yield ""
    _, _, examples = (command.epilog or "").partition("Examples:\n")
    if examples:
        yield from ("```", inspect.cleandoc(examples), "```", "")
    if isinstance(command, click.Group):
        for below, one in _commands(context):
            yield from _page(below, one, context, level + "#")


def _escaped(text: str) -> str:
    """Text as text: no sign of it is one of Markdown's."""
    return "".join("\\" + sign if sign in "\\`*_{}[]<>#|$" else sign for sign in text)


class Commands(SphinxDirective):
    """All commands, a section each."""

    def run(self) -> list[nodes.Node]:
        """Their sections."""
        return self.parse_text_to_nodes(command_pages(), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
