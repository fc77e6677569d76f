"""The command line: ``perflib run``, ``list``, ``analyse``, ``doctor``, ``batch`` and the rest.

Exit status 0: the measurement was made, whatever it found; 2: what was asked cannot be done as
asked; 1: the measurement failed. Three commands answer by it: 3 of `perflib check`: something
changed; of `perflib accept`: refused, 4: cannot tell; with ``--fail-above`` 3 of `perflib
compare-builds`: slower, 4: not decided. Progress and remarks go to standard error.

A command's module is imported when the command is called, and what the command needs when it runs:
`perflib --help` and TAB completion import click and nothing heavy.
"""

from __future__ import annotations

import importlib
import io
import os
import signal
import stat
import sys
from collections.abc import Sequence

import click

from perflib.cli.output import Commands, complain, examples, level_options
from perflib.model.errors import PerflibError
from perflib.model.extras import installed

__all__ = ["main"]

_COMMANDS = {
    "list": "perflib.cli.reference:list_",
    "config": "perflib.cli.config:config_",
    "doctor": "perflib.cli.machine:doctor",
    "run": "perflib.cli.measure:run",
    "analyse": "perflib.cli.measure:analyse",
    "runs": "perflib.cli.stored:runs",
    "show": "perflib.cli.stored:show_",
    "compare": "perflib.cli.stored:compare",
    "check": "perflib.cli.over_time:check",
    "trend": "perflib.cli.over_time:trend",
    "ledger": "perflib.cli.stored:ledger",
    "report": "perflib.cli.stored:report",
    "query": "perflib.cli.query:query",
    "export": "perflib.cli.stored:export",
    "import": "perflib.cli.import_:import_",
    "profile": "perflib.cli.profile:profile",
    "record": "perflib.cli.record:record",
    "annotate": "perflib.cli.annotate:annotate",
    "count": "perflib.cli.count:count",
    "simulate": "perflib.cli.programs:simulate",
    "threads": "perflib.cli.threads:threads",
    "what-if": "perflib.cli.programs:what_if",
    "layout": "perflib.cli.programs:layout",
    "sensitivity": "perflib.cli.programs:sensitivity",
    "compare-builds": "perflib.cli.builds:compare_builds",
    "lab": "perflib.cli.notebooks:lab",
    "batch": "perflib.cli.notebooks:batch",
    "investigate": "perflib.cli.investigate:investigate",
    "header": "perflib.cli.header:header",
    "build": "perflib.cli.build:build",
    "fleet": "perflib.cli.fleet:fleet",
    "accept": "perflib.cli.accept:accept",
    "course": "perflib.cli.course:course",
}


class _Commands(Commands):
    """A group that imports a command when it is needed."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """The names, in the order in which a newcomer needs them."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of a name."""
        if name in _COMMANDS and name not in self.commands:
            module, _, attribute = _COMMANDS[name].partition(":")
            self.add_command(getattr(importlib.import_module(module), attribute), name)
        return super().get_command(ctx, name)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    params=level_options(),
    epilog=examples(
        "perflib investigate",
        "perflib run kv_per_core --preset quick",
        "perflib COMMAND --help",
    ),
)
@click.version_option(package_name="perflib-jupyter")
def cli() -> None:
    """Why is this machine, this core, this buffer slower than it should be?"""


class _Interrupted(KeyboardInterrupt):
    """A signal asked for the end.

    A class of its own: Python remembers a bare KeyboardInterrupt that leaves an ``exec`` (as
    imports of named tuples and data classes do), and kills itself at its end although we caught it.
    """


def _interrupt(*_: object) -> None:
    """SIGTERM and SIGHUP as Ctrl-C: what was measured is kept."""
    raise _Interrupted


def _keep_everybody_out() -> None:
    """Nothing that we write is open to everybody; a group that the umask lets write still may."""
    before = os.umask(0o022)
    if before & stat.S_IWOTH:
        os.umask(before)


def _catch_signals() -> None:
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # nohup ignores it
        signal.signal(signal.SIGHUP, _interrupt)
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:  # a shell's "&" ignores it
        signal.signal(signal.SIGINT, _interrupt)


def _fault_of_the_machine(error: BaseException | None) -> str:
    """What the system refused, for a sentence; empty where the program itself is wrong."""
    cannot_map = isinstance(error, ImportError) and str(error.path).endswith(".so")
    if isinstance(error, (OSError, MemoryError)) or cannot_map:
        return str(error) or "there is no memory left"
    # a package whose library cannot be mapped often says so in an error of its own
    return _fault_of_the_machine(error.__context__) if isinstance(error, ImportError) else ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; a user's mistake is a sentence, never a traceback."""
    code = 0
    try:
        _catch_signals()
        _keep_everybody_out()
        if os.environ.get("_PERFLIB_COMPLETE"):
            importlib.import_module("perflib.cli.completion")
        words = list(arguments) if arguments is not None else None
        with installed():
            # A command that ends by click's Exit gives its status; what others return is none.
            ended = cli(args=words, prog_name="perflib", standalone_mode=False)
            code = ended if isinstance(ended, int) else 0
    except PerflibError as error:
        complain(f"perflib: {error}")
        code = error.exit_code
    except click.ClickException as error:
        with io.StringIO() as shown:
            error.show(shown)
            complain(shown.getvalue().rstrip("\n"))
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        complain("perflib: interrupted; 'perflib runs' shows what was kept")
        code = 1
    except BrokenPipeError:
        code = 1
    except (OSError, MemoryError, ImportError) as error:
        if not (why := _fault_of_the_machine(error)):
            raise
        complain(f"perflib: {why}; 'perflib runs' shows what was kept")
        code = 1
    sys.exit(code)
