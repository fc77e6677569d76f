"""What a job would gain if a function or a critical section of it were faster, before it is.

A profile says where threads spend CPU time. Where threads wait for each other, that is another
question than what would make the job faster: a function may take a third of the time and gain
nothing. Here the job itself is asked, after C. Curtsinger and E. Berger (Coz, SOSP 2015): a target
seems faster where all other threads are delayed while a thread is in it. Of our own event loop the
truth is measured as well: the same function, really made cheaper.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from perflib.experiments.what_if.claims import CLAIMS
from perflib.framework.experiment import Experiment
from perflib.framework.jobs import JOB_COMMAND, JOB_TIMEOUT_S, check_command
from perflib.framework.params import (
    AnyWords,
    Items,
    OrNone,
    Params,
    budget,
    limit,
    parameter,
    precision,
)
from perflib.framework.results import RESULTS
from perflib.framework.schema import Column, key, ok
from perflib.framework.steps import Drawing, Steps
from perflib.measure.jobs import event_loop
from perflib.model.errors import choose

__all__ = ["CANNOT_SEE", "WhatIf", "WhatIfParams", "experiment", "sizes_of"]

CANNOT_SEE = (
    "only the program's first process is delayed, and only waits through pthread functions are "
    "known: not spinning of its own, raw futexes, C11 locks, child processes; with more threads "
    "than cores gains may be off"
)

Speedups = Annotated[Items[Annotated[float, Field(gt=0, le=100)]], Field(max_length=12)]


def sizes_of(words: list[str]) -> dict[str, int]:
    """Sizes of the event loop, of words NAME=NUMBER (pydantic wants a ValueError).

    >>> sizes_of(["formula=1500"])
    {'formula': 1500}
    """
    sizes = {}
    for word in words:
        name, _, number = (part.strip() for part in word.partition("="))
        if name not in event_loop.SIZES or not number.isdecimal():
            known = ", ".join(event_loop.SIZES)
            msg = f"sizes: {word!r} is no size: write NAME=NUMBER with one of {known}"
            raise ValueError(msg)
        sizes[name] = int(number)
    return sizes


class WhatIfParams(Params):
    """Which job, and what of it seems faster."""

    budget_s: float = budget(180.0)
    precision_percent: float = precision(2.0, "the half-widths of all gains are below this")
    job: Literal["event_loop", "command"] = parameter(
        "event_loop", "which job: our 'event_loop', or any 'command' with job_command"
    )
    functions: AnyWords = parameter(
        [], "regular expressions: the functions they are found in are targets, with what they call"
    )
    locks: AnyWords = parameter(
        [], "variables that hold locks, or 'lock in FUNCTION': their critical sections are targets"
    )
    most_functions: int = parameter(
        3, "without functions and locks: so many with the most CPU time", ge=0, le=50
    )
    most_locks: int = parameter(
        2, "without functions and locks: so many that are waited for longest", ge=0, le=50
    )
    speedups: Speedups = parameter(
        [25.0, 50.0, 75.0], "by how much a target seems faster; 100: as if it took no time",
        "percent",
    )  # fmt: skip
    truth: bool = parameter(
        True, "job=event_loop: also really make targets cheaper, where one of its sizes does that"
    )
    points: AnyWords = parameter(
        ["formula"],
        f"where events of the event loop wait for each other: {', '.join(event_loop.POINTS)}; "
        "empty: nowhere",
    )
    sizes: AnyWords = parameter(
        ["formula=1500"], f"of the event loop, as NAME=NUMBER: {', '.join(event_loop.SIZES)}"
    )
    threads: int = parameter(
        0, "threads of the event loop; 0: as many as it has cores", ge=0, le=1024
    )
    events: int = parameter(60, "events of one trial, some ms each", ge=1, le=10**8)
    sample_period_us: float = parameter(
        1000.0, "CPU time between two samples of a thread", "us", ge=100, le=1e5
    )
    callers: OrNone[Literal["dwarf", "fp", "none"]] = parameter(
        "dwarf",
        "how a sample in what a target calls is recognised: 'dwarf' (unwind tables), 'fp' (frame "
        "pointers), 'none' (it is not)",
    )
    gain_percent: float = limit(3.0, "a gain counts from this on", le=100)  # fmt: skip
    off_percent: float = parameter(
        5.0,
        "predictions differ from this on: of a profile, and from what is really gained",
        "percentage points",
        gt=0,
        le=100,
    )
    job_command: str = JOB_COMMAND
    job_timeout_s: float = JOB_TIMEOUT_S

    @model_validator(mode="after")
    def _job_is_whole(self) -> Self:
        check_command(self.job, self.job_command)
        sizes_of(self.sizes)
        if wrong := [one for one in self.points if one not in event_loop.POINTS]:
            msg = choose("point of the event loop", wrong[0], event_loop.POINTS)
            raise ValueError(msg)
        if len(set(self.speedups)) < len(self.speedups):
            msg = "speedups names one twice"
            raise ValueError(msg)
        if not (self.functions or self.locks or self.most_functions + self.most_locks):
            msg = "nothing is a target: give functions or locks, or let the costliest be chosen"
            raise ValueError(msg)
        return self


class WhatIf(Experiment, about=__file__):
    """A job with one target after the other faster: virtually, and where it can be, really."""

    name = "what_if"
    notebook = "15_what_if"
    Params = WhatIfParams
    live_rounds = 1
    same_work = ("way", "target", "speedup_percent")
    claims = CLAIMS
    published_table = "vtune_calibration"
    columns = (
        key("round", "integer", "number of the round; comparisons are within"),
        Column("position", "integer", "", "place of the trial in its round"),
        key("target", "text", "the function or the lock"),
        key("kind", "text", "what the target is", values=("function", "lock", "lock_taken_in")),
        key(
            "way",
            "text",
            "control and again: nothing is faster; virtual: by delays; real: less work",
            values=("control", "again", "virtual", "real"),
        ),
        key("speedup_percent", "number", "by how much the target is faster", most=100),
        Column("job_s", "number", "s", "the program, from load to end", True, "measured"),
        Column("delay_s", "number", "s", "delays inserted, which every thread has paid", True),
        Column("target_s", "number", "s", "CPU time in the target, of all threads"),
        Column("cpu_s", "number", "s", "CPU time of all threads, without delays"),
        Column("run_queue_s", "number", "s", "run-queue delay of all threads"),
        Column("samples", "integer", "", "of all threads"),
        Column("target_samples", "integer", "", "in the target"),
        Column("sections", "integer", "", "how often a lock of the target was held"),
        Column("threads", "integer", "", "the most at once, with the first"),
        Column("cpus", "integer", "", "how many the job may use"),
        Column("ticks", "boolean", "", "samples came at the kernel's ticks only"),
        Column("start_ns", "integer", "ns", "when the trial began"),
        ok("the target's file was not loaded, or the job's result is wrong"),
        *RESULTS,
    )

    def unavailable(self) -> str:
        """Whether threads can be delayed here."""
        from perflib.instruments.what_if.trial import unavailable

        return unavailable()

    def _steps(self) -> Steps[WhatIfParams]:
        from perflib.experiments.what_if import analyse, measure

        return Steps(measure, analyse, pilot=measure.pilot, levels=analyse.levels)

    def _figures(self) -> Drawing:
        from perflib.experiments.what_if import figures

        return figures


experiment = WhatIf()
