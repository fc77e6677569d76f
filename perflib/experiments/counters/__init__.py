"""Counters: how far can multiplexed or sampled counts be trusted, and what do they cost the job?

The experiment of Jurga 2006 (*Practical experience with performance monitoring*, CERN openlab): the
same job with one set of counters at a time, with multiplexed sets, and with sampling, alone and
among other jobs. Errors are relative to one set at a time. Costs are relative to no counting at
all: of our own simulation in segments of milliseconds, counted and not in turn, so that a busy
machine does not pass for a cost; of any other job from whole runs.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from perflib.experiments.counters.claims import COSTS, MISCOUNTS, MISSES
from perflib.framework.brackets import PROBE_COLUMNS
from perflib.framework.experiment import Experiment
from perflib.framework.jobs import JobParams
from perflib.framework.params import Items, Words, known_names, limit, parameter, precision
from perflib.framework.schema import Column, key
from perflib.framework.steps import Drawing, Steps

__all__ = ["Counters", "CountersParams", "experiment"]

Numbers = Items[Annotated[int, Field(ge=1, le=256)]]


class CountersParams(JobParams):
    """Which job, next to how many others, counted how."""

    precision_percent: float = precision(
        1.0, "the cost of each way to count is known to this half-width, for the fewest jobs"
    )
    job_ms: float = parameter(
        400.0, "the job does as many events as take about so long alone", "ms", ge=20, le=600_000
    )
    events: int | None = parameter(
        None, "how many events the job does (none: by job_ms)", ge=1, le=1_000_000
    )
    jobs: Numbers = parameter(
        [1, 2, 3], "how many jobs run at once, one of them counted: a list such as 1,2,3"
    )
    sets: Words = parameter(
        ["software", "faults", "branches", "floating-point", "scalar", "memory"],
        "ready-made sets of events; those that this machine cannot count are named once",
    )
    domain: Literal["all", "user", "kernel"] = parameter(
        "all", "where events count: in user space, in the kernel, or in both"
    )
    period_ms: float = parameter(
        20.0, "time between two readings, and the slice of a set", "ms", ge=10, le=60_000
    )
    sampling_hz: int = parameter(1000, "perf's samples a second", "Hz", ge=10, le=50_000)
    error_percent: float = limit(
        5.0,
        "counts are called wrong from this average error on; events that one set at a time does "
        "not repeat so well are left out",
    )
    counting_percent: float = limit(1.0, "counting counts as costly from this cost to the job on")
    sampling_percent: float = limit(2.0, "sampling counts as costly from this cost to the job on")
    missed_percent: float = limit(
        5.0, "readings count as missed from this share of those due on", le=100
    )
    code_kib: int = parameter(
        256, "job=program: size of the physics code, which is copied", "KiB", ge=100, le=8192
    )
    job: Literal["program", "pythia", "command"] = parameter(
        "program",
        "what is counted: our simulation as a 'program', 'pythia' (of the extra [hep]), or any "
        "'command' with job_command",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        from perflib.instruments.counters.sets import sets as ready_made  # imports pandas

        known_names("sets", "set of events", self.sets, list(ready_made()))
        return self


class Counters(Experiment, about=__file__):
    """One job counted in every way, with one and more jobs on the machine."""

    name = "counters"
    notebook = "03_counters"
    Params = CountersParams
    columns = (
        key("round", "integer", "number of the round; modes are compared within"),
        key(
            "mode",
            "text",
            "'one set' (the reference of errors), 'alone' (not counted: the reference of costs, "
            "where there are no slices), "
            "'rotated' (multiplexed by perflib), 'kernel' (multiplexed by the kernel where "
            "counters are too few), 'sampled'; others are compared with these",
        ),
        key("jobs", "integer", "how many jobs ran at once"),
        key("event", "text", "what was counted; '(none)' in a row without"),
        Column("value", "number", "events", "count scaled to the whole job; empty: not counted"),
        Column(
            "time_ns",
            "number",
            "ns",
            "the counted job's, from its first event to its last; the same in all rows of a trial; "
            "of a slice",
            role="measured",
        ),
        Column("set", "text", "", "the set that the event was counted in", role="key"),
        Column("position", "integer", "", "place of the trial in its round"),
        Column("enabled_ns", "number", "ns", "how long it was to be counted"),
        Column("running_ns", "number", "ns", "how long it was"),
        Column("scaled_error", "number", "events", "standard uncertainty of the scaling"),
        Column("status", "text", "", "counted, scaled, sampled, or why not"),
        Column("cpu_time_ns", "number", "ns", "CPU time of the counted job; of a slice"),
        Column("obtained", "integer", "", "readings or samples that were taken in the trial"),
        Column("due", "integer", "", "readings or samples that should have been"),
        Column("slice", "integer", "", "number of the part of a job's event; empty: a whole job"),
        Column("job_event", "integer", "", "the event that the slice is a part of"),
        Column("counted", "integer", "", "1: the slice was counted, 0: not"),
        Column("pair", "integer", "", "of segments with and without counting, in the trial"),
        Column("cpu", "integer", "", "where the slice ran; -1: it migrated", least=-1),
        Column("start_ns", "integer", "ns", "when the slice began, on CLOCK_MONOTONIC"),
        *(column for column in PROBE_COLUMNS if column.name != "cpu_time_ns"),
    )

    claims = (MISCOUNTS, COSTS, MISSES)
    published_table = "perfctr_sampling_accuracy"
    renamed = {"got": "obtained"}

    def unavailable(self) -> str:
        """Try to open the counters of every set for a moment, also of user space alone."""
        from perflib.experiments.counters.measure import nothing
        from perflib.experiments.counters.trials import sets_of
        from perflib.instruments.counters.groups import countable

        absent: dict[str, str] = {}
        for params in (CountersParams(), CountersParams(domain="user")):
            found, absent = countable(sets_of(params))
            if found:
                return ""
        return nothing(absent)

    def _steps(self) -> Steps[CountersParams]:
        from perflib.experiments.counters import analyse, measure

        return Steps(measure, analyse, pilot=measure.pilot)

    def _figures(self) -> Drawing:
        from perflib.experiments.counters import figures

        return figures


experiment = Counters()
