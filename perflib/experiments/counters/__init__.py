"""Counters: how far can multiplexed or sampled counts be trusted, and what do they cost the job?

The source's experiment (R. Jurga, *Practical experience with performance monitoring*, CERN openlab,
2006): the same job with one set of counters at a time, with sets in turns, and with sampling, alone
and among other jobs. Errors are relative to one set at a time, costs to no counting at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import pandas as pd
from pydantic import BeforeValidator, Field, model_validator

from perflib.experiments.counters.analyse import CountersTable, Limits
from perflib.experiments.counters.measure import (
    Arm,
    CountedJobs,
    Job,
    arms_of,
    countable,
    events_for,
    why_not_sampled,
)
from perflib.framework.experiment import Column, Experiment, Session
from perflib.framework.jobs import (
    JOB_BEGIN,
    JOB_COMMAND,
    JOB_END,
    JOB_TIMEOUT_S,
    check_command,
    copies_for,
    job_template,
    log_format,
)
from perflib.framework.params import Params, parameter
from perflib.framework.published import published
from perflib.instruments.counters.groups import Asked, in_domain
from perflib.instruments.counters.sets import events_of
from perflib.instruments.counters.sets import sets as ready_made
from perflib.machine.hardware.pmu import pmu
from perflib.measure.conditions import Conditions
from perflib.measure.schedule import Columns
from perflib.model.errors import MeasurementError, choose
from perflib.model.finding import Finding
from perflib.model.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Counters", "CountersParams", "experiment"]

_LEAST_S = 10.0


def _words(value: object) -> object:
    """A list, one number, or text with commas between."""
    if isinstance(value, int) and not isinstance(value, bool):
        return [value]
    if isinstance(value, str):
        return [word.strip() for word in value.split(",") if word.strip()]
    return value


Numbers = Annotated[
    list[Annotated[int, Field(ge=1, le=256)]], BeforeValidator(_words), Field(min_length=1)
]
Names = Annotated[list[str], BeforeValidator(_words), Field(min_length=1)]


class CountersParams(Params):
    """Which job, beside how many others, counted how."""

    precision_percent: float = parameter(
        1.0,
        "measure until the cost of each way to count is known to this half-width, for the fewest "
        "jobs",
        "percentage points",
        gt=0,
        le=100,
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
    sets: Names = parameter(
        ["software", "faults", "branches", "floating-point", "scalar", "memory"],
        "ready-made sets of events; those that this machine cannot count are said so once",
    )
    domain: Literal["all", "user", "kernel"] = parameter(
        "all", "where events count: in user space, in the kernel, or in both"
    )
    period_ms: float = parameter(
        20.0, "time between two readings, and the turn of a set", "ms", ge=10, le=60_000
    )
    sampling_hz: int = parameter(1000, "perf's samples a second", "Hz", ge=10, le=50_000)
    error_percent: float = parameter(
        5.0,
        "counts are called wrong from this average error on; events that one set at a time does "
        "not repeat so well are left out",
        "percent",
        gt=0,
        le=1000,
    )
    counting_percent: float = parameter(
        1.0, "counting is called dear from this cost to the job on", "percent", gt=0, le=1000
    )
    sampling_percent: float = parameter(
        2.0, "sampling is called dear from this cost to the job on", "percent", gt=0, le=1000
    )
    missed_percent: float = parameter(
        5.0, "readings count as missed from this share of those due on", "percent", gt=0, le=100
    )
    code_kib: int = parameter(
        256, "job=program: size of the physics code, which is copied", "KiB", ge=100, le=8192
    )
    job: Literal["program", "pythia", "command"] = parameter(
        "program",
        "what is counted: our simulation as a 'program', 'pythia' (needs perflib[hep]), or any "
        "'command' with job_command",
    )
    job_command: str = JOB_COMMAND
    job_begin: str = JOB_BEGIN
    job_end: str = JOB_END
    job_timeout_s: float = JOB_TIMEOUT_S

    @model_validator(mode="after")
    def _job_is_whole(self) -> CountersParams:
        check_command(self.job, self.job_command)
        for name in self.sets:
            if name not in ready_made():
                msg = f"sets: {choose('set of events', name, ready_made())}"
                raise ValueError(msg)
        log_format(self.job_begin, self.job_end)
        return self


class Counters(Experiment):
    """One job counted in every way, with one and more jobs on the machine."""

    name = "counters"
    title = "Counters: accuracy and cost"
    question = "How far can multiplexed or sampled counters be trusted, and what do they cost?"
    notebook = "03_counters"
    Params: ClassVar[type[Params]] = CountersParams
    columns = (
        Column("round", "integer", "", "number of the round; modes are compared within", True),
        Column(
            "mode",
            "text",
            "",
            "'one set' (the reference of errors), 'alone' (not counted: the reference of costs), "
            "'rotated' (by us), 'kernel' (rotates where counters are too few), 'sampled'; others "
            "are compared with these",
            True,
        ),
        Column("jobs", "integer", "", "how many jobs ran at once", True),
        Column("event", "text", "", "what was counted; '(none)' in a row without", True),
        Column("value", "number", "events", "count scaled to the whole job; empty: not counted"),
        Column(
            "time_ns",
            "number",
            "ns",
            "the counted job's, from its first event to its last; the same in all rows of a turn",
        ),
        Column("set", "text", "", "the set that the event was counted in"),
        Column("position", "integer", "", "place of the turn in its round"),
        Column("enabled_ns", "number", "ns", "how long it was to be counted"),
        Column("running_ns", "number", "ns", "how long it was"),
        Column("scaled_error", "number", "events", "standard uncertainty of the scaling"),
        Column("status", "text", "", "counted, scaled, sampled, or why not"),
        Column("cpu_time_ns", "number", "ns", "CPU time of the counted job"),
        Column("got", "integer", "", "readings or samples that were taken in the turn"),
        Column("due", "integer", "", "readings or samples that should have been"),
    )
    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"budget_s": 40.0, "job_ms": 200.0, "period_ms": 10.0, "jobs": [1, 3]},
        "full": {"budget_s": 900.0, "cores": "all", "job_ms": 2000.0, "precision_percent": 0.2},
    }

    # --- measuring -----------------------------------------------------------------------------

    def plan(self, params: CountersParams) -> dict[str, Any]:
        """What can be counted and sampled here, the modes, and the length of the job."""
        plan: dict[str, Any] = {"cores": params.resolved_cores(), "copies": None}
        found, absent = countable(self._sets(params, params.sets))
        if not found:
            raise MeasurementError(_nothing(absent))
        if params.job == "program":
            plan["copies"] = copies_for(params.code_kib)
        domain = {"user": ":u", "kernel": ":k"}.get(params.domain, "")
        plan["sampled"] = ("cycles" if pmu().available else "cpu-clock") + domain
        plan["not_sampled"] = why_not_sampled(plan["sampled"], params.sampling_hz)
        plan |= {"sets": found, "absent": absent}
        plan["arms"] = arms_of(sorted(set(params.jobs)), found, sampled=not plan["not_sampled"])
        plan["events"] = params.events or events_for(
            self._job(params, plan), params.job_ms, self._conditions(params)
        )
        self._turns(params, plan)
        return plan

    @staticmethod
    def _sets(params: CountersParams, names: list[str]) -> dict[str, list[Asked]]:
        return {name: in_domain(events_of(name), params.domain) for name in names}

    @staticmethod
    def _conditions(params: CountersParams) -> Conditions:
        """As for any experiment, but on all of the cores: the jobs are put on them together."""
        return replace(params.conditions(0), cpu=None)

    @staticmethod
    def _job(params: CountersParams, plan: dict[str, Any]) -> Job:
        template = job_template(params.job, params.job_command, copies=plan["copies"])
        expressions = log_format(params.job_begin, params.job_end)
        return Job(template, expressions, params.seed, params.job_timeout_s)

    def _turns(self, params: CountersParams, plan: dict[str, Any]) -> CountedJobs:
        return CountedJobs(
            self._job(params, plan),
            plan["events"],
            self._conditions(params),
            cores=plan["cores"],
            arms=[Arm(*arm) for arm in plan["arms"]],
            sets=self._sets(params, plan["sets"]),
            absent=plan["absent"],
            period_s=params.period_ms / 1e3,
            sampled=plan["sampled"],
            sampling_hz=params.sampling_hz,
        )

    def take(self, params: CountersParams, session: Session) -> str:
        """Run the job in every mode, round by round."""
        plan = session.plan
        with self._turns(params, plan) as turns:

            def turn(round_: int, arm: int) -> Columns:
                return turns.take(round_, arm)

            stopped = session.rounds(
                params,
                len(plan["arms"]),
                turn,
                lambda samples: CountersTable(samples).half_width,
                least_s=_LEAST_S,
            )
            session.note(turns)
            if plan["not_sampled"]:
                session.problems.append(f"perf does not sample here: {plan['not_sampled']}")
            return stopped

    # --- what it says --------------------------------------------------------------------------

    def table(self, run: Run) -> CountersTable:
        """A run's samples, with all that is computed from them."""
        return CountersTable(run.samples, CountersParams.make(run.params).error_percent)

    def analyse(self, run: Run) -> list[Finding]:
        """Of each mode and number of jobs: is it wrong, is it dear, does it miss readings?"""
        params = CountersParams.make(run.params)
        limits = Limits(
            error=params.error_percent,
            counting=params.counting_percent,
            sampling=params.sampling_percent,
            missed=params.missed_percent,
        )
        return self.table(run).findings(limits)

    def figures(self, run: Run) -> dict[str, Figure]:
        """Errors by event and mode beside the scatter; costs; one job over time."""
        from perflib.experiments.counters import figures as counters_figures

        params = CountersParams.make(run.params)
        table = self.table(run)
        drawn: dict[str, Figure] = {}
        if len(table.errors):
            drawn["errors"] = counters_figures.errors(table, params.error_percent)
        if len(table.costs):
            limits = (params.counting_percent, params.sampling_percent)
            drawn["costs"] = counters_figures.costs(table, *limits)
        series = run.provenance.get("series", [])
        if any(one["readings"]["event"] for one in series):
            drawn["over_time"] = counters_figures.over_time(series)
        return drawn

    def unavailable(self) -> str:
        """Try to open the counters of every set for a moment."""
        params = CountersParams()
        found, absent = countable(self._sets(params, params.sets))
        return "" if found else _nothing(absent)

    def published(self) -> pd.DataFrame:
        """The errors that the source found for sets in turns."""
        return published("perfctr_sampling_accuracy")


def _nothing(absent: Mapping[str, str]) -> str:
    return f"nothing can be counted here: {'; '.join(dict.fromkeys(absent.values()))}"


experiment = Counters()
