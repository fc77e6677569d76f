"""Who else uses this core? Gaps in the clock of a spinning core, core by core."""

from __future__ import annotations

from perflib.experiments.machine.claims import STOLEN
from perflib.framework.experiment import Experiment
from perflib.framework.params import Params, budget, limit, parameter, precision
from perflib.framework.schema import Column, key
from perflib.framework.steps import Drawing, Steps

__all__ = ["MachineNoise", "NoiseParams", "experiment"]


class NoiseParams(Params):
    """What to visit and for how long."""

    budget_s: float = budget(20.0)
    precision_percent: float = precision(
        0.05, "the half-width of every core's stolen share is below this"
    )
    spin_ms: float = parameter(200.0, "how long a core spins in a trial", "ms", ge=1, le=60_000)
    gap_us: float = parameter(
        1.0, "a step of the clock longer than this is a gap", "us", ge=0.1, le=1e6
    )
    stolen_percent: float = limit(
        1.0, "others interfere with a core if they take more of its time than this", le=100
    )


class MachineNoise(Experiment, about=__file__):
    """Spin on each core in turn and read the clock: what is missing, somebody else had."""

    name = "machine"
    notebook = "00_machine"
    Params = NoiseParams
    columns = (
        key("round", "integer", "number of the round"),
        Column("position", "integer", "", "place of the trial in its round"),
        key("cpu", "integer", "the core that spun"),
        Column("start_ns", "integer", "ns", "when the trial began, on the run's clock"),
        Column("duration_ns", "integer", "ns", "how long it spun", required=True, least=1),
        Column("step_ns", "number", "ns", "an ordinary step of the loop"),
        Column(
            "stolen_ns", "number", "ns", "time in all gaps, one step each taken off", least=-(10**9)
        ),
        key("gap_low_ns", "integer", "lower edge of the bin of gap lengths", "ns"),
        Column("gaps", "integer", "", "gaps of that length (gap_low_ns up to twice that)"),
        Column("gap_ns", "integer", "ns", "their summed length", True, "measured", least=0),
        Column("switched_gaps", "integer", "", "those in which the thread was switched out"),
    )
    claims = (STOLEN,)

    def _steps(self) -> Steps[NoiseParams]:
        from perflib.experiments.machine import analyse, measure

        return Steps(measure, analyse, levels=analyse.levels)

    def _figures(self) -> Drawing:
        from perflib.experiments.machine import figures

        return figures


experiment = MachineNoise()
