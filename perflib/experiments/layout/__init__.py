"""Whether an unmodified program's time depends on what should not matter, and by how much.

The size of the environment, the length of a path, the order of linking, the heap's offset, random
addresses, the allocator: none of them changes what a program computes, all of them change where its
data are placed.
Mytkowicz et al. (2009, doi:10.1145/1508244.1508275) showed that they move its time by more than
many an optimisation; Curtsinger and Berger (2013, doi:10.1145/2451116.2451141) that a comparison
needs random layouts.
Here each start draws a level of every factor at random, and a layout is started again later: the
factors' effects, and what layout alone does, follow from the same starts.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from perflib.experiments.layout.claims import CLAIMS
from perflib.experiments.layout.factors import FACTORS
from perflib.framework.experiment import Experiment
from perflib.framework.jobs import FREQUENCY_HZ, JOB_COMMAND, JOB_TIMEOUT_S, check_command
from perflib.framework.params import Items, Params, Words, budget, limit, parameter, precision
from perflib.framework.schema import SAMPLED_COLUMNS, Column, key, ok
from perflib.framework.steps import Drawing, Steps
from perflib.instruments.perf.tool import CallGraph
from perflib.model.errors import choose

__all__ = ["CANNOT_SEE", "Layout", "LayoutParams", "experiment"]

MIN_LAYOUTS = 2  # fresh ones in a round; each round has as many again
MIN_STARTS = 2 + 2 * MIN_LAYOUTS  # of each program: two to see how long it takes, and a round
CANNOT_SEE = (
    "not varied: the working directory's path (a longer one takes a second mount, and rename() "
    "from one mount to the other fails), and the code's own addresses but by ASLR and the order of "
    "linking (relink); the stack moves with the environment and the program's name; the heap's "
    "offset is exact with glibc alone, for blocks below 128 KiB of the first thread"
)


_MIN_SIMULATED_S = 2.0  # less is not worth the start of an emulator

Paddings = Annotated[Items[Annotated[int, Field(ge=0, le=65536)]], Field(max_length=16)]


class LayoutParams(Params):
    """Which program, and what of its layout is drawn at random."""

    budget_s: float = budget(120.0)
    precision_percent: float = precision(
        0.5, "the half-widths are below this: of what layout alone does and of every factor's "
        "largest difference; with other_command, of the difference",
    )  # fmt: skip
    job: Literal["aliasing", "program", "command"] = parameter(
        "aliasing",
        "which program: 'aliasing' (a loop whose variables alias at some sizes of the "
        "environment), 'program' (our detector simulation), or a 'command' with job_command",
    )
    other_command: str = parameter(
        "", "command line of a second build, with job=command: is it faster in the same layouts?"
    )
    functions: bool = parameter(
        False,
        "with other_command: record each start with perf, and compare the builds function by "
        "function",
    )
    frequency_hz: int = FREQUENCY_HZ
    call_graph: CallGraph = parameter(
        "fp",
        "functions: how callers are found, by frame pointers, 'dwarf' (copies of the stack), "
        "'lbr', 'none'",
    )
    fail_above_percent: float | None = parameter(
        None,
        "with other_command: is the second build slower by more than this?",
        "percent",
        gt=0,
        le=1000,
    )
    factors: Words = parameter(
        ["all"], f"what is varied: {', '.join(FACTORS)}, or 'all' that can be set here"
    )
    paddings: Paddings = parameter(
        [0, 1040, 2080, 3120], "sizes by which the environment is larger", "B"
    )
    allocators: Words = parameter(
        ["all"],
        "glibc, tcmalloc, jemalloc, mimalloc, hoard, absolute paths of shared libraries, or 'all' "
        "that are installed",
    )
    relink: str = parameter(
        "",
        "with job=command: the line that links the program, as 'gcc -o job a.o b.o -lm', or with "
        "{output} where its path belongs; its objects (*.o) are linked in random orders",
    )
    link_orders: int = parameter(
        5, "orders in which the program is linked, with relink; the given one among them", ge=2,
        le=64,
    )  # fmt: skip
    counters: Words = parameter(
        ["page-faults", "context-switches", "cpu-migrations"],
        "what is counted of each start: events and sets of events by name, one set a start in "
        "turn, or 'none'",
    )
    response: Literal["cpu", "wall"] = parameter(
        "cpu", "what is compared: 'cpu' time, which others on the machine disturb less, or 'wall'"
    )
    layouts: int = parameter(
        0, "fresh layouts in a round; 0: as many as the program's time lets", ge=0, le=64
    )
    simulated_s: float | None = parameter(
        None,
        "how long 4K aliases and instruction-TLB misses are simulated afterwards, in the layouts "
        "without ASLR (none: a fifth of the budget, if that is 2 s or more; 0: not); it takes "
        "QEMU, and 20 to 80 times the program's time a layout. With functions each function's "
        "instructions are, which takes valgrind, and 20 times the program's time",
        "s",
        ge=0,
        le=10**5,
    )
    events: int = parameter(2, "job=program: how many events it simulates", ge=1, le=10**6)
    iterations: int = parameter(
        40_000_000, "job=aliasing: iterations of its loop, some ns each", ge=1, le=10**9
    )
    threshold_percent: float = limit(1.0, "layout matters from this on")
    job_command: str = JOB_COMMAND
    job_timeout_s: float = JOB_TIMEOUT_S

    @property
    def simulating_s(self) -> float:
        """How long layouts are simulated; 0: not at all."""
        if self.simulated_s is not None:
            return self.simulated_s
        fifth = self.budget_s / 5
        return fifth if fifth >= _MIN_SIMULATED_S else 0.0

    @model_validator(mode="after")
    def _job_is_whole(self) -> Self:
        check_command(self.job, self.job_command)
        if self.other_command and self.job != "command":
            msg = "other_command goes with job=command and job_command=..."
            raise ValueError(msg)
        if not self.other_command and (self.functions or self.fail_above_percent):
            msg = "functions and fail_above_percent compare two builds: give other_command, too"
            raise ValueError(msg)
        if self.relink and (self.job != "command" or self.other_command):
            msg = "relink goes with job=command and one program (no other_command)"
            raise ValueError(msg)
        if self.factors != ["all"]:
            for name in self.factors:
                if name not in FACTORS:
                    msg = choose("factor", name, [*FACTORS, "all"])
                    raise ValueError(msg)
        return self


class Layout(Experiment, about=__file__):
    """A program in random layouts, each of them twice; or two builds of it in the same ones."""

    name = "layout"
    notebook = "17_layout"
    Params = LayoutParams
    live_rounds = 2
    claims = CLAIMS
    columns = (
        key("round", "integer", "number of the round; comparisons are within"),
        Column("position", "integer", "", "place of the trial in its round"),
        key("build", "text", "which program", values=("A", "B")),
        Column("layout", "integer", "", "its number; started again in a later round", True),
        Column(
            "cpu_s", "number", "s", "CPU time of the program and its children", True, "measured"
        ),
        Column("wall_s", "number", "s", "from its first instruction to its end", True),
        Column("run_delay_s", "number", "s", "run-queue delay of its first thread"),
        Column("padding_bytes", "integer", "B", "by which the environment was larger"),
        Column("name_bytes", "integer", "B", "by which the path of its program was longer"),
        Column("link_order", "integer", "", "in which order it was linked; 0: as given"),
        Column("heap_bytes", "integer", "B", "by which its heap began further"),
        Column("aslr", "text", "", "whether addresses were randomised", values=("off", "on")),
        Column("allocator", "text", "", "where malloc came from"),
        Column(
            "huge_pages",
            "text",
            "",
            "transparent huge pages: not for this process, as the machine has it, or malloc asks",
            values=("never", "default", "malloc"),
        ),
        Column("cpu", "integer", "", "the core; absent: any of those that it may use"),
        Column("memory_node", "integer", "", "where its memory was preferred"),
        Column("environment_bytes", "integer", "B", "size of its environment, as read back"),
        Column("stack_address", "integer", "", "where its stack began, where it could be read"),
        Column("output", "text", "", "checksum of what it wrote; empty: nothing"),
        *SAMPLED_COLUMNS,
        Column("start_ns", "integer", "ns", "when the trial began"),
        ok("its conditions were not in force"),
    )

    def _steps(self) -> Steps[LayoutParams]:
        from perflib.experiments.layout import analyse, measure

        return Steps(measure, analyse, pilot=measure.pilot, levels=analyse.levels)

    def _figures(self) -> Drawing:
        from perflib.experiments.layout import figures

        return figures


experiment = Layout()
