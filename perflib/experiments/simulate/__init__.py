"""Which functions miss the caches and the TLBs, simulated: no hardware counter is needed.

A program runs under a simulator that knows every access; the geometry of the caches and TLBs is
this machine's, a named processor's or any other. The counts are exact for the model, and the model
is simpler than a processor (`perflib.instruments.simulators.cachegrind` says in what).
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from perflib.experiments.simulate.claims import CLAIMS
from perflib.framework.experiment import Experiment
from perflib.framework.jobs import JOB_COMMAND, JOB_TIMEOUT_S, check_command
from perflib.framework.params import Params, Words, budget, limit, parameter, precision
from perflib.framework.schema import Column, key
from perflib.framework.steps import Drawing, Steps

__all__ = ["PARTS", "Simulate", "SimulateParams", "experiment"]

PARTS = ("caches", "TLBs", "lines")


class SimulateParams(Params):
    """Which program, and what is simulated of which machine."""

    budget_s: float = budget(120.0)
    precision_percent: float = precision(
        1.0, "two simulations of the program differ by less than this"
    )
    job: Literal["program", "command"] = parameter(
        "program", "what is simulated: our detector simulation, or a 'command' with job_command"
    )
    geometries: Words = parameter(
        ["here"],
        "whose caches and TLBs: 'here', Haswell, Skylake, Golden Cove, Zen 2, Zen 4; a name may be "
        "followed by levels that are another, as 'here LL=8M:16 iTLB=64:8' (size or entries, ways)",
    )
    parts: Words = parameter(
        ["caches", "TLBs"],
        "what is simulated, each in a run of its own: caches, TLBs, lines (which cache lines its "
        "threads share; takes QEMU)",
    )
    events: int = parameter(3, "job=program: how many events it simulates", ge=1, le=10**6)
    code_kib: int = parameter(
        256, "job=program: size of the physics code, which is copied", "KiB", ge=100, le=8192
    )
    often_per_1000: float = parameter(
        1.0, "misses are frequent from this on, a thousand instructions", gt=0, le=1000
    )
    differ_percent: float = limit(
        10.0, "geometries differ where one has so many misses more than the first", le=10**6
    )
    job_command: str = JOB_COMMAND
    job_timeout_s: float = JOB_TIMEOUT_S

    @model_validator(mode="after")
    def _job_is_whole(self) -> Self:
        check_command(self.job, self.job_command)
        if wrong := [one for one in self.parts if one not in PARTS]:
            msg = f"parts={wrong[0]!r} is none: {', '.join(PARTS)}"
            raise ValueError(msg)
        for name in ("geometries", "parts"):
            if len(set(getattr(self, name))) < len(getattr(self, name)):
                msg = f"{name} names one twice"
                raise ValueError(msg)
        return self


class Simulate(Experiment, about=__file__):
    """A program under cachegrind, with the caches and TLBs of one machine or of several."""

    name = "simulate"
    notebook = "16_simulate"
    Params = SimulateParams
    live_rounds = 1
    columns = (
        key("round", "integer", "number of the simulation"),
        Column("position", "integer", "", "place of the trial in its round"),
        key("geometry", "text", "whose caches and TLBs"),
        key(
            "part",
            "text",
            "which run of the program: its caches, its TLBs, or the lines that threads share",
            values=PARTS,
        ),
        key("counter", "text", "what was counted"),
        key("symbol", "text", "the function; of lines, the variable"),
        Column("source_file", "text", "", "its source; empty: not known", role="key"),
        Column(
            "simulated_count",
            "integer",
            "",
            "how often, in the whole program",
            True,
            "measured",
            least=0,
        ),
        Column("function", "text", "", "of a thread: which accesses the line most", role="key"),
        Column(
            "thread",
            "integer",
            "",
            "which uses a line; 0: the first, -1: all",
            role="key",
            least=-1,
        ),
        Column("bytes", "text", "", "those of a line that it touches or writes"),
        Column("tool", "text", "", "the simulator and its version"),
    )
    claims = CLAIMS

    def unavailable(self) -> str:
        """Whether there is a simulator: valgrind, or QEMU for the lines alone."""
        from perflib.instruments.simulators.cachegrind import VALGRIND_INSTALL
        from perflib.instruments.simulators.qemu import QEMU_HERE, QEMU_INSTALL
        from perflib.instruments.simulators.run import find_tool
        from perflib.model.errors import UserError

        said = []
        for tool, install in (("valgrind", VALGRIND_INSTALL), (QEMU_HERE, QEMU_INSTALL)):
            try:
                find_tool(tool, install)
            except UserError as error:
                said.append(str(error))
        return said[0] if len(said) > 1 else ""

    def _steps(self) -> Steps[SimulateParams]:
        from perflib.experiments.simulate import analyse, measure

        return Steps(measure, analyse, levels=analyse.levels)

    def _figures(self) -> Drawing:
        from perflib.experiments.simulate import figures

        return figures


experiment = Simulate()
