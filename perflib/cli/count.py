"""The command that counts events over time: count."""

from __future__ import annotations

from typing import Any

import click

from perflib.cli.output import Wanted, command_words, examples, measuring, quiet, say
from perflib.cli.times import seconds
from perflib.model.errors import UserError

_LONGEST_S = 1e8


@click.command(
    epilog=examples(
        "perflib count --for 1min",
        "perflib count -e default -e tlb -- ./my-job",
        "perflib count --pid 4711 -e task --every 1s --for 2w",
        "perflib count --cgroup system.slice/ssh.service --for 1h",
    )
)
@command_words
@click.option(
    "-e", "--events", multiple=True, metavar="NAME", help="A set or an event; several of them."
)
@click.option("--pid", type=int, help="A process that runs already, with its children.")
@click.option("--cpus", metavar="LIST", help="These CPUs: 0-3,8, or all (without a job).")
@click.option("--cgroup", metavar="PATH", help="A control group: system.slice.")
@click.option("--every", "every_s", metavar="TIME", callback=seconds, help="An interval: 100ms.")
@click.option("--for", "for_s", metavar="TIME", callback=seconds, help="How long: 30s, 2h, 2w.")
@measuring
def count(
    command: tuple[str, ...],
    events: tuple[str, ...],
    pid: int | None,
    cpus: str | None,
    cgroup: str | None,
    every_s: float | None,
    for_s: float | None,
    wanted: Wanted,
) -> None:
    """Count events over time: of a job, a process or CPUs.

    Intervals go to disk as they come; Ctrl-C keeps them, and a run that was killed continues with
    'perflib run --resume'. It is a run of 'count' like all others: 'perflib list count' shows its
    parameters, docs/counters.md the names of events.
    """
    from perflib.cli.count_table import CountTable
    from perflib.cli.measure import given_by, measured
    from perflib.experiments import get
    from perflib.experiments.counting import CountParams
    from perflib.experiments.counting.measure import plan
    from perflib.framework import configured
    from perflib.framework.params import assignments as read

    given = _target(command, pid, cpus, cgroup)
    given |= given_by((), events=events, every_s=every_s, budget_s=for_s)
    others = read(wanted.assignments)
    if for_s is None and command and "budget_s" not in others:
        given["budget_s"] = _LONGEST_S  # to the job's end
    if not quiet():
        params = configured.params(get("count"), {**others, **given}, wanted.preset)
        assert isinstance(params, CountParams)
        for name, why in plan(params)["absent"].items():
            say(f"{name} is not counted: {why}")
    table = CountTable("count", "none" if quiet() else None)
    measured("count", given, wanted, progress=table)


def _target(
    command: tuple[str, ...], pid: int | None, cpus: str | None, cgroup: str | None
) -> dict[str, Any]:
    """What is watched, as parameters."""
    from perflib.cli.measure import given_by

    if (bool(command), pid is not None, cgroup is not None).count(True) > 1:
        msg = "what is counted? one of --pid, --cgroup and a command after --"
        raise UserError(msg)
    if cpus is not None and (pid is not None or cgroup is not None):
        msg = "--cpus is for a whole machine, or for a command after --"
        raise UserError(msg)
    found = given_by(command, cores=cpus)
    if command:
        return found
    if pid is not None:
        return {**found, "job": "running", "job_pid": pid}
    if cgroup is not None:
        return {**found, "job": "cgroup", "job_cgroup": cgroup}
    return {**found, "job": "machine"}
