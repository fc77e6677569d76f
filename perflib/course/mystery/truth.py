"""How large the trouble of an open mystery truly is, measured in the way that knows what was made.

A process reports its own CPU time. Of a quota the control group states it. A part of the job that
costs more is timed against the same job without it, by turns on one core; a lock's waits are those
that the job itself counts.
"""

from __future__ import annotations

import math
import random
import re
import shlex
from dataclasses import dataclass

from perflib.course.mystery import job
from perflib.course.mystery.causes import CAUSES, NOTHING
from perflib.course.mystery.draw import Trouble
from perflib.measure.conditions import Conditions
from perflib.measure.job import run_alone
from perflib.model.errors import MeasurementError
from perflib.stats.interval import Interval

NEGLIGIBLE_PERCENT = 1.0  # what costs less is no trouble
_LEAST_PAIRS, _MOST_PAIRS, _EVENTS = 12, 60, 5  # of starts; events of each
_FAR = 6.0  # times the median distance: a start next to which something else ran
_WANTED = 0.1  # half-width, as a share of the effect
_RUNS, _RUN_EVENTS = 6, 40  # with all threads
_SHARE_OFF, _LEAST_OFF = 0.05, 0.5  # by so much what is measured from outside may be off, at least
_QUOTA_OFF = 4.0  # a quota of periods is used up by more processes than the measured one
_OWN_CLOCK = "the process's own CPU clock"
_WAITS_OFF = 0.2  # a recording slows the job, and the scheduler pairs threads anew in each run


@dataclass(frozen=True)
class Truth:
    """What was wrong: shown after the answer.

    Parameters
    ----------
    cause, place
        As an answer names them; ``place`` is empty where there is none.
    cpu
        The core on which it was made, where it was made on one.
    size
        In percent, of what `causes.Cause.size` says; with the ends within which a right answer's
        interval must have a part.
    how
        How it was measured.
    """

    cause: str
    place: str
    cpu: int | None
    size: Interval
    how: str

    @property
    def is_negligible(self) -> bool:
        """Whether what was made costs nothing here: then nothing is wrong."""
        return self.cause == NOTHING or self.size.high < NEGLIGIBLE_PERCENT

    def __str__(self) -> str:
        place = f" at {self.place}" if self.place else ""
        on = f" (on cpu{self.cpu})" if self.cpu is not None and self.cpu_is_known else ""
        text = f"{self.cause}{place}{on}"
        if self.cause == NOTHING:
            return text
        about = CAUSES[self.cause].size
        return (
            f"{text}: {self.size.effect:.1f} [{self.size.low:.1f}, {self.size.high:.1f}] % {about}"
        )

    @property
    def cpu_is_known(self) -> bool:
        """Whether the core is more than the place says."""
        return self.place != f"cpu{self.cpu}"


def measured(trouble: Trouble, seed: int, share_percent: float | None) -> Truth:
    """The truth of a trouble.

    Parameters
    ----------
    trouble, seed
        What was drawn, and from which seed.
    share_percent
        The share of a core that the companion used by its own clock, where that is known.

    Raises
    ------
    MeasurementError
        The job does not run.
    """
    cpu: int | None = trouble.cpu
    made = trouble.thousandths / 10
    if trouble.cause in ("thief", "hog"):
        share = made if share_percent is None else share_percent
        size, how = _widened(Interval(share, share, share), _SHARE_OFF), _OWN_CLOCK
    elif trouble.cause == "quota":
        size, how = (
            Interval(made, made - _QUOTA_OFF, made + _QUOTA_OFF),
            "the file of the control group",
        )
        cpu = None
    elif trouble.cause == NOTHING:
        size, how, cpu = Interval(0.0, 0.0, 0.0), "nothing was done", None
    elif trouble.cause == "lock":
        size, how, cpu = _waits(trouble, seed), "the waits that the job itself counts", None
    else:
        size = _longer(trouble, seed)
        how = "the job with it and without it, by turns on one core"
        cpu = None if trouble.cause == "buffer" else cpu
    return Truth(trouble.cause, trouble.place, cpu, size, how)


def set_when_recorded(cause: str, place: str, percent: float) -> Truth:
    """The truth of a recorded exercise: its cause and size are what was set then."""
    off = _QUOTA_OFF if cause == "quota" else max(_LEAST_OFF, _SHARE_OFF * percent)
    off = 0.0 if cause == NOTHING else off
    cpu = int(place.removeprefix("cpu")) if place else None
    how = "the notebook that was recorded"
    return Truth(cause, place, cpu, Interval(percent, percent - off, percent + off), how)


def _longer(trouble: Trouble, seed: int) -> Interval:
    """By how many percent an event takes longer with the trouble than without."""
    import numpy as np

    from perflib.stats.interval import percent
    from perflib.stats.intervals import t_interval

    never = Trouble("buffer", "", 0, job.NEVER, 0, 0, 0)
    with_it = job.number(
        trouble, seed, which=job.ALWAYS if trouble.cause == "buffer" else trouble.which
    )
    commands = [job.command(with_it), job.command(job.number(never, seed))]
    order = random.Random(seed)
    logs: list[float] = []
    while len(logs) < _MOST_PAIRS:
        times = {}
        for place in order.sample((0, 1), 2):
            times[place] = _fastest(_run(commands[place], _EVENTS, trouble.cpu))
        logs.append(math.log(times[0] / times[1]))
        values = np.asarray(logs)
        away = np.abs(values - np.median(values))
        found = percent(t_interval(values[away <= _FAR * np.median(away)]))
        if len(logs) >= _LEAST_PAIRS and found.half_width <= _wanted(found.effect):
            break
    return _widened(found, _SHARE_OFF)


def _wanted(effect: float) -> float:
    """The half-width of the interval at which there is no need to continue."""
    return max(_LEAST_OFF, _WANTED * abs(effect))


def _widened(found: Interval, share_off: float) -> Interval:
    """An interval, and what a measurement from outside may be off."""
    off = max(_LEAST_OFF, share_off * abs(found.effect))
    low, high = found.effect - off, found.effect + off
    return Interval(found.effect, min(found.low, low), max(found.high, high))


def _waits(trouble: Trouble, seed: int) -> Interval:
    """Which share of their time the job's threads wait for the lock, in percent."""
    import numpy as np

    from perflib.stats.intervals import t_interval

    command = job.command(job.number(trouble, seed, flags=job.REPORTS))
    shares = []
    for _ in range(_RUNS):
        found = re.search(
            rf"^{trouble.place} (\S+)$", _run(command, _RUN_EVENTS, None), re.MULTILINE
        )
        if found is None:
            msg = f"the job of the mystery reports no waits for {trouble.place}"
            raise MeasurementError(msg)
        shares.append(100 * float(found[1]))
    return _widened(t_interval(np.asarray(shares)), _WAITS_OFF)


def _run(command: str, events: int, cpu: int | None) -> str:
    """What the job writes."""
    argv = shlex.split(command.format(first=0, events=events, seed=1))
    ran = run_alone(argv, Conditions(cpu=cpu), timeout_s=60.0)
    if ran.problem:
        msg = f"the job of the mystery {ran.problem}"
        raise MeasurementError(msg)
    return ran.output


def _fastest(output: str) -> float:
    """The time of the event that other tasks disturbed least; all events do equally much."""
    times = [float(time) for time in re.findall(r"took (\S+) s", output)]
    if not times:
        msg = "the job of the mystery logs no event"
        raise MeasurementError(msg)
    return min(times)
