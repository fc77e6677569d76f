"""Commands that open or run notebooks: lab, batch."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perflib.cli.names import FILE
from perflib.cli.output import examples, json_option, parameter_option, print_json, put, say, show
from perflib.model.errors import MeasurementError
from perflib.model.extras import need

if TYPE_CHECKING:
    from perflib.batch import Outcome

_START = "home.ipynb"


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog=examples("perflib lab", "perflib lab my-notebooks --port 9999"),
)
@click.argument("folder", required=False, type=FILE)
@click.argument("jupyter_options", nargs=-1, type=click.UNPROCESSED)
def lab(folder: Path | None, jupyter_options: tuple[str, ...]) -> None:
    """Open the notebooks in JupyterLab.

    They are copied into FOLDER first, where those that are there already stay as they are; without
    FOLDER the checkout's own are opened. JupyterLab begins with home.ipynb, the start page, unless
    an option names another default_url. Further options go to JupyterLab.
    """
    import os

    from perflib.store.paths import place_notebooks

    need("jupyterlab")
    place = place_notebooks(folder)
    say(f"notebooks: {place}")
    own = any("default_url" in option for option in jupyter_options)
    start = not own and (place / _START).is_file()
    first = [f"--LabApp.default_url=/lab/tree/{_START}"] if start else []
    argv = [sys.executable, "-P", "-m", "jupyterlab", str(place), *first, *jupyter_options]
    os.execv(sys.executable, argv)


@click.command(
    epilog=examples(
        "perflib batch notebooks/01_kv_per_core.ipynb -p events=50",
        "perflib batch notebooks/*.ipynb --sets cores.yaml --out monday --skip-done",
    )
)
@click.argument("notebooks", nargs=-1, required=True, type=FILE)
@click.option("--sets", type=FILE, help="Parameter sets: YAML, JSON or CSV.")
@parameter_option
@click.option("--out", default=Path("batch"), type=FILE, help="Folder of the outputs.")
@click.option("--timeout", "timeout_s", type=float, help="The longest one notebook may take, s.")
@click.option("--skip-done", is_flag=True, help="Leave out what succeeded before, unchanged.")
@json_option
def batch(
    notebooks: tuple[Path, ...],
    sets: Path | None,
    assignments: tuple[str, ...],
    out: Path,
    timeout_s: float | None,
    skip_done: bool,
    as_json: bool,
) -> None:
    """Run notebooks through papermill, once a parameter set.

    A failed one stops no other. What -p gives counts for every set that does not give it itself.
    An output is replaced when its notebook has succeeded; what failed or was killed stays next to
    it as NAME.unfinished.ipynb. --skip-done continues where an earlier batch ended: it leaves out
    every output that was made from the same notebook with the same parameters.
    """
    from perflib import batch as batches

    common = batches.parse_assignments(assignments)
    chosen = batches.load_sets(sets) if sets else [{}]
    outcomes = batches.batch(
        list(notebooks),
        [{**common, **one} for one in chosen],
        out,
        timeout_s=timeout_s,
        skip_done=skip_done,
        done=lambda outcome: say(
            f"{outcome.output.name} {outcome.state} ({outcome.seconds:.0f} s)"
        ),
        progress=say,
    )
    if as_json:
        print_json({"outcomes": [outcome.to_dict() for outcome in outcomes]})
    else:
        _print_outcomes(outcomes)
    failed = sum(outcome.state == "failed" for outcome in outcomes)
    if failed:
        msg = f"{failed} of {len(outcomes)} notebooks failed"
        raise MeasurementError(msg)


def _print_outcomes(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        given = " ".join(f"{key}={value}" for key, value in outcome.parameters.items())
        show(f"{outcome.output}  {given}", f"{outcome.state:9} {outcome.seconds:7.1f} s  ")
        if outcome.message:
            show(outcome.message, " " * 10)
    counts = Counter(outcome.state for outcome in outcomes)
    before = f", {counts['skipped']} did before" if counts["skipped"] else ""
    put(f"{counts['succeeded']} of {len(outcomes)} notebooks succeeded{before}")
