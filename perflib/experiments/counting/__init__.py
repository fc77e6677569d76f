"""How often did what happen, interval by interval: in a job, on CPUs, in a control group.

Events are those of the processor, where it has counters, and what the kernel counts on every
machine: faults, switches, migrations, run-queue delay, pressure, soft interrupts, steal. Intervals
go to disk as they come, for weeks, and survive the death of the process.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from perflib.experiments.counting.claims import CLAIMS
from perflib.framework.experiment import Experiment
from perflib.framework.jobs import JOB_COMMAND, check_command
from perflib.framework.params import Cores, Params, Words, budget, parameter, precision
from perflib.framework.schema import Column
from perflib.framework.steps import Drawing, Steps

__all__ = ["Count", "CountParams", "experiment"]


class CountParams(Params):
    """What is watched, which events are counted, how often and for how long."""

    budget_s: float = budget(60.0, most=1e8)
    cores: Cores = parameter(
        "all",
        "job=machine: which CPUs are watched; job=command: those that the job may use",
    )
    precision_percent: float = precision(100.0, "never: counting ends with what is watched")
    job: Literal["machine", "command", "running", "cgroup"] = parameter(
        "machine",
        "what is watched: all CPUs of the machine or those of cores, a 'command' with job_command, "
        "a process that is 'running' with job_pid, or a control group with job_cgroup",
    )
    events: Words = parameter(
        ["default"],
        "what is counted: sets of events, names of events, or 'default': what every machine has, "
        "and the generic events of a processor that has counters",
    )
    every_s: float = parameter(0.1, "length of an interval", "s", ge=0.01, le=3600)
    per_cpu: bool = parameter(
        False, "job=machine: each CPU by itself, as far as an event is a CPU's; else their sum"
    )
    order: Literal["random", "kernel"] = parameter(
        "random",
        "sets that do not fit together take turns, one an interval in a 'random' order, or all are "
        "on and the 'kernel' rotates them",
    )
    max_data_mb: int = parameter(
        256, "most data on disk; older intervals are then merged into longer ones", "MB",
        ge=1, le=10**6,
    )  # fmt: skip
    complete_percent: float = parameter(
        90.0, "a count is complete if it was on for more of the time", "percent", gt=0, le=100
    )
    job_command: str = JOB_COMMAND
    job_pid: int | None = parameter(None, "process id of job=running", ge=1, le=2**22)
    job_cgroup: str = parameter("", "path of the control group of job=cgroup, as system.slice")

    @model_validator(mode="after")
    def _job_is_whole(self) -> Self:
        check_command(self.job, self.job_command)
        for job, name, given in (
            ("running", "job_pid", self.job_pid is not None),
            ("cgroup", "job_cgroup", bool(self.job_cgroup)),
        ):
            if (self.job == job) != given:
                msg = f"job={job} and {name}=... go together"
                raise ValueError(msg)
        return self


class Count(Experiment, about=__file__):
    """Counts over time."""

    name = "count"
    notebook = "14_count"
    Params = CountParams
    live_rounds = 0
    columns = (
        Column("round", "integer", "", "the recording: there is one"),
        Column("position", "integer", "", "its place"),
        Column("bin", "integer", "", "number of the part of the time", True, "key"),
        Column("set", "text", "", "the events that were on together", True, "key"),
        Column("event", "text", "", "what was counted", True, "key"),
        Column("cpu", "integer", "", "the CPU; -1: all of them", role="key", least=-1),
        Column("unit", "text", "", "of the count; empty: a number"),
        Column("start_ns", "integer", "ns", "when the part began, since the first", True),
        Column("span_ns", "integer", "ns", "its end, since its begin: gaps are in it", True),
        Column("elapsed_ns", "integer", "ns", "how long was counted in it", True),
        Column("value", "number", "", "what was counted", True, "measured", least=0, most=1e30),
        Column("on_ns", "number", "ns", "how long the counter was on, summed over threads or CPUs",
               True, most=1e30),
        Column("all_ns", "number", "ns", "how long it should have been", True, most=1e30),
    )  # fmt: skip
    claims = CLAIMS

    def _steps(self) -> Steps[CountParams]:
        from perflib.experiments.counting import analyse, measure

        return Steps(measure, analyse, levels=analyse.levels)

    def _figures(self) -> Drawing:
        from perflib.experiments.counting import figures

        return figures


experiment = Count()
