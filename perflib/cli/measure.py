"""Commands that measure, or analyse what was measured: run, analyse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from perflib.cli.output import (
    json_option,
    parameter_option,
    preset_option,
    print_findings,
    print_json,
    records,
    say,
)
from perflib.model.errors import UserError

if TYPE_CHECKING:
    from perflib.framework.experiment import Experiment
    from perflib.model.run import Run

__all__ = ["analyse", "run"]


@click.command()
@click.argument("name", required=False)
@parameter_option
@click.option("--resume", metavar="RUN", help="Go on with a run whose process was killed.")
@preset_option
@json_option
def run(
    name: str | None,
    assignments: tuple[str, ...],
    resume: str | None,
    preset: str | None,
    as_json: bool,
) -> None:
    """Measure experiment NAME, save the run, say what was found."""
    from perflib.model.store import saved_path

    if resume is not None:
        if name or assignments or preset:
            msg = "--resume takes a run's own experiment and parameters: give the run alone"
            raise UserError(msg)
        experiment, done = _resumed(resume)
    elif name is not None:
        experiment, done = _measured(name, assignments, preset)
    else:
        msg = "which experiment? 'perflib list' shows them"
        raise UserError(msg)
    findings = experiment.analyse(done)
    for problem in done.provenance["problems"]:
        say(f"problem: {problem}")
    path = saved_path(done.id)
    if as_json:
        record = {"run": done.id, "experiment": experiment.name, "findings": records(findings)}
        print_json({**record, "samples": str(path)})
        return
    click.echo(f"{done.id}: {len(done.samples)} samples, {done.provenance['stopped']}; {path}")
    print_findings(findings)


def _measured(name: str, words: tuple[str, ...], preset: str | None) -> tuple[Experiment, Run]:
    from perflib.experiments import get
    from perflib.framework.params import assignments
    from perflib.measure.progress import Reporter

    experiment = get(name)
    params = experiment.params(assignments(words), preset)
    with Reporter(experiment.name) as progress:
        return experiment, experiment.measure(params, progress)


def _resumed(named: str) -> tuple[Experiment, Run]:
    from perflib.experiments import get
    from perflib.measure.progress import Reporter
    from perflib.model.run import experiment_of
    from perflib.model.store import find

    run_id = find(named, "unfinished").stem
    experiment = get(experiment_of(run_id))
    with Reporter(experiment.name) as progress:
        return experiment, experiment.resume(run_id, progress)


@click.command()
@click.argument("name")
@click.option("--samples", required=True, type=click.Path(path_type=Path), help="CSV or Parquet.")
@parameter_option
@json_option
def analyse(name: str, samples: Path, assignments: tuple[str, ...], as_json: bool) -> None:
    """Analyse a table of samples from any machine.

    The analysis is that of experiment NAME; 'perflib list NAME' says which columns it needs.
    """
    from perflib.experiments import get
    from perflib.model.run import Run
    from perflib.model.store import read_table

    experiment = get(name)
    params = experiment.Params.parse(assignments)
    table = read_table(samples)
    experiment.check_samples(table)
    brought = Run(samples.stem, name, params.model_dump(mode="json"), table, {})
    findings = experiment.analyse(brought)
    if as_json:
        record = {"run": None, "experiment": name, "findings": records(findings)}
        print_json({**record, "samples": str(samples)})
        return
    click.echo(f"{samples}: {len(table)} samples")
    print_findings(findings)
