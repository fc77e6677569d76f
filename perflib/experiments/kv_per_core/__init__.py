"""KV per core: is any core slower at simulating events than the others?

The same events are simulated on every core, in rounds, and compared event by event, so that the
spread between cheap and costly events cancels. Measured before with ATLAS Kit Validation, where
core 8 of a Haswell server took 12 % longer than any other (docs/references.md).
"""

from __future__ import annotations

from typing import Literal

from perflib.experiments.kv_per_core.claims import CLAIMS
from perflib.framework.brackets import PROBE_COLUMNS
from perflib.framework.experiment import Experiment
from perflib.framework.jobs import JobParams
from perflib.framework.params import limit, parameter
from perflib.framework.results import RESULTS
from perflib.framework.schema import Column, key
from perflib.framework.steps import Drawing, Steps

__all__ = ["KvParams", "KvPerCore", "experiment"]


class KvParams(JobParams):
    """Which events, how much code, which job."""

    events: int = parameter(50, "how many events each core simulates", ge=1, le=100_000)
    first_event: int = parameter(0, "number of the first event", ge=0, lt=2**40)
    code_kib: int = parameter(
        256, "size of the physics code: it is copied, results stay the same", "KiB", ge=100, le=8192
    )
    trial_ms: float = parameter(
        100.0,
        "events are grouped into trials of about this length; at least 50, so that interference "
        "of a millisecond is averaged",
        "ms",
        ge=50,
        le=60_000,
    )
    slice_us: float = parameter(
        300.0,
        "events of job=kernel are timed in slices of about this length, each between two probes",
        "us",
        ge=50,
        le=1000,
    )
    threshold_percent: float = limit(
        1.0,
        "a core counts as slower, and what takes its time as found, from this slowdown or share on",
    )
    interference_percent: float = limit(
        5.0, "interference counts from this share of the time on", le=100
    )
    job: Literal["kernel", "program", "pythia", "command"] = parameter(
        "kernel",
        "what is timed: our simulation called as a 'kernel', the same as a 'program' that writes "
        "a log, 'pythia' (of the extra [hep]), or any 'command' with job_command",
    )


class KvPerCore(Experiment, about=__file__):
    """A detector simulation timed on every core."""

    name = "kv_per_core"
    notebook = "01_kv_per_core"
    Params = KvParams
    columns = (
        key("round", "integer", "number of the round; cores are compared within"),
        Column("position", "integer", "", "place of the core's trial in its round"),
        key("cpu", "integer", "the core"),
        key("event", "integer", "number of the event; the same work on every core"),
        Column("time_ns", "number", "ns", "wall time of the event", True, "measured"),
        Column(
            "start_ns",
            "number",
            "ns",
            "when it began, on one clock for the whole run; without it rounds count alike",
        ),
        Column(
            "slice",
            "integer",
            "",
            "number of the part of the event: the same steps on every core; without it, all of it",
            role="key",
        ),
        *PROBE_COLUMNS,
        Column("involuntary_switches", "number", "", "times the event's thread was pushed aside"),
        Column(
            "ok",
            "boolean",
            "",
            "false: its conditions failed or its result was wrong; such a sample is not used",
        ),
        *RESULTS,
    )

    claims = CLAIMS
    same_work = ("event",)
    published_table = "kv_haswell"
    renamed = {"turn_ms": "trial_ms", "disturbed_percent": "interference_percent"}

    def _steps(self) -> Steps[KvParams]:
        from perflib.experiments.kv_per_core import analyse, measure

        return Steps(
            measure, analyse, pilot=measure.pilot, levels=analyse.levels, compare=analyse.compare
        )

    def _figures(self) -> Drawing:
        from perflib.experiments.kv_per_core import figures

        return figures


experiment = KvPerCore()
