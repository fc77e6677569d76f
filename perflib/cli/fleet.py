"""Commands for many machines: fleet plan, run, status, collect, report, and the job on a node."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perflib.cli.names import EXPERIMENT, FILE, OneOf
from perflib.cli.output import (
    Commands,
    counter,
    examples,
    json_option,
    parameter_option,
    preset_option,
    print_json,
    put,
    quiet,
    say,
    show,
    verbose,
    working,
)
from perflib.model.errors import MeasurementError, UserError
from perflib.model.escape import visible

if TYPE_CHECKING:
    from perflib.fleet.nodes import Node
    from perflib.fleet.outcomes import Outcome

_MOST_LISTED = 20
_PLAN = click.argument("plan", type=FILE, metavar="PLAN")


@click.group(
    cls=Commands,
    epilog=examples(
        "perflib fleet plan nodes.csv -e kv_per_core --out plan",
        "perflib fleet run plan --on slurm",
        "perflib fleet status plan",
        "perflib fleet collect plan",
        "perflib fleet report plan",
    ),
)
def fleet() -> None:
    """Measure many machines, node by node."""


@fleet.command(
    "plan",
    epilog=examples(
        "perflib fleet plan nodes.csv -e kv_per_core -e code_segment --out plan",
        "perflib fleet plan --from-sinfo --partition batch -e kv_per_core --out plan",
        "perflib fleet plan --from-sinfo --acceptance --out plan",
    ),
)
@click.argument("nodes", required=False, type=FILE, metavar="[NODES]")
@click.option("--from-sinfo", is_flag=True, help="The nodes that Slurm has.")
@click.option("--partition", help="Of one of Slurm's partitions.")
@click.option(
    "-e",
    "--experiment",
    "names",
    multiple=True,
    type=EXPERIMENT,
    metavar="NAME",
    help="What to measure; may be given several times.",
)
@click.option(
    "--acceptance", is_flag=True, help="Measure what 'perflib accept' compares new nodes by."
)
@parameter_option
@preset_option
@click.option(
    "--limit",
    "limit_s",
    type=click.IntRange(1, 10**7),
    metavar="SECONDS",
    help="The longest time of one job. [default: 300, and three times budget_s]",
)
@click.option(
    "--bundle",
    type=FILE,
    help="Kernels of 'perflib build' that all nodes can read. [default: made in the plan]",
)
@click.option("--compile-on-nodes", is_flag=True, help="Nodes compile the kernels themselves.")
@click.option(
    "--out",
    required=True,
    type=FILE,
    help="The plan's folder, which all nodes can reach.",
)
@json_option
def plan_(
    nodes: Path | None,
    from_sinfo: bool,
    partition: str | None,
    names: tuple[str, ...],
    acceptance: bool,
    assignments: tuple[str, ...],
    preset: str | None,
    limit_s: int | None,
    bundle: Path | None,
    compile_on_nodes: bool,
    out: Path,
    as_json: bool,
) -> None:
    """Write a plan: every experiment on every node.

    NODES is a CSV table with a column 'node', or a name a line. Columns such as model and rack are
    kept; 'hostname' is what a node calls itself, where that is another name.
    """
    from perflib.fleet.acceptance import BATTERY
    from perflib.fleet.plan import check_free, create, planned
    from perflib.framework.params import assignments as parsed

    if not names and not acceptance:
        msg = "what is to be measured? Give -e NAME, or --acceptance"
        raise UserError(msg)
    if acceptance and (assignments or preset):
        msg = "--acceptance has parameters of its own: leave -p and --preset out"
        raise UserError(msg)
    if bundle is not None and compile_on_nodes:
        msg = "--bundle and --compile-on-nodes exclude each other: give one of them"
        raise UserError(msg)
    check_free(out)
    farm = _nodes(nodes, from_sinfo, partition)
    rows = planned(farm, names, parsed(assignments), preset, limit_s)
    for name, given in BATTERY.items() if acceptance else ():
        if name not in names:
            rows += planned(farm, [name], given, None, limit_s)
    kernels = None if compile_on_nodes else bundle or _bundle
    with working("plan"):
        made = create(out, farm, rows, kernels)
    if as_json:
        numbers = {"nodes": len(farm), "rows": len(rows)}
        print_json({"plan": str(made.folder), **numbers, "bundle": made.bundle})
        return
    show(f"{out}: {len(rows)} rows, {len(farm)} nodes", rest="    ")
    if not quiet():
        longest = Counter[str]()
        for row in rows:
            longest[row.node] += row.limit_s
        show(f"at most {max(longest.values()) / 3600:.1f} hours on a node", "  ")
        on = " --on slurm" if from_sinfo else ""
        show(f"perflib fleet run {out}{on}", "to run it: ")


def _bundle(folder: Path) -> None:
    from perflib.cli.build import bundled

    bundled(folder)


def _nodes(file: Path | None, from_sinfo: bool, partition: str | None) -> list[Node]:
    from perflib.fleet.nodes import query_sinfo, read

    if (file is not None) == from_sinfo:
        msg = "which nodes? Give one of: a file, --from-sinfo"
        raise UserError(msg)
    if partition is not None and not from_sinfo:
        msg = "--partition is of Slurm: it goes with --from-sinfo"
        raise UserError(msg)
    return query_sinfo(partition) if file is None else read(file)


@fleet.command(
    epilog=examples(
        "perflib fleet run plan",
        "perflib fleet run plan --on slurm --jobs 500",
    )
)
@_PLAN
@click.option(
    "--on",
    type=OneOf("scheduler", ("local", "slurm")),
    default="local",
    help="local: this host, one job after the other; slurm.",
)
@click.option("--jobs", default=100, type=click.IntRange(1), help="The most submitted at a time.")
@click.option(
    "--deadline",
    "deadline_h",
    default=24.0,
    type=click.FloatRange(0, 8760, min_open=True),
    help="After how many hours a job that could not begin is given up.",
)
def run(plan: Path, on: str, jobs: int, deadline_h: float) -> None:
    """Measure what is missing, and wait for it.

    Interrupted, or killed, it continues where it was when it is called again.
    """
    from perflib.fleet.engine import run as run_plan
    from perflib.fleet.outcomes import outcomes
    from perflib.fleet.plan import open_plan

    opened = open_plan(plan)
    deadline_s = round(3600 * deadline_h)

    with counter(f"fleet {plan.name}") as progress:
        wanted = set(run_plan(opened, on, jobs, deadline_s, progress))
    found = outcomes(opened)
    _print_states(found)
    if others := sum(one.state != "done" and one.key not in wanted for one in found):
        say(f"{others} rows are of other hosts, and wait: --on slurm")
    if missing := sum(one.state != "done" and one.key in wanted for one in found):
        msg = f"{missing} of {len(found)} rows are not done: 'perflib fleet run {plan}' tries again"
        raise MeasurementError(msg)


@fleet.command(epilog=examples("perflib fleet status plan", "perflib fleet status plan -v"))
@_PLAN
@json_option
def status(plan: Path, as_json: bool) -> None:
    """Say how far a plan is, and why what is not done is not.

    With -v every row; with -q the numbers alone.
    """
    from perflib.fleet.outcomes import outcomes
    from perflib.fleet.plan import open_plan

    opened = open_plan(plan)
    found = outcomes(opened)
    if as_json:
        states = Counter(one.state for one in found)
        print_json({"plan": str(plan), "states": states, "rows": [asdict(one) for one in found]})
        return
    _print_states(found)


def _print_states(found: list[Outcome]) -> None:
    """The number of rows in each state; then those that somebody must look at."""
    from perflib.fleet.outcomes import STATES

    numbers = Counter(one.state for one in found)
    for state in STATES:
        if numbers[state]:
            put(f"{numbers[state]:6d}  {state}")
    if quiet():
        return
    listed = [
        one for one in found if verbose() or one.state not in ("done", "waiting") or one.second
    ]
    most = len(listed) if verbose() else _MOST_LISTED
    for one in listed[:most]:
        words = f"{one.node} {one.experiment}: {one.state}"
        show(visible(f"{words}, {one.reason}" if one.reason else words), f"{one.key}  ", "    ")
    if len(listed) > most:
        show(f"({len(listed) - most} more: -v)", "    ")
    if crowded := sum(one.alone is False for one in found):
        say(f"{crowded} measurements were not alone on their machines")
    waiting = next((one.reason for one in found if one.state == "waiting" and one.reason), "")
    if waiting:
        say(f"waiting: {waiting}")


@fleet.command(epilog=examples("perflib fleet collect plan"))
@_PLAN
@json_option
def collect(plan: Path, as_json: bool) -> None:
    """Import the results into the store.

    Every result is compared with its checksum and with its row. Again changes nothing. The plan's
    collected.csv says which run belongs to which node.
    """
    from perflib.fleet.collect import collect as collected
    from perflib.fleet.plan import open_plan

    with counter(f"collect {plan.name}") as progress:
        opened = open_plan(plan)
        found = collected(opened, progress)
    numbers = Counter(one.state for one in found)
    missing = len(opened.rows) - len(found)
    if as_json:
        rows = [asdict(one) for one in found]
        print_json({"plan": str(plan), "states": numbers, "missing": missing, "results": rows})
        return
    for state, number in numbers.items():
        put(f"{number:6d}  {state}")
    if missing:
        put(f"{missing:6d}  not done yet")
    if quiet():
        return
    for one in found:
        if one.state == "refused":
            show(visible(f"{one.node} {one.experiment}: {one.reason}"), f"{one.key}  ", "    ")


@fleet.command(epilog=examples("perflib fleet report plan --out monday.html"))
@_PLAN
@click.option("--out", default=Path("farm.html"), type=FILE, help="The file.")
@click.option(
    "--threshold",
    default=1.0,
    type=click.FloatRange(0, 1000, min_open=True),
    help="Smallest slowdown that matters, in %.",
)
@json_option
def report(plan: Path, out: Path, threshold: float, as_json: bool) -> None:
    """Write a report of what stands out: one HTML file.

    It is of the runs that were collected, and lists the rows that are not done.
    """
    from perflib.fleet.analysis.correct import all_findings
    from perflib.fleet.analysis.table import farm_table
    from perflib.fleet.outcomes import table
    from perflib.fleet.plan import open_plan
    from perflib.lab.farm_report import write_farm_report

    opened = open_plan(plan)
    with working("report"):
        levels, nodes = farm_table(opened.folder)
        sentences = write_farm_report(
            levels,
            nodes,
            out,
            title=f"The farm of {plan.name}",
            outcomes=table(opened),
            threshold_percent=threshold,
            wrong=all_findings(opened.folder),
        )
    if as_json:
        print_json({"plan": str(plan), "sentences": sentences, "report": str(out)})
        return
    for sentence in sentences:
        show(sentence, "  ", "    ")
    put(f"report: {out}")


@fleet.command(hidden=True, epilog=examples("perflib fleet job plan 502de5fb771b56a0"))
@_PLAN
@click.argument("key")
@click.option("--transferred", is_flag=True, help="The scheduler carries the files.")
def job(plan: Path, key: str, transferred: bool) -> None:
    """Do one row of a plan here: what an engine starts on the node."""
    from perflib.fleet.job import perform
    from perflib.fleet.plan import open_plan

    opened = open_plan(plan)
    outcome = perform(opened, opened.row(key), transferred=transferred)
    say(f"{key}: {outcome.state}{outcome.reason and f', {outcome.reason}'}")
    if outcome.state != "done":
        raise MeasurementError(outcome.reason)
    if not transferred:  # Snakemake's mark; it removes the folder when a job fails
        (opened.folder / "started").mkdir(exist_ok=True)
        (opened.folder / "started" / key).touch()
