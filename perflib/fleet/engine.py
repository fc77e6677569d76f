"""Run a plan: Snakemake starts one job a row, here one after the other, or through Slurm.

Snakemake gets what is missing, and nothing else: results, checks and "exactly once" are the
job's. A driver that was killed is started again and continues.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import IO

from perflib.fleet import results
from perflib.fleet.driver import driving
from perflib.fleet.incoming import take_in
from perflib.fleet.job import same_host
from perflib.fleet.plan import Plan
from perflib.machine.scratch import scratch
from perflib.measure.conditions import Conditions
from perflib.measure.supervised import Supervised
from perflib.model.errors import MeasurementError, UserError
from perflib.model.extras import need

_STEPS = re.compile(r"(\d+) of (\d+) steps")
# A killed Snakemake leaves its temporary folder: `scratch` has it. Its jobs have their own.
_IN_FOLDER = """\
import runpy, sys, tempfile
tempfile.tempdir = sys.argv.pop(1)
runpy.run_module("snakemake", run_name="__main__", alter_sys=True)
"""
_END_S = 60.0  # for Snakemake to cancel what it has submitted


def to_do(plan: Plan, *, here: bool = False) -> list[str]:
    """The keys without a result; of this host alone, where wanted.

    Raises
    ------
    UserError
        None of the plan's nodes is this host.
    """
    rows = list(plan.rows.values())
    if here:
        name = os.uname().nodename
        rows = [row for row in rows if same_host(row.hostname, name)]
        if not rows:
            nodes = ", ".join(sorted({row.node for row in plan.rows.values()})[:5])
            msg = (
                f"none of the plan's nodes ({nodes} ...) is this host, {name}: run it with "
                "--on slurm"
            )
            raise UserError(msg)
    return [row.key for row in rows if not results.is_done(plan, row.key)]


def run(
    plan: Plan,
    on: str,
    jobs: int,
    within_s: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Start what is missing, and wait until everything has ended.

    Parameters
    ----------
    plan
        What is to be measured.
    on
        ``local``: the rows of this host, one after the other; ``slurm``.
    jobs
        The most that are submitted at a time.
    within_s
        When a job that could not begin is given up.
    progress
        Called with the number of jobs that are done and that of all.

    Returns
    -------
    list
        The keys that were missing.

    Raises
    ------
    UserError
        It cannot be started: a package or a scheduler is missing, or another driver is at work.
    MeasurementError
        It was interrupted; the jobs were cancelled, and the same call continues.
    """
    need("snakemake")
    if on == "slurm":
        need("snakemake_executor_plugin_slurm")
        if shutil.which("sbatch") is None:
            msg = "there is no sbatch here: call perflib where the scheduler's clients are"
            raise UserError(msg)
    with driving(plan):
        take_in(plan)
        keys = to_do(plan, here=on == "local")
        if keys:
            _mark(plan, keys)
            _snakemake(plan, on, jobs, within_s, len(keys), progress)
        return keys


def _mark(plan: Plan, keys: Iterable[str]) -> None:
    """List for Snakemake what is missing: no mark of a started job stands for a result."""
    (plan.folder / "todo.txt").write_text("".join(f"{key}\n" for key in keys))
    shutil.rmtree(plan.folder / "started", ignore_errors=True)


def _snakemake(
    plan: Plan,
    on: str,
    jobs: int,
    within_s: int,
    number: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    words = [sys.executable, "-P", "-c", _IN_FOLDER]
    others = ["--profile", f"profiles/{on}"]
    if on != "local":
        others += ["--jobs", str(jobs), "--config", f"within_s={within_s}"]
    environment = {key: os.environ[key] for key in os.environ if key != "SNAKEMAKE_PROFILE"}
    environment.setdefault("LOGNAME", str(os.getuid()))  # a container's user may have no name
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    name = f"driver-{stamp}-{time.time_ns() % 10**9:09}.log"
    reading, writing = os.pipe()
    with (
        scratch() as folder,
        (plan.folder / "logs" / name).open("w") as log,
        open(reading, errors="replace") as output,  # noqa: PTH123 (a descriptor)
        Supervised(  # with what it started it dies with this process
            [*words, str(folder), *others], Conditions(aslr=True), stdout=writing,
            stderr=subprocess.STDOUT, environment=environment, cwd=plan.folder,
        ) as job,
    ):  # fmt: skip
        os.close(writing)
        try:
            began, last = _follow(output, log, number, progress)
        except KeyboardInterrupt:
            _interrupt(job)
            log.write(output.read())
            msg = (
                f"interrupted: jobs that ran were cancelled, results are kept. 'perflib fleet run "
                f"{plan.folder}' continues"
            )
            raise MeasurementError(msg) from None
        job.ended(_END_S)
        job.kill()
    if job.returncode and not began:
        why = last or f"status {job.returncode}"
        msg = f"Snakemake did not start any job: {why} (see {log.name})"
        raise MeasurementError(msg)


def _follow(
    output: IO[str],
    log: IO[str],
    number: int,
    progress: Callable[[int, int], None] | None,
) -> tuple[bool, str]:
    """Keep Snakemake's output, which also reports progress: nothing polls meanwhile.

    Whether it began a job, and its last line.
    """
    began, last = False, ""
    for line in output:
        log.write(line)
        log.flush()
        last = line.strip() or last
        began |= line.startswith(("rule ", "localrule "))
        if progress is not None and (match := _STEPS.match(line)):
            progress(min(int(match[1]), number), number)
    return began, last


def _interrupt(job: Supervised) -> None:
    """Have Snakemake cancel its jobs, and end; a second Ctrl-C ends it at once."""
    with contextlib.suppress(KeyboardInterrupt):
        os.killpg(job.pid, signal.SIGINT)
        job.ended(_END_S)
    job.kill()
