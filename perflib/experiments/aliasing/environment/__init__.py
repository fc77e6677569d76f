"""The size of the environment: a program that runs slower when a variable grows by 16 bytes.

The source's first example of measurement bias. The environment lies above the stack and pushes it
down; where a variable on the stack comes to agree in the low 12 bits of its address with a static
one, loads look as if they depended on earlier stores. The program is started under every size of
the environment over two periods of 4 KiB, with addresses that are not randomised, and reports its
own addresses and its own time.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pandas as pd

from perflib.experiments.aliasing.environment.analyse import findings
from perflib.experiments.aliasing.environment.measure import (
    ASLR,
    LINK_ORDER,
    SWEEP,
    Arm,
    EnvironmentTurns,
    countable,
)
from perflib.experiments.aliasing.environment.simulated import simulated_aliases
from perflib.experiments.aliasing.environment.starts import (
    PAGE,
    STACK,
    STATIC,
    Program,
    least_bytes,
    linked,
    orders,
    pairs_of,
    start,
)
from perflib.experiments.aliasing.environment.table import AliasEnvTable
from perflib.framework.experiment import Column, Experiment, Session
from perflib.framework.params import Cores, Pairs, Params, Words, parameter
from perflib.framework.published import published
from perflib.kernels import build
from perflib.machine.settings.changes import settings
from perflib.measure.conditions import Conditions, check
from perflib.measure.process import Worker
from perflib.measure.schedule import Columns, Status, frame_of
from perflib.model.errors import MeasurementError, PerflibError, UserError
from perflib.model.finding import Finding
from perflib.model.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["AliasEnvironment", "AliasEnvironmentParams", "experiment"]

_NAME = "alias_environment"
_STEP = 16  # by which the stack moves: its alignment
_LONGEST_VARIABLE = 131072  # with its zero byte (MAX_ARG_STRLEN)
_AGAIN = 8  # starts a round at a predicted size, of which there are one or two in a period
_ORDER_STARTS = 4  # a round, of each link order


class AliasEnvironmentParams(Params):
    """Which sizes of the environment, how long a start runs, and what is looked at besides."""

    cores: Cores = parameter(
        "first", "which CPUs to visit: the whole sweep is made on each; as 'first', or 0-3,8"
    )
    budget_s: float = parameter(
        30.0, "the longest time to measure; precision may be reached earlier", "s", gt=0, le=1e6
    )
    precision_percent: float = parameter(
        0.5,
        "measure until the half-width of what the predicted sizes cost is below this",
        "percentage points",
        gt=0,
        le=100,
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
        ge=_STEP,
        le=PAGE,
        multiple_of=_STEP,
    )
    periods: int = parameter(2, "how many times 4 KiB the environment grows", ge=1, le=16)
    starts: int = parameter(
        5, "starts at each size, at least, if the budget lasts", ge=2, le=100_000
    )
    iterations: int = parameter(65536, "of the loop, as in the source", ge=16, le=100_000_000)
    repetitions: int = parameter(
        8, "of the whole loop in a start, of which the fastest counts", ge=1, le=1_000_000
    )
    variables: Literal["free", "hold"] = parameter(
        "free",
        "where the variables on the stack lie: 'free', where the environment leaves them, or "
        "'hold', at a fixed place within their page (the null test)",
    )
    sets: Words = parameter(
        ["all"],
        "sets of counters, one a round in turn: their names, 'all' (that count here) or 'none'",
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
    threshold_percent: float = parameter(
        1.0, "a size or a link order counts as slower from this on", "percent", gt=0, le=1000
    )

    def program_environment(self) -> dict[str, str]:
        """The program's variables, but for the one that fills the environment up."""
        preload = {"LD_PRELOAD": ":".join(self.preload)} if self.preload else {}
        return {**self.environment, **preload}

    def launcher_conditions(self, cpu: int) -> Conditions:
        """What the launcher has and hands on; it gives each program an environment of its own."""
        asked = replace(self.conditions(cpu), environment_bytes=None)
        check(asked)
        return replace(asked, aslr=True, environment={}, preload=())


