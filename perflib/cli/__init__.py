"""The command line: ``perflib run``, ``list``, ``analyse``, ``doctor``, ``batch`` and the rest.

Exit status 0: the measurement was made, whatever it found; 2: what was asked cannot be done as
asked; 1: the measurement failed. Progress and remarks go to standard error.
"""

from __future__ import annotations

import json
import math
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perflib.model.errors import MeasurementError, PerflibError, UserError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["main"]


class _Commands(click.Group):
    """A group that names the nearest command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            from perflib.model.errors import choose

            raise UserError(choose("command", args[0], self.list_commands(ctx)))
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="perflib")
def cli() -> None:
    """Why is this machine, this core, this buffer slower than it should be?"""


def _say(text: str) -> None:
    click.echo(text, err=True)


def _print_json(value: object) -> None:
    click.echo(json.dumps(value, allow_nan=False))


def _print_findings(findings: Sequence[Any]) -> None:
    for finding in findings:
        click.echo(f"  {finding.subject:18s} {finding}")


_json_option = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object on standard output, nothing else."
)
_profile_option = click.option("--profile", metavar="quick|full", help="A preset of parameters.")


# --- measuring ---------------------------------------------------------------------------------


@cli.command()
@click.argument("name", required=False)
@click.option("-p", "assignments", multiple=True, metavar="KEY=VALUE", help="A parameter.")
@click.option("--resume", metavar="RUN", help="Go on with a run whose process was killed.")
@_profile_option
@_json_option
def run(
    name: str | None,
    assignments: tuple[str, ...],
    resume: str | None,
    profile: str | None,
    as_json: bool,
) -> None:
    """Measure the experiment NAME on this machine, save the run and say what was found."""
    from perflib.experiments import get
    from perflib.measure.progress import Reporter
    from perflib.model.store import saved_path

    if resume is not None:
        if name or assignments or profile:
            msg = "--resume takes a run's own experiment and parameters: give the run alone"
            raise UserError(msg)
        experiment = get(resume.rsplit("-", 3)[0])
        with Reporter(experiment.name) as progress:
            done = experiment.resume(resume, progress)
    else:
        if name is None:
            msg = "which experiment? 'perflib list' shows them"
            raise UserError(msg)
        experiment = get(name)
        given = experiment.Params.parse(assignments).model_dump(exclude_unset=True)
        params = experiment.params(given, profile)
        with Reporter(experiment.name) as progress:
            done = experiment.measure(params, progress)
    findings = experiment.analyse(done)
    for problem in done.provenance["problems"]:
        _say(f"problem: {problem}")
    path = saved_path(done.id)
    if as_json:
        record: dict[str, Any] = {"run": done.id, "experiment": experiment.name}
        record["findings"] = [finding.to_dict() for finding in findings]
        _print_json({**record, "samples": str(path)})
        return
    click.echo(f"{done.id}: {len(done.samples)} samples, {done.provenance['stopped']}; {path}")
    _print_findings(findings)


@cli.command()
@click.argument("name")
@click.option("--samples", required=True, type=click.Path(path_type=Path), help="CSV or Parquet.")
@click.option("-p", "assignments", multiple=True, metavar="KEY=VALUE", help="A parameter.")
@_json_option
def analyse(name: str, samples: Path, assignments: tuple[str, ...], as_json: bool) -> None:
    """Apply the analysis of experiment NAME to a table of samples from any machine."""
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
        _print_json(
            {
                "run": None,
                "experiment": name,
                "findings": [finding.to_dict() for finding in findings],
                "samples": str(samples),
            }
        )
        return
    click.echo(f"{samples}: {len(table)} samples")
    _print_findings(findings)


@cli.command("list")
@_json_option
def list_(as_json: bool) -> None:
    """List the experiments: parameters, units, defaults, bounds, and the columns of samples."""
    from perflib.experiments import NAMES, get

    documents = [get(name).documentation() for name in NAMES]
    if as_json:
        _print_json({"experiments": documents})
        return
    for document in documents:
        click.echo(f"{document['name']}: {document['question']}  [{document['notebook']}.ipynb]")
        click.echo("  parameters")
        for entry in document["parameters"]:
            signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
            bounds = ", ".join(f"{signs[k]} {v:g}" for k, v in entry["bounds"].items())
            click.echo(f"    {entry['name']} = {entry['default']} {entry['unit']}".rstrip())
            click.echo(
                f"        {entry['help']} ({entry['type']}{', ' + bounds if bounds else ''})"
            )
        click.echo("  columns of its samples (* needed by 'perflib analyse')")
        for column in document["columns"]:
            star = "*" if column["required"] else " "
            unit = f" [{column['unit']}]" if column["unit"] else ""
            click.echo(f"   {star}{column['name']}{unit}: {column['help']} ({column['type']})")
        click.echo("")


# --- runs that there are -----------------------------------------------------------------------


@cli.command()
@_json_option
def runs(as_json: bool) -> None:
    """List the saved runs, the interrupted and the damaged ones."""
    from perflib.model.store import runs as all_runs
    from perflib.model.store import runs_dir

    found = all_runs()
    if as_json:
        _print_json({"runs": [vars(entry) for entry in found]})
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


@cli.command()
@click.argument("run_id", metavar="RUN")
@_json_option
def show(run_id: str, as_json: bool) -> None:
    """Show a saved run: what was found, and where its numbers come from."""
    from perflib.experiments import get
    from perflib.model.store import load

    loaded = load(run_id)
    findings = get(loaded.experiment).analyse(loaded)
    if as_json:
        _print_json(
            {
                "run": loaded.id,
                "experiment": loaded.experiment,
                "params": loaded.params,
                "findings": [finding.to_dict() for finding in findings],
                "provenance": loaded.provenance,
            }
        )
        return
    click.echo(f"{loaded.id}: {len(loaded.samples)} samples")
    _print_findings(findings)
    click.echo("  parameters: " + ", ".join(f"{k}={v}" for k, v in loaded.params.items()))
    for name, value in _flat(loaded.provenance).items():
        if value and not (isinstance(value, list) and isinstance(value[0], dict | list)):
            click.echo(f"  {name}: {value}")
    click.echo("  (tables within, such as each worker's conditions: --json)")


@cli.command()
@click.argument("first")
@click.argument("second")
@_json_option
def compare(first: str, second: str, as_json: bool) -> None:
    """Compare two runs of one experiment: two machines, or two days."""
    from perflib.experiments import get
    from perflib.model.store import load

    a, b = load(first), load(second)
    if a.experiment != b.experiment:
        msg = f"{a.id} is a run of {a.experiment}, {b.id} one of {b.experiment}: not comparable"
        raise UserError(msg)
    findings = get(a.experiment).compare(a, b)
    differences = _differences(a, b)
    if as_json:
        _print_json(
            {
                "runs": [a.id, b.id],
                "experiment": a.experiment,
                "findings": [finding.to_dict() for finding in findings],
                "differences": differences,
            }
        )
        return
    click.echo(f"{b.id} against {a.id}")
    _print_findings(findings)
    click.echo("  what differs:")
    for name, (here, there) in differences.items():
        click.echo(f"    {name}: {here} -> {there}")
    if not differences:
        click.echo("    nothing that was recorded, but the time")


@cli.command()
@click.argument("run_ids", nargs=-1, metavar="[RUN]...")
@_json_option
def ledger(run_ids: tuple[str, ...], as_json: bool) -> None:
    """Show the hypotheses: what explains the extra time, what does not, and why.

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
        found = [finding.to_dict() for _, finding in hypotheses.standing(entries)]
        told = [{**row, **one} for row, one in zip(rows.to_dict("records"), found, strict=True)]
        _print_json({"hypotheses": told})
        return
    for line in hypotheses.ledger_lines(rows, shutil.get_terminal_size().columns):
        click.echo(line)
    if rows.empty:
        where = "in these runs" if run_ids else "on this machine yet"
        click.echo(f"no hypothesis was tested {where}; these experiments test some:")
        for experiment in map(get, NAMES):
            if tested := experiment.hypotheses:
                click.echo(f"    perflib run {experiment.name}  ({', '.join(tested)})")


