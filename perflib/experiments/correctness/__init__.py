"""Does every core compute correctly? A battery of instructions by class, on every core.

A few cores of many compute wrong now and then, without a word, in one kind of instruction, at some
operands, when the core is warm or all cores work (Hochschild et al. 2021,
doi:10.1145/3458336.3465297; Dixit et al. 2021, arXiv:2102.11245). Here each class is executed on
inputs that vary bits, and compared with what software says, which a table and the other cores
confirm: cold, warm, while all cores draw their full power, and while the clock changes.
"""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from perflib.experiments.correctness.claims import CLAIMS
from perflib.framework.experiment import Experiment
from perflib.framework.params import Params, Words, budget, known_names, parameter, precision
from perflib.framework.schema import Column, key, ok
from perflib.framework.steps import Drawing, Steps

__all__ = ["CLASSES", "STATES", "Correctness", "CorrectnessParams", "experiment"]

CLASSES = {
    "integer": "", "multiply": "", "divide": "", "shift": "", "branch": "", "atomic": "",
    "string": "", "crossing": "", "cache": "", "memory": "", "x87": "x87", "sse_neon": "",
    "avx2": "AVX2", "avx512": "AVX-512F and BW", "fma": "FMA", "fma512": "AVX-512F",
    "vnni": "AVX-512 VNNI", "crc32": "CRC32C", "aes": "AES", "sha": "SHA of x86-64",
    "clmul": "carry-less multiplication", "gather": "AVX2",
}  # fmt: skip
"""The classes in the kernel's order, and which instructions a processor may lack for one."""
STATES = ("cold", "warm", "changing", "together")
"""In which a core is tested; see the column ``state``."""


class CorrectnessParams(Params):
    """Which instructions, in which states."""

    budget_s: float = budget(20.0)
    precision_percent: float = precision(100.0, "never: each result more lowers the limit")
    classes: Words = parameter(
        ["all"],
        f"what is tested: {', '.join(CLASSES)}, or 'all'; what the processor lacks is left out, "
        "and the result says so",
    )
    states: Words = parameter(
        ["all"],
        "'cold' (after an idle pause), 'warm', 'changing' (bursts of the widest vectors and "
        "pauses), 'together' (all cores at once, with the widest vectors), or 'all'",
    )
    class_ms: float = parameter(
        5.0, "how long each class is tested in a trial; less, where the budget is small", "ms",
        ge=0.05, le=10_000,
    )  # fmt: skip

    opinion_s: float = parameter(
        0.0,
        "how long OpenDCDiag, where its command is installed, tests the same cores afterwards; "
        "0: not at all",
        "s", ge=0, le=86_400,
    )  # fmt: skip

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        known_names("classes", "class", self.classes, tuple(CLASSES), alone=["all"])
        known_names("states", "state", self.states, STATES, alone=["all"])
        return self

    @property
    def tested_classes(self) -> list[str]:
        """The classes by name, in the kernel's order."""
        return [one for one in CLASSES if self.classes == ["all"] or one in self.classes]

    @property
    def tested_states(self) -> list[str]:
        """The states, in their order."""
        return [one for one in STATES if self.states == ["all"] or one in self.states]


class Correctness(Experiment, about=__file__):
    """Every core computes what is known, class by class, in several states."""

    name = "correctness"
    notebook = "22_correctness"
    Params = CorrectnessParams
    live_rounds = 1
    claims = CLAIMS
    columns = (
        key("round", "integer", "number of the round"),
        Column("position", "integer", "", "place of the trial in its round"),
        key(
            "state",
            "text",
            "cold: each class after an idle pause; warm; changing: bursts of the widest vectors in "
            "between, and pauses; together: all cores at once, with the widest vectors in between",
            values=STATES,
        ),
        key("cpu", "integer", "the core"),
        key("class", "text", f"the instructions: {', '.join(CLASSES)}", values=tuple(CLASSES)),
        Column("block", "integer", "", "number of the inputs; those below 8 have a table"),
        Column("operations", "integer", "", "results of 64 bits that were compared", True,
               "measured", least=1),
        Column("wrong", "integer", "", "of them, those that were wrong", True),
        Column("first_index", "integer", "", "of the first wrong one in its block; -1: none",
               least=-1),
        Column("expected", "text", "", "what the first wrong one had to be; empty: none"),
        Column("found", "text", "", "what it was"),
        Column("checksum", "text", "", "of all that software on this core expected"),
        Column("time_ns", "number", "ns", "wall time of it"),
        Column("start_ns", "integer", "ns", "when it began, on one clock for the whole run"),
        ok("its thread migrated"),
    )  # fmt: skip

    def _steps(self) -> Steps[CorrectnessParams]:
        from perflib.experiments.correctness import analyse, measure

        return Steps(measure, analyse, pilot=measure.pilot, levels=analyse.levels)

    def _figures(self) -> Drawing:
        from perflib.experiments.correctness import figures

        return figures


experiment = Correctness()
