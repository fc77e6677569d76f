"""The command about profiles that perf made: profile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from perflib.cli.output import (
    WIDTH,
    examples,
    json_option,
    print_json,
    put,
    quiet,
    records,
    show,
    verbose,
)
from perflib.model.escape import visible

__all__ = ["profile"]


def _out(name: str, what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(f"--{name}", metavar="OUT", type=click.Path(path_type=Path), help=what)


@click.command(
    epilog=examples(
        "perf script > profile.txt",
        "perflib profile profile.txt --folded profile.folded",
        "perflib profile slow.txt --against fast.txt",
    )
)
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
@json_option
def profile(
    file: Path,
    folded: Path | None,
    speedscope: Path | None,
    parquet: Path | None,
    event: str | None,
    against: Path | None,
    as_json: bool,
) -> None:
    """Show which functions 'perf script' found most in FILE.

    FILE is the text that it writes. The Parquet table has the samples of every event unless one is
    named. An output that is there already is replaced. Long names are cut at 80 columns, but not
    with -v; with -q only the tables are shown.
    """
    from perflib.instruments.perf.script import read
    from perflib.instruments.profile import export
    from perflib.instruments.profile import lines as summary
    from perflib.instruments.profile.findings import comparison_findings

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
            record["findings"] = records(comparison_findings(comparison))
        print_json({"file": str(file), **record, **written})
        return
    if not quiet():
        show(f"{file}: {summary.headline(read_profile)}", rest="    ")
        for line in summary.unread_lines(read_profile):
            show(line, "  ", "    ")
    _print_table(summary.function_lines(chosen))
    if comparison:
        if not quiet():
            show(f"against {against}")
            for sentence in summary.comparison_sentences(comparison):
                show(sentence, "  ")
        _print_table(summary.comparison_lines(comparison))
    if not quiet():
        for name, path in wanted.items():
            put(f"{name}: {path}")


def _print_table(lines: Iterable[str]) -> None:
    """Rows that end with the names of functions; those may be as long as a page."""
    for line in lines:
        whole = visible(f"  {line}")
        put(whole if verbose() or len(whole) <= WIDTH else f"{whole[: WIDTH - 1]}…")
