"""Commands about what a job's threads do over time: threads record, show, export, html."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from perflib.cli.names import FILE, RUN
from perflib.cli.output import (
    Commands,
    Wanted,
    command_words,
    examples,
    json_option,
    measuring,
    print_json,
    put,
    quiet,
    say,
    show,
    table_lines,
    working,
)
from perflib.cli.times import seconds
from perflib.model.errors import UserError, choose
from perflib.model.escape import shortened

if TYPE_CHECKING:
    import pandas as pd

    from perflib.instruments.threads.recording import Recording

_CANNOT_SEE = {
    "perf": "perf records the scheduler and futexes of the whole machine: a lock that only spins "
    "is seen by its function's name, and a wait for a disk or a timer without who ended it",
    "preload": "preload stamps waits for locks of the C library: it does not see futexes of the "
    "job's own (as Go's), programs linked statically, who signalled a condition "
    "variable; run-queue delay is only sampled",
    "states": "states only polls /proc: no stacks, no holders of locks, and nothing that is "
    "shorter than a poll",
}
_ROWS = 12
_WIDEST = 60
_version_option = click.option(
    "--version", metavar="NAME", help="Whose recording, if the run has several."
)


@click.group(
    cls=Commands,
    epilog=examples(
        "perflib threads record -- ./my-job --events 3",
        "perflib threads show threads-20261101",
    ),
)
def threads() -> None:
    """Record what a job's threads do, and what they wait for."""


@threads.command(
    epilog=examples(
        "perflib threads record -- ./my-job --events 3",
        "perflib threads record --report threads.html -- python3 my_job.py",
        "perflib threads record --pid 4711 --for 10s",
    )
)
@command_words
@click.option("--pid", type=int, help="A process that runs already, in place of COMMAND.")
@click.option("--backend", metavar="NAME", default="auto", help="perf, preload, states or auto.")
@click.option("--for", "for_s", metavar="TIME", callback=seconds, help="How long: 10s, 2min.")
@click.option("--report", type=FILE, metavar="FILE", help="Write the run's report.")
@measuring
def record(
    command: tuple[str, ...],
    pid: int | None,
    backend: str,
    for_s: float | None,
    report: Path | None,
    wanted: Wanted,
) -> None:
    """Record the threads of a job, in C or in Python.

    COMMAND runs alone and recorded in turn, until what the recording costs is known; a process
    that runs already is recorded once, and continues. It is a run of 'threads' like all others:
    'perflib list threads' shows its parameters, without COMMAND that is the event loop's.
    """
    from perflib.cli.measure import given_by, measured
    from perflib.instruments.threads.record import chosen

    if bool(command) == (pid is not None):
        msg = "what is recorded? one of --pid and a command after --"
        raise UserError(msg)
    given = given_by(command, backend=backend, duration_s=for_s)
    if not command:
        given |= {"job": "running", "job_pid": pid}
    say(_CANNOT_SEE[chosen(backend, running=pid is not None)])
    run = measured("threads", given, wanted)
    if report is not None:
        from perflib.lab.report import write_report

        write_report([run], report)
        if not wanted.as_json:
            put(f"report: {report}")


@threads.command("show", epilog=examples("perflib threads show threads-20261101"))
@click.argument("run_id", type=RUN, metavar="RUN")
@_version_option
@json_option
def show_(run_id: str, version: str | None, as_json: bool) -> None:
    """Show states, locks and the critical path of a recording.

    The critical path is the chain of dependences that ends with the job: what shortens none of it
    makes the job no shorter. A lock's share of it is what others on the path waited for.
    """
    recording = _recording(run_id, version)
    with working("tables of the recording"):
        tables = _tables(recording)
    if as_json:
        print_json({name: table.to_dict("records") for name, table in tables.items()})
        return
    if not quiet():
        meta = recording.meta
        length = (recording.end_ns - recording.start_ns) / 1e9
        show(f"{len(recording.threads)} threads, {length:.3g} s, recorded by {meta['backend']}")
        for remark in meta["remarks"]:
            show(remark, "  ", "  ")
    for name, table in tables.items():
        put()
        show(name)
        for line in _lines(table.head(_ROWS)):
            put(f"  {line}")


