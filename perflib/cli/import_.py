"""The command that brings runs from elsewhere into the store: import."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from perflib.cli.names import FILE
from perflib.cli.output import examples, json_option, print_json, put, quiet, verbose, working
from perflib.model.errors import MeasurementError


@click.command(
    "import", epilog=examples("perflib import plan/results", "perflib import node17.parquet -v")
)
@click.argument("paths", nargs=-1, required=True, type=FILE, metavar="PATH...")
@json_option
def import_(paths: tuple[Path, ...], as_json: bool) -> None:
    """Copy runs of another machine or user into the store.

    PATH is a run's file, a folder of such files, or another store. Each is checked before it is
    copied, and none in the store is replaced: what is refused is listed with its reason, and the
    exit status is 1. Journals of unfinished runs and recordings of threads stay where they are.
    With -v every file is listed.
    """
    from perflib.experiments.importing import import_runs

    with working("importing"):
        outcomes = import_runs(paths)
    if as_json:
        entries = [{**vars(one), "path": str(one.path)} for one in outcomes]
        print_json({"imported": entries})
    else:
        for one in outcomes:
            if one.state == "refused" or verbose():
                put(f"{one.state}: {one.path}{': ' if one.reason else ''}{one.reason}")
            elif quiet() and one.state == "imported":
                put(one.run)
    counts = Counter(one.state for one in outcomes)
    if not as_json and not quiet():
        put(f"{counts['imported']} imported, {counts['there already']} there already")
    if counts["refused"]:
        msg = f"{counts['refused']} of {len(outcomes)} were refused"
        raise MeasurementError(msg)
