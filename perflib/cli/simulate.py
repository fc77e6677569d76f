"""The command that simulates a program's caches and TLBs: simulate."""

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

__all__ = ["simulate"]

_CANNOT_SEE = (
    "simulated, 50 to 100 times as slow as the program: nothing is prefetched or reordered, "
    "threads take turns on one core, the kernel's own accesses are not seen"
)

_LINES_CANNOT_SEE = (
    "simulated, 20 to 100 times as slow as the program: threads that want a line take turns at "
    "each access, so a processor moves it less often; forked children are not seen"
)


@click.command(
    epilog=examples(
        "perflib simulate -- ls -R /usr",
        "perflib simulate --geometry here --geometry Haswell -- ./my-job --events 3",
        "perflib simulate --lines -- ./my-threaded-job",
        'perflib simulate --geometry "here iTLB=64:8 dTLB=64:4 LL=8M:16" -- ./my-job',
    ),
)
@command_words
@click.option(
    "--geometry",
    "geometries",
    multiple=True,
    metavar="NAME",
    help="Whose caches and TLBs; several are compared.",
)
@click.option(
    "--lines",
    is_flag=True,
    help="Which cache lines the program's threads share, in place of its misses.",
)
@parameter_option
@preset_option
@json_option
def simulate(
    command: tuple[str, ...],
    geometries: tuple[str, ...],
    lines: bool,
    assignments: tuple[str, ...],
    preset: str | None,
    as_json: bool,
) -> None:
    """Show which functions miss caches, or lines threads share.

    COMMAND runs under a simulator, once for its caches and once for its TLBs, or (--lines) for the
    cache lines that its threads share, until two simulations agree; without it that is the detector
    simulation. It is a run of 'simulate' like all others: 'perflib list simulate' shows its
    parameters and the geometries.
    """
    from perflib.cli.measure import measured
    from perflib.framework.jobs import command_template

    given: dict[str, object] = {}
    if command:
        given = {"job": "command", "job_command": command_template(command)}
    if geometries:
        given["geometries"] = list(geometries)
    if lines:
        given["parts"] = ["lines"]
    if not quiet():
        say(_LINES_CANNOT_SEE if lines else _CANNOT_SEE)
    measured("simulate", given, assignments, preset, as_json)
