"""Commands about runs that there are: runs, show, compare, ledger, report, export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perflib.cli.names import FILE, RUN, OneOf
from perflib.cli.output import (
    WIDTH,
    examples,
    json_option,
    print_findings,
    print_json,
    put,
    quiet,
    records,
    say,
    show,
    verbose,
)
from perflib.model.errors import PerflibError
from perflib.model.escape import visible

if TYPE_CHECKING:
    from perflib.model.finding import Finding
    from perflib.model.run import Run


@click.command(epilog=examples("perflib runs", "perflib runs -v", "perflib runs -q | tail -1"))
@json_option
def runs(as_json: bool) -> None:
    """List the saved runs, the interrupted and the damaged ones.

    With -v also where each was measured, when, and why it ended; with -q the names alone.
    """
    from perflib.store.run_files import runs as all_runs
    from perflib.store.run_files import runs_dir

    found = all_runs()
    if as_json:
        print_json({"runs": [vars(entry) for entry in found]})
        return
    if not found:
        say(f"no runs yet in {runs_dir()}")
    longest = max((len(entry.id) for entry in found), default=0)
    for entry in found:
        if quiet():
            put(entry.id)
            continue
        put(f"{entry.id:{longest}s}  {entry.samples:8d}  {entry.status}")
        if verbose() and entry.start:
            show(visible(f"on {entry.machine}, {entry.start[:19]}, {entry.stopped}"), "    ")
        if entry.status == "interrupted":
            show(f"finish it with: perflib run --resume {entry.id}", "    ")


@click.command(
    "show", epilog=examples("perflib show kv_per_core-20261101", "perflib show measured.parquet -v")
)
@click.argument("run_id", type=RUN)
@json_option
def show_(run_id: str, as_json: bool) -> None:
    """Show a saved run: what was found, and its provenance.

    RUN is a run's name, the beginning of one, or a file; with -v everything that was recorded.
    """
    from perflib.experiments import get
    from perflib.model.differences import flat
    from perflib.store.run_files import load

    loaded = load(run_id)
    experiment = get(loaded.experiment)
    findings = experiment.analyse(loaded)
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
    if not quiet():
        show(f"{loaded.id}: {len(loaded.samples)} samples")
    print_findings(findings)
    if not quiet():
        shown = {**loaded.provenance} if verbose() else _main_facts(loaded.provenance)
        params = experiment.current_params(loaded.params)
        changed = params.model_dump(mode="json", exclude_defaults=not verbose())
        given = ", ".join(f"{name}={value}" for name, value in changed.items())
        show(f"parameters: {given or 'the defaults'}", "  ", "    ")
        for name, value in flat(shown).items():
            if value and not (isinstance(value, list) and isinstance(value[0], dict | list)):
                show(visible(f"{name}: {value}"), "  ", "    ")
        more = "tables within: --json" if verbose() else "all that was recorded: -v, --json"
        show(f"({more})", "  ")


def _main_facts(provenance: dict[str, Any]) -> dict[str, Any]:
    """Where and when it was measured, how it ended, and what went wrong."""
    machine = provenance.get("machine", {})
    facts = {name: machine.get(name) for name in ("hostname", "processor", "kernel")}
    names = ("start", "end", "stopped", "tag", "problems")
    return {"machine": facts, **{name: provenance.get(name) for name in names}}


@click.command(
    epilog=examples(
        "perflib compare kv_per_core-20261101 kv_per_core-20261108",
        "perflib compare --pair node7 vm12",
    )
)
@click.argument("first", type=RUN, metavar="FIRST")
@click.argument("second", type=RUN, metavar="SECOND")
@click.option(
    "--pair", is_flag=True, help="A host and its guest: which part is the clock, stolen time ..."
)
@json_option
def compare(first: str, second: str, pair: bool, as_json: bool) -> None:
    """Compare two runs of an experiment: two machines, or days.

    FIRST and SECOND are names of runs, beginnings of them, or files. What was recorded and differs
    between them is listed below what was found.

    With --pair they are a host and its guest, by runs of kv_per_core or by the machines' names:
    then the newest runs there are taken, one for each value of huge_pages.
    """
    if pair:
        _compare_pair(first, second, as_json)
        return
    from perflib.lab import interface
    from perflib.model.differences import differences
    from perflib.store.run_files import load

    a, b = load(first), load(second)
    findings = interface.compare(a, b)
    differing = differences(a, b)
    if as_json:
        print_json(
            {
                "runs": [a.id, b.id],
                "experiment": a.experiment,
                "findings": records(findings),
                "differences": differing,
            }
        )
        return
    if quiet():
        print_findings(findings)
        return
    show(f"{b.id} against {a.id}", rest="    ")
    print_findings(findings)
    show("what differs:", "  ")
    shown = {
        name: both
        for name, both in differing.items()
        if verbose() or not any(isinstance(value, list | dict) for value in both)
    }
    for name, (here, there) in shown.items():
        show(visible(f"{name}: {here} -> {there}"), "    ", "      ")
    if len(shown) < len(differing):
        show(f"({len(differing) - len(shown)} lists and tables more: -v)", "    ")
    if not differing:
        show("nothing that was recorded, but the time", "    ")


def _compare_pair(host: str, guest: str, as_json: bool) -> None:
    from perflib.lab import pairs

    machines = [pairs.runs_of_machine(name) for name in (host, guest)]
    findings = pairs.pair(machines[0], machines[1])
    ids = [[run.id for run in runs] for runs in machines]
    if as_json:
        print_json({"host": ids[0], "guest": ids[1], "findings": records(findings)})
        return
    if not quiet():
        show(f"guest {', '.join(ids[1])} against host {', '.join(ids[0])}", rest="    ")
    print_findings(findings)


@click.command(
    epilog=examples("perflib ledger", "perflib ledger kv_per_core-20261101 machine-2026")
)
@click.argument("run_ids", nargs=-1, type=RUN, metavar="[RUN]...")
@json_option
def ledger(run_ids: tuple[str, ...], as_json: bool) -> None:
    """Show what explains the extra time, what does not, and why.

    Without RUN the newest run of each experiment on this machine is taken. With -q a line for each
    hypothesis: the verdict, what it is, its share of the extra time.
    """
    from perflib.experiments import NAMES, get
    from perflib.model import hypotheses
    from perflib.store.run_files import load

    named = map(load, run_ids)
    entries = [(one, get(one.experiment).analyse(one)) for one in named] or _newest_here()
    rows = hypotheses.ledger(entries)
    if as_json:
        found = records(finding for _, finding in hypotheses.standing(entries))
        rows_ = zip(rows.to_dict("records"), found, strict=True)
        print_json({"hypotheses": [{**row, **finding} for row, finding in rows_]})
        return
    if quiet():
        for row in rows.to_dict("records"):
            put(f"{row['verdict']:12s}  {row['hypothesis']}: {row['share']}")
        return
    for line in hypotheses.ledger_lines(rows, WIDTH):
        put(line)
    if rows.empty:
        where = "in these runs" if run_ids else "on this machine yet"
        show(f"no hypothesis was tested {where}; these experiments test some:")
        for experiment in map(get, NAMES):
            if tested := experiment.hypotheses:
                show(f"perflib run {experiment.name}  ({', '.join(tested)})", "    ", " " * 8)


def _newest_here() -> list[tuple[Run, list[Finding]]]:
    """Each experiment's newest run that was saved on this machine, with what it found."""
    from perflib.experiments import NAMES, get
    from perflib.machine.describe import describe
    from perflib.model.run import is_exercise
    from perflib.store.run_files import load
    from perflib.store.run_files import runs as all_runs

    here = describe()
    found = {}
    for entry in reversed(all_runs()):
        if entry.status == "damaged":
            say(f"left out: run {entry.id} is damaged")
        if entry.status != "saved" or entry.experiment not in NAMES or entry.experiment in found:
            continue
        try:
            one = load(entry.id)
            machine, tag = one.provenance.get("machine", {}), one.provenance.get("tag")
            ours = all(machine.get(key) == here[key] for key in ("hostname", "fingerprint"))
            if ours and not is_exercise(tag):
                found[one.experiment] = (one, get(one.experiment).analyse(one))
        except PerflibError as error:
            say(f"left out: run {entry.id}: {error}")
    return list(found.values())


