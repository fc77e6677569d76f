"""The size of the environment: a program that runs slower when a variable grows by 16 bytes.

The first example of Jensen and Simonsen 2017 for a biased measurement. The environment is above
the stack and pushes it down; where a variable on the stack comes to agree in the low 12 bits of its
address with a static one, loads look as if they depended on earlier stores. The program is started
under every size of the environment over two periods of 4 KiB, with addresses that are not
randomised, and reports its own addresses and its own time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from perflib.experiments.aliasing.environment.addresses import PAGE, STACK, STATIC
from perflib.experiments.aliasing.environment.claims import CLAIMS
from perflib.framework.brackets import PROBE_COLUMNS
from perflib.framework.experiment import Experiment
from perflib.framework.params import (
    Cores,
    Pairs,
    Params,
    Words,
    budget,
    limit,
    parameter,
    precision,
)
from perflib.framework.schema import Column, key
from perflib.framework.steps import Drawing, Steps
from perflib.measure.conditions import Conditions, check

__all__ = ["STEP_BYTES", "AliasEnvironment", "AliasEnvironmentParams", "experiment"]

STEP_BYTES = 16  # by which the stack is pushed down: its alignment


class AliasEnvironmentParams(Params):
    """Which sizes of the environment, how long a start runs, and what else is started."""

    cores: Cores = parameter(
        "first", "which CPUs to visit: the whole sweep is made on each; as 'first', or 0-3,8"
    )
    budget_s: float = budget(30.0)
    precision_percent: float = precision(
        0.5, "the half-widths of what the predicted sizes cost and of link orders are below this"
    )
    aslr: bool = parameter(
        False, "must be false: the sweep needs fixed addresses; its control has random ones"
    )
    environment_bytes: int | None = parameter(
        None,
        "size of the smallest environment (none: the smallest there can be)",
        "B",
        ge=0,
        le=131072,
    )
    environment: Pairs = parameter(
        {}, "variables in the program's environment, which has no others but the one that fills it"
    )
    step_bytes: int = parameter(
        16,
        "steps of the environment's size; 16 visits every place of the stack",
        "B",
        ge=STEP_BYTES,
        le=PAGE,
        multiple_of=STEP_BYTES,
    )
    periods: int = parameter(2, "how many times 4 KiB the environment grows", ge=1, le=16)
    starts: int = parameter(
        5, "starts at each size, at least, if the budget lasts", ge=2, le=100_000
    )
    iterations: int = parameter(
        65536, "of the loop, as in Jensen and Simonsen 2017", ge=16, le=100_000_000
    )
    repetitions: int = parameter(
        8, "of the whole loop in a start, of which the fastest counts", ge=1, le=1_000_000
    )
    variables: Literal["free", "hold"] = parameter(
        "free",
        "where the variables on the stack are: 'free', where the environment leaves them, or "
        "'hold', at a fixed place within their page (the null test)",
    )
    sets: Words = parameter(
        ["all"],
        "sets of counters, one a round: their names, 'all' (that count here) or 'none'",
    )
    simulate: bool = parameter(
        True, "simulate the aliases at every size afterwards (about 0.05 s each; needs QEMU)"
    )
    simulated_iterations: int = parameter(
        512, "of the loop in a simulated start", ge=16, le=1_000_000
    )
    link_orders: int = parameter(
        6, "in how many orders the program's three objects are linked (0: none)", ge=0, le=6
    )
    aslr_starts: int = parameter(
        20, "starts a round with random addresses, for comparison (0: none)", ge=0, le=10_000
    )
    threshold_percent: float = limit(1.0, "a size or a link order counts as slower from this on")

    def program_environment(self) -> dict[str, str]:
        """The program's variables, but for the one that fills the environment up."""
        preload = {"LD_PRELOAD": ":".join(self.preload)} if self.preload else {}
        return {**self.environment, **preload}

    def launcher_conditions(self, cpu: int) -> Conditions:
        """What the launcher has and the programs inherit, each with an environment of its own."""
        requested = replace(self.conditions(cpu), environment_bytes=None)
        check(requested)
        return replace(requested, aslr=True, environment={}, preload=())


class AliasEnvironment(Experiment, about=__file__):
    """The loop of Jensen and Simonsen 2017, started under every size of the environment."""

    name = "alias_environment"
    notebook = "09_aliasing_environment"
    Params = AliasEnvironmentParams
    columns = (
        key("round", "integer", "number of the round; starts are compared within"),
        key("kind", "text", "'environment' (the sweep), 'link order' or 'aslr'"),
        key("environment_bytes", "integer", "the environment's size", "B"),
        Column("predicted", "boolean", "", "do addresses agree in the low 12 bits there?", True),
        Column(
            "least_ns",
            "number",
            "ns",
            "time of the loop, the fastest of the start",
            True,
            "measured",
        ),
        Column("cpu", "integer", "", "the core", role="key"),
        Column("link_order", "text", "", "of the objects, where these were linked", role="key"),
        Column("pairs", "text", "", "which variables agree, by the addresses printed"),
        *(Column(f"{name}_address", "integer", "", f"of {name}") for name in (*STATIC, *STACK)),
        Column("time_ns", "number", "ns", "time of all repetitions of the loop"),
        *PROBE_COLUMNS,  # of the fastest repetition
        Column("core_mhz", "number", "MHz", "the core's frequency, before and after the fastest"),
        Column("start_ns", "integer", "ns", "when the start began, on one clock for the whole run"),
        Column("wall_ns", "integer", "ns", "from before the start to after the program's end"),
        Column(
            "ok",
            "boolean",
            "",
            "false: not the requested core or size, or not the predicted addresses",
        ),
    )

    claims = CLAIMS
    published_table = "aliasing_environment_counters"

    def _steps(self) -> Steps[AliasEnvironmentParams]:
        from perflib.experiments.aliasing.environment import analyse, measure

        return Steps(measure, analyse, pilot=measure.pilot)

    def _figures(self) -> Drawing:
        from perflib.experiments.aliasing.environment import figures

        return figures


experiment = AliasEnvironment()
