"""One start of a program in one layout: what it took, what it wrote, what it really had."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from io import BufferedRandom
from pathlib import Path
from typing import Any

import pandas as pd

from perflib.instruments.counters.groups import CounterGroup, Requested
from perflib.instruments.counters.watched import watch
from perflib.instruments.perf import script as perfscript
from perflib.instruments.perf.event_profile import Sampling, lost_samples
from perflib.instruments.perf.recorder import Recorder
from perflib.instruments.perf.tool import PerfUnavailableError, ProcessGoneError
from perflib.machine.processes import signal_name
from perflib.machine.scratch import scratch
from perflib.measure.conditions import Conditions, check, observe, violated
from perflib.measure.job import on_cpus
from perflib.measure.process import WorkerError
from perflib.measure.supervised import Supervised
from perflib.model.errors import MeasurementError, UserError

_BECOME_S, _POLL_S = 5.0, 0.2
_SETTLED_S = 0.01  # until its libraries are loaded
_MAX_OUTPUT_BYTES = 1 << 30
_TAIL_BYTES = 4096
_TRIES = 20
SAMPLED = ("symbol", "object", "offset", "stack", "event")
"""What a sample of a function has; equal ones of a start are one row, with their number."""
_THREADS_FIELD, _STACK_FIELD = 20, 28  # of /proc/PID/stat, counted from 1


@dataclass(frozen=True)
class Start:
    """What one start did.

    Parameters
    ----------
    cpu_s, wall_s, run_delay_s
        CPU time (of children, too), time from its release to its end, and how long its first thread
        waited for a core; None: the kernel does not say.
    output
        Checksum of its standard output; empty: it wrote nothing.
    environment_bytes, stack_address
        Read from the process itself; None: it had ended by then.
    threads
        How many it had when it was read.
    counts
        Of each event, in it and its children; None: it never counted.
    obtained, violated
        What `observe` read, and what is not as requested; empty where it did not.
    functions
        Where it was recorded: a row for each of `SAMPLED` with its ``period`` and ``count``.
    remarks
        What is to be known of the recording, in sentences.
    event_s
        Median time of the events that it logged; None: no log was read.
    """

    cpu_s: float
    wall_s: float
    run_delay_s: float | None
    output: str
    environment_bytes: int | None
    stack_address: int | None
    threads: int | None
    begin_ns: int
    counts: dict[str, float | None] = field(default_factory=dict)
    obtained: dict[str, Any] = field(default_factory=dict)
    violated: list[str] = field(default_factory=list)
    functions: pd.DataFrame | None = None
    remarks: list[str] = field(default_factory=list)
    event_s: float | None = None


def start(
    argv: Sequence[str],
    conditions: Conditions,
    folder: Path,
    *,
    cpus: Sequence[int] = (),
    timeout_s: float = 600.0,
    read_all: bool = False,
    counted: Sequence[Requested] = (),
    sampling: Sampling | None = None,
) -> Start:
    """Run a program to its end under conditions.

    Parameters
    ----------
    argv
        The program.
    folder
        Where its output goes meanwhile.
    cpus
        The CPUs that it may use, where no condition names one.
    timeout_s
        When it is killed.
    read_all
        Whether all conditions are read back; they cost the kernel a walk through its memory.
    counted
        Events that are counted while it runs.
    sampling
        How perf samples it from its first instruction to its end; None: it does not.

    Raises
    ------
    MeasurementError
        It cannot be started.
    WorkerError
        It failed, did not end in time, or writes without end.
    """
    check(conditions)
    with (
        (folder / "output").open("w+b") as out,
        (folder / "errors").open("w+b") as errors,
        ExitStack() as opened,
    ):
        with on_cpus(cpus if conditions.cpu is None else ()):
            job = Supervised(
                argv, conditions, stdout=out.fileno(), stderr=errors.fileno(), held=True
            )
            job.__enter__()
        try:
            counters = opened.enter_context(CounterGroup(counted, watch(pid=job.pid)))
            recorder = None
            if sampling is not None:
                recorder = Recorder(job.pid, folder=folder, **asdict(sampling))
                opened.enter_context(recorder).enable()
            counters.enable()
            before = _schedstat(job.pid)
            begin_ns = time.monotonic_ns()
            job.release()
            read = _read(job, conditions, read_all=read_all)
            problem = _end(job, begin_ns / 1e9 + timeout_s, timeout_s, out)
            wall_s = (time.monotonic_ns() - begin_ns) / 1e9
            after = _schedstat(job.pid)
            counters.disable()
            counts = counters.totals()
            if recorder is not None:
                with contextlib.suppress(ProcessGoneError):
                    recorder.disable()
        finally:
            job.__exit__()
        job.check_started()
        if problem or (problem := _problem(job, errors)):
            msg = f"the program {problem}"
            raise WorkerError(msg)
        opened.close()  # perf's data are whole after that
        if recorder is not None:
            read["functions"], read["remarks"] = _functions(recorder, begin_ns)
        known = before is not None and after is not None
        return Start(
            cpu_s=max(job.cpu_time_ns - (before[0] if before else 0), 1) / 1e9,
            wall_s=wall_s,
            run_delay_s=(after[1] - before[1]) / 1e9 if known and before and after else None,
            output=_checksum(out),
            begin_ns=begin_ns,
            counts=counts,
            **read,
        )


def check_sampling(sampling: Sampling) -> None:
    """Record this very process for a moment.

    Raises
    ------
    UserError
        perf cannot: why, and what remains.
    """
    try:
        with scratch() as folder, Recorder(os.getpid(), folder=folder, **asdict(sampling)) as one:
            one.enable()
    except PerfUnavailableError as error:
        msg = f"functions cannot be compared: {error} Without them, times are compared as a whole."
        raise UserError(msg) from error


def check_sampled(made: Start, program: str) -> None:
    """Raise a MeasurementError where perf took no sample of a start that it recorded."""
    if made.functions is not None and made.functions.empty:
        msg = (
            f"{program}: perf took no sample of it in {1e3 * made.cpu_s:.3g} ms of CPU time: give "
            "it more to do, or more samples a second (frequency_hz)"
        )
        raise MeasurementError(msg)


def with_functions(
    columns: Mapping[str, list[Any]], functions: pd.DataFrame | None, every: Sequence[str]
) -> dict[str, list[Any]]:
    """Rows of starts, the first one's start as a row for each function (and line, and stack).

    The first row has what is known of that start; the others have ``every``, what all must have.
    """
    if functions is None or functions.empty:
        return dict(columns)
    more = len(functions) - 1
    found = {
        name: [*one, *((one[:1] if name in every else [None]) * more)]
        for name, one in columns.items()
    }
    others = [None] * (len(columns["ok"]) - 1)
    for name, one in functions.items():
        first, *rest = one.tolist()
        found[str(name)] = [first, *others, *rest]
    return found


def _read(job: Supervised, conditions: Conditions, *, read_all: bool) -> dict[str, Any]:
    """What the process has, once it has become the program; empty where it has ended already."""
    job.become(_BECOME_S)
    found: dict[str, Any] = dict.fromkeys(("environment_bytes", "stack_address", "threads"))
    for _ in range(_TRIES):  # while it becomes the program it has no environment for a moment
        with contextlib.suppress(OSError, IndexError, ValueError):
            if block := Path(f"/proc/{job.pid}/environ").read_bytes():
                words = Path(f"/proc/{job.pid}/stat").read_text().rpartition(")")[2].split()
                found["environment_bytes"] = len(block)
                found["threads"] = int(words[_THREADS_FIELD - 3])
                found["stack_address"] = int(words[_STACK_FIELD - 3]) or None
                break
        if job.ended(0.001):
            break
    if read_all and not job.ended(_SETTLED_S):
        with contextlib.suppress(MeasurementError):
            obtained = observe(job.pid, conditions.environment)
            if obtained["environment_bytes"]:  # it had not ended meanwhile
                found |= {"obtained": obtained, "violated": violated(conditions, obtained)}
    return found


def _functions(recorder: Recorder, begin_ns: int) -> tuple[pd.DataFrame, list[str]]:
    """The samples of a start, equal ones together, and what is to be known of them."""
    times, lost = recorder.times()
    text = recorder.script(recorder.path.with_suffix(".txt"))
    samples = perfscript.read(text).samples
    for path in (recorder.path, text):
        path.unlink()
    samples = samples[samples["time_ns"] >= begin_ns]
    groups = samples.groupby(list(SAMPLED), observed=True, sort=False)["period"]
    found = groups.agg(period="sum", count="size").reset_index()
    return found, [*recorder.remarks, *lost_samples(lost, len(times))]


def _end(job: Supervised, limit_s: float, timeout_s: float, out: BufferedRandom) -> str:
    while not job.ended(_POLL_S):
        if time.monotonic() >= limit_s:
            return f"did not end within {timeout_s:g} s and was killed (job_timeout_s)"
        if os.fstat(out.fileno()).st_size > _MAX_OUTPUT_BYTES:
            return "wrote over 1 GiB and was killed"
    return ""


def _problem(job: Supervised, errors: BufferedRandom) -> str:
    """How it ended, if not well."""
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - _TAIL_BYTES))
    said = errors.read().decode(errors="replace").strip().splitlines()[-1:] or ["(nothing)"]
    if job.returncode < 0:
        return f"died of {signal_name(-job.returncode)}"
    if job.returncode:
        return f"ended with status {job.returncode}; the last line of its errors: {said[0]}"
    return job.problem


def _checksum(out: BufferedRandom) -> str:
    out.seek(0)
    found = hashlib.file_digest(out, "sha256").hexdigest()[:16]
    return found if out.tell() else ""


def _schedstat(pid: int) -> tuple[int, int] | None:
    """CPU time and run-queue delay of the first thread so far, in ns."""
    try:
        cpu_ns, delay_ns = Path(f"/proc/{pid}/schedstat").read_text().split()[:2]
    except (OSError, ValueError):
        return None
    return int(cpu_ns), int(delay_ns)
