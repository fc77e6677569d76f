"""When did each event of a job begin and end? Its log says so, line by line.

A job says "start processing event #73", and some time later "Event nr. 73 took 34.58 s". Two
regular expressions find such lines; what is measured is when each *arrived*, on CLOCK_MONOTONIC,
so that it lines up with perf's samples (``perf record -k CLOCK_MONOTONIC``). Nothing is trusted:
what does not make a whole event is said in ``problems``.
"""

from __future__ import annotations

import contextlib
import math
import re
import signal
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import FrameType

from perflib.errors import UserError
from perflib.profiling.logformat import LogFormat

__all__ = ["LINE_LIMIT_BYTES", "JobEvent", "parse"]

LINE_LIMIT_BYTES = 4096
"""A longer line is read only so far: a job may write for minutes without a newline."""

_MATCH_LIMIT_S = 1.0


@dataclass(frozen=True)
class JobEvent:
    """One event that began and ended.

    Parameters
    ----------
    event
        Its number, or its name where that is no number.
    begin_ns, end_ns
        When the two lines arrived (CLOCK_MONOTONIC). Equal if one read brought both: the time is
        then below what a log can resolve, or the job holds its lines back.
    reported_seconds
        The job's own timing, if its log has it.
    """

    event: int | str
    begin_ns: int
    end_ns: int
    reported_seconds: float | None = None

    @property
    def time_ns(self) -> int:
        """The time between the arrival of the two lines."""
        return self.end_ns - self.begin_ns


def parse(
    chunks: Iterable[tuple[int, bytes]], log_format: LogFormat, problems: list[str]
) -> Iterator[JobEvent]:
    r"""Yield each event as soon as the line that ends it is complete.

    Parameters
    ----------
    chunks
        ``(arrival_ns, bytes)``, as read: whole lines or parts of lines.
    log_format
        What the lines look like.
    problems
        Gets a sentence for everything that is no whole event: an event that never ended or began
        twice, an end without a begin, a number that is none, lines beyond ``LINE_LIMIT_BYTES``.

    Raises
    ------
    UserError
        An expression that takes more than a second on one line (it backtracks). Python can stop
        it in the main thread only.

    Examples
    --------
    >>> from perflib.profiling.logformat import FORMATS
    >>> log = [(0, b"start processing ev"), (5, b"ent #7\n"), (9, b"done processing event #7\n")]
    >>> list(parse(log, FORMATS["athena"], []))
    [JobEvent(event=7, begin_ns=5, end_ns=9, reported_seconds=None)]
    """
    begin, end = re.compile(log_format.begin), re.compile(log_format.end)
    book = _Book(one_at_a_time="event" not in end.groupindex, problems=problems)
    cut: list[int] = []
    for line in _lines(chunks):
        if line.cut:
            cut.append(line.number)
        with _time_limit(log_format, line):
            begun, ended = begin.search(line.text), end.search(line.text)
        if not (begun or ended):
            continue
        if not line.whole:
            problems.append(f"the output ended within line {line.number}, not used: {line}")
        elif begun and ended:
            problems.append(f"line {line.number} matches both begin and end, not used: {line}")
        elif begun:
            book.begin(begun, line)
        elif ended and (event := book.end(ended, line)):
            yield event
    book.close()
    if cut:
        problems.append(
            f"{len(cut)} lines longer than {LINE_LIMIT_BYTES} bytes were read only so far, "
            f"the first is line {cut[0]}"
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


# --- lines to events ---------------------------------------------------------------------------


@dataclass
class _Book:
    """The events that are open, by name, with the line that began each."""

    one_at_a_time: bool
    problems: list[str]
    open: dict[int | str, _Line] = field(default_factory=dict)

    def begin(self, match: re.Match[str], line: _Line) -> None:
        name = _name(match)
        if name is None:
            self.problems.append(f"line {line.number} begins an event without a name: {line}")
            return
        if self.one_at_a_time or name in self.open:
            earlier = self.open.copy() if self.one_at_a_time else {name: self.open[name]}
            self._never_ended(earlier, f" before event {name} began at line {line.number}")
        self.open[name] = line

    def end(self, match: re.Match[str], line: _Line) -> JobEvent | None:
        name = _name(match)
        if name is None and len(self.open) == 1:
            name = next(iter(self.open))
        if name is None:
            problem = f"{len(self.open)} events are open" if self.open else "no event is open"
            self.problems.append(f"line {line.number} ends an event, but {problem}: {line}")
            return None
        if name not in self.open:
            self.problems.append(f"event {name} ended at line {line.number} but never began")
            return None
        began = self.open.pop(name)
        return JobEvent(name, began.arrival_ns, line.arrival_ns, self._seconds(match, line))

    def close(self) -> None:
        self._never_ended(self.open.copy(), "")

    def _never_ended(self, events: dict[int | str, _Line], when: str) -> None:
        for name, line in events.items():
            self.problems.append(f"event {name} began at line {line.number} and never ended{when}")
            del self.open[name]

    def _seconds(self, match: re.Match[str], line: _Line) -> float | None:
        text = match.groupdict().get("seconds")
        if text is None:
            return None
        with contextlib.suppress(ValueError):
            seconds = float(text)
            if math.isfinite(seconds) and seconds >= 0:
                return seconds
        self.problems.append(f"line {line.number}: {text!r} is no time in seconds")
        return None


def _name(match: re.Match[str]) -> int | str | None:
    """The event's number, or its name; None where the line has neither."""
    text = match.groupdict().get("event")
    if not text:
        return None
    return int(text) if text.isdecimal() and len(text) < 20 else text


# --- the time limit ----------------------------------------------------------------------------


class _TooSlowError(Exception):
    pass


@contextlib.contextmanager
def _time_limit(log_format: LogFormat, line: _Line) -> Iterator[None]:
    """Stop a match that backtracks for ever.

    The timer counts this process's own CPU time, so that a busy machine does not trip it, and
    leaves SIGALRM to others. Python runs signal handlers in the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise _TooSlowError

    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, _MATCH_LIMIT_S)
        yield
    except _TooSlowError:
        msg = (
            f"line {line.number} kept the expressions {log_format.begin!r} and "
            f"{log_format.end!r} busy for {_MATCH_LIMIT_S:g} s: one of them backtracks. Avoid "
            f"repeats within repeats, such as (a+)+. The line: {line}"
        )
        raise UserError(msg) from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before or signal.SIG_DFL)
