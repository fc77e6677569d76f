"""Commands that run a program again and again: simulate, what-if, layout, sensitivity."""

from __future__ import annotations

import click

from perflib.cli.output import Wanted, command_words, examples, measuring, say

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
@measuring
def simulate(
    command: tuple[str, ...],
    geometries: tuple[str, ...],
    lines: bool,
    wanted: Wanted,
) -> None:
    """Show which functions miss caches, or lines threads share.

    COMMAND runs under a simulator, once for its caches and once for its TLBs, or (--lines) for the
    cache lines that its threads share, until two simulations agree; without it that is the detector
    simulation. It is a run of 'simulate' like all others: 'perflib list simulate' shows its
    parameters and the geometries.
    """
    from perflib.cli.measure import given_by, measured

    given = given_by(command, geometries=geometries, parts=("lines",) if lines else ())
    say(_LINES_CANNOT_SEE if lines else _CANNOT_SEE)
    measured("simulate", given, wanted)


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
@measuring
def what_if(
    command: tuple[str, ...],
    functions: tuple[str, ...],
    locks: tuple[str, ...],
    wanted: Wanted,
) -> None:
    """Say what a job would gain if a part of it were faster.

    COMMAND, the program itself and not a script that starts it, runs again and again: each time
    one target seems faster, because all other threads are delayed while a thread is in it.
    Without targets the costliest are chosen; without COMMAND it is our event loop. It is a run of
    'what_if' like all others: 'perflib list what_if' shows its parameters.
    """
    from perflib.cli.measure import given_by, measured
    from perflib.experiments.what_if import CANNOT_SEE

    say(CANNOT_SEE)
    measured("what_if", given_by(command, functions=functions, locks=locks), wanted)


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
@measuring
def layout(
    command: tuple[str, ...],
    factors: tuple[str, ...],
    relink: str | None,
    wanted: Wanted,
) -> None:
    """Say by how much layout alone moves a program's time.

    COMMAND runs again and again, each time in a random layout: size of the environment, length of
    its name, order of its objects (--relink), offset of its heap, address randomisation, allocator,
    huge pages, core. Without COMMAND it is a loop that is known for it. It is a run of 'layout'
    like all others: 'perflib list layout' shows its parameters.
    """
    from perflib.cli.measure import given_by, measured

    measured("layout", given_by(command, factors=factors, relink=relink), wanted)


@click.command(
    epilog=examples(
        "perflib sensitivity -- ./my-job --events 3",
        "perflib sensitivity -p response=wall -p job_cpus=4 -- ./my-threaded-job",
        "perflib sensitivity -p response=event -p events=3 -- ./my-job --events 3",
        "perflib sensitivity --functions -- ./my-job --events 3",
        "perflib sensitivity -p job=walk -p budget_s=60",
    ),
)
@command_words
@click.option("--functions", is_flag=True, help="Which function suffers: record COMMAND with perf.")
@measuring
def sensitivity(command: tuple[str, ...], functions: bool, wanted: Wanted) -> None:
    """Say what a job is bound by: memory, cache, pages, cores.

    COMMAND runs again and again on one core, next to a competitor that takes one thing from it:
    memory traffic, last-level cache, the quiet of other cores; and with pages of another size.
    Without COMMAND it is a job of ours that is bound by memory bandwidth. It is a run of
    'sensitivity' like all others: 'perflib list sensitivity' shows its parameters.
    """
    from perflib.cli.measure import given_by, measured

    measured("sensitivity", given_by(command, functions=functions or None), wanted)
