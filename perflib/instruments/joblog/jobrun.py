"""Start a job on a pseudo-terminal and learn from its output when each event begins and ends.

A program whose output is a pipe or a file holds its lines back until some kilobytes are full: by
then the event is over. On a terminal stdio writes each line when it is complete, whatever the
program is written in, so the job is given one. The lines then arrive within some 0.1 to 0.2 ms.
"""

from __future__ import annotations

import errno
import os
import re
import select
import shlex
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from perflib.instruments.joblog.joblog import Begun, JobEvent, parse
from perflib.instruments.joblog.logformat import LogFormat
from perflib.machine.processes import has_ended, signal_name
from perflib.measure import launch
from perflib.model.errors import MeasurementError, UserError, choose

__all__ = ["JobError", "JobResult", "job_argv", "run_job", "too_short"]

_TAIL_BYTES = 4096
_TAIL_LINES = 20
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}|\{(\w+)\}")
_HINTS = {
    errno.ENOENT: "is its name right, and is it on PATH?",
    errno.EACCES: "may it be executed (chmod +x), and can you enter its folder (for a bare name, "
    "each folder on PATH)?",
    errno.ENOEXEC: "it lacks a #! line, or was built for another kind of machine",
}


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
    """

    events: list[JobEvent]
    problems: list[str]
    returncode: int
    tail: list[str]
    wall_s: float


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
    log_format: LogFormat,
    *,
    environment: Mapping[str, str] | None = None,
    timeout_s: float,
    on_start: Callable[[int], None] | None = None,
    on_begin: Callable[[Begun], None] | None = None,
    on_event: Callable[[JobEvent, int], None] | None = None,
) -> JobResult:
    """Run a job to its end and time its events by the arrival of its lines.

    The job leads a process group of its own, which is killed when the job's first process has
    ended, at the time limit, and when this call is interrupted. Its input is empty; its standard
    output and error are one pseudo-terminal that changes no byte.

    Parameters
    ----------
    argv
        The job, behind whatever launcher gives it its core and priority.
    log_format
        What its lines look like.
    environment
        The whole environment; this process's own by default.
    timeout_s
        When to give up, counted from the job's first instruction.
    on_start
        Called with the job's process id before its first instruction: the job is held, stopped,
        until it returns. Its process is then still a Python that becomes the job (``exec``).
    on_begin
        Called with each event when it begins, while the job goes on: until it returns, no line is
        read.
    on_event
        Called with each event when it has ended, and the job's process id, while the job goes on:
        until it returns, no line is read.

    Raises
    ------
    MeasurementError
        The job could not be started.
    JobError
        It died of a signal or was killed at the time limit (a MeasurementError).
    """
    job, terminal = _start(argv, environment, held=on_start is not None)
    events: list[JobEvent] = []
    problems: list[str] = []
    tail = bytearray()
    try:
        if on_start is not None:
            os.waitid(os.P_PID, job.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            on_start(job.pid)
            os.kill(job.pid, signal.SIGCONT)
        started = time.monotonic()
        output = _output(job, terminal, started + timeout_s, tail)
        for event in parse(output, log_format, problems, on_begin):
            events.append(event)
            if on_event is not None:
                on_event(event, job.pid)
        wall_s = time.monotonic() - started
        in_time = has_ended(job.pid)
    finally:
        _kill_group(job)
        returncode = job.wait()
        os.close(terminal)
    lines = tail.decode(errors="replace").splitlines()[-_TAIL_LINES:]
    result = JobResult(events, problems, returncode, lines, wall_s)
    if not in_time:
        _fail(f"did not end within {timeout_s:g} s and was killed", argv, result)
    if returncode < 0:
        _fail(f"died of {signal_name(-returncode)}", argv, result)
    return result


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


# --- the process and its terminal --------------------------------------------------------------


def _start(
    argv: Sequence[str], environment: Mapping[str, str] | None, *, held: bool
) -> tuple[subprocess.Popen[bytes], int]:
    """The job, and our end of its terminal."""
    if not argv:
        msg = "there is no job to run: its command line is empty"
        raise UserError(msg)
    try:
        ours, jobs = os.openpty()
    except OSError as error:
        msg = f"no pseudo-terminal is available for the job: {error}. Is /dev/pts mounted?"
        raise MeasurementError(msg) from error
    try:
        modes = termios.tcgetattr(jobs)
        modes[1] &= ~termios.OPOST  # no carriage returns
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(jobs, termios.TCSANOW, modes)
        job = subprocess.Popen(
            launch.held(argv) if held else argv,
            stdin=subprocess.DEVNULL,
            stdout=jobs,
            stderr=jobs,
            env=environment,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        os.close(ours)
        number = error.errno if isinstance(error, OSError) else None
        reason = os.strerror(number) if number else str(error)
        hint = f": {_HINTS[number]}" if number in _HINTS else ""
        msg = f"the job {argv[0]!r} cannot be started: {reason}{hint}"
        raise MeasurementError(msg) from error
    finally:
        os.close(jobs)
    return job, ours


def _output(
    job: subprocess.Popen[bytes], terminal: int, deadline: float, tail: bytearray
) -> Iterator[tuple[int, bytes]]:
    """What the job writes, each piece with the time when it was read, until end or deadline."""
    poller = select.poll()
    poller.register(terminal, select.POLLIN)
    listening = True
    while time.monotonic() < deadline:
        ended = has_ended(job.pid)
        if ended:
            _kill_group(job)  # what it left behind would go on writing, and interfere
            if not listening:
                return
        if poller.poll(100 if listening else 5):
            chunk = _read(terminal)
            arrival_ns = time.monotonic_ns()
            if chunk:
                tail += chunk
                del tail[:-_TAIL_BYTES]
                yield arrival_ns, chunk
            else:
                poller.unregister(terminal)
                listening = False
        elif ended:
            return


def _read(terminal: int) -> bytes:
    """The next bytes, none at the end: Linux says EIO when the last writer has closed."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return b""


def _kill_group(job: subprocess.Popen[bytes]) -> None:
    os.killpg(job.pid, signal.SIGKILL)