@threads.command(
    epilog=examples("perflib threads export threads-20261101 --perfetto job.perfetto-trace")
)
@click.argument("run_id", type=RUN, metavar="RUN")
@click.option(
    "--perfetto",
    type=FILE,
    metavar="FILE",
    required=True,
    help="A gzipped trace for https://ui.perfetto.dev.",
)
@_version_option
def export(run_id: str, perfetto: Path, version: str | None) -> None:
    """Write a recording for Perfetto."""
    from perflib.instruments.threads.export import write

    recording = _recording(run_id, version)
    with working("trace of the recording"):
        write(recording, perfetto)
    put(f"perfetto: {perfetto}")


@threads.command(epilog=examples("perflib threads html threads-20261101 job.html"))
@click.argument("run_id", type=RUN, metavar="RUN")
@click.argument("out", type=FILE, metavar="OUT.html")
@_version_option
def html(run_id: str, out: Path, version: str | None) -> None:
    """Write a recording's timeline as one HTML file."""
    from perflib.lab.threads.standalone import write_html

    recording = _recording(run_id, version)
    with working("page of the recording"):
        write_html(recording, out, run_id)
    put(f"html: {out}")


def _recording(run_id: str, version: str | None) -> Recording:
    """The recording of a run, or of one of its versions."""
    from perflib.experiments.threads.recordings import recordings
    from perflib.store.run_files import load

    run = load(run_id)
    if run.experiment != "threads":
        msg = f"{run.id} is a run of {run.experiment}: only runs of threads have recordings"
        raise UserError(msg)
    found = recordings(run)
    if not found:
        msg = f"{run.id} has no recordings any more on this machine: record it again"
        raise UserError(msg)
    if version is None:
        version = next(reversed(found))
        if len(found) > 1:
            say(f"the recording of {version}: --version chooses another of {', '.join(found)}")
    if version not in found:
        raise UserError(choose("version", version, found))
    return found[version]


def _tables(recording: Recording) -> dict[str, pd.DataFrame]:
    from perflib.instruments.threads.concurrency import thread_states
    from perflib.instruments.threads.formats import STATES
    from perflib.instruments.threads.use import use_of_time
    from perflib.instruments.threads.waits import lock_waits
    from perflib.instruments.threads.wakeups import critical_path, path_summary

    states = thread_states(recording).sort_values("running", ascending=False, kind="stable")
    states = states.rename(columns={name: f"{name}_s" for name in STATES})
    locks = lock_waits(recording)
    path = critical_path(recording)
    by = {
        one: path_summary(recording, one, path) for one in ("function", "lock", "thread", "state")
    }
    # Locks on the heap that are called by their caller, and threads, may have one name.
    for table in (locks, by["lock"]):
        numbers = table["lock"].tolist()
        table["name"] = [
            f"{name} at {recording.locks[number].address:#x}" if number >= 0 else name
            for name, number in zip(table["name"], numbers, strict=True)
        ]
    threads = by["thread"]
    tids = [recording.threads["tid"][row] if row >= 0 else "?" for row in threads["thread"]]
    threads["name"] = [f"{name} ({tid})" for name, tid in zip(threads["name"], tids, strict=True)]
    return {
        "use of the cores (classes of VTune)": use_of_time(recording),
        "states (ready: run-queue delay)": states[["tid", "name", *(f"{one}_s" for one in STATES)]],
        "locks": locks[
            [
                "name",
                "kind",
                "waits",
                "waiting_s",
                "ready_s",
                "longest_ms",
                "threads",
                "on_its_line",
            ]
        ],
        **{
            f"critical path by {one}": table.drop(columns=[one], errors="ignore")
            for one, table in by.items()
        },
    }


def _lines(table: pd.DataFrame) -> list[str]:
    """A table's rows, numbers to the right; names are cut."""
    if table.empty:
        return ["none"]
    columns = []
    for name, column in table.items():
        texts = [f"{one:.3g}" if isinstance(one, float) else str(one) or "-" for one in column]
        cells = [str(name), *(shortened(text, _WIDEST) for text in texts)]
        columns.append((cells, column.dtype.kind in "if"))
    return table_lines(columns)
