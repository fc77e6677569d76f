"""Commands about runs that there are: runs, show, compare, ledger, report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perflib.cli.output import json_option, print_findings, print_json, records, say
from perflib.model.errors import PerflibError

if TYPE_CHECKING:
    from perflib.model.finding import Finding
    from perflib.model.run import Run

__all__ = ["compare", "ledger", "report", "runs", "show"]


@click.command()
@json_option
def runs(as_json: bool) -> None:
    """List the saved runs, the interrupted and the damaged ones."""
    from perflib.model.store import runs as all_runs
    from perflib.model.store import runs_dir

    found = all_runs()
    if as_json:
        print_json({"runs": [vars(entry) for entry in found]})
        return
    if not found:
        click.echo(f"no runs yet in {runs_dir()}")
    for entry in found:
        click.echo(
            f"{entry.id:42s} {entry.status:11s} {entry.samples:8d} samples  "
            f"{entry.machine:12s} {entry.stopped}"
        )
        if entry.status == "interrupted":
            click.echo(f"    finish it with: perflib run --resume {entry.id}")


@click.command()
@click.argument("run_id", metavar="RUN")
@json_option
def show(run_id: str, as_json: bool) -> None:
    """Show a saved run: what was found, and its provenance."""
    from perflib.experiments import get
    from perflib.model.store import load

    loaded = load(run_id)
    findings = get(loaded.experiment).analyse(loaded)
    if as_json:
        print_json(
            {
                "run": loaded.id,
                "experiment": loaded.experiment,
                "params": loaded.params,
                "findings": records(findings),
                "provenance": loaded.provenance,
            }
        )
        return
    click.echo(f"{loaded.id}: {len(loaded.samples)} samples")
    for finding in findings:
        click.echo(f"  {finding.plain}  ({finding.subject}: {finding.verdict})")
    click.echo("  parameters: " + ", ".join(f"{k}={v}" for k, v in loaded.params.items()))
    for name, value in _flat(loaded.provenance).items():
        if value and not (isinstance(value, list) and isinstance(value[0], dict | list)):
            click.echo(f"  {name}: {value}")
    click.echo("  (tables within, such as each worker's conditions: --json)")


@click.command()
@click.argument("first")
@click.argument("second")
@json_option
def compare(first: str, second: str, as_json: bool) -> None:
    """Compare two runs of an experiment: two machines, or days."""
    from perflib.lab import interface
    from perflib.model.store import load

    a, b = load(first), load(second)
    findings = interface.compare(a, b)
    differences = _differences(a, b)
    if as_json:
        print_json(
            {
                "runs": [a.id, b.id],
                "experiment": a.experiment,
                "findings": records(findings),
                "differences": differences,
            }
        )
        return
    click.echo(f"{b.id} against {a.id}")
    print_findings(findings)
    click.echo("  what differs:")
    for name, (here, there) in differences.items():
        click.echo(f"    {name}: {here} -> {there}")
    if not differences:
        click.echo("    nothing that was recorded, but the time")


@click.command()
@click.argument("run_ids", nargs=-1, metavar="[RUN]...")
@json_option
def ledger(run_ids: tuple[str, ...], as_json: bool) -> None:
    """Show what explains the extra time, what does not, and why.

    Without RUN the newest run of each experiment on this machine is taken.
    """
    import shutil

    from perflib.experiments import NAMES, get
    from perflib.model import hypotheses
    from perflib.model.store import load

    named = map(load, run_ids)
    entries = [(one, get(one.experiment).analyse(one)) for one in named] or _newest_here()
    rows = hypotheses.ledger(entries)
    if as_json:
        found = records(finding for _, finding in hypotheses.standing(entries))
        rows_ = zip(rows.to_dict("records"), found, strict=True)
        print_json({"hypotheses": [{**row, **finding} for row, finding in rows_]})
        return
    for line in hypotheses.ledger_lines(rows, shutil.get_terminal_size().columns):
        click.echo(line)
    if rows.empty:
        where = "in these runs" if run_ids else "on this machine yet"
        click.echo(f"no hypothesis was tested {where}; these experiments test some:")
        for experiment in map(get, NAMES):
            if tested := experiment.hypotheses:
                click.echo(f"    perflib run {experiment.name}  ({', '.join(tested)})")


def _newest_here() -> list[tuple[Run, list[Finding]]]:
    """Each experiment's newest run that was saved on this machine, with what it found."""
    from perflib.experiments import NAMES, get
    from perflib.machine.describe import describe
    from perflib.model.store import load
    from perflib.model.store import runs as all_runs

    here = describe()
    found = {}
    for entry in reversed(all_runs()):
        if entry.status == "damaged":
            say(f"left out: run {entry.id} is damaged")
        if entry.status != "saved" or entry.experiment not in NAMES or entry.experiment in found:
            continue
        try:
            one = load(entry.id)
            machine, exercise = one.provenance.get("machine", {}), one.provenance.get("tag")
            ours = all(machine.get(key) == here[key] for key in ("hostname", "fingerprint"))
            if ours and exercise != "exercise":
                found[one.experiment] = (one, get(one.experiment).analyse(one))
        except PerflibError as error:
            say(f"left out: run {entry.id}: {error}")
    return list(found.values())


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Nested records as ``outer.inner`` names; long lists stay what they are."""
    if isinstance(value, dict) and value:
        return {
            key: item
            for inner, part in value.items()
            for key, item in _flat(part, f"{name}.{inner}" if name else str(inner)).items()
        }
    return {name: value}


def _differences(a: Run, b: Run) -> dict[str, tuple[Any, Any]]:
    """Everything recorded that differs, but what differs between any two runs."""
    always = ("start", "end", "measured_s", "trials", "plan.", "conditions", "tag")
    flat = [_flat({"params": run.params, **run.provenance}) for run in (a, b)]
    return {
        name: (flat[0].get(name), flat[1].get(name))
        for name in sorted(flat[0].keys() | flat[1].keys())
        if flat[0].get(name) != flat[1].get(name) and not name.startswith(always)
    }


@click.command()
@click.argument("run_ids", nargs=-1, required=True, metavar="RUN...")
@click.option("--out", default=Path("report.html"), type=click.Path(path_type=Path))
def report(run_ids: tuple[str, ...], out: Path) -> None:
    """Write a report of saved runs: one HTML file."""
    from perflib.lab.report import write_report
    from perflib.model.store import load

    click.echo(write_report([load(run_id) for run_id in run_ids], out))
    click.echo(f"report: {out}")
