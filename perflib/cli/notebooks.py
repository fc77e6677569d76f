"""Commands that open or run notebooks: lab, batch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perflib.cli.output import parameter_option, say
from perflib.model.errors import MeasurementError

if TYPE_CHECKING:
    from perflib.batch import Outcome

__all__ = ["batch", "lab"]


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.argument("jupyter_options", nargs=-1, type=click.UNPROCESSED)
def lab(folder: Path | None, jupyter_options: tuple[str, ...]) -> None:
    """Open the notebooks in JupyterLab.

    They are copied into FOLDER first, where those that are there already stay as they are; without
    FOLDER the checkout's own are opened. Further options go to JupyterLab.
    """
    import os

    from perflib.model.paths import place_notebooks

    place = place_notebooks(folder)
    say(f"notebooks: {place}")
    argv = [sys.executable, "-m", "jupyterlab", str(place), *jupyter_options]
    os.execv(sys.executable, argv)


@click.command()
@click.argument("notebooks", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--sets", type=click.Path(path_type=Path), help="Parameter sets: YAML, JSON or CSV.")
@parameter_option
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
    """Run notebooks through papermill, once a parameter set.

    A failed one stops no other. What -p gives counts for every set that does not give it itself.
    """
    from perflib import batch as batches

    common = batches.parse_assignments(assignments)
    chosen = batches.load_sets(sets) if sets else [{}]
    outcomes = batches.batch(
        list(notebooks), [{**common, **one} for one in chosen], out, timeout_s=timeout_s
    )
    _print_outcomes(outcomes)


def _print_outcomes(outcomes: Sequence[Outcome]) -> None:
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