@click.command(
    epilog=examples("perflib report kv_per_core-20261101 machine-20261101 --out monday.html")
)
@click.argument("run_ids", nargs=-1, required=True, type=RUN, metavar="RUN...")
@click.option("--out", default=Path("report.html"), type=FILE, help="The file.")
def report(run_ids: tuple[str, ...], out: Path) -> None:
    """Write a report of saved runs: one HTML file."""
    from perflib.lab.report import write_report
    from perflib.store.run_files import load

    show(write_report([load(run_id) for run_id in run_ids], out))
    put(f"report: {out}")


@click.command(
    epilog=examples(
        "perflib export kv_per_core-20261101 --out runs --anonymous",
        "perflib export kv_per_core-20261101 --out /srv/metrics --format openmetrics",
    )
)
@click.argument("run_ids", nargs=-1, required=True, type=RUN, metavar="RUN...")
@click.option("--out", required=True, type=FILE, help="Folder of the files.")
@click.option(
    "--format",
    "form",
    default="run",
    type=OneOf("format", ["run", "csv", "json", "parquet", "openmetrics"]),
    help="The run's file, or tables of its samples, findings and levels for other programs.",
)
@click.option(
    "--anonymous",
    is_flag=True,
    help="Without names of hosts, users and tasks, paths and the job's command line.",
)
@json_option
def export(run_ids: tuple[str, ...], out: Path, form: str, anonymous: bool, as_json: bool) -> None:
    """Copy saved runs into a folder, for somebody else.

    Placeholders such as host-1 distinguish the machines of one export. Recordings of threads, which
    are next to a run, are left out. With --format openmetrics the file perflib.prom, for
    Prometheus's textfile collector, is replaced; no other file is.
    """
    from perflib.experiments import get
    from perflib.store.export import export as exported

    files = exported(
        run_ids,
        out,
        anonymous=anonymous,
        form=form,
        report=lambda run: get(run.experiment).reported(run),
    )
    if as_json:
        print_json({"files": [str(file) for file in files]})
        return
    for file in files:
        put(f"exported: {file}")
