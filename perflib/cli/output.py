"""What the commands share: options, how much is said, JSON, sentences of at most 80 columns.

All that a command writes goes through `put`, `show`, `say`, `complain` or `print_json`: nothing in
a name is obeyed by the terminal (`perflib.model.escape`).
"""

from __future__ import annotations

import functools
import json
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from perflib.cli.names import ASSIGNMENT, PRESET
from perflib.model.errors import UserError, choose
from perflib.model.escape import lines, visible

if TYPE_CHECKING:
    from perflib.measure.progress import Counter, Reporter, Working
    from perflib.model.finding import Finding

WIDTH = 80
_KEPT = "\u00a0"  # a blank at which no line ends: a number stays with its unit and interval
# Among what all contexts of one call share:
_LEVEL = "perflib.level"  # 1 with -v, -1 with -q
_SAID = "perflib.said"  # the remarks until now
_VERDICTS = {
    "anomaly": {"supported": "ANOMALY", "refuted": "fine", "inconclusive": "open"},
    "description": {"supported": "found", "refuted": "no", "inconclusive": "open"},
}


class Renamed(click.Option):
    """An option with an earlier name that still works, and that help does not show."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """What help shows."""
        record = super().get_help_record(ctx)
        return record and (record[0].replace(f", {self.opts[1]}", ""), record[1])


json_option = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object on standard output, nothing else."
)
# --profile is what presets were called once; what perf makes has that name now.
preset_option = click.option(
    "--preset",
    "--profile",
    cls=Renamed,
    type=PRESET,
    help="Parameters for minutes (quick), for an hour (full), or of your configuration file.",
)
parameter_option = click.option(
    "-p",
    "assignments",
    multiple=True,
    type=ASSIGNMENT,
    help="A parameter; may be given several times.",
)


@dataclass(frozen=True)
class Wanted:
    """What every command that measures is given besides: ``-p``, ``--preset`` and ``--json``."""

    assignments: tuple[str, ...]
    preset: str | None
    as_json: bool


def measuring(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a command that measures, handed to it together as ``wanted``."""

    @functools.wraps(command)
    def called(
        *, assignments: tuple[str, ...], preset: str | None, as_json: bool, **own: Any
    ) -> Any:
        return command(wanted=Wanted(assignments, preset, as_json), **own)

    return parameter_option(preset_option(json_option(called)))


def examples(*lines: str) -> str:
    """The epilog of a command's help: what can be typed, as it stands."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


command_words = click.argument(
    "command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]"
)
"""A job's words after ``--``, as they stand."""


# --- how much is said ----------------------------------------------------------------------------


