"""The command about a function's instructions: annotate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from perflib.cli.names import RUN
from perflib.cli.output import (
    examples,
    json_option,
    print_findings,
    print_json,
    put_cut,
    quiet,
    show,
    verbose,
)
from perflib.model.escape import visible

if TYPE_CHECKING:
    from perflib.instruments.profile.annotate import Annotation
    from perflib.instruments.profile.side_by_side import SideBySide
    from perflib.model.run import Run


@click.command(
    epilog=examples(
        "perflib annotate event_profile-20261101",
        "perflib annotate event_profile-20261101 __sin_fma --core 0 --core 8",
        "perflib annotate new kv_step --against old",
    )
)
@click.argument("run_id", type=RUN, metavar="RUN")
@click.argument("function", required=False)
@click.option("--against", type=RUN, help="Another run: what became costlier in RUN?")
@click.option(
    "--core",
    "cores",
    multiple=True,
    type=int,
    metavar="CORE",
    help="Twice: the cores to compare; once: this core alone, or the same core of both runs.",
)
@click.option("--event", metavar="NAME", help="Which class of events, where there are several.")
@json_option
def annotate(
    run_id: str,
    function: str | None,
    against: str | None,
    cores: tuple[int, ...],
    event: str | None,
    as_json: bool,
) -> None:
    """Show which instructions of FUNCTION have its samples.

    RUN is a run of event_profile: by default the core on which the event takes longest is compared
    with the reference core, and without FUNCTION each function that stands out there is shown, or
    the costliest where none does. Instructions of two builds are aligned by their opcodes. Shares
    are of the function's samples, all intervals of a table cover at once. Disassembly and source
    are read now, if the object's file is still the one that was profiled.

    Instructions far from samples are left out, and long lines cut at 80 columns, but not with -v;
    with -q only the verdicts of a comparison, or the instructions of one core.
    """
    from perflib.experiments.event_profile.instructions import annotated, sides_of
    from perflib.store.run_files import load

    run = load(run_id)
    sides = sides_of(run, load(against) if against else None, cores, event)
    if sides is None:
        _one_side(run, annotated(run, function, cores[0] if cores else None, event), as_json)
        return
    shown = [sides.beside(function)] if function else sides.all_beside()
    if as_json:
        from perflib.instruments.profile.lines import beside_record

        whole = {"run": run.id, "against": against and sides.first, "standing_out": sides.standing}
        print_json({**whole, "functions": [beside_record(found) for found in shown]})
        return
    if not function and not quiet():
        names = ", ".join(sides.standing)
        stands = f"stand out on {sides.second}: {names}" if names else "none stands out"
        show(visible(f"{sides.second} compared with {sides.first}: functions: {stands}"), rest="  ")
    for found in shown:
        _print(found)


def _print(found: SideBySide) -> None:
    from perflib.instruments.profile.findings import instruction_findings
    from perflib.instruments.profile.lines import beside_lines

    if not quiet():
        files = dict.fromkeys(found.objects)
        show(visible(f"{found.function} in {' and '.join(files)}"), rest="    ")
        show(visible(f"first: {found.first}, second: {found.second}"), "  ")
    findings = instruction_findings(found)
    print_findings(findings if verbose() or quiet() else findings[:1])
    if quiet():
        return
    if not verbose():
        show(findings[0].reason, "  ", "    ")
    for remark in found.remarks:
        show(visible(remark), "  ", "    ")
    for line in beside_lines(found, whole=verbose()):
        put_cut(line)


def _one_side(run: Run, found: Annotation, as_json: bool) -> None:
    """The samples of one core alone: nothing is compared."""
    from perflib.instruments.profile.lines import rows_of

    if as_json:
        one = {"function": found.function, "object": found.object, "remarks": list(found.remarks)}
        rows = rows_of(found.table)
        print_json({"run": run.id, "functions": [{**one, "instructions": rows}]})
        return
    if not quiet():
        show(visible(f"{found.function} in {found.object}"), rest="    ")
        for remark in found.remarks:
            show(visible(remark), "  ", "    ")
    for line in found.lines(None if verbose() else 10):
        put_cut(line)
