"""Record a whole job, or whatever runs in a process or on CPUs for a while; no log is needed."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perflib.instruments.joblog.joblog import JobEvent
from perflib.instruments.joblog.jobrun import JobError, run_job
from perflib.instruments.perf.event_profile import (
    Coverage,
    EventProfile,
    RecordedEvent,
    Sampling,
    ended_badly,
    lost_samples,
)
from perflib.instruments.perf.recorder import Recorder
from perflib.instruments.perf.tool import ProcessGoneError
from perflib.machine.processes import is_gone
from perflib.measure.conditions import Conditions, check

_POLL_S = 0.05


def record_job(
    argv: Sequence[str],
    *,
    folder: Path,
    timeout_s: float,
    duration_s: float | None = None,
    conditions: Conditions | None = None,
    sampling: Sampling | None = None,
    on_start: Callable[[int], None] | None = None,
) -> EventProfile:
    """Start a job and record all of it, or its first ``duration_s``; it runs to its end.

    The parameters are those of `perflib.instruments.perf.event_profile.profile_job`; ``on_start``
    is called with the job's process id before its first instruction.

    Returns
    -------
    EventProfile
        Of one event without a name, from the job's first instruction to its end.
    """
    conditions = conditions or Conditions()
    check(conditions)
    recorders: list[Recorder] = []
    problems: list[str] = []
    span = [0, 0]
    with contextlib.ExitStack() as recording:

        def off() -> None:
            span[1] = time.monotonic_ns()
            with contextlib.suppress(ProcessGoneError):
                recorders[0].disable()

        def attach(pid: int) -> None:
            if on_start is not None:
                on_start(pid)
            recorder = Recorder(pid, folder=folder, **asdict(sampling or Sampling()))
            recorders.append(recording.enter_context(recorder))
            span[0] = recorder.enable()
            if duration_s is not None:
                timer = threading.Timer(duration_s, off)
                timer.start()
                recording.callback(timer.join)
                recording.callback(timer.cancel)

        try:
            result = run_job(argv, None, conditions, timeout_s=timeout_s, on_start=attach)
        except JobError as error:
            result = error.result
            problems.append(f"the job {error.what}")
        end_ns = time.monotonic_ns()
    problems += ended_badly(result)
    return _profile(recorders[0], span[0], span[1] or end_ns, problems)


def record_for(
    duration_s: float,
    *,
    pid: int | None = None,
    cpus: Sequence[int] = (),
    folder: Path,
    stop: threading.Event | None = None,
    sampling: Sampling | None = None,
) -> EventProfile:
    """Record a process that runs already, or all that runs on CPUs; nothing is started or ended.

    Parameters
    ----------
    duration_s
        How long; less where the process ends before, or ``stop`` is set.
    pid, cpus
        What to record: one of them.
    folder, stop, sampling
        As of `perflib.instruments.perf.event_profile.profile_running`.

    Returns
    -------
    EventProfile
        Of one event without a name, from the recording's begin to its end.
    """
    chosen = asdict(sampling or Sampling())
    with Recorder(pid, folder=folder, cpus=cpus, **chosen) as recorder:
        begin_ns = recorder.enable()
        deadline = time.monotonic() + duration_s
        while (left := deadline - time.monotonic()) > 0:
            if (stop is not None and stop.is_set()) or (pid is not None and is_gone(pid)):
                break
            time.sleep(min(left, _POLL_S))
        end_ns = time.monotonic_ns()
        with contextlib.suppress(ProcessGoneError):
            recorder.disable()
    return _profile(recorder, begin_ns, end_ns, [])


def _profile(recorder: Recorder, begin_ns: int, end_ns: int, problems: list[str]) -> EventProfile:
    times, lost = recorder.times()
    times = times[(times >= begin_ns) & (times <= end_ns)]
    coverage = Coverage(0, 0, 100.0, len(times), *_ends(times))
    return EventProfile(
        events=[RecordedEvent(JobEvent("", begin_ns, end_ns), coverage, "")],
        unfinished=[],
        samples=recorder.script(recorder.path.with_suffix(".txt")),
        data=recorder.path,
        sampled=recorder.event,
        lost=lost,
        problems=[*problems, *lost_samples(lost, len(times))],
        remarks=list(recorder.remarks),
        job=None,
    )


def _ends(times: NDArray[np.int64]) -> tuple[int | None, int | None]:
    return (int(times[0]), int(times[-1])) if len(times) else (None, None)