def level_options() -> list[click.Option]:
    """``-v`` and ``-q``, which stand before or after a command's name; the last one counts."""

    def setting(level: int) -> Any:
        def callback(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
            if value:
                ctx.meta[_LEVEL] = level

        return callback

    def option(name: str, level: int, help_: str) -> click.Option:
        names = [f"-{name[0]}", f"--{name}"]
        return click.Option(
            names, is_flag=True, expose_value=False, callback=setting(level), help=help_
        )

    return [
        option("verbose", 1, "Details, too."),
        option("quiet", -1, "Results alone: no remarks, no progress."),
    ]


def _level() -> int:
    context = click.get_current_context(silent=True)
    return int(context.meta.get(_LEVEL, 0)) if context else 0


def verbose() -> bool:
    """Whether details are wanted: ``-v``."""
    return _level() > 0


def quiet() -> bool:
    """Whether results alone are wanted: ``-q``."""
    return _level() < 0


def reporter(title: str) -> Reporter:
    """Shows the progress of a measurement; nothing with ``-q``."""
    from perflib.measure.progress import Reporter

    return Reporter(title, "none" if quiet() else None, _said())


def counter(title: str) -> Counter:
    """Shows how many of many are done; nothing with ``-q``."""
    from perflib.measure.progress import Counter

    return Counter(title, "none" if quiet() else None)


def working(title: str) -> Working:
    """Says now and then that silent work continues; nothing with ``-q``."""
    from perflib.measure.progress import Working

    return Working(title, "none" if quiet() else None)


class Commands(click.Group):
    """A group whose commands have -v and -q, in the order of use; it names the nearest one."""

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of a name."""
        command = super().get_command(ctx, name)
        # One that ignores unknown options hands them on to another program.
        if command is not None and not command.ignore_unknown_options:
            known = {param.name for param in command.params}
            command.params += [one for one in level_options() if one.name not in known]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but a misspelt name is answered with the nearest one."""
        names = self.list_commands(ctx)
        completing = ctx.resilient_parsing
        if args and args[0] not in names and not args[0].startswith("-") and not completing:
            hidden = {name for name, one in self.commands.items() if one.hidden}
            raise UserError(choose("command", args[0], (one for one in names if one not in hidden)))
        return super().resolve_command(ctx, args)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """In the order in which they are used."""
        return list(self.commands)


# --- words ---------------------------------------------------------------------------------------


def wrapped(text: str, first: str = "", rest: str | None = None) -> str:
    """Text of at most 80 columns; a single word may be longer.

    Parameters
    ----------
    text
        Words.
    first, rest
        What the first line begins with, and the others; blanks of the first's length by default.
    """
    kept = text.replace(" %", f"{_KEPT}%").replace(" ± ", f"{_KEPT}±{_KEPT}")
    filled = textwrap.fill(
        kept,
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first) if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return filled.replace(_KEPT, " ")


def put(line: str = "") -> None:
    """One line of a result as it is, on standard output."""
    click.echo(visible(line))


def put_cut(line: str) -> None:
    """One line that may be long, at its end: cut at 80 columns, but not with ``-v``."""
    whole = visible(line)
    put(whole if verbose() or len(whole) <= WIDTH else f"{whole[: WIDTH - 1]}…")


def table_lines(columns: Iterable[tuple[Sequence[str], bool]]) -> list[str]:
    """The rows of a table, given the texts of each column and whether they stand to the right."""
    placed = []
    for cells, right in columns:
        width = max(map(len, cells))
        placed.append([cell.rjust(width) if right else cell.ljust(width) for cell in cells])
    return ["  ".join(row).rstrip() for row in zip(*placed, strict=True)]


def show(text: str, first: str = "", rest: str | None = None) -> None:
    """A result for people, on standard output."""
    click.echo(wrapped(lines(text), first, rest))


def complain(text: str) -> None:
    """Why a command ends without a result, on standard error."""
    click.echo(lines(text), err=True)


def _said() -> list[str]:
    context = click.get_current_context(silent=True)
    said: list[str] = context.meta.setdefault(_SAID, []) if context else []
    return said


def say(text: str) -> None:
    """A remark, on standard error; none with ``-q``."""
    if not quiet():
        _said().append(text)
        text = lines(text)
        indent = text[: len(text) - len(text.lstrip())]
        for line in text.splitlines():
            click.echo(wrapped(line.strip(), indent, indent + "  "), err=True)


def print_json(value: object) -> None:
    """The one object of ``--json``."""
    click.echo(json.dumps(value, allow_nan=False))


def records(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Findings as ``--json`` has them: the exact claims, with sentences for people."""
    return [finding.to_dict() for finding in findings]


def was_said(text: str) -> bool:
    """Whether it was among the remarks of this call, or the notes of its measurement."""
    return any(text in one for one in _said())


def print_findings(findings: Sequence[Finding]) -> None:
    """What is so, a sentence each with its verdict: first what was found, last what is open.

    With ``-v`` every finding by itself, with its exact claim, its interval and the reasons; with
    ``-q`` a line each: the machine's word of the verdict, what it is about, the estimate.
    """
    from perflib.lab.summary import statements
    from perflib.model import sentences

    if quiet():
        for finding in findings:
            put(f"{finding.verdict:12s}  {finding.subject}: {sentences.estimate(finding)}")
        return
    if not verbose():
        order = ("supported", "refuted", "inconclusive")
        said = sorted(statements(findings), key=lambda one: order.index(one.verdict))
        head, texts = sentences.recorded_apart([one.sentence for one in said])
        if head:
            show(f"{head}:")
        for one, text in zip(said, texts, strict=True):
            show(text, f"  {_VERDICTS[one.kind][one.verdict]:7s}  ")
        return
    for finding in findings:
        word = _VERDICTS[finding.kind][finding.verdict]
        show(f"{finding.plain.removesuffix('.')}.", f"  {word:7s}  ")
        show(f"{finding.subject}: {finding.claim} ({finding.verdict})", f"{'':11s}claim   ")
        interval = f"{sentences.estimate(finding)}, {finding.confidence:.0%} interval"
        show(f"{finding.quantity}: {interval}", f"{'':11s}effect  ")
        if finding.reason:
            show(finding.reason, f"{'':11s}why     ")


def show_statements(findings: Iterable[Finding]) -> None:
    """A sentence of each finding, in this order."""
    for one in findings:
        show(f"{one.plain.removesuffix('.')}.", f"  {_VERDICTS[one.kind][one.verdict]:7s}  ")
