"""When did each event of a job begin and end? Its log says so, line by line.

A job says "start processing event #73", and some time later "Event nr. 73 took 34.58 s". Two
regular expressions find such lines; what is measured is when each *arrived*, on CLOCK_MONOTONIC,
so that it lines up with perf's samples (``perf record -k CLOCK_MONOTONIC``). Nothing is trusted:
what does not make a whole event is named in ``problems``.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perflib.instruments.joblog.logformat import LogFormat
from perflib.model.errors import MeasurementError, UserError

if TYPE_CHECKING:
    import regex

LINE_LIMIT_BYTES = 4096
"""A longer line is read only so far: a job may write for minutes without a newline."""

MOST_EVENTS = 200_000
"""That are kept: a job may say for ever that events begin, or that they end."""

_MAX_PROBLEMS = 100  # a job may write for ever; what is left out is counted


@dataclass(frozen=True)
class Begun:
    """One event that began, as known the moment it does; ``begin_ns`` is its line's arrival."""

    label: int | str
    begin_ns: int
    job: str | None = None


@dataclass(frozen=True)
class JobEvent:
    """One event that began and ended.

    Parameters
    ----------
    label
        The event's number, or its name where that is no number.
    begin_ns, end_ns
        When the two lines arrived (CLOCK_MONOTONIC). Equal if one read brought both: the time is
        then below what a log can resolve, or the job holds its lines back.
    reported_seconds
        The job's own timing, if its log has it.
    job
        Which of several jobs it ran in, if the log says.
    """

    label: int | str
    begin_ns: int
    end_ns: int
    reported_seconds: float | None = None
    job: str | None = None

    @property
    def time_ns(self) -> int:
        """The time between the arrival of the two lines."""
        return self.end_ns - self.begin_ns


def parse(
    chunks: Iterable[tuple[int, bytes]],
    log_format: LogFormat,
    problems: list[str],
    on_begin: Callable[[Begun], None] | None = None,
    deadline: float = math.inf,
) -> Iterator[JobEvent]:
    r"""Yield each event as soon as the line that ends it is complete.

    Parameters
    ----------
    chunks
        ``(arrival_ns, bytes)``, as read: whole lines or parts of lines.
    log_format
        The form of the lines.
    problems
        Gets a sentence for everything that is no whole event: an event that never ended or began
        twice, an end without a begin, a number that is none, lines beyond ``LINE_LIMIT_BYTES``.
        Beyond a hundred they are counted.
    on_begin
        Called as soon as a line that begins an event is complete; until it returns, nothing is
        read.
    deadline
        When to stop, by ``time.monotonic()``, be there lines left or not.

    Raises
    ------
    UserError
        An expression that takes more than a second on one line.
    MeasurementError
        More than ``MOST_EVENTS`` are open at once: the expression fits the wrong lines.

    Examples
    --------
    >>> from perflib.instruments.joblog.logformat import FORMATS
    >>> log = [(0, b"start processing ev"), (5, b"ent #7\n"), (9, b"done processing event #7\n")]
    >>> list(parse(log, FORMATS["athena"], []))
    [JobEvent(label=7, begin_ns=5, end_ns=9, reported_seconds=None, job=None)]
    """
    begin, end = log_format.expressions()
    few = _BoundedProblems(problems)
    book = _Book(log_format.one_at_a_time, few)
    cut, first_cut = 0, 0
    for line in _lines(chunks):
        if time.monotonic() >= deadline:
            break
        if line.cut:
            cut, first_cut = cut + 1, first_cut or line.number
        try:
            begun, ended = begin.search(line.text), end.search(line.text)
        except UserError as error:
            msg = f"line {line.number} of the job's output: {error}"
            raise UserError(msg) from None
        if not (begun or ended):
            continue
        if not line.whole:
            few.append(f"the output ended within line {line.number}, not used: {line}")
        elif begun and ended:
            few.append(f"line {line.number} matches both begin and end, not used: {line}")
        elif begun:
            event_begun = book.begin(begun, line)
            if event_begun and on_begin is not None:
                on_begin(event_begun)
        elif ended and (event := book.end(ended, line)):
            yield event
    book.close()
    few.close()
    if cut:
        problems.append(
            f"{cut} lines longer than {LINE_LIMIT_BYTES} bytes were read only so far, "
            f"the first is line {first_cut}"
        )