def _newest_here() -> list[tuple[Any, list[Any]]]:
    """Each experiment's newest run that was saved on this machine, with what it found."""
    from perflib.experiments import NAMES, get
    from perflib.machine.describe import describe
    from perflib.model.store import load
    from perflib.model.store import runs as all_runs

    here = describe()
    found = {}
    for entry in reversed(all_runs()):
        if entry.status == "damaged":
            _say(f"left out: run {entry.id} is damaged")
        if entry.status != "saved" or entry.experiment not in NAMES or entry.experiment in found:
            continue
        try:
            one = load(entry.id)
            machine, exercise = one.provenance.get("machine", {}), one.provenance.get("tag")
            ours = all(machine.get(key) == here[key] for key in ("hostname", "fingerprint"))
            if ours and exercise != "exercise":
                found[one.experiment] = (one, get(one.experiment).analyse(one))
        except PerflibError as error:
            _say(f"left out: run {entry.id}: {error}")
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


def _differences(a: Any, b: Any) -> dict[str, tuple[Any, Any]]:
    """Everything recorded that differs, but what differs between any two runs."""
    always = ("start", "end", "measured_s", "turns", "plan.", "conditions", "tag")
    flat = [_flat({"params": run.params, **run.provenance}) for run in (a, b)]
    return {
        name: (flat[0].get(name), flat[1].get(name))
        for name in sorted(flat[0].keys() | flat[1].keys())
        if flat[0].get(name) != flat[1].get(name) and not name.startswith(always)
    }


