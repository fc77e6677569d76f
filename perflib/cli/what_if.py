"""The command that makes functions and critical sections faster virtually: what-if."""

from __future__ import annotations

import click

from perflib.cli.output import (
    command_words,
    examples,
    json_option,
    parameter_option,
    preset_option,
    quiet,
    say,
)

__all__ = ["what_if"]


@click.command(
    "what-if",
    epilog=examples(
        "perflib what-if -- ./my-job --threads 8",
        "perflib what-if --function '^parse' --lock table_lock -- ./my-job",
        "perflib what-if --preset quick",
    ),
)
@command_words
@click.option(
    "--function",
    "functions",
    multiple=True,
    metavar="RE",
    help="Functions that seem faster; may be given several times.",
)
@click.option(
    "--lock",
    "locks",
    multiple=True,
    metavar="NAME",
    help="A lock whose critical sections seem faster: its variable, or 'lock in FUNCTION'.",
)
@parameter_option
@preset_option
@json_option
def what_if(
    command: tuple[str, ...],
    functions: tuple[str, ...],
    locks: tuple[str, ...],
    assignments: tuple[str, ...],
    preset: str | None,
    as_json: bool,
) -> None:
    """Say what a job would gain if a part of it were faster.

    COMMAND, the program itself and not a script that starts it, runs again and again: each time
    one target seems faster, because all other threads are delayed while a thread is in it.
    Without targets the costliest are chosen; without COMMAND it is our event loop. It is a run of
    'what_if' like all others: 'perflib list what_if' shows its parameters.
    """
    from perflib.cli.measure import measured
    from perflib.experiments.what_if import CANNOT_SEE
    from perflib.framework.jobs import command_template

    given: dict[str, object] = {}
    if command:
        given = {"job": "command", "job_command": command_template(command)}
    if functions:
        given["functions"] = list(functions)
    if locks:
        given["locks"] = list(locks)
    if not quiet():
        say(CANNOT_SEE)
    measured("what_if", given, assignments, preset, as_json)
