"""What a job is bound by: the job next to a controlled competitor, dose by dose.

A profile says where a job spends its time, not what it waits for. Here others take something away
from it, a little and more: memory traffic, last-level cache, a second core's quiet, large pages.
What slows it down is what it needs. The competitor streams without filling the cache
(non-temporal writes, unless ``traffic_kind`` says otherwise), or fills the cache without using
memory (reads of what stays there): so the two have a dose each; Bubble-Up (Mars et al. 2011,
doi:10.1145/2155620.2155650) has one dial.
A cache-resident control job under the same dose shows what the competitor does to any job.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from perflib.experiments.sensitivity.claims import CLAIMS
from perflib.framework.experiment import Experiment
from perflib.framework.jobs import FREQUENCY_HZ, JobParams
from perflib.framework.params import Items, budget, limit, parameter, precision
from perflib.framework.schema import SAMPLED_COLUMNS, Column, key, ok
from perflib.framework.steps import Drawing, Steps

__all__ = ["CANNOT_SEE", "DOSES", "OWN_JOBS", "Sensitivity", "SensitivityParams", "experiment"]

DOSES = ("control", "alone", "traffic", "occupied", "sibling", "small_pages", "huge_pages")
"""What the competitor does; see the column ``dose``."""
OWN_JOBS = ("compute", "chase", "triad", "walk")
"""Ours, each bound by one thing; see ``kernels_c/bound_job.c``."""
CANNOT_SEE = (
    "translations are cached by each core for itself, so no competitor can take them: the dose is "
    "the page size of the job itself; disk and network are not varied"
)

Shares = Annotated[Items[Annotated[float, Field(gt=0, le=100)]], Field(max_length=8)]


class SensitivityParams(JobParams):
    """Which job, and how much of what others take from it."""

    budget_s: float = budget(180.0)
    precision_percent: float = precision(
        1.0, "the half-widths of what each largest dose does are below this"
    )
    job: Literal["compute", "chase", "triad", "walk", "command"] = parameter(
        "triad",
        "which job: ours, bound by the core ('compute'), by the last-level cache ('chase'), by "
        "memory bandwidth ('triad'), by address translation ('walk'); or a 'command' with "
        "job_command",
    )
    response: Literal["cpu", "wall", "event"] = parameter(
        "cpu",
        "what is compared: 'cpu' time, which others on the machine disturb less, 'wall'; or "
        "'event': of job=command, the median time of an event by its log, its start left out",
    )
    functions: bool = parameter(
        False, "of job=command: record it with perf; which function suffers from each dose?"
    )
    frequency_hz: int = FREQUENCY_HZ
    job_cpus: int = parameter(
        1, "how many of the cores the job may use, the first ones; the others compete", ge=1,
        le=4096,
    )  # fmt: skip
    traffic: Shares = parameter(
        [50, 100], "memory traffic of the competitor, of the most that its cores reach", "percent"
    )
    traffic_kind: Literal["read", "write", "nt_write"] = parameter(
        "nt_write",
        "what the traffic is: 'nt_write' passes the caches (non-temporal), ordinary writes and "
        "reads fill them on their way",
    )
    occupied: Shares = parameter(
        [50, 100], "last-level cache that the competitor keeps occupied", "percent"
    )
    cache_mib: float | None = parameter(
        None, "size of the last-level cache (none: as the machine reports it)", "MiB", gt=0,
        le=1 << 16,
    )  # fmt: skip
    trial_s: float = parameter(
        0.25, "CPU time of one start of the control job, and of each of ours", "s", ge=0.02, le=60
    )
    events: int = parameter(2, "job=command: how many events it has, {events}", ge=1, le=10**8)
    first_event: int = parameter(0, "number of the first event, {first}", ge=0, lt=2**40)
    threshold_percent: float = limit(2.0, "the job is bound by something from this slow-down on")

    @model_validator(mode="after")
    def _job_fits(self) -> Self:
        if self.response == "event" and self.job != "command":
            msg = "response=event goes with job=command: our own jobs write no log"
            raise ValueError(msg)
        if self.functions and (self.job != "command" or self.response == "event"):
            msg = "functions are those of all of a job=command: response is cpu or wall then"
            raise ValueError(msg)
        return self


class Sensitivity(Experiment, about=__file__):
    """A job next to a competitor that takes one thing from it, dose by dose."""

    name = "sensitivity"
    notebook = "21_sensitivity"
    Params = SensitivityParams
    live_rounds = 2
    claims = CLAIMS
    columns = (
        key("round", "integer", "number of the round; comparisons are within"),
        Column("position", "integer", "", "place of the trial in its round"),
        key(
            "program",
            "text",
            "the job; the control job; or one of ours that is known to be bound by the dose",
            values=("job", "control", *OWN_JOBS),
        ),
        key(
            "dose",
            "text",
            "control: the others are busy in their own caches; alone: they are idle; traffic: they "
            "write to memory, or read it; occupied: they keep last-level cache; sibling: busy on "
            "the same core; small_pages, huge_pages: others idle, the job with 4 KiB pages and "
            "with huge",
            values=DOSES,
        ),
        key("level", "number", "how much of it: of the most traffic, of the cache", most=1000),
        Column("cpu_s", "number", "s", "CPU time of the program", True, "measured"),
        Column("wall_s", "number", "s", "from its first instruction to its end", True),
        Column("event_s", "number", "s", "median time of the job's events by its log"),
        Column("run_delay_s", "number", "s", "run-queue delay of its first thread"),
        Column("traffic_gb_s", "number", "GB/s", "what the competitor moved meanwhile", least=0),
        Column("occupied_bytes", "number", "B", "of which the competitor read all, again and "
               "again"),
        Column("output", "text", "", "checksum of what it wrote; empty: nothing"),
        *SAMPLED_COLUMNS,
        Column("start_ns", "integer", "ns", "when the trial began"),
        ok("the dose was not in force all the time, or the output changed"),
    )  # fmt: skip

    def _steps(self) -> Steps[SensitivityParams]:
        from perflib.experiments.sensitivity import analyse, measure

        return Steps(measure, analyse, pilot=measure.pilot, levels=analyse.levels)

    def _figures(self) -> Drawing:
        from perflib.experiments.sensitivity import figures

        return figures


experiment = Sensitivity()
