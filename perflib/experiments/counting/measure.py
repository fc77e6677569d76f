"""Interval after interval, until what is watched ends, the time is up, or somebody stops it."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from perflib.experiments.counting import CountParams
from perflib.experiments.counting.events import chosen
from perflib.framework.experiment import Session
from perflib.instruments.counters.counting import Counting
from perflib.instruments.counters.groups import CounterGroup
from perflib.instruments.counters.system_counts import SystemCounts, group_folder
from perflib.instruments.counters.watched import Watched, watch
from perflib.instruments.joblog.jobrun import job_argv
from perflib.machine.cpulist import parse_cpus
from perflib.machine.files import text
from perflib.machine.processes import is_gone
from perflib.measure.job import Started
from perflib.measure.schedule import Status
from perflib.model.errors import UserError

_SHOWN_EVERY_S = 0.5
_ONLINE = Path("/sys/devices/system/cpu/online")
_MB = 1_000_000


def plan(params: CountParams) -> dict[str, Any]:
    """What cannot be counted here, and why; the CPUs that are watched."""
    if params.job == "running":
        assert params.job_pid is not None
        if is_gone(params.job_pid):
            msg = f"there is no process {params.job_pid}: 'ps' lists those that there are"
            raise UserError(msg)
    if params.job == "command":
        _argv(params)
    cpus = params.resolved_cores() if params.job == "machine" else []
    return {"cpus": cpus, "absent": _absent(params)}


def _absent(params: CountParams) -> dict[str, str]:
    """Each event that cannot be counted here, and why: tried on this process, without counting."""
    wanted = chosen(params.events, params.job)
    watched = watch() if params.job in ("command", "running") else _of_cpus(params)
    found: dict[str, str] = {}
    for name, events in wanted.sets.items():
        with CounterGroup(events, watched, name=name) as group:
            found |= group.refused
    pid, group_name = params.job_pid or os.getpid(), params.job_cgroup or None
    with SystemCounts(wanted.system, pid=pid, cgroup=group_name) as counts:
        found |= counts.lacking
    names = {one.name for events in wanted.sets.values() for one in events} | set(wanted.system)
    if names <= found.keys():
        reasons = "; ".join(f"{name}: {why}" for name, why in list(found.items())[:3])
        msg = f"none of these events can be counted here: {reasons}"
        raise UserError(msg)
    return found


def _of_cpus(params: CountParams) -> Watched:
    """The CPUs that are chosen, or a control group on all that there are."""
    if params.job == "machine":
        return watch(cpus=params.resolved_cores())
    folder = group_folder(params.job_cgroup, Path("/"))
    return watch(cpus=parse_cpus(text(_ONLINE) or "0"), cgroup=folder)


def take(params: CountParams, session: Session) -> str:
    """Count, and keep the series; the intervals are next to the run's file."""
    folder = session.journal.recordings / "counts"
    wanted = chosen(params.events, params.job)
    with contextlib.ExitStack() as stack:
        watched, ended, begin = stack.enter_context(_watched(params, session))
        counting = stack.enter_context(
            Counting(
                wanted.sets,
                wanted.system,
                watched,
                folder,
                most_bytes=params.max_data_mb * _MB,
                cgroup=params.job_cgroup or None,
                per_cpu=params.per_cpu,
                seed=params.seed,
                one_at_a_time=params.order == "random",
                online=_cpus_now(params) if params.job == "machine" else None,
            )
        )
        begin()
        try:
            stopped = _count(params, session, counting, ended)
        except KeyboardInterrupt:
            stopped = "interrupted"
        columns = counting.series.table(counting.counters)
        session.problems += dict.fromkeys(counting.remarks)
        if counting.files.merged:
            session.problems.append(
                f"{params.max_data_mb} MB are full: older intervals were merged into longer ones"
            )
    session.provenance |= {
        "recordings": {"counts": folder.name},
        "remarks": [f"{name} is not counted: {why}" for name, why in counting.refused.items()],
        "intervals": counting.series.intervals,
    }
    trial = {"round": 0, "position": 0, "configuration": 0, "wall_s": 0.0}
    lists = {str(name): columns[name].tolist() for name in columns}
    session.journal.append({**trial, "columns": lists})
    return stopped


def _count(
    params: CountParams, session: Session, counting: Counting, ended: Callable[[float], bool]
) -> str:
    """Intervals at whole multiples of their length since the begin: reading takes none of them."""
    before_s = counting.series.elapsed_s  # of a run that is resumed
    begun = time.monotonic()
    shown = begun
    number = 0
    while True:
        now = time.monotonic()
        number = max(number + 1, int((now - begun) / params.every_s) + 1)
        left_s = params.budget_s - before_s - (now - begun)
        gone = ended(max(0.0, min(begun + number * params.every_s - now, left_s)))
        counting.tick()
        now = time.monotonic()
        if session.progress is not None and now - shown >= _SHOWN_EVERY_S:
            shown = now
            elapsed_s = before_s + now - begun
            left = max(0.0, params.budget_s - elapsed_s)
            table = functools.partial(counting.series.table, counting.counters)
            session.progress(Status(elapsed_s, left, counting.series.intervals, None, table))
        if gone:
            return "recorded once"
        if session.stop is not None and session.stop.is_set():
            return "interrupted"
        if now - begun + before_s >= params.budget_s:
            return "budget spent"


@contextlib.contextmanager
def _watched(
    params: CountParams, session: Session
) -> Iterator[tuple[Watched, Callable[[float], bool], Callable[[], None]]]:
    """What is watched, what waits so long and says whether it has ended, and what lets it begin.

    A job waits until its counters are on.
    """
    if params.job == "command":
        cores = params.resolved_cores() if params.cores != "all" else []
        argv, conditions = _argv(params), params.conditions(None)
        with Started(argv, conditions, cores, params.budget_s + 60.0, held=True) as job:
            yield watch(pid=job.pid), lambda wait_s: job.wait(job.elapsed_s + wait_s), job.release
            if job.wait(job.elapsed_s) and (problem := job.ran().problem):
                session.problems.append(f"the job {problem}")
        return

    def sleeping(wait_s: float) -> bool:
        time.sleep(wait_s)
        return params.job_pid is not None and is_gone(params.job_pid)

    if params.job == "running":
        yield watch(pid=params.job_pid), sleeping, lambda: None
    elif params.job == "cgroup":
        yield _of_cpus(params), sleeping, lambda: None
    else:
        yield watch(cpus=session.plan["cpus"]), sleeping, lambda: None


def _cpus_now(params: CountParams) -> Callable[[], list[int]] | None:
    """The CPUs of the machine, if all of them are watched."""
    if params.cores != "all":
        return None
    return lambda: parse_cpus(text(_ONLINE) or "")


def _argv(params: CountParams) -> list[str]:
    return job_argv(params.job_command, first=0, events=1, seed=params.seed)