class AliasEnvironment(Experiment):
    """The source's microkernel, started under every size of the environment."""

    name = _NAME
    title = "4K aliasing: the size of the environment"
    question = "Does a program's speed depend on the size of its environment, or on its link order?"
    notebook = "09_aliasing_environment"
    Params: ClassVar[type[Params]] = AliasEnvironmentParams
    columns = (
        Column("round", "integer", "", "number of the round; starts are compared within", True),
        Column("kind", "text", "", "'environment' (the sweep), 'link order' or 'aslr'", True),
        Column("environment_bytes", "integer", "B", "the environment's size", True),
        Column("predicted", "boolean", "", "do addresses agree in the low 12 bits there?", True),
        Column("least_ns", "number", "ns", "time of the loop, the fastest of the start", True),
        Column("cpu", "integer", "", "the core"),
        Column("link_order", "text", "", "of the objects, where these were linked"),
        Column("pairs", "text", "", "which variables agree, by the addresses printed"),
        *(Column(f"{name}_address", "integer", "", f"of {name}") for name in (*STATIC, *STACK)),
        Column("time_ns", "number", "ns", "time of all repetitions of the loop"),
        Column("core_mhz", "number", "MHz", "the core's frequency, before and after the loop"),
        Column("start_ns", "integer", "ns", "when the start began, on one clock for the whole run"),
        Column("wall_ns", "integer", "ns", "from before the start to after the program's end"),
        Column("ok", "boolean", "", "false: not the core, size or addresses that were wanted"),
    )
    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"budget_s": 15.0, "starts": 3},
        "full": {"budget_s": 600.0, "starts": 50, "precision_percent": 0.1, "periods": 4},
    }

    # --- measuring -------------------------------------------------------------------------------

    def plan(self, params: AliasEnvironmentParams) -> dict[str, Any]:
        """The sizes, what is predicted for each, and what else is started."""
        if params.aslr:
            msg = "aslr must be false: where addresses are random the size decides nothing"
            raise UserError(msg)
        cores = params.resolved_cores()
        names, absent = countable(params.sets)
        with settings(params.settings), self._launcher(params, cores[0]) as worker:
            sizes = self._sizes(params, worker)
            plan: dict[str, Any] = {"cores": cores, "sizes": sizes, "sets": names, "absent": absent}
            plan |= self._predict(params, worker, sizes)
            plan["link_bytes"] = self._link_environment(params, worker, sizes)
        plan["arms"] = self._arms(params, plan)
        return plan

    @contextmanager
    def _launcher(self, params: AliasEnvironmentParams, cpu: int) -> Iterator[Worker]:
        with Worker(build(_NAME), params.launcher_conditions(cpu)) as worker:
            yield worker

    def _sizes(self, params: AliasEnvironmentParams, worker: Worker) -> list[int]:
        least = least_bytes(worker, params.program_environment())
        first = params.environment_bytes
        if first is None:
            first = -(-least // _STEP) * _STEP
        if first < least:
            msg = f"environment_bytes={first}: with its variables it has {least} bytes at least"
            raise UserError(msg)
        last = first + params.periods * PAGE - params.step_bytes
        most = _LONGEST_VARIABLE + least - len("PERFLIB_PADDING=") - 1
        if last > most:
            msg = (
                f"the sweep would end at an environment of {last} bytes, and one variable holds "
                f"{_LONGEST_VARIABLE}: begin at {most - (last - first)} (environment_bytes) at "
                "most, or sweep fewer periods"
            )
            raise UserError(msg)
        return list(range(first, last + 1, params.step_bytes))

    def _predict(
        self, params: AliasEnvironmentParams, worker: Worker, sizes: Sequence[int]
    ) -> dict[str, Any]:
        """The addresses at the smallest size, and from them the sizes at which some agree."""
        program = self._program(params)  # with its arguments, which lie on the stack, too
        ask = _asking(worker, params)
        free, again, largest = (
            ask(replace(program, variables="free"), size)
            for size in (sizes[0], sizes[0], sizes[-1])
        )
        moved = sizes[-1] - sizes[0]
        if free != again or any(free[name] - largest[name] != moved for name in STACK):
            msg = (
                "the program's addresses are not the same from start to start, or do not follow "
                "the environment: ASLR cannot be switched off for it. A container's seccomp "
                "profile may forbid personality(2); the parameter settings=aslr=0 switches it "
                "off for the whole machine (root), and puts it back"
            )
            raise MeasurementError(msg)
        predicted = {}
        for size in sizes:
            lower = size - sizes[0]
            there = {name: at - lower * (name in STACK) for name, at in free.items()}
            if pairs := pairs_of(there):
                predicted[str(size)] = pairs
        return {"origin": ask(program, sizes[0]), "predicted": predicted}

    def _link_environment(
        self, params: AliasEnvironmentParams, worker: Worker, sizes: Sequence[int]
    ) -> int | None:
        """The smallest size at which the first link order aliases, and some other does not."""
        if params.link_orders < 2 or params.variables == "hold":
            return None
        ask = _asking(worker, params)
        with tempfile.TemporaryDirectory(prefix="perflib-") as folder:
            first = self._linked(params, Path(folder))[0]
            there = ask(first, sizes[0])
        for size in range(sizes[0], sizes[0] + PAGE, _STEP):
            if pairs_of(
                {name: at - (size - sizes[0]) * (name in STACK) for name, at in there.items()}
            ):
                return size
        return sizes[0]

    @staticmethod
    def _linked(params: AliasEnvironmentParams, folder: Path) -> list[Program]:
        return [
            Program(
                linked(order, folder / f"order{number}"), params.iterations, params.repetitions,
                order=" ".join(order),
            )
            for number, order in enumerate(orders(params.link_orders, params.seed))
        ]  # fmt: skip

    @staticmethod
    def _arms(params: AliasEnvironmentParams, plan: Mapping[str, Any]) -> list[Arm]:
        arms = []
        predicted = [int(size) for size in plan["predicted"]]
        for core in range(len(plan["cores"])):
            arms += [Arm(SWEEP, core, size) for size in plan["sizes"]]
            arms += [Arm(SWEEP, core, size) for size in predicted] * (_AGAIN - 1)
            if plan["link_bytes"] is not None:
                numbers = range(params.link_orders)
                arms += [
                    Arm(LINK_ORDER, core, plan["link_bytes"], n) for n in numbers
                ] * _ORDER_STARTS
            if predicted and params.variables == "free":
                arms += [Arm(ASLR, core, predicted[0])] * params.aslr_starts
        return arms

    def turns(
        self, params: AliasEnvironmentParams, plan: Mapping[str, Any], folder: Path
    ) -> EnvironmentTurns:
        """What takes a turn; linked programs go to a folder."""
        program = self._program(params)
        wanted = plan["link_bytes"] is not None
        return EnvironmentTurns(
            build(_NAME),
            [params.launcher_conditions(cpu) for cpu in plan["cores"]],
            (program, self._linked(params, folder) if wanted else []),
            [Arm(*arm) for arm in plan["arms"]],
            variables=params.program_environment(),
            predicted={int(size): pairs for size, pairs in plan["predicted"].items()},
            origin=(plan["sizes"][0], plan["origin"]),
            sets=plan["sets"],
        )

    @staticmethod
    def _program(params: AliasEnvironmentParams) -> Program:
        path = build(_NAME, executable=True).library
        return Program(path, params.iterations, params.repetitions, params.variables)

    def take(self, params: AliasEnvironmentParams, session: Session) -> str:
        """Every size once a round, and what is compared with it; then the simulation."""
        plan = session.plan
        least_rounds = max(params.starts, len(plan["sets"]))

        def half_width(samples: pd.DataFrame) -> float:
            enough = samples["round"].max() + 1 >= least_rounds
            return self.table(samples).half_width if enough else float("inf")

        with (
            tempfile.TemporaryDirectory(prefix="perflib-") as folder,
            self.turns(params, plan, Path(folder)) as turns,
        ):

            def turn(round_: int, arm: int) -> Columns:
                return turns.take(round_, arm)

            stopped = session.rounds(params, len(plan["arms"]), turn, half_width, least_s=0.0)
            session.note(turns)
        session.provenance["program"] = build(_NAME, executable=True).provenance
        if params.simulate and stopped != "interrupted":
            self._simulate(params, session)
        return stopped

    def _simulate(self, params: AliasEnvironmentParams, session: Session) -> None:
        plan = session.plan
        program = replace(self._program(params), iterations=params.simulated_iterations)
        begin = time.monotonic()

        def told(done: int) -> None:
            if session.stop is not None and session.stop.is_set():
                raise KeyboardInterrupt
            if session.progress is not None:
                spent = time.monotonic() - begin
                left = spent * (len(plan["sizes"]) - done) / done
                turns = session.journal.turns
                last = turns[-1]["round"]
                session.progress(Status(spent, left, last, None, lambda: frame_of(turns)))

        try:
            session.provenance["simulated"] = simulated_aliases(
                replace(program, repetitions=1), plan["sizes"],
                variables=params.program_environment(),
                origin=(plan["sizes"][0], plan["origin"]),
                at_once=len(os.sched_getaffinity(0)), told=told,
            )  # fmt: skip
        except PerflibError as error:
            session.problems.append(f"aliases are not simulated: {error}")
        except KeyboardInterrupt:
            session.problems.append("aliases are not simulated: it was interrupted")

    # --- what it says ----------------------------------------------------------------------------

    def table(self, samples: pd.DataFrame) -> AliasEnvTable:
        """Samples, with all that is computed from them."""
        return AliasEnvTable(samples)

    def table_of(self, run: Run) -> AliasEnvTable:
        """A run's samples, with its simulated counts."""
        return AliasEnvTable(
            run.samples, run.provenance.get("simulated"), run.params.get("iterations", 1)
        )

    def analyse(self, run: Run) -> list[Finding]:
        """The predicted sizes; the simulated count; the link order; random addresses."""
        params = AliasEnvironmentParams.make(run.params)
        return findings(self.table_of(run), params.threshold_percent)

    def figures(self, run: Run) -> dict[str, Figure]:
        """Time and simulated count against size; the counters; link orders; random addresses."""
        from perflib.experiments.aliasing.environment import figures as alias_env_figures

        table = self.table_of(run)
        drawn = {
            "environment": alias_env_figures.environment(table),
            "counters": alias_env_figures.counters(table),
        }
        if table.orders:
            drawn["link_order"] = alias_env_figures.link_order(table)
        if table.has_aslr:
            drawn["aslr"] = alias_env_figures.aslr(table)
        return drawn

    def published(self) -> pd.DataFrame:
        """The source's table: counters at most sizes and at the two spikes, on a Haswell core."""
        return published("aliasing_environment_counters")


def _asking(
    worker: Worker, params: AliasEnvironmentParams
) -> Callable[[Program, int], dict[str, int]]:
    """Where a program has its variables, by its own word, under a size of the environment."""
    environment = params.program_environment()

    def ask(program: Program, size: int) -> dict[str, int]:
        return start(worker, program, size, variables=environment).addresses

    return ask


experiment = AliasEnvironment()
