"""The command about profiles: profile."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from perflib.cli.names import FILE, RUN
from perflib.cli.output import (
    examples,
    json_option,
    print_json,
    put,
    put_cut,
    quiet,
    records,
    show,
)
from perflib.instruments.profile.export import FORMATS
from perflib.model.errors import UserError
from perflib.model.escape import visible

if TYPE_CHECKING:
    from perflib.instruments.perf.script import Profile
    from perflib.instruments.profile.comparison import Comparison
    from perflib.model.run import Run

_PARQUET = b"PAR1"


class _TextOrRun(click.Path):
    """A file, or a saved run; both complete when TAB is pressed."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Files, and the runs."""
        files = super().shell_complete(ctx, param, incomplete)
        return [*files, *RUN.shell_complete(ctx, param, incomplete)]


def _outputs(command: Callable[..., Any]) -> Callable[..., Any]:
    """An option for each kind of file that another program opens."""
    for name, form in reversed(list(FORMATS.items())):
        command = click.option(f"--{name}", metavar="OUT", type=FILE, help=form.help)(command)
    return command


@click.command(
    epilog=examples(
        "perf script > profile.txt",
        "perflib profile profile.txt --folded profile.folded",
        "perflib profile slow.txt --against fast.txt",
        "perflib profile event_profile-20261101 --pprof event.pb.gz",
    )
)
@click.argument("file", type=_TextOrRun(), metavar="FILE|RUN")
@_outputs
@click.option("--event", metavar="NAME", help="Only this event (default: the first sample's).")
@click.option(
    "--against",
    metavar="OTHER",
    type=_TextOrRun(),
    help="Another text or run: which functions take more in the first?",
)
@json_option
def profile(
    file: str, event: str | None, against: str | None, as_json: bool, **outputs: Path | None
) -> None:
    """Show where the time goes, by library and by function.

    FILE is the text that 'perf script' writes; or it is a saved run of event_profile (its name, the
    beginning of one, or its file), of which --event chooses the job's event where there are
    several. The Parquet table has the samples of every event unless one is named. An output that is
    there already is replaced. Long names are cut at 80 columns, but not with -v; with -q only the
    tables are shown.
    """
    from perflib.instruments.profile import lines as summary

    wanted = {name: path for name, path in outputs.items() if path is not None}
    summary.check_outputs(Path(file), wanted)
    run, whole = _read(file, event)
    chosen = whole if run else summary.of_event(whole, event)
    comparison, additional = None, {}
    if against:
        comparison = _compared(file, run, chosen, against, event)
    elif run:
        additional = _by_core(run)
    for name, path in wanted.items():
        if name == "parquet":  # with perf's header
            from perflib.instruments.profile.export.parquet import write_parquet

            write_parquet(chosen if event else whole, path)
        else:
            FORMATS[name].write(chosen.samples, Path(file).name, path)
    if as_json:
        written = {name: str(path) for name, path in wanted.items()}
        record = summary.record(whole, chosen)
        if run:
            record |= {"run": run.id, "additional_time": additional}
        if comparison:
            from perflib.instruments.profile.findings import comparison_findings

            record["against"] = str(against)
            record["findings"] = records(comparison_findings(comparison))
            record["additional_time"] = summary.additional_record(comparison)
        print_json({"file": str(file), **record, **written})
        return
    if not quiet():
        head = _headline(run, whole) if run else summary.headline(whole)
        show(visible(f"{file}: {head}"), rest="    ")
        for line in summary.unread_lines(whole) + summary.doubts(whole):
            show(line, "  ", "    ")
        events = [str(one) for one in whole.samples["event"].unique()]
        if len(events) > 1 and not event:
            show(
                f"the tables are of {events[0]}: --event {events[1]} shows the other", "  ", "    "
            )
    _print_table(summary.module_lines(chosen))
    _print_table(summary.function_lines(chosen))
    if comparison:
        if not quiet():
            show(visible(f"against {against}"))
            for sentence in summary.comparison_sentences(comparison):
                show(sentence, "  ")
        _print_table(summary.comparison_lines(comparison))
    if not quiet():
        for name, path in wanted.items():
            put(f"{name}: {path}")


def _read(file: str, event: str | None) -> tuple[Run | None, Profile]:
    """A text of perf's, or a run with its samples as such a text would give them."""
    from perflib.instruments.perf.script import read

    path = Path(file)
    if path.is_file():
        with path.open("rb") as opened:
            is_run = opened.read(len(_PARQUET)) == _PARQUET
        if not is_run:
            return None, read(path)
    elif path.exists() or path.suffix or path.name != file:  # no name of a run
        return None, read(path)
    from perflib.experiments.event_profile.instructions import current, profile_of
    from perflib.store.run_files import load

    try:
        run = load(file)
    except UserError as error:
        msg = f"{file} cannot be read: No such file or directory; nor is it a saved run: {error}"
        raise UserError(msg) from None
    run = current(run, event)
    return run, profile_of(run)


def _headline(run: Run, whole: Profile) -> str:
    cores = sorted(whole.samples["configuration"].unique())
    rounds = whole.samples["round"].nunique()
    return f"{len(whole.samples)} samples on {', '.join(cores)} in {rounds} rounds ({run.id})"


def _compared(
    file: str, run: Run | None, chosen: Profile, against: str, event: str | None
) -> Comparison:
    """Two runs by their repetitions, all else by counting alone."""
    from perflib.experiments.event_profile.profiles import compare_runs
    from perflib.instruments.profile import lines as summary

    other_run, other = _read(against, event)
    if run and other_run:
        return compare_runs(other_run, run).comparison
    return summary.compared(chosen, str(file), other, str(against))


def _by_core(run: Run) -> dict[str, list[dict[str, Any]]]:
    """What each function takes more on each other core than on the reference core."""
    from perflib.experiments.event_profile.profiles import CoreProfiles
    from perflib.instruments.profile.lines import additional_record

    compared = CoreProfiles(run).comparisons.items() if "core" in run.samples else []
    return {core: additional_record(comparison) for core, comparison in compared}


def _print_table(lines: Iterable[str]) -> None:
    """Rows that end with the names of functions; those may be as long as a page."""
    for line in lines:
        put_cut(f"  {line}")