# --- the machine -------------------------------------------------------------------------------


@cli.command()
@_json_option
def doctor(as_json: bool) -> None:
    """Show what this machine is, and what about it spoils measurements. Changes nothing."""
    from perflib.machine.describe import describe
    from perflib.machine.doctor.diagnose import diagnose
    from perflib.machine.doctor.lines import check_lines, feature_lines, machine_lines
    from perflib.machine.hardware.features import of_this_machine

    machine, features = describe(), of_this_machine()
    checks = diagnose()
    noise, no_noise = _noise()
    if as_json:
        record: dict[str, Any] = {"machine": machine, "checks": [vars(check) for check in checks]}
        record["features"] = [feature.to_dict() for feature in features]
        record["noise"] = [] if noise is None else noise.to_dict("records")
        _print_json(record)
        return
    for line in (*machine_lines(machine), *feature_lines(features), *check_lines(checks)):
        click.echo(line)
    if noise is None:
        click.echo(f"unknown noise: {no_noise}")
    else:
        _print_noise(noise)


def _noise() -> tuple[pd.DataFrame | None, str]:
    """The gaps in each core's clock, a few seconds in all; or why they cannot be measured."""
    from perflib.experiments.machine import look
    from perflib.machine.hardware.topology import topology

    cores = topology().allowed_cpus()
    try:
        return look(cores, spin_ms=max(1.0, min(500.0, 5000.0 / len(cores)))), ""
    except PerflibError as error:
        return None, str(error)


