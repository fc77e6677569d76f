"""Run a plan: Snakemake starts one job a row, here one after the other, or through Slurm.

Snakemake is told what is missing, and nothing else: results, checks and "exactly once" are the
job's. A driver that was killed is started again and goes on.
"""

from __future__ import annotations

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
from perflib.measure.conditions import Conditions
from perflib.measure.launch import command
from perflib.model.errors import MeasurementError, UserError
from perflib.model.extras import need

__all__ = ["EXECUTORS", "find", "run", "to_do"]

EXECUTORS = ("local", "slurm")
_STEPS = re.compile(r"(\d+) of (\d+) steps")
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
                "--on slurm or --on htcondor"
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
        It was interrupted; the jobs were cancelled, and the same call goes on.
    """
    need("snakemake")
    if on == "slurm":
        need("snakemake_executor_plugin_slurm")
        find("sbatch")
    with driving(plan):
        take_in(plan)
        keys = to_do(plan, here=on == "local")
        if keys:
            _mark(plan, keys)
            _snakemake(plan, on, jobs, within_s, len(keys), progress)
        return keys


def find(program: str) -> None:
    """See that a scheduler's program is here.

    Raises
    ------
    UserError
        It is not.
    """
    if shutil.which(program) is None:
        msg = f"there is no {program} here: call perflib where the scheduler's clients are"
        raise UserError(msg)


def _mark(plan: Plan, keys: Iterable[str]) -> None:
    """Tell Snakemake what is missing: no mark of a started job stands for a result."""
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
    words = [sys.executable, "-m", "snakemake", "--profile", f"profiles/{on}"]
    if on != "local":
        words += ["--jobs", str(jobs), "--config", f"within_s={within_s}"]
    argv, _ = command(Conditions(aslr=True), words)  # it dies with this process
    environment = {key: os.environ[key] for key in os.environ if key != "SNAKEMAKE_PROFILE"}
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    with (
        (plan.folder / "logs" / f"driver-{stamp}-{time.time_ns() % 10**9:09}.log").open("w") as log,
        subprocess.Popen(
            argv, cwd=plan.folder, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            start_new_session=True,
        ) as process,
    ):  # fmt: skip
        try:
            began, last = _follow(process, log, number, progress)
        except KeyboardInterrupt:
            _interrupt(process, log)
            msg = (
                f"interrupted: jobs that ran were cancelled, results are kept. 'perflib fleet run "
                f"{plan.folder}' goes on"
            )
            raise MeasurementError(msg) from None
        status = process.wait()
    if status and not began:
        msg = f"Snakemake did not start any job: {last or f'status {status}'} (see {log.name})"
        raise MeasurementError(msg)


def _follow(
    process: subprocess.Popen[str],
    log: IO[str],
    number: int,
    progress: Callable[[int, int], None] | None,
) -> tuple[bool, str]:
    """Keep what Snakemake says, which also tells how far it is: nothing is polled meanwhile.

    Whether it began a job, and its last line.
    """
    assert process.stdout is not None
    began, last = False, ""
    for line in process.stdout:
        log.write(line)
        log.flush()
        last = line.strip() or last
        began |= line.startswith(("rule ", "localrule "))
        if progress is not None and (match := _STEPS.match(line)):
            progress(min(int(match[1]), number), number)
    return began, last


def _interrupt(process: subprocess.Popen[str], log: IO[str]) -> None:
    """Have Snakemake cancel its jobs, and end; a second Ctrl-C ends it at once."""
    try:
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=_END_S)
        log.write(said or "")
    except ProcessLookupError:
        pass
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