# --- bytes to lines ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Line:
    number: int
    arrival_ns: int
    text: str
    cut: bool
    whole: bool = True

    def __str__(self) -> str:
        return repr(self.text if len(self.text) <= 120 else self.text[:117] + "...")


def _lines(chunks: Iterable[tuple[int, bytes]]) -> Iterator[_Line]:
    """Whole lines, each with the arrival of its newline; at last what has none."""
    kept, length, number, arrival_ns = bytearray(), 0, 1, 0

    def line(whole: bool) -> _Line:
        text = kept.decode(errors="replace").rstrip("\r")
        return _Line(number, arrival_ns, text, length > LINE_LIMIT_BYTES, whole)

    for arrival_ns, chunk in chunks:  # noqa: B007 (used in line)
        start = 0
        while start < len(chunk):
            newline = chunk.find(b"\n", start)
            stop = newline if newline >= 0 else len(chunk)
            kept += chunk[start : min(stop, start + LINE_LIMIT_BYTES - len(kept))]
            length += stop - start
            start = stop + 1
            if newline >= 0:
                yield line(whole=True)
                kept, length, number = bytearray(), 0, number + 1
    if length:
        yield line(whole=False)


@dataclass
class _BoundedProblems:
    """The first problems as they are; the others are counted."""

    problems: list[str]
    more: int = 0

    def append(self, problem: str) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(problem)
        else:
            self.more += 1

    def close(self) -> None:
        if self.more:
            self.problems.append(f"and {self.more} more such problems in the job's output")


# --- lines to events ---------------------------------------------------------------------------

_Name = tuple[str | None, int | str]
"""Job and event."""


@dataclass
class _Book:
    """The events that are open, by name, with the line that began each."""

    one_at_a_time: bool
    problems: _BoundedProblems
    open: dict[_Name, _Line] = field(default_factory=dict)

    def begin(self, match: regex.Match[str], line: _Line) -> Begun | None:
        job, event = _job(match), _event(match)
        if event is None:
            self.problems.append(f"line {line.number} begins an event without a name: {line}")
            return None
        if len(self.open) >= MOST_EVENTS:
            msg = (
                f"more than {MOST_EVENTS} events are open at once: the expression for an event's "
                f"begin finds lines that begin none, such as line {line.number}: {line}"
            )
            raise MeasurementError(msg)
        name = job, event
        before = self._of(job) if self.one_at_a_time else [name] if name in self.open else []
        self._never_ended(before, f" before {_said(name)} began at line {line.number}")
        self.open[name] = line
        return Begun(event, line.arrival_ns, job)

    def end(self, match: regex.Match[str], line: _Line) -> JobEvent | None:
        job, event = _job(match), _event(match)
        if event is None:
            candidates = self._of(job)
            if len(candidates) != 1:
                number = len(candidates)
                problem = f"{number} events are open" if number else "no event is open"
                self.problems.append(f"line {line.number} ends an event, but {problem}: {line}")
                return None
            event = candidates[0][1]
        began = self.open.pop((job, event), None)
        if began is None:
            what = _said((job, event))
            self.problems.append(f"{what} ended at line {line.number} but never began")
            return None
        seconds = self._seconds(match, line)
        return JobEvent(event, began.arrival_ns, line.arrival_ns, seconds, job)

    def close(self) -> None:
        self._never_ended(list(self.open), "")

    def _of(self, job: str | None) -> list[_Name]:
        return [name for name in self.open if name[0] == job]

    def _never_ended(self, names: list[_Name], when: str) -> None:
        for name in names:
            line = self.open.pop(name)
            self.problems.append(f"{_said(name)} began at line {line.number} and never ended{when}")

    def _seconds(self, match: regex.Match[str], line: _Line) -> float | None:
        text = match.groupdict().get("seconds")
        if text is None:
            return None
        with contextlib.suppress(ValueError):
            seconds = float(text)
            if math.isfinite(seconds) and seconds >= 0:
                return seconds
        self.problems.append(f"line {line.number}: {text!r} is no time in seconds")
        return None


def _event(match: regex.Match[str]) -> int | str | None:
    """The event's number, or its name; None where the line has neither."""
    text = match.groupdict().get("event")
    if not text:
        return None
    return int(text) if text.isdecimal() and len(text) < 20 else text


def _job(match: regex.Match[str]) -> str | None:
    return match.groupdict().get("job")


def _said(name: _Name) -> str:
    job, event = name
    return f"event {event}" if job is None else f"event {event} of job {job}"
