"""Commands about one machine over days: check, trend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perflib.cli.names import EXPERIMENT, FILE, RUN
from perflib.cli.output import (
    Wanted,
    examples,
    json_option,
    measuring,
    print_findings,
    print_json,
    put,
    quiet,
    records,
    reporter,
    say,
    show,
    verbose,
)
from perflib.model.errors import UserError
from perflib.model.escape import visible

if TYPE_CHECKING:
    from perflib.framework.experiment import Experiment
    from perflib.model.finding import Finding
    from perflib.model.run import Run

_CHANGED = 3  # exit status


@click.command(
    epilog=examples(
        "perflib check kv_per_core --baseline healthy --save 5 -p budget_s=30",
        "perflib check --baseline healthy",
        "perflib check --baseline healthy --run kv_per_core-20261108",
    )
)
@click.argument("name", required=False, type=EXPERIMENT, metavar="[NAME]")
@click.option("--baseline", required=True, metavar="BASELINE", help="What the runs are called.")
@click.option(
    "--save", type=click.IntRange(1, 100), help="Measure so many runs and add them to it."
)
@click.option("--run", "run_id", type=RUN, help="Judge a saved run; nothing is measured.")
@click.option(
    "--threshold", default=2.0, type=click.FloatRange(0.0, 1000.0), help="Smallest change, in %."
)
@measuring
@click.pass_context
def check(
    context: click.Context,
    name: str | None,
    baseline: str,
    save: int | None,
    run_id: str | None,
    threshold: float,
    wanted: Wanted,
) -> None:
    """Compare this machine with a baseline of runs of it.

    --save makes the baseline: best some runs a day, for several days. Without it each experiment of
    the baseline (or NAME alone) is measured once, with the baseline's parameters, and compared.

    Exit status 0: no change was found; 3: something changed; 2: it cannot be done as asked; 1: the
    measurement failed.
    """
    if save is not None:
        if name is None or run_id is not None:
            msg = "--save measures: say which experiment, and leave --run out"
            raise UserError(msg)
        _save(name, baseline, save, wanted)
        return
    if wanted.assignments or wanted.preset:
        msg = "a check measures with the parameters of its baseline: leave -p and --preset out"
        raise UserError(msg)
    entries = [_against(*one, baseline, threshold) for one in _asked(name, baseline, run_id)]
    found = [finding for _, findings in entries for finding in findings]
    changed = any(finding.verdict == "supported" for finding in found)
    if wanted.as_json:
        entries_ = [{"run": run.id, "findings": records(findings)} for run, findings in entries]
        print_json({"baseline": baseline, "changed": changed, "checks": entries_})
    else:
        for run, findings in entries:
            if not quiet():
                show(f"{run.id} against the baseline {visible(baseline)}", rest="    ")
            print_findings(findings)
            _say_why_not(findings)
    if changed:
        context.exit(_CHANGED)


def _save(name: str, baseline: str, number: int, wanted: Wanted) -> None:
    from perflib.experiments import get
    from perflib.fleet.analysis.baseline import LEAST_RUNS, baseline_tag, parameters_of
    from perflib.framework import configured
    from perflib.framework.params import assignments
    from perflib.store.run_files import load

    experiment = get(name)
    there = [load(run) for run in _runs_of(baseline).get(name, ())]
    params = configured.params(experiment, assignments(wanted.assignments), wanted.preset)
    if there and not wanted.assignments and wanted.preset is None:
        params = experiment.params(parameters_of(there))
    measured = []
    for index in range(number):
        title = f"{name}, run {index + 1} of {number} for the baseline"
        with reporter(title) as progress:
            run = experiment.measure(params, progress, tag=baseline_tag(baseline))
        measured.append(run)
        parameters_of([*there, *measured])
        if not wanted.as_json:
            put(run.id)
    runs = len(there) + len(measured)
    if wanted.as_json:
        print_json({"baseline": baseline, "runs": [run.id for run in [*there, *measured]]})
    say(f"the baseline {baseline} has {runs} runs of {name}; a verdict takes {LEAST_RUNS}")


def _runs_of(baseline: str) -> dict[str, list[str]]:
    """The runs of a baseline by experiment; none where there is no store yet."""
    from perflib.fleet.analysis.baseline import runs_of_baseline

    try:
        table = runs_of_baseline(baseline)
    except UserError:  # no run at all is saved
        return {}
    return {str(name): list(part["run"]) for name, part in table.groupby("experiment")}


def _asked(
    name: str | None, baseline: str, run_id: str | None
) -> list[tuple[Experiment, Sequence[Run], Run | None]]:
    """Each experiment that is to be compared: its baseline's runs, and a saved run if one is."""
    from perflib.experiments import get
    from perflib.store.run_files import load

    judged = load(run_id) if run_id is not None else None
    if judged is not None and name not in (None, judged.experiment):
        msg = f"run {judged.id} is one of {judged.experiment}, not of {name}"
        raise UserError(msg)
    wanted = judged.experiment if judged is not None else name
    by_name = _runs_of(baseline)
    if not by_name:
        msg = (
            f"there is no baseline {baseline!r}: make one with "
            f"'perflib check {wanted or 'kv_per_core'} --baseline {baseline} --save 5'"
        )
        raise UserError(msg)
    if wanted is not None and wanted not in by_name:
        msg = f"the baseline {baseline!r} has no runs of {wanted}, but of {', '.join(by_name)}"
        raise UserError(msg)
    return [
        (get(one), [load(run) for run in runs if judged is None or run != judged.id], judged)
        for one, runs in by_name.items()
        if wanted in (None, one)
    ]