def _print_noise(noise: pd.DataFrame) -> None:
    """A histogram of gaps for each core, as text; the bars are logarithmic."""
    from perflib.experiments.machine import stolen_by_turn

    for cpu, turn in stolen_by_turn(noise).set_index("cpu").iterrows():
        spun_ms = turn["duration_ns"] / 1e6
        click.echo(
            f"noise on cpu{cpu}: {turn['stolen_percent']:.2f} % of {spun_ms:.0f} ms were taken by "
            "others ('perflib run machine' measures it with an interval)"
        )
        bins = noise[(noise["cpu"] == cpu) & (noise["gaps"] > 0)]
        for _, row in bins.iterrows():
            low_us = row["gap_low_ns"] / 1e3
            bar = "#" * round(4 * math.log2(1 + row["gaps"]))
            taken = f"{row['gap_ns'] / 1e6:.2f} ms"
            length = f"{low_us:10.1f} to {2 * low_us:10.1f} us"
            click.echo(f"    {length} {row['gaps']:6.0f} gaps, {taken:>9s} {bar}")


# --- profiles -----------------------------------------------------------------------------------


def _out(name: str, what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(f"--{name}", metavar="OUT", type=click.Path(path_type=Path), help=what)


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@_out("folded", "Write folded stacks, as stackcollapse-perf does, for flame graphs.")
@_out("speedscope", "Write a file for https://www.speedscope.app.")
@_out("parquet", "Write the table of samples.")
@click.option("--event", metavar="NAME", help="Only this event (default: the first sample's).")
@click.option(
    "--against",
    metavar="OTHER",
    type=click.Path(path_type=Path),
    help="Another text: which functions take more in FILE?",
)
@_json_option
def profile(
    file: Path,
    folded: Path | None,
    speedscope: Path | None,
    parquet: Path | None,
    event: str | None,
    against: Path | None,
    as_json: bool,
) -> None:
    """Read FILE, the text of 'perf script': what was sampled, and which functions have most of it.

    The Parquet table has the samples of every event unless one is named. An output that is there
    already is replaced.
    """
    from perflib.instruments.perf.script import read
    from perflib.instruments.profile import export
    from perflib.instruments.profile import lines as summary

    outputs = {"folded": folded, "speedscope": speedscope, "parquet": parquet}
    wanted = {name: path for name, path in outputs.items() if path is not None}
    summary.check_outputs(file, wanted)
    read_profile = read(file)
    chosen = summary.of_event(read_profile, event)
    comparison = None
    if against:
        comparison = summary.compared(chosen, str(file), read(against), str(against))
    if folded:
        export.write_text("".join(f"{line}\n" for line in export.folded(chosen.samples)), folded)
    if speedscope:
        made = export.speedscope(chosen.samples, file.name)
        export.write_text(json.dumps(made, allow_nan=False), speedscope)
    if parquet:
        export.write_parquet(chosen if event else read_profile, parquet)
    if as_json:
        written = {name: str(path) for name, path in wanted.items()}
        record = summary.record(read_profile, chosen)
        if comparison:
            record["against"] = str(against)
            record["findings"] = [finding.to_dict() for finding in comparison.findings()]
        _print_json({"file": str(file), **record, **written})
        return
    click.echo(f"{file}: {summary.headline(read_profile)}")
    for line in (*summary.unread_lines(read_profile), *summary.function_lines(chosen)):
        click.echo(f"  {line}")
    if comparison:
        click.echo(f"against {against}")
        for line in summary.comparison_lines(comparison):
            click.echo(f"  {line}")
    for name, path in wanted.items():
        click.echo(f"{name}: {path}")


# --- notebooks ---------------------------------------------------------------------------------


@cli.command(context_settings={"ignore_unknown_options": True})
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.argument("jupyter_options", nargs=-1, type=click.UNPROCESSED)
def lab(folder: Path | None, jupyter_options: tuple[str, ...]) -> None:
    """Lay the notebooks out in FOLDER (default: the checkout's own) and open JupyterLab there.

    Notebooks that are there already are left as they are. Further options go to JupyterLab.
    """
    import os

    from perflib.model.paths import lay_out_notebooks

    place = lay_out_notebooks(folder)
    _say(f"notebooks: {place}")
    argv = [sys.executable, "-m", "jupyterlab", str(place), *jupyter_options]
    os.execv(sys.executable, argv)


@cli.command()
@click.argument("notebooks", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--sets", type=click.Path(path_type=Path), help="Parameter sets: YAML, JSON or CSV.")
@click.option("-p", "assignments", multiple=True, metavar="KEY=VALUE", help="For every set.")
@click.option(
    "--out", default=Path("batch"), type=click.Path(path_type=Path), help="Folder of the outputs."
)
@click.option("--timeout", "timeout_s", type=float, help="The longest one notebook may take, s.")
def batch(
    notebooks: tuple[Path, ...],
    sets: Path | None,
    assignments: tuple[str, ...],
    out: Path,
    timeout_s: float | None,
) -> None:
    """Run NOTEBOOKS through papermill, once for each parameter set; a failed one stops no other."""
    from perflib import batch as batches

    common = batches.parse_assignments(assignments)
    chosen = batches.load_sets(sets) if sets else [{}]
    outcomes = batches.batch(
        list(notebooks), [{**common, **one} for one in chosen], out, timeout_s=timeout_s
    )
    _print_outcomes(outcomes)


def _print_outcomes(outcomes: Sequence[Any]) -> None:
    for outcome in outcomes:
        state = "FAILED" if not outcome.ok else "absent" if outcome.message else "ok    "
        given = " ".join(f"{key}={value}" for key, value in outcome.parameters.items())
        click.echo(f"{state} {outcome.seconds:7.1f} s  {outcome.output}  {given}")
        if outcome.message:
            click.echo(f"        {outcome.message}")
    failed = sum(not outcome.ok for outcome in outcomes)
    absent = sum(outcome.ok and bool(outcome.message) for outcome in outcomes)
    left_out = f", {absent} cannot run here" if absent else ""
    click.echo(
        f"{len(outcomes) - failed - absent} of {len(outcomes)} notebooks succeeded{left_out}"
    )
    if failed:
        msg = f"{failed} of {len(outcomes)} notebooks failed"
        raise MeasurementError(msg)


@cli.command()
@click.option("--profile", default="quick", metavar="quick|full", help="Minutes, or an hour.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the report.")
def investigate(profile: str, out: Path | None) -> None:
    """Run every notebook on this machine and write a report."""
    from perflib import batch as batches

    outcomes, report_path, summary = batches.investigate(profile, out)
    try:
        _print_outcomes(outcomes)
    finally:
        click.echo(f"\n{summary}\n\nreport: {report_path}")


@cli.command()
@click.argument("run_ids", nargs=-1, required=True, metavar="RUN...")
@click.option("--out", default=Path("report.html"), type=click.Path(path_type=Path))
def report(run_ids: tuple[str, ...], out: Path) -> None:
    """Write a report of saved runs: one HTML file."""
    from perflib.lab.report import write_report
    from perflib.model.store import load

    click.echo(write_report([load(run_id) for run_id in run_ids], out))
    click.echo(f"report: {out}")


# --- the way in and out ------------------------------------------------------------------------


def _terminate(*_: object) -> None:
    """SIGTERM as Ctrl-C: what was measured is kept."""
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; a user's mistake is a sentence, never a traceback."""
    signal.signal(signal.SIGTERM, _terminate)
    code = 0
    try:
        from perflib.machine.settings.changes import restore_leftovers

        for sentence in restore_leftovers():
            _say(sentence)
        _standalone(cli, arguments)
    except PerflibError as error:
        _say(f"perflib: {error}")
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        _say("perflib: interrupted; 'perflib runs' shows what was kept")
        code = 1
    except BrokenPipeError:
        code = 1
    sys.exit(code)


def _standalone(command: Callable[..., Any], arguments: Sequence[str] | None) -> None:
    words = list(arguments) if arguments is not None else None
    command(args=words, prog_name="perflib", standalone_mode=False)
