"""Start a job on a pseudo-terminal and learn from its output when each event begins and ends.

A program whose output is a pipe or a file holds its lines back until some kilobytes are full: by
then the event is over. On a terminal stdio writes each line when it is complete, whatever the
program is written in, so the job is given one. The lines then arrive within some 0.1 to 0.2 ms.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from perflib.instruments.joblog import joblog
from perflib.instruments.joblog.joblog import Begun, JobEvent, parse
from perflib.instruments.joblog.logformat import LogFormat
from perflib.machine.processes import signal_name
from perflib.measure.conditions import Conditions
from perflib.measure.process import WorkerError
from perflib.measure.supervised import Supervised
from perflib.model.errors import MeasurementError, UserError, choose

_TAIL_BYTES = 4096
_TAIL_LINES = 20
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}|\{(\w+)\}")
_POLL_MS = 100


@dataclass(frozen=True)
class JobResult:
    """What a job did.

    Parameters
    ----------
    events
        The events that began and ended, in the order in which they ended.
    problems
        What was no whole event, in sentences.
    returncode
        The job's exit status; negative: the signal that ended it.
    tail
        The last lines of its output.
    wall_s
        Time from its start to its end.
    cpu_time_ns
        CPU time of its first process, from its start, and of the children for which that waited.
    """

    events: list[JobEvent]
    problems: list[str]
    returncode: int
    tail: list[str]
    wall_s: float
    cpu_time_ns: int = 0


class JobError(MeasurementError):
    """The job died or was killed: ``what`` says how.

    ``result`` keeps the events that were whole by then.
    """

    def __init__(self, message: str, what: str, result: JobResult) -> None:
        super().__init__(message)
        self.what = what
        self.result = result

    def __reduce__(self) -> tuple[type[JobError], tuple[str, str, JobResult]]:
        """Let a worker process hand the error on."""
        return type(self), (str(self), self.what, self.result)


def job_argv(template: str, *, first: int, events: int, seed: int) -> list[str]:
    """Fill in a job's command line and split it as a shell would.

    No shell runs: neither ``~`` nor ``$HOME`` nor ``>`` mean anything. ``{{word}}`` stands for
    ``{word}``; all other braces are left alone.

    Parameters
    ----------
    template
        A command line with any of ``{first}``, ``{events}`` and ``{seed}``.
    first, events, seed
        The number of the first event, how many there are, the seed.

    Raises
    ------
    UserError
        An unknown placeholder, an open quote, or nothing at all.

    Examples
    --------
    >>> job_argv("kv --first {first} --events={events}", first=73, events=1, seed=5)
    ['kv', '--first', '73', '--events=1']
    """
    values = {"first": str(first), "events": str(events), "seed": str(seed)}

    def fill(found: re.Match[str]) -> str:
        literal, name = found.groups()
        if literal:
            return f"{{{literal}}}"
        if name not in values:
            msg = f"job {template!r}: {choose('placeholder', name, values)}. Braces: {{{{{name}}}}}"
            raise UserError(msg)
        return values[name]

    try:
        words = shlex.split(template)
    except ValueError as error:
        msg = f"job {template!r} cannot be split into words: {error}"
        raise UserError(msg) from None
    if not words:
        msg = "the job's command line is empty. For example: my-job --first {first} -n {events}"
        raise UserError(msg)
    return [_PLACEHOLDER.sub(fill, word) for word in words]


def run_job(
    argv: Sequence[str],
    log_format: LogFormat | None,
    conditions: Conditions | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    timeout_s: float,
    keep: bool = True,
    on_start: Callable[[int], None] | None = None,
    on_begin: Callable[[Begun], None] | None = None,
    on_event: Callable[[JobEvent, int], None] | None = None,
) -> JobResult:
    """Run a job to its end and time its events by the arrival of its lines.

    All of its processes are killed when the job's first process has ended, at the time limit, and
    when this call is interrupted (`perflib.measure.supervised`). Its input is empty; its standard
    output and error are one pseudo-terminal that changes no byte.

    Parameters
    ----------
    argv
        The job.
    log_format
        The form of its lines; None: they mean nothing, and there are no events.
    conditions
        What its process is to have.
    environment
        The whole environment; by default that of the conditions.
    timeout_s
        When to give up, counted from the job's first instruction.
    keep
        Whether the result has the events; without, there may be any number of them.
    on_start
        Called with the job's process id before its first instruction: the job is held, stopped,
        until it returns. Its process is then still a Python that becomes the job (``exec``), with
        its conditions in force.
    on_begin
        Called with each event when it begins, while the job continues: until it returns, no line is
        read.
    on_event
        Called with each event when it has ended, and the job's process id, while the job continues:
        until it returns, no line is read.

    Raises
    ------
    MeasurementError
        The job could not be started, or logged far too many events.
    JobError
        It died of a signal or was killed at the time limit (a MeasurementError).
    """
    events: list[JobEvent] = []
    problems: list[str] = []
    tail = bytearray()
    with _terminal() as (terminal, jobs):
        os.set_blocking(terminal, False)
        job = Supervised(
            argv,
            conditions,
            stdout=jobs,
            stderr=jobs,
            held=on_start is not None,
            environment=environment,
        )
        started = time.monotonic()
        with job:
            if on_start is not None:
                on_start(job.pid)
                started = time.monotonic()
                job.release()
            deadline = started + timeout_s
            output = _output(job, terminal, deadline, tail)
            for event in _events(output, log_format, problems, on_begin, deadline):
                if keep:
                    events.append(event)
                if len(events) > joblog.MOST_EVENTS:
                    msg = f"the job {argv[0]!r} logged more than {joblog.MOST_EVENTS} events: do "
                    msg += "its expressions (job_begin, job_end) find the right lines?"
                    raise MeasurementError(msg)
                if on_event is not None:
                    on_event(event, job.pid)
            wall_s = time.monotonic() - started
            in_time = job.ended() and time.monotonic() < deadline  # all of its lines were read
    job.check_started()
    if job.problem:
        problems.append(job.problem)
    lines = tail.decode(errors="replace").splitlines()[-_TAIL_LINES:]
    result = JobResult(events, problems, job.returncode, lines, wall_s, job.cpu_time_ns)
    if not in_time:
        _fail(f"did not end within {timeout_s:g} s and was killed", argv, result)
    if job.returncode < 0:
        _fail(f"died of {signal_name(-job.returncode)}", argv, result)
    return result


def _events(
    output: Iterator[tuple[int, bytes]],
    log_format: LogFormat | None,
    problems: list[str],
    on_begin: Callable[[Begun], None] | None,
    deadline: float,
) -> Iterator[JobEvent]:
    if log_format is not None:
        yield from parse(output, log_format, problems, on_begin, deadline)
        return
    for _ in output:  # it is read, so that the job can write on
        pass


def run_logged(
    argv: Sequence[str],
    log_format: LogFormat,
    conditions: Conditions,
    events: Sequence[int],
    *,
    timeout_s: float,
    on_start: Callable[[int], None] | None = None,
    on_event: Callable[[int], None] | None = None,
) -> tuple[JobResult, list[float]]:
    """Run a job that logs these events and no others; how long each took, in ns.

    By the job's own timing, or else by its lines. ``on_start`` and ``on_event`` get its process id
    (`run_job`).

    Raises
    ------
    WorkerError
        It failed, logged other events, or its lines came too late to time them.
    """
    unbuffered = os.environ.get("PYTHONUNBUFFERED", "1")
    environment = {"PYTHONUNBUFFERED": unbuffered, **conditions.environment}
    try:
        result = run_job(
            argv,
            log_format,
            replace(conditions, environment=environment),
            timeout_s=timeout_s,
            on_start=on_start,
            on_event=None if on_event is None else lambda _event, pid: on_event(pid),
        )
    except MeasurementError as error:
        raise WorkerError(str(error)) from error
    found = [int(event.label) for event in result.events if str(event.label).isdigit()]
    if result.returncode != os.EX_OK or found != list(events):
        msg = (
            f"the job {argv[0]!r} ended with status {result.returncode} and logged "
            f"{len(found)} of the {len(events)} events {events[0]} to {events[-1]}. "
            f"{' '.join(result.problems)} Its last lines:\n"
            + ("\n".join(result.tail) or "(nothing)")
        )
        raise WorkerError(msg)
    untimed = too_short(event for event in result.events if event.reported_seconds is None)
    if untimed:
        raise WorkerError(untimed[0])
    return result, [
        event.time_ns if event.reported_seconds is None else event.reported_seconds * 1e9
        for event in result.events
    ]


def too_short(events: Iterable[JobEvent]) -> list[str]:
    """A sentence if the lines of events came together, so that they have no time; or none."""
    together = sum(event.time_ns == 0 for event in events)
    if not together:
        return []
    sentence = (
        f"the lines of {together} events were read at once, begin and end: the events are too "
        "short to be timed by their lines, or the job holds its output back (a flush after each "
        "line, or 'stdbuf --output=L COMMAND', lets them come at once)"
    )
    return [sentence]


def _fail(what: str, argv: Sequence[str], result: JobResult) -> None:
    last = "\n".join(f"  {line}" for line in result.tail) or "  (nothing)"
    problems = "".join(f"\n{problem}" for problem in result.problems[-3:])
    msg = (
        f"the job {shlex.join(argv)} {what}; events whole by then: {len(result.events)}."
        f"{problems}\nThe last lines of its output:\n{last}"
    )
    raise JobError(msg, what, result)


# --- its terminal --------------------------------------------------------------------------------


@contextlib.contextmanager
def _terminal() -> Iterator[tuple[int, int]]:
    """Our end of a terminal, and the job's.

    We keep both: a terminal without a writer would be readable for ever, with nothing to read.
    """
    import termios

    try:
        ours, jobs = os.openpty()
    except OSError as error:
        msg = f"no pseudo-terminal is available for the job: {error}. Is /dev/pts mounted?"
        raise MeasurementError(msg) from error
    with os.fdopen(ours, "rb", buffering=0), os.fdopen(jobs, "rb", buffering=0):
        modes = termios.tcgetattr(jobs)
        modes[1] &= ~termios.OPOST  # no carriage returns
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(jobs, termios.TCSANOW, modes)
        yield ours, jobs


def _output(
    job: Supervised, terminal: int, deadline: float, tail: bytearray
) -> Iterator[tuple[int, bytes]]:
    """What the job writes, each piece with the time when it was read, until end or deadline."""
    poller = select.poll()
    poller.register(terminal, select.POLLIN)
    poller.register(job.report, select.POLLIN)
    while time.monotonic() < deadline:
        poller.poll(_POLL_MS)
        ended = job.ended()  # and then nobody writes any more
        chunk = b""
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(terminal, 1 << 16)
        arrival_ns = time.monotonic_ns()
        if chunk:
            tail += chunk
            del tail[:-_TAIL_BYTES]
            yield arrival_ns, chunk
        elif ended:
            return
