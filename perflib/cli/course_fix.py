"""Commands about code to mend: course fix list, copy, validate, bench."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perflib.cli.names import FILE, OneOf
from perflib.cli.output import Commands, examples, json_option, print_json, put, reporter, say, show
from perflib.course.fix.problems import NAMES
from perflib.model.errors import MeasurementError

if TYPE_CHECKING:
    from perflib.course.fix.bench import Bench
    from perflib.course.fix.interface import Fix

_NAME = OneOf("problem", NAMES)


@click.group(
    cls=Commands,
    epilog=examples(
        "perflib course fix list",
        "perflib course fix copy false_sharing mine",
        "perflib course fix validate false_sharing mine/false_sharing.c",
        "perflib course fix bench false_sharing mine/false_sharing.c",
    ),
)
def fix() -> None:
    """Mend code that is slower than it should be, and prove it.

    Copy a piece, change it, see that its results stay, and time it compared with the original.
    """


@fix.command("list", epilog=examples("perflib course fix list"))
@json_option
def list_(as_json: bool) -> None:
    """Show the pieces of code, and what each does."""
    from perflib.course.fix import fixes

    rows = fixes().to_dict("records")
    if as_json:
        print_json(rows)
        return
    for row in rows:
        show(str(row["title"]), f"{row['name']:17s}", " " * 17)


@fix.command(
    epilog=examples("perflib course fix copy page_chase", "perflib course fix copy page_chase mine")
)
@click.argument("name", type=_NAME)
@click.argument("folder", required=False, default=Path(), type=FILE)
def copy(name: str, folder: Path) -> None:
    """Write the code to mend to NAME.c, in FOLDER or here.

    A file that is there stays as it is.
    """
    put(str(_fix(name).copy(folder)))


@fix.command(
    epilog=examples(
        "perflib course fix validate page_chase page_chase.c",
        "perflib course fix validate page_chase page_chase.c --inputs 1000 --seed 2",
    )
)
@click.argument("name", type=_NAME)
@click.argument("file", required=False, type=FILE)
@click.option("--inputs", type=click.IntRange(0), default=100, help="Inputs at random.")
@click.option("--seed", type=int, default=1, help="Of the inputs.")
def validate(name: str, file: Path | None, inputs: int, seed: int) -> None:
    """Are the results of the changed code the same?

    FILE is NAME.c here where it is not given. Exit status 1, and the first input that fails, where
    they are not.
    """
    problem = _fix(name)
    found = problem.validate(file or Path(f"{name}.c"), inputs=inputs, seed=seed)
    if not found:
        msg = f"{name}: {found.says}"
        raise MeasurementError(msg)
    show(f"{name}: {found.says}")


@fix.command(
    epilog=examples(
        "perflib course fix bench page_chase page_chase.c",
        "perflib course fix bench page_chase --solution mended",
        "perflib course fix bench page_chase page_chase.c --budget-s 60 --json",
    )
)
@click.argument("name", type=_NAME)
@click.argument("file", required=False, type=FILE)
@click.option("--solution", help="Time this solution in place of a file: mended, or another.")
@click.option("--budget-s", type=float, default=20.0, help="The most time to measure.")
@click.option("--precision-percent", type=float, default=0.5, help="The half-width to reach.")
@json_option
def bench(
    name: str,
    file: Path | None,
    solution: str | None,
    budget_s: float,
    precision_percent: float,
    as_json: bool,
) -> None:
    """Time the changed code compared with the original, in turns, and say by how much it is faster.

    It is validated first. FILE is NAME.c here where it is not given. Exit status 1 where the code
    fails, not where it is slower.
    """
    problem = _fix(name)
    if solution and file:
        msg = "give a file or --solution, not both"
        raise click.UsageError(msg)
    source: str | Path = problem.solution(solution) if solution else file or Path(f"{name}.c")
    with reporter(name) as progress:
        found = problem.bench(
            source, budget_s=budget_s, precision_percent=precision_percent, progress=progress
        )
    if as_json:
        print_json(_record(found))
        return
    show(f"{name}: {found.compared}", rest="  ")
    for line in found.remarks:
        say(f"  {line}")


def _record(found: Bench) -> dict[str, object]:
    def ends(interval: tuple[float, ...]) -> list[float | None]:
        return [value if math.isfinite(value) else None for value in interval]

    return {
        "problem": found.problem,
        "verdict": found.verdict,
        "saved_percent": ends(found.saved_percent),
        "times_as_fast": ends(found.times_as_fast),
        "says": str(found.compared),
        "remarks": found.remarks,
    }


def _fix(name: str) -> Fix:
    from perflib.course.fix import fix as made

    return made(name)
