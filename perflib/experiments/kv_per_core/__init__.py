"""KV per core: is any core slower at simulating events than the others?

The same events are simulated on every core, in rounds, and compared event by event, so that the
spread between cheap and dear events cancels. The source measured it on ATLAS Kit Validation, where
core 8 of a Haswell server took 12 % longer than any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pandas as pd
from pydantic import model_validator

from perflib.experiments.kv_per_core.analyse import KvTable, findings_of, time_change
from perflib.experiments.kv_per_core.measure import JobTurns, KernelTurns, chunks_of
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
from perflib.kernels import build
from perflib.measure.schedule import Columns
from perflib.model.finding import Finding, changes
from perflib.model.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["KvParams", "KvPerCore", "experiment"]


class KvParams(Params):
    """Which events, how much code, which job."""

    events: int = parameter(50, "how many events each core simulates", ge=1, le=100_000)
    first_event: int = parameter(0, "number of the first event", ge=0, lt=2**40)
    code_kib: int = parameter(
        256, "size of the physics code: it is copied, results stay the same", "KiB", ge=100, le=8192
    )
    turn_ms: float = parameter(
        100.0,
        "events are grouped into turns of about this length; at least 50, so that a disturbance "
        "of a millisecond is averaged",
        "ms",
        ge=50,
        le=60_000,
    )
    threshold_percent: float = parameter(
        1.0, "a core counts as slower from this slowdown on", "percent", gt=0, le=1000
    )
    disturbed_percent: float = parameter(
        5.0, "a core counts as disturbed from this share of the time on", "percent", gt=0, le=100
    )
    job: Literal["kernel", "program", "pythia", "command"] = parameter(
        "kernel",
        "what is timed: our simulation called as a 'kernel', the same as a 'program' that writes "
        "a log, 'pythia' (needs perflib[hep]), or any 'command' with job_command",
    )
    job_command: str = JOB_COMMAND
    job_begin: str = JOB_BEGIN
    job_end: str = JOB_END
    job_timeout_s: float = JOB_TIMEOUT_S

    @model_validator(mode="after")
    def _job_is_whole(self) -> KvParams:
        check_command(self.job, self.job_command)
        log_format(self.job_begin, self.job_end)
        return self


class KvPerCore(Experiment):
    """A detector simulation timed on every core."""

    name = "kv_per_core"
    title = "KV per core"
    question = "Is any core slower than the others, by how much, and is it the core's own fault?"
    notebook = "01_kv_per_core"
    Params: ClassVar[type[Params]] = KvParams
    columns = (
        Column("round", "integer", "", "number of the round; cores are compared within", True),
        Column("position", "integer", "", "place of the core's turn in its round"),
        Column("cpu", "integer", "", "the core", True),
        Column("event", "integer", "", "number of the event; the same work on every core", True),
        Column("time_ns", "number", "ns", "wall time of the event", True),
        Column(
            "start_ns",
            "number",
            "ns",
            "when it began, on one clock for the whole run; without it rounds count alike",
        ),
        Column("cpu_time_ns", "number", "ns", "time the event's thread had the core"),
        Column("involuntary_switches", "number", "", "times the event's thread was pushed aside"),
        Column(
            "ok",
            "boolean",
            "",
            "false: its conditions failed or its result was wrong; such a sample is not used",
        ),
    )
    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"budget_s": 40.0},
        "full": {"budget_s": 900.0, "cores": "all", "precision_percent": 0.2, "code_kib": 2048},
    }

    # --- measuring -----------------------------------------------------------------------------

    def plan(self, params: KvParams) -> dict[str, Any]:
        """The cores, how often the code is copied, and the events of each turn."""
        cores = params.resolved_cores()
        plan: dict[str, Any] = {"cores": cores, "copies": None}
        if params.job in ("kernel", "program"):
            plan["copies"] = copies_for(params.code_kib)
        events = range(params.first_event, params.first_event + params.events)
        with self._turns(params, plan, cores[:1]) as pilot:
            times_ms, plan["checksums"] = pilot.pilot(events)
        plan["chunks"] = chunks_of(times_ms, params.first_event, params.turn_ms)
        return plan

    def _turns(
        self, params: KvParams, plan: dict[str, Any], cores: list[int]
    ) -> KernelTurns | JobTurns:
        conditions = [params.conditions(cpu) for cpu in cores]
        if params.job == "kernel":
            return KernelTurns(build("kv", copies=plan["copies"]), conditions, params.seed)
        template = job_template(params.job, params.job_command, copies=plan["copies"])
        expressions = log_format(params.job_begin, params.job_end)
        return JobTurns(template, expressions, conditions, params.seed, params.job_timeout_s)

    def take(self, params: KvParams, session: Session) -> str:
        """Simulate each turn's events on every core, round by round."""
        plan = session.plan
        cores, chunks = plan["cores"], plan["chunks"]
        checksums = np.array(plan["checksums"], dtype=np.uint64)
        with self._turns(params, plan, cores) as turns:

            def turn(round_: int, arm: int) -> Columns:
                first, count = chunks[round_ % len(chunks)]
                begin = first - params.first_event
                expected = checksums[begin : begin + count]
                return turns.take(arm, range(first, first + count), expected)

            stopped = session.rounds(
                params, len(cores), turn, lambda samples: KvTable(samples).compare().half_width
            )
            session.note(turns)
            return stopped

    # --- what it says --------------------------------------------------------------------------

    def analyse(self, run: Run) -> list[Finding]:
        """Two findings for each core: how slow it is, and how often it was disturbed."""
        params = KvParams.make(run.params)
        places = run.provenance.get("machine", {}).get("cpus", [])
        return findings_of(
            KvTable(run.samples),
            params.threshold_percent,
            params.disturbed_percent,
            {place["cpu"]: place["where"] for place in places},
        )

    def compare(self, first: Run, second: Run) -> list[Finding]:
        """How much longer the second run's events take, and each core's change."""
        threshold = KvParams.make(second.params).threshold_percent
        return [
            time_change(KvTable(first.samples), KvTable(second.samples), threshold),
            *changes(self.analyse(first), self.analyse(second), threshold),
        ]

    def figures(self, run: Run) -> dict[str, Figure]:
        """Seconds per event on each core; the ratio event by event; drift over the rounds."""
        from perflib.experiments.kv_per_core import figures as kv_figures

        table = KvTable(run.samples)
        return {
            "seconds_per_event": kv_figures.seconds_per_event(table),
            "event_by_event": kv_figures.event_by_event(table),
            "drift": kv_figures.drift(table),
        }

    def published(self) -> pd.DataFrame:
        """What the source reports of KV on Haswell."""
        return published("kv_haswell")


experiment = KvPerCore()
