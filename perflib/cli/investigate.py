"""The command that asks what is wrong with this machine: investigate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perflib.cli.names import FILE
from perflib.cli.output import (
    examples,
    json_option,
    print_json,
    put,
    quiet,
    reporter,
    say,
    working,
)
from perflib.model.errors import MeasurementError, UserError
from perflib.model.extras import installed

if TYPE_CHECKING:
    from perflib.investigation.conclusion import Conclusion
    from perflib.investigation.evidence import Step, Taken
    from perflib.investigation.investigation import Investigation
    from perflib.measure.progress import Reporter

_WRONG = 3  # exit status


def _text(name: str, what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(f"--{name}", default="", show_default=False, help=what)


@click.command(
    epilog=examples(
        "perflib investigate",
        "perflib investigate --core 8 --minutes 15",
        "perflib investigate --job 'simulate --skip {first} --events {events}' \\",
        "    --begin 'start event' --end 'done event'",
        "perflib investigate --resume",
    )
)
@click.option("--core", type=click.IntRange(0), help="The core that you know to be slow.")
@click.option("--against", type=click.IntRange(0), help="A healthy core to compare it with.")
@_text("job", "A job in KV's place; {first}, {events}, {seed} filled in.")
@_text("begin", "Regular expression of an event's first line.")
@_text("end", "Regular expression of an event's last line.")
@click.option("--events", type=click.IntRange(1), default=20, help="Events a start of the job.")
@click.option("--minutes", type=click.FloatRange(0.1, 1440), help="The longest; 5, 8 with a cause.")
@click.option("--out", type=FILE, help="Folder of runs and report.")
@click.option(
    "--resume",
    is_flag=False,
    flag_value="",
    metavar="[FOLDER]",
    help="Go on with one that was ended; the newest unless named.",
)
@click.option("--replay", type=FILE, help="Conclude anew from stored runs.")
@click.option(
    "--recorded",
    default="",
    metavar="MACHINE",
    show_default=False,
    help="Measure nothing: that machine's runs.",
)
@json_option
def investigate(
    core: int | None,
    against: int | None,
    job: str,
    begin: str,
    end: str,
    events: int,
    minutes: float | None,
    out: Path | None,
    resume: str | None,
    replay: Path | None,
    recorded: str,
    as_json: bool,
) -> None:
    """Find what is wrong with this machine, if anything.

    Each run is chosen by what the last one found; the report says which, and why. With --recorded
    a step whose run was not recorded is left out; 'perflib list --recorded' shows what was. With -q
    only the headline is said. Exit status 3: a core computes wrong results.
    """
    from perflib.investigation.conclusion import conclude
    from perflib.investigation.evidence import Question
    from perflib.investigation.investigation import Investigation
    from perflib.lab.screen import screen

    question = Question(core, against, job, begin, end, events, minutes, recorded)
    if replay is not None or resume is not None:
        asked = Question(minutes=minutes if replay is None else None)
        several = (replay is not None) + (resume is not None) + (out is not None) > 1
        if question != asked or several:
            msg = "--replay and --resume take what was asked from the folder: with --resume only "
            raise UserError(msg + "--minutes may be given")
    if replay is not None:
        made = Investigation.replay(replay)
    elif resume is not None:
        made = Investigation.resume(Path(resume) if resume else None, minutes)
    else:
        if not recorded:
            say("Fit to measure? The machine, its settings, how much of each core one has ...")
        with working("the machine"):
            made = Investigation.begin(question, out)
    try:
        made.go(_Progress(made))
    except KeyboardInterrupt:
        say(f"interrupted; 'perflib investigate --resume {made.folder}' continues it")
        raise
    conclusion = conclude(made.evidence)
    with working("the report"):
        report, unwritten = _report(made, conclusion)
    if as_json:
        print_json({**conclusion.to_dict(), "report": report and str(report.absolute())})
    else:
        for line in screen(conclusion):
            if quiet() and not line:  # it parts the headline from what follows
                break
            put(line)
        if report and not quiet():
            put()
            put(f"report: {report}")
    if unwritten:
        raise MeasurementError(unwritten)
    if conclusion.headline.verdict == "wrong":
        click.get_current_context().exit(_WRONG)


def _report(made: Investigation, conclusion: Conclusion) -> tuple[Path | None, str]:
    """Write the report; an error is reported after the conclusions.

    Where the packages that draw it are not installed, there is none: that is no failure.
    """
    report = made.folder / "report.html"
    try:
        with installed():
            from perflib.lab.investigation_report import write_investigation

        write_investigation(made.evidence, conclusion, report)
    except UserError as error:
        say(f"no report: {error}; 'perflib investigate --replay {made.folder}' writes it then")
        return None, ""
    except MeasurementError as error:
        return None, str(error)
    return report, ""


class _Progress:
    """Says which step comes, why, and what it found; plain lines, on standard error."""

    def __init__(self, made: Investigation) -> None:
        self._made = made
        self._reporter: Reporter | None = None
        self._headline = ""

    def __call__(self, step: Step | Taken) -> Reporter | None:
        from perflib.investigation.evidence import PARTS, Taken

        if isinstance(step, Taken):
            if self._reporter is not None:
                self._reporter.__exit__(None, None, None)
            self._after(step)
            return None
        left = "" if self._made.replayed else f" (up to {step.budget_s:.0f} s, "
        left += "" if self._made.replayed else f"{self._made.left_s:.0f} s left)"
        say(f"{PARTS[step.part]} {step.name}: {step.why}{left}")
        self._reporter = reporter(step.name)
        self._reporter.__enter__()
        return self._reporter

    def _after(self, taken: Taken) -> None:
        from perflib.investigation.conclusion import conclude

        if taken.skipped:
            say(f"  left out: {taken.skipped.splitlines()[0]}")
        if taken.step.part != "map":
            headline = conclude(self._made.evidence).headline
            if headline.plain != self._headline:
                self._headline = headline.plain
                say(f"  so far: {headline.plain}")
