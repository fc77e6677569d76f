"""Profile some events of a job: perf is on from the line that begins one to the line that ends it.

Either we start the job (`profile_job`): it waits until perf is attached, so that its first event
is not missed, and writes to a pseudo-terminal, so that its lines come at once. Or it runs already
and writes a log (`profile_running`). What of each event was missed is measured.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.instruments.joblog.follow import LogFollower
from perflib.instruments.joblog.joblog import Begun, JobEvent, parse
from perflib.instruments.joblog.jobrun import JobError, JobResult, run_job, too_short
from perflib.instruments.joblog.logformat import LogFormat
from perflib.instruments.joblog.wanted import Wanted
from perflib.instruments.perf.recorder import CallGraph, Recorder, prompt
from perflib.instruments.perf.slowest import PIECE_KIB, Slowest
from perflib.instruments.perf.tool import ProcessGoneError
from perflib.measure.conditions import Conditions, check

MAX_CLASSES = 50
"""Of events, in one recording."""


@dataclass(frozen=True)
class Sampling:
    """What perf samples and how often: as `perflib.instruments.perf.recorder.Recorder` takes it."""

    event: str | None = None
    frequency_hz: int = 4000
    period: int | None = None
    call_graph: CallGraph = "none"


@dataclass(frozen=True)
class Coverage:
    """What of an event was recorded.

    Parameters
    ----------
    missed_begin_ns
        From the arrival of the line that began it until perf acknowledged that it counts: at most
        so much was missed, because perf counts a little before it says so. The line's own way,
        some 0.1 to 0.2 ms from the job to us, cannot be seen in a log and is not in it.
    missed_end_ns
        From perf's end to the arrival of the line that ended the event: zero, unless perf ended
        before.
    covered_percent
        What is left, as a share of the event.
    samples
        How many were taken in the event.
    first_sample_ns, last_sample_ns
        When (CLOCK_MONOTONIC); None without samples.
    """

    missed_begin_ns: int
    missed_end_ns: int
    covered_percent: float
    samples: int
    first_sample_ns: int | None
    last_sample_ns: int | None


@dataclass(frozen=True)
class RecordedEvent:
    """One wanted event that began and ended, what of it was recorded, and its class."""

    job_event: JobEvent
    coverage: Coverage
    name: str = ""


@dataclass(frozen=True)
class EventProfile:
    """The wanted events of a job, and where their samples are.

    Parameters
    ----------
    events
        Those that began and ended, in the order in which they ended. The samples of one are those
        between its ``begin_ns`` and its ``end_ns``: both clocks are CLOCK_MONOTONIC.
    unfinished
        Those that had begun when the recording ended; their samples are there too.
    samples, data
        The samples as text, for `perflib.instruments.perf.script.read`, and perf's own file.
    sampled
        What was sampled, as perf names it.
    lost
        How many samples perf lost.
    problems
        What is wrong with the log, the job or the recording, in sentences.
    remarks
        What a reader of the samples should know, in sentences.
    job
        What the job did, if we started it.
    kept
        Where only some events were kept: their samples, in place of those in the files.
    """

    events: list[RecordedEvent]
    unfinished: list[Begun]
    samples: Path
    data: Path
    sampled: str
    lost: int
    problems: list[str]
    remarks: list[str]
    job: JobResult | None
    kept: pd.DataFrame | None = None


def profile_job(
    argv: Sequence[str],
    log_format: LogFormat,
    events: Collection[int | str] | Wanted | None = None,
    *,
    folder: Path,
    timeout_s: float,
    job: str | None = None,
    conditions: Conditions | None = None,
    sampling: Sampling | None = None,
    slowest: Slowest | None = None,
    on_end: Callable[[JobEvent, int], None] | None = None,
) -> EventProfile:
    """Start a job, record some of its events, and let it run to its end.

    Parameters
    ----------
    argv
        The job.
    log_format
        What its lines look like.
    events
        The numbers or names of the wanted events, or what finds them; None: every one.
    folder
        Where the samples go.
    timeout_s
        When the job is killed.
    job
        Only this job's events, where the log distinguishes several.
    conditions
        What the job's process is to have (its core, its priority ...).
    sampling
        What perf samples and how often.
    slowest
        Keeps the samples of the slowest of these events, and of some others.
    on_end
        Called with each event that has ended, recorded or not, and the job's process id.

    Raises
    ------
    PerfUnavailableError
        There is no perf, it is too old, or it is not allowed here (a MeasurementError).
    MeasurementError
        The job cannot be started, or perf cannot record it. A job that dies is no error here but
        a problem: what it did until then was recorded.
    UserError
        The conditions cannot be met, or the log's expressions backtrack.

    Examples
    --------
    >>> profile = profile_job(  # doctest: +SKIP
    ...     ["kv", "--events", "100"], FORMATS["kv"], {73}, folder=Path("profile"), timeout_s=600
    ... )
    >>> profile.events[0].coverage.covered_percent  # doctest: +SKIP
    99.9
    """
    conditions = conditions or Conditions()
    check(conditions)
    switch = _Switch(log_format, events, job, slowest)
    problems: list[str] = []
    with contextlib.ExitStack() as recording:

        def attach(pid: int) -> None:
            recording.enter_context(switch.recording(pid, folder, sampling))
            recording.enter_context(prompt(pid))

        def ended(event: JobEvent, pid: int) -> None:
            switch.end(event)
            if on_end is not None:
                on_end(event, pid)

        try:
            result = run_job(
                argv,
                log_format,
                conditions,
                timeout_s=timeout_s,
                keep=slowest is None,
                on_start=attach,
                on_begin=switch.begin,
                on_event=ended,
            )
        except JobError as error:
            result = error.result
            problems.append(f"the job {error.what}")
    problems += ended_badly(result)
    return switch.profile([*result.problems, *problems], [], result)


def ended_badly(result: JobResult) -> list[str]:
    """A sentence if a job ended with a status that says so; or none."""
    if result.returncode <= 0:
        return []
    last = result.tail[-1] if result.tail else "(nothing)"
    return [f"the job ended with status {result.returncode}; its last line: {last}"]


def lost_samples(lost: int, taken: int) -> list[str]:
    """A sentence if perf lost samples; ``taken``: how many it has."""
    if not lost:
        return []
    share = f"perf lost {lost} samples, {100 * lost / (lost + taken):.1f} % of all"
    return [f"{share}: ask for fewer a second, or for no copies of the stack (call_graph 'dwarf')"]


def profile_running(
    pid: int,
    log: Path,
    log_format: LogFormat,
    events: Collection[int | str] | Wanted | None = None,
    *,
    folder: Path,
    timeout_s: float,
    job: str | None = None,
    stop: threading.Event | None = None,
    sampling: Sampling | None = None,
    slowest: Slowest | None = None,
) -> EventProfile:
    """Record events of a job that runs already, as its log reports them.

    Returns when the wanted events have ended, the job has, the time is over, or ``stop`` is set.
    What is in the log before perf is attached is not read. The job continues afterwards.

    Parameters
    ----------
    pid
        The job.
    log
        What it writes. It should not buffer: a line that comes late begins the recording late,
        and no log shows that.
    log_format, events, folder, job, sampling, slowest
        As for `profile_job`.
    timeout_s
        How long to wait for the events.
    stop
        Set it, from another thread, to end.

    Raises
    ------
    PerfUnavailableError, MeasurementError, UserError
        As for `profile_job`, and if there is no such log, or no such process.
    """
    switch = _Switch(log_format, events, job, slowest)
    problems: list[str] = []
    with (
        switch.recording(pid, folder, sampling),
        LogFollower(log, pid=pid, timeout_s=timeout_s, stop=stop) as follower,
        prompt(pid),
    ):
        deadline = time.monotonic() + timeout_s
        for event in parse(follower, log_format, problems, switch.begin, deadline):
            switch.end(event)
            if switch.has_all:
                break
    return switch.profile(problems, follower.remarks, None)


@dataclass
class _Switch:
    """Turns perf on with the first wanted event that is open, and off with the last."""

    log_format: LogFormat
    wanted: Collection[int | str] | Wanted | None
    job: str | None
    slowest: Slowest | None = None
    recorder: Recorder = field(init=False)
    open: dict[tuple[str | None, int | str], Begun] = field(default_factory=dict)
    ended: list[JobEvent] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    left_out: int = 0
    on_ns: list[int] = field(default_factory=list)
    off_ns: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        wanted = self.wanted
        self._names: set[str] | None = None
        if isinstance(wanted, Wanted):
            self._names = set(wanted.names) or None
        elif wanted is not None:
            self._names = {str(label) for label in wanted}

    @contextlib.contextmanager
    def recording(self, pid: int, folder: Path, sampling: Sampling | None) -> Iterator[None]:
        """Attach perf, and follow what it writes where only some events are kept."""
        piece_kib = None if self.slowest is None else PIECE_KIB
        chosen = asdict(sampling or Sampling())
        with Recorder(pid, folder=folder, piece_kib=piece_kib, **chosen) as self.recorder:
            if self.slowest is None:
                yield
                return
            self.slowest.start(self.recorder)
            try:
                yield
            finally:
                self.slowest.stop()

    @property
    def has_all(self) -> bool:
        ended = {str(event.label) for event in self.ended}
        return self._names is not None and ended >= self._names and not self.open

    def _class_of(self, label: int | str) -> str | None:
        """The class of a wanted event; None of any other."""
        name = str(label)
        if isinstance(self.wanted, Wanted):
            found = self.wanted.class_of(label)
            if found is None or self.slowest is None or self.wanted.by_class:
                return found
            return ""  # the slowest of all of them
        return name if self._names is None or name in self._names else None

    def _is_full(self, name: str) -> bool:
        return len(self.seen) >= MAX_CLASSES and name not in self.seen

    def begin(self, begun: Begun) -> None:
        one_at_a_time = self.log_format.one_at_a_time
        if one_at_a_time:  # what was open in this job has never ended
            self.open = {name: other for name, other in self.open.items() if name[0] != begun.job}
        name = self._class_of(begun.label)
        if isinstance(self.wanted, Wanted) and name is not None and self._is_full(name):
            self.left_out, name = self.left_out + 1, None
        if name is not None and self.job in (None, begun.job):
            self.seen.add(name)
            self.open[begun.job, begun.label] = begun
            if self.slowest is not None:
                self.slowest.begin(begun, one_at_a_time=one_at_a_time)
            if not self._is_on:
                with contextlib.suppress(ProcessGoneError):  # it began, and died at once
                    self.on_ns.append(self.recorder.enable())
        elif not self.open:
            self._off()

    def end(self, event: JobEvent) -> None:
        if self.open.pop((event.job, event.label), None) is None:
            return
        if self.slowest is not None:
            self.slowest.end(event, self._class_of(event.label) or "")
            return
        self.ended.append(event)
        if not self.open:
            self._off()

    @property
    def _is_on(self) -> bool:
        return len(self.on_ns) > len(self.off_ns)

    def _off(self) -> None:
        if self._is_on and self.slowest is None:
            self.off_ns.append(time.monotonic_ns())  # until here at least
            with contextlib.suppress(ProcessGoneError):
                self.recorder.disable()

    def profile(
        self, problems: list[str], remarks: list[str], job: JobResult | None
    ) -> EventProfile:
        """Everything, after the recording has ended."""
        kept = None
        if self.slowest is None:
            times, lost = self.recorder.times()
            ended = [(event, self._class_of(event.label) or "") for event in self.ended]
        else:
            kept = self.slowest.finish()
            times, lost, ended = kept.samples["time_ns"].to_numpy(np.int64), kept.lost, kept.events
            problems, remarks = problems + kept.problems, remarks + kept.remarks
        if self._names is not None:
            problems += [
                f"event {name} was not seen to begin while perf was attached"
                for name in sorted(self._names - self.seen)
            ]
        if self.left_out:
            problems.append(
                f"{self.left_out} events were left out: they are of more than {MAX_CLASSES} "
                "classes; a named group 'event' in the expression makes classes of many events"
            )
        problems += too_short([event for event, _ in ended])
        problems += lost_samples(lost, len(times))
        text = self.recorder.path.with_suffix(".txt")
        return EventProfile(
            events=[
                RecordedEvent(event, self._coverage(event, times), name) for event, name in ended
            ],
            unfinished=list(self.open.values()),
            samples=text if kept else self.recorder.script(text),
            data=self.recorder.path,
            sampled=self.recorder.event,
            lost=lost,
            problems=problems,
            remarks=[*self.recorder.remarks, *remarks],
            job=job,
            kept=None if kept is None else kept.samples,
        )

    def _coverage(self, event: JobEvent, times: NDArray[np.int64]) -> Coverage:
        begin_ns, end_ns = event.begin_ns, event.end_ns
        on, off = end_ns, end_ns
        for index, on_ns in enumerate(self.on_ns):
            off_ns = self.off_ns[index] if index < len(self.off_ns) else end_ns
            if on_ns < end_ns and off_ns > begin_ns:
                on, off = max(on_ns, begin_ns), min(off_ns, end_ns)
        low, high = np.searchsorted(times, [begin_ns, end_ns])
        inside = times[low:high]
        return Coverage(
            missed_begin_ns=on - begin_ns,
            missed_end_ns=end_ns - off,
            covered_percent=100 * (off - on) / event.time_ns if event.time_ns else 0.0,
            samples=len(inside),
            first_sample_ns=int(inside[0]) if len(inside) else None,
            last_sample_ns=int(inside[-1]) if len(inside) else None,
        )
