"""The command that records where a job's time goes: record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from perflib.cli.names import FILE
from perflib.cli.output import (
    Wanted,
    command_words,
    examples,
    measuring,
    put_cut,
    quiet,
    say,
    verbose,
)
from perflib.cli.times import seconds
from perflib.model.errors import UserError

_LONGEST_S = 1e6


@click.command(
    epilog=examples(
        "perflib record -- ./my-job --events 3",
        "perflib record --event 73 --core 0,8 -p budget_s=300 -- ./my-job",
        "perflib record --event 'Zee|ttbar' --slowest 1 -- ./my-job",
        "perflib record --pid 4711 --for 10s",
    )
)
@command_words
@click.option(
    "--event",
    metavar="RE",
    help="Only events of this name or number; an expression may find several.",
)
@click.option(
    "--slowest", type=float, metavar="PERCENT", help="Only so many of these events, the slowest."
)
@click.option("--pid", type=int, help="A process that runs already, in place of COMMAND.")
@click.option("--log", type=FILE, metavar="FILE", help="Where --pid logs its events.")
@click.option("--cpus", metavar="LIST", help="Whatever runs on these CPUs: 0-3,8, or all.")
@click.option(
    "--for", "for_s", metavar="TIME", callback=seconds, help="How long, without --event: 10s."
)
@click.option("--core", metavar="A[,B]", help="Start COMMAND on A, or on both in turn.")
@measuring
def record(
    command: tuple[str, ...],
    event: str | None,
    slowest: float | None,
    pid: int | None,
    log: Path | None,
    cpus: str | None,
    for_s: float | None,
    core: str | None,
    wanted: Wanted,
) -> None:
    """Record where a job's time goes, function by function.

    COMMAND is started once, or on two cores in turn until the comparison is precise; a process
    that runs already continues. Events are found by the job's log: job_begin and job_end say how
    ('perflib list event_profile'). It is a run of 'event_profile' like all others; what COMMAND
    prints is not shown.
    """
    from perflib.cli.measure import given_by, measured
    from perflib.experiments import get
    from perflib.experiments.event_profile import EventParams
    from perflib.experiments.event_profile.measure import cannot_see
    from perflib.framework import configured
    from perflib.framework.params import assignments as read

    given = given_by((), event=event or "", slowest_percent=slowest, duration_s=for_s)
    given |= _target(command, pid, log, cpus)
    if core is not None:
        if not command:
            msg = "--core is where COMMAND is started: give it after --"
            raise UserError(msg)
        given["cores"] = core
    elif command:
        given["pinned"] = False
    others = read(wanted.assignments)
    if command:
        given["job_timeout_s"] = _LONGEST_S
    if core is None or core.isdecimal():
        given["once"] = True
    for name in others.keys() & {"job_timeout_s", "once", "pinned"}:
        del given[name]  # they follow from the options, unless -p says otherwise
    if not quiet():
        params = configured.params(get("event_profile"), {**others, **given}, wanted.preset)
        assert isinstance(params, EventParams)
        first, *rest = cannot_see(params)
        for sentence in [first, *rest] if verbose() else [f"{first} (-v: what else is not seen)"]:
            say(sentence)
    done = measured("event_profile", given, wanted)
    if not (wanted.as_json or quiet() or "event_name" in done.samples):  # else a profile each
        from perflib.experiments.event_profile.instructions import current, profile_of
        from perflib.instruments.profile.lines import function_lines

        for line in function_lines(profile_of(current(done, None))):
            put_cut(f"  {line}")
        say(f"'perflib profile {done.id}' has libraries, and writes flame graphs and other formats")


def _target(
    command: tuple[str, ...], pid: int | None, log: Path | None, cpus: str | None
) -> dict[str, Any]:
    """What is recorded, as parameters."""
    from perflib.cli.measure import given_by

    if (bool(command), pid is not None, cpus is not None).count(True) != 1:
        msg = "what is recorded? one of --pid, --cpus and a command after --"
        raise UserError(msg)
    if log is not None and pid is None:
        msg = "--log is where the process of --pid logs; a command's output is read as it comes"
        raise UserError(msg)
    if command:
        return given_by(command)
    if pid is not None:
        return {"job": "running", "job_pid": pid, "job_log": "" if log is None else str(log)}
    return {"job": "cpus", "cores": cpus}
