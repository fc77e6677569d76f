"""The command that opens a mystery for a terminal: course mystery."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perflib.cli.names import OneOf
from perflib.cli.output import examples, put, say
from perflib.course.mystery.causes import LEVELS, Level
from perflib.model.errors import UserError

if TYPE_CHECKING:
    from perflib.course.mystery import Mystery
    from perflib.course.mystery.judge import Verdict


@click.command(
    epilog=examples(
        "perflib course mystery 7",
        "perflib course mystery 7 --level hard",
        "perflib course mystery 7 --cause thief --place cpu1 --low 20 --high 40 \\",
        "    -- perflib doctor",
    )
)
@click.argument("seed", type=click.IntRange(0))
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--level", type=OneOf("level", LEVELS), default="easy", help="How hard it is.")
@click.option("--cause", help="The answer, given at once; without it you are asked.")
@click.option("--place", default="", show_default=False, help="Its core, function or lock.")
@click.option("--low", type=float, help="The interval of its size, in percent: lower end.")
@click.option("--high", type=float, help="Upper end.")
def mystery(
    seed: int,
    command: tuple[str, ...],
    level: Level,
    cause: str | None,
    place: str,
    low: float | None,
    high: float | None,
) -> None:
    """Make one thing wrong with this machine; find out what.

    A shell (or COMMAND) starts in which it is wrong: measure there. When you leave it, you are
    asked for the cause, its place and an interval of its size, the truth is shown, and all is put
    back. The same SEED is the same mystery.
    """
    from perflib.course.mystery import Mystery
    from perflib.course.mystery import mystery as opened

    with opened(seed, level) as machine:
        assert isinstance(machine, Mystery)
        _tell(machine)
        shell = [os.environ.get("SHELL") or "/bin/sh"]
        # The job above is started by a `perflib` that need not be among the user's commands.
        paths = [os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)]
        try:
            subprocess.run(
                [*(command or shell)], check=False, env={**os.environ, "PATH": ":".join(paths)}
            )
        except OSError as error:
            msg = f"{shlex.join(command or shell)} cannot be started: {error.strerror}"
            raise UserError(msg) from error
        if cause is not None:
            _show(machine.answer(cause, place, low, high))
        elif sys.stdin.isatty():
            _show(_asked(machine))
        else:
            say("no answer: nobody can be asked here; --cause, --place, --low and --high give one")
    say("all is as it was")


def _tell(machine: Mystery) -> None:
    say(f"{machine!r}. What may be wrong:")
    for name, row in machine.causes.iterrows():
        size = row["size (percent)"]
        say(f"  {name}: {row['does']} (place: {row['place']}; size: percent {size})")
    if machine.job:
        job = shlex.quote(f"job_command={machine.job['job_command']}")
        say("A job to examine, in addition to the machine itself:")
        say(f"  perflib run kv_per_core -p job=command -p {job}")
    say("Leave the shell (exit) to answer.")


def _asked(machine: Mystery) -> Verdict:
    """The answer of somebody who is asked, again until it can be judged."""
    while True:
        cause = click.prompt("cause", type=str)
        place = click.prompt("place (core, function or lock)", default="", show_default=False)
        low = click.prompt("size in percent, from", type=float)
        high = click.prompt("size in percent, to", type=float)
        try:
            return machine.answer(cause, place, low, high)
        except UserError as error:
            say(str(error))


def _show(verdict: Verdict) -> None:
    for line in repr(verdict).splitlines():
        put(line)