def _against(
    experiment: Experiment,
    runs: Sequence[Run],
    run: Run | None,
    baseline: str,
    threshold: float,
) -> tuple[Run, list[Finding]]:
    from perflib.fleet.analysis.baseline import against_baseline, parameters_of

    given = parameters_of(runs)
    if run is None:
        with reporter(f"{experiment.name}, compared with the baseline") as progress:
            run = experiment.measure(experiment.params(given), progress)
    _say_elsewhere(runs[0], run)
    return run, against_baseline(experiment, baseline, runs, run, threshold)


def _say_why_not(findings: Sequence[Finding]) -> None:
    """Why nothing could be estimated; with -v each finding says it itself."""
    if not verbose():
        for reason in dict.fromkeys(one.reason for one in findings if math.isnan(one.effect)):
            say(f"  {reason}")


def _say_elsewhere(first: Run, run: Run) -> None:
    there, here = (one.provenance.get("machine", {}).get("hostname") for one in (first, run))
    if there != here:
        say(f"the baseline was measured on {there}, the run on {here}")


@click.command(
    epilog=examples("perflib trend kv_per_core", "perflib trend kv_per_core --out trend.png")
)
@click.argument("name", type=EXPERIMENT, metavar="NAME")
@click.option("--node", help="Of which machine, by its host's name; this one by default.")
@click.option(
    "--threshold", default=1.0, type=click.FloatRange(0.0, 1000.0), help="Smallest step, in %."
)
@click.option("--out", type=FILE, help="Also draw it, into this PNG or SVG.")
@json_option
def trend(name: str, node: str | None, threshold: float, out: Path | None, as_json: bool) -> None:
    """Show the day on which this machine changed.

    All saved runs of experiment NAME on one machine are taken as a series. What the machine's
    description says differently before and after a step is listed below it.
    """
    from perflib.lab.trend import trend as over_days

    found = over_days(name, node, threshold)
    if out is not None:
        found.save(out)
    if as_json:
        print_json({**found.to_dict(), "figure": str(out) if out else None})
        return
    if not quiet():
        show(f"{found.runs} runs of {name} on {visible(found.node)}", rest="    ")
    print_findings(found.findings)
    _say_why_not(found.findings)
    for what, differing in found.changed().items():
        _show_changed(what, differing)
    if out is not None and not quiet():
        put(f"figure: {out}")


def _show_changed(what: str, differing: dict[str, tuple[Any, Any]]) -> None:
    if quiet():
        return
    show(f"what was recorded differently before and after the step of {what}:", "  ")
    for name, (before, after) in differing.items():
        show(visible(f"{name}: {before} -> {after}"), "    ", "      ")
    if not differing:
        show("nothing", "    ")
