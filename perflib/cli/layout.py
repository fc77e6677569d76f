"""Commands that start a program in random layouts: layout, compare-builds."""

from __future__ import annotations

import click

from perflib.cli.output import (
    command_words,
    examples,
    json_option,
    parameter_option,
    preset_option,
)

__all__ = ["compare_builds", "layout"]


@click.command(
    epilog=examples(
        "perflib layout -- ./my-job --events 3",
        "perflib layout --factor environment --factor aslr -- ./my-job",
        "perflib layout --relink 'gcc -o my-job a.o b.o -lm' -- ./my-job --events 3",
        "perflib layout -p response=wall -p budget_s=600 -- ./my-job",
    ),
)
@command_words
@click.option(
    "--factor",
    "factors",
    multiple=True,
    metavar="NAME",
    help="Vary this alone, as the environment; 'perflib list layout' names all.",
)
@click.option(
    "--relink",
    metavar="LINE",
    help="What links the program, as 'gcc -o job a.o b.o -lm' or 'make LINK=\"a.o b.o\" "
    "OUT={output}': its objects are linked in random orders.",
)
@parameter_option
@preset_option
@json_option
def layout(
    command: tuple[str, ...],
    factors: tuple[str, ...],
    relink: str | None,
    assignments: tuple[str, ...],
    preset: str | None,
    as_json: bool,
) -> None:
    """Say by how much layout alone moves a program's time.

    COMMAND runs again and again, each time in a random layout: size of the environment, length of
    its name, order of its objects (--relink), offset of its heap, address randomisation, allocator,
    huge pages, core. Without COMMAND it is a loop that is known for it. It is a run of 'layout'
    like all others: 'perflib list layout' shows its parameters.
    """
    from perflib.cli.measure import measured
    from perflib.framework.jobs import command_template

    given: dict[str, object] = {}
    if command:
        given = {"job": "command", "job_command": command_template(command)}
    if factors:
        given["factors"] = list(factors)
    if relink:
        given["relink"] = relink
    measured("layout", given, assignments, preset, as_json)


@click.command(
    "compare-builds",
    epilog=examples(
        "perflib compare-builds ./before ./after",
        "perflib compare-builds ./job-O2 ./job-O3 -- --events 3",
        "perflib compare-builds -p precision_percent=0.2 ./before ./after",
    ),
)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENT...]")
@parameter_option
@preset_option
@json_option
def compare_builds(
    a: str,
    b: str,
    words: tuple[str, ...],
    assignments: tuple[str, ...],
    preset: str | None,
    as_json: bool,
) -> None:
    """Say which build is faster, layout randomised away.

    Both run with the same ARGUMENTs in the same random layouts, in random order. A few runs say
    beforehand how many it takes; the result warns where layout moves more than the difference. It
    is a run of 'layout' with other_command.
    """
    from perflib.cli.measure import measured
    from perflib.framework.jobs import command_template

    given = {
        "job": "command",
        "job_command": command_template([a, *words]),
        "other_command": command_template([b, *words]),
    }
    measured("layout", given, assignments, preset, as_json)
