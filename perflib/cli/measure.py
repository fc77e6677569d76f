"""Commands that measure, or analyse what was measured: run, analyse."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perflib.cli.names import EXPERIMENT, FILE, UNFINISHED_RUN
from perflib.cli.output import (
    Wanted,
    examples,
    json_option,
    measuring,
    parameter_option,
    print_findings,
    print_json,
    quiet,
    records,
    reporter,
    say,
    show,
    verbose,
    was_said,
    working,
)
from perflib.model.errors import UserError

if TYPE_CHECKING:
    from perflib.cli.count_table import CountTable
    from perflib.framework.experiment import Experiment
    from perflib.framework.params import Params
    from perflib.measure.progress import Reporter
    from perflib.model.run import Run

_MOST = 140  # characters of a problem: two lines


@click.command(
    epilog=examples(
        "perflib run kv_per_core --preset quick",
        "perflib run kv_per_core -p cores=0-3,8 -p budget_s=120",
        "perflib run kv_per_core --preset quick --recorded intel-guest",
        "perflib run --resume kv_per_core-20261101",
    )
)
@click.argument("name", required=False, type=EXPERIMENT, metavar="[NAME]")
@click.option("--resume", type=UNFINISHED_RUN, help="Go on with a run whose process was killed.")
@click.option("--recorded", metavar="MACHINE", help="Measure nothing: the run of that machine.")
@measuring
def run(name: str | None, resume: str | None, recorded: str | None, wanted: Wanted) -> None:
    """Measure experiment NAME, save the run, say what was found.

    'perflib list' shows the experiments, 'perflib list NAME' the parameters of one. With
    --recorded nothing is measured or saved; 'perflib list --recorded' shows what was recorded.
    """
    if resume is not None:
        if name or wanted.assignments or wanted.preset or recorded is not None:
            msg = "--resume takes a run's own experiment and parameters: give the run alone"
            raise UserError(msg)
        _finished(*_resumed(resume), None, wanted.as_json)
    elif name is None:
        msg = "which experiment? 'perflib list' shows them"
        raise UserError(msg)
    elif recorded is not None:
        _finished(*_recorded(name, wanted, recorded), recorded, wanted.as_json)
    else:
        measured(name, {}, wanted)


def measured(
    name: str,
    given: Mapping[str, Any],
    wanted: Wanted,
    progress: Reporter | CountTable | None = None,
    finish: Callable[[Experiment, Run], None] | None = None,
) -> Run:
    """Measure, save and print as `run` does, for a command that has options of its own.

    ``given``: parameters by name, from those options; ``-p`` may not name them again.
    ``progress``: what shows it, in place of a bar. ``finish``: what prints it in another way.

    Raises
    ------
    UserError
        A parameter is wrong, or given twice.
    """
    from perflib.experiments import get
    from perflib.framework import configured
    from perflib.framework.params import assignments as read

    experiment = get(name)
    others = read(wanted.assignments)
    if twice := sorted(given.keys() & others.keys()):
        msg = f"{', '.join(twice)} is given twice: by an option, and by -p"
        raise UserError(msg)
    params = configured.params(experiment, {**others, **given}, wanted.preset)
    with progress or reporter(name) as shown:
        done = experiment.measure(params, shown, tag=os.environ.get("PERFLIB_TAG", ""))
    if finish is None:
        _finished(experiment, done, None, wanted.as_json)
    else:
        finish(experiment, done)
        problems(done)
    return done


def given_by(command: Sequence[str], **options: Any) -> dict[str, Any]:
    """Parameters: the words of a command as the job, and each option that was given."""
    from perflib.framework.jobs import command_template

    given: dict[str, Any] = {}
    if command:
        given = {"job": "command", "job_command": command_template(command)}
    listed = {name: [*one] if isinstance(one, tuple) else one for name, one in options.items()}
    return given | {name: one for name, one in listed.items() if one not in (None, [])}


def _finished(experiment: Experiment, done: Run, recorded: str | None, as_json: bool) -> None:
    from perflib.store.run_files import saved_path

    with working(f"analysis of {experiment.name}"):
        findings = experiment.analyse(done)
    path = saved_path(done.id) if recorded is None else _file_of(recorded, done)
    if as_json:
        record = {"run": done.id, "experiment": experiment.name, "findings": records(findings)}
        print_json({**record, "recorded": done.provenance.get("recording"), "samples": str(path)})
        return problems(done)
    if not quiet():
        show(f"{done.id}: {len(done.samples)} samples, {done.provenance['stopped']}")
        show(str(path))
        if recorded is not None:
            title = done.provenance["recording"]["title"]
            show(f"nothing was measured: {title}")
    print_findings(findings)
    return problems(done)


def problems(done: Run) -> None:
    """What was wrong, below the result: in short, whole with ``-v``; nothing twice."""
    for problem in done.provenance["problems"]:
        if was_said(problem) and not verbose():
            continue
        text = f"problem: {problem}"
        say(text if verbose() or len(text) <= _MOST else f"{text[:_MOST]}… (-v: all of it)")


def _recorded(name: str, wanted: Wanted, machine: str) -> tuple[Experiment, Run]:
    from perflib.experiments import get
    from perflib.framework import recordings

    experiment = get(name)
    params = _params(experiment, wanted.assignments, wanted.preset)
    tag = os.environ.get("PERFLIB_TAG", "")
    return experiment, recordings.recorded(experiment, machine, params, tag, named_only=True)


def _file_of(machine: str, run: Run) -> Path:
    from perflib.framework.recordings import folder_of

    return folder_of(machine) / f"{run.id}.parquet"


def _params(experiment: Experiment, words: tuple[str, ...], preset: str | None = None) -> Params:
    from perflib.framework import configured
    from perflib.framework.params import assignments

    return configured.params(experiment, assignments(words), preset)


def _resumed(named: str) -> tuple[Experiment, Run]:
    from perflib.experiments import get
    from perflib.model.run import experiment_of
    from perflib.store.run_files import find

    run_id = find(named, "unfinished").stem
    experiment = get(experiment_of(run_id))
    with reporter(experiment.name) as progress:
        return experiment, experiment.resume(run_id, progress)


@click.command(
    epilog=examples(
        "perflib analyse kv_per_core --samples measured.csv",
        "perflib analyse kv_per_core --samples mine.parquet -p threshold_percent=2",
    )
)
@click.argument("name", type=EXPERIMENT, metavar="NAME")
@click.option("--samples", required=True, type=FILE, help="CSV or Parquet.")
@parameter_option
@json_option
def analyse(name: str, samples: Path, assignments: tuple[str, ...], as_json: bool) -> None:
    """Analyse a table of samples from any machine.

    The analysis is that of experiment NAME; 'perflib list NAME' says which columns it needs.
    """
    from perflib.experiments import get
    from perflib.model.run import Run
    from perflib.store.run_files import read_table

    experiment = get(name)
    params = _params(experiment, assignments)
    table = read_table(samples)
    brought = Run(samples.stem, name, params.model_dump(mode="json"), table, {})
    with working(f"analysis of {samples.name}"):
        findings = experiment.analyse(brought)
    if as_json:
        record = {"run": None, "experiment": name, "findings": records(findings)}
        print_json({**record, "samples": str(samples)})
        return
    if not quiet():
        show(f"{samples}: {len(table)} samples")
    print_findings(findings)
