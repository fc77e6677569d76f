"""Cache coherence: what it costs one core to get a line that another core has.

Between every two cores: the protocols by which such latencies are usually told, and single lines
that were put into a known state of the coherence protocol by one core and are taken by another. The
source could not do the latter: its lines came along with their neighbours. So a control shows, on
the first pair, where that happens and where not.

What a full matrix costs: on a virtual machine of two cores everything that is asked of one ordered
pair (three protocols, six states, loads and writes: 15 calls) takes 25 to 35 ms at the defaults,
compare-and-swap alone 1.7 ms. By that a round through the 16,256 ordered pairs of 128 threads, with
all nine states (21 calls), would take 9 minutes, and of compare-and-swap alone half a minute. With
64 disjoint pairs at the same time, what bounds it is this process, which needs 0.25 ms for each
call: 1.5 minutes, and 4 seconds. All of that is an extrapolation; no machine with more than two
cores was there to measure on. The pairs between two cores of each group come first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pandas as pd
from pydantic import model_validator

from perflib.experiments.core_pairs.coherence.analyse import coherence_findings
from perflib.experiments.core_pairs.coherence.measure import CoherenceTurns
from perflib.experiments.core_pairs.coherence.plan import (
    WITH_THIRD,
    Arm,
    What,
    arms_of,
    control_layouts,
    whats_of,
)
from perflib.experiments.core_pairs.coherence.table import (
    ACCESSES,
    PROTOCOLS,
    STATES,
    CoherenceTable,
)
from perflib.framework.experiment import Column, Experiment, Session
from perflib.framework.params import AnyWords, Params, parameter
from perflib.kernels import build
from perflib.machine.hardware.caches import caches
from perflib.machine.hardware.topology import topology
from perflib.measure.workers import Workers
from perflib.model.errors import UserError, choose
from perflib.model.finding import Finding
from perflib.model.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Coherence", "CoherenceParams", "experiment"]


class CoherenceParams(Params):
    """Which protocols and transitions, of which pairs of cores."""

    budget_s: float = parameter(
        40.0, "the longest time to measure; precision may be reached earlier", "s", gt=0, le=1e6
    )
    precision_percent: float = parameter(
        1.0,
        "measure until the half-width of each protocol's and transition's median is below this, "
        "and that of half of the pairs",
        "percent",
        gt=0,
        le=100,
    )
    protocols: AnyWords = parameter(
        list(PROTOCOLS),
        "the figures that everybody compares: cas_one_line (round trip), write_read_two_lines "
        "(round trip), one_way_message; an empty list: none",
    )
    states: AnyWords = parameter(
        list(STATES),
        "what the line is like when it is taken; shared, forward and owned need a third core; an "
        "empty list: none",
    )
    accesses: AnyWords = parameter(
        list(ACCESSES), "what the other core does with the line: load, write (an exchange), or both"
    )
    detail: Literal["groups", "cores", "pairs"] = parameter(
        "pairs",
        "'groups': two cores of each group that the kernel names (NUMA node and last-level cache), "
        "with one another; 'cores': besides, each core with one of each group; 'pairs': all; the "
        "coarse ones come first",
    )
    at_once: int = parameter(
        1,
        "how many disjoint pairs are measured at the same time; if more than one, a control "
        "measures some of them alone",
        ge=1,
        le=1024,
    )
    lines: int = parameter(
        48,
        "how many lines a sample takes, each once and each on a page of its own: fewer than the "
        "first-level data TLB has entries",
        ge=1,
        le=4096,
    )
    control_lines: int = parameter(
        512,
        "how many lines the control of prefetchers takes, on the first pair, in each layout",
        ge=2,
        le=4096,
    )
    exchanges: int = parameter(
        200, "how many exchanges make a sample of a protocol", ge=1, le=1_000_000
    )
    repeats: int = parameter(
        15,
        "how many samples make a row, which is their median; 1 keeps every sample",
        ge=1,
        le=1000,
    )
    threshold_percent: float = parameter(
        5.0, "a difference between latencies counts from this on", "percent", gt=0, le=1000
    )

    @model_validator(mode="after")
    def _names_exist(self) -> CoherenceParams:
        for field, kind, known in (
            ("protocols", "protocol", PROTOCOLS),
            ("states", "state", STATES),
            ("accesses", "access", ACCESSES),
        ):
            for name in getattr(self, field):
                if name not in known:
                    msg = f"{field}: {choose(kind, name, known)}"
                    raise ValueError(msg)
        if not self.protocols and not (self.states and self.accesses):
            msg = "protocols: the list is empty, and there is no state with an access: name one"
            raise ValueError(msg)
        return self


class Coherence(Experiment):
    """Pairs of cores, protocols and states of a line, interleaved in rounds."""

    name = "coherence"
    title = "Cache coherence: a line that another core has"
    question = "What does a line cost that another core holds, in which state, between which cores?"
    notebook = "08_coherence"
    Params: ClassVar[type[Params]] = CoherenceParams
    live_rounds: ClassVar[int] = 0
    x86_only = True
    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"budget_s": 20.0},
        "full": {"budget_s": 1800.0, "cores": "all", "precision_percent": 0.3, "repeats": 31},
    }
    columns = (
        Column("owner_cpu", "integer", "", "the core that had the line, or answered", True),
        Column("requester_cpu", "integer", "", "the core that took it, and whose time it is", True),
        Column(
            "what", "text", "", "a protocol, such as cas_one_line, or 'modified load' ...", True
        ),
        Column("latency_ns", "number", "ns", "of one exchange, message or line: median", True),
        Column("round", "integer", "", "number of the round; without it rows are counted"),
        Column("position", "integer", "", "place of the arm's turn in its round"),
        Column("start_ns", "integer", "ns", "when it began, on one clock for the whole run"),
        Column("third_cpu", "integer", "", "the core that read the line, too; -1: none"),
        Column("kind", "text", "", "'protocol' or 'transfer'"),
        Column("way", "text", "", "what one is: 'round trip', 'one way', 'one line'"),
        Column("state", "text", "", "of the owner's copy, when the requester came"),
        Column("access", "text", "", "what the requester did: load, or write (an exchange)"),
        Column("layout", "text", "", "how the lines lie and in which order they are taken"),
        Column("lines", "integer", "", "how many lines there were"),
        Column(
            "control",
            "text",
            "",
            "'layout': lines in other layouts; 'alone': a pair without others; else empty",
        ),
        Column("samples", "integer", "", "how many samples this row is the median of"),
        Column("count", "integer", "", "exchanges, messages or lines in the median sample"),
        Column("time_ns", "integer", "ns", "its time for all of them"),
        Column("empty_ns", "number", "ns", "what reading the clock takes, which is taken off"),
        Column("quarter_ns", "number", "ns", "a quarter of the samples were faster"),
        Column("three_quarters_ns", "number", "ns", "three quarters of the samples were faster"),
        Column("mean_ns", "number", "ns", "mean of the samples: beware, see the median"),
        Column("latency_cycles", "number", "cycles", "latency_ns in cycles of the requester"),
        Column("core_mhz", "number", "MHz", "the requester's frequency at that moment"),
        Column("proven", "number", "", "share of lines that held what they should, of exchanges"),
        Column("involuntary_switches", "integer", "", "times that a thread was pushed aside"),
        Column("at_once", "integer", "", "how many pairs were being measured at that moment"),
        Column("ok", "boolean", "", "false: not all as it should be; it is not used"),
    )

    def unavailable(self) -> str:
        """The kernel is for one processor, and one core has nobody to share with."""
        if reason := super().unavailable():
            return reason
        allowed = topology().allowed_cpus()
        if len(allowed) < 2:
            return f"coherence is between two cores, and this process may use only cpu{allowed[0]}"
        return ""

    # --- measuring -------------------------------------------------------------------------------

    def plan(self, params: CoherenceParams) -> dict[str, Any]:
        """The cores, those that stand for their groups, and the states that can be had."""
        if reason := self.unavailable():
            raise UserError(reason)
        cores = params.resolved_cores()
        if len(cores) < 2:
            msg = (
                f"cores: coherence is between two cores, and {params.cores!r} is only "
                f"cpu{cores[0]}: name several, or 'all'"
            )
            raise UserError(msg)
        if params.at_once > len(cores) // 2:
            msg = (
                f"at_once: {params.at_once} pairs at the same time need {2 * params.at_once} "
                f"cores, and {len(cores)} are visited: {len(cores) // 2} is the most"
            )
            raise UserError(msg)
        states = [
            state for state in dict.fromkeys(params.states)
            if len(cores) > 2 or state not in WITH_THIRD
        ]  # fmt: skip
        if not params.protocols and not states:
            msg = f"states: {', '.join(params.states)} need a third core, and only two are visited"
            raise UserError(msg)
        build("coherence")  # what cannot be compiled fails here
        return {"cores": cores, "near": _near(cores), "states": states}

    def whats(self, params: CoherenceParams, plan: Mapping[str, Any]) -> list[What]:
        """What is asked of each pair."""
        accesses = list(dict.fromkeys(params.accesses))
        return whats_of(dict.fromkeys(params.protocols), plan["states"], accesses, params.lines)

    def arms(self, params: CoherenceParams, plan: Mapping[str, Any]) -> list[Arm]:
        """What takes turns; the same whenever the run is resumed."""
        return arms_of(plan["cores"], plan["near"], params.detail, params.at_once)

    def take(self, params: CoherenceParams, session: Session) -> str:
        """Every pair once a round, and the controls."""
        plan = session.plan
        arms = self.arms(params, plan)
        most = max(len(arm.pairs) for arm in arms)
        with Workers(build("coherence"), [params.conditions(None)] * most) as workers:
            turns = CoherenceTurns(
                [workers[slot] for slot in range(most)],
                arms,
                self.whats(params, plan),
                control_layouts(params.control_lines),
                cores=plan["cores"],
                repeats=params.repeats,
                exchanges=params.exchanges,
                seed=params.seed,
            )

            last_stage = max(arm.stage for arm in arms)

            def half_width(samples: pd.DataFrame) -> float:
                whole = samples["round"].max() >= last_stage and samples["ok"].any()
                return self.table(samples).half_width if whole else math.inf

            stopped = session.rounds(params, len(arms), turns.take, half_width)
            session.note(workers)
        session.problems += turns.problems + self._remarks(params, session, arms)
        return stopped

    @staticmethod
    def _remarks(params: CoherenceParams, session: Session, arms: Sequence[Arm]) -> list[str]:
        """What was left out, and why."""
        plan, said = session.plan, []
        absent = [state for state in dict.fromkeys(params.states) if state not in plan["states"]]
        if absent:
            said.append(
                f"left out, since they need a third core and only two are visited: states "
                f"{', '.join(absent)}"
            )
        turns = [turn for turn in session.journal.turns if "columns" in turn]
        reached = max((turn["round"] for turn in turns), default=0)
        last_stage = max(arm.stage for arm in arms)
        if reached < last_stage:
            last = [arm for arm in arms if arm.stage == last_stage]
            each_s = sum(turn["wall_s"] for turn in turns) / max(len(turns), 1)
            said.append(
                f"the run ended in its coarse rounds: a round of all "
                f"{sum(len(arm.pairs) for arm in last)} pairs would take about "
                f"{each_s * len(last):.0f} s more"
            )
        return said

    def check_samples(self, samples: pd.DataFrame) -> None:
        """As for all experiments; a row that says it is not ok need not have a latency."""
        if "ok" in samples and len(samples):
            good = samples["ok"].fillna(value=True).astype(bool)
            samples = samples[good] if good.any() else samples
        super().check_samples(samples)

    # --- what it says ----------------------------------------------------------------------------

    def table(self, samples: pd.DataFrame) -> CoherenceTable:
        """Samples, with all that is computed from them."""
        return CoherenceTable(samples)

    def table_of(self, run: Run) -> CoherenceTable:
        """A run's samples, with all that is computed from them."""
        return self.table(run.samples)

    def analyse(self, run: Run) -> list[Finding]:
        """The control, the preparation of states, what transitions cost, protocols and groups."""
        params = CoherenceParams.make(run.params)
        machine = run.provenance.get("machine", {})
        return coherence_findings(self.table_of(run), machine, params.threshold_percent)

    def figures(self, run: Run) -> dict[str, Figure]:
        """A heatmap of each protocol; states; protocols; the control."""
        from perflib.experiments.core_pairs.coherence import figures as coherence_figures

        return coherence_figures.figures(self.table_of(run), run.provenance.get("machine", {}))


def _near(cores: Sequence[int]) -> list[list[int]]:
    """Two of each group of cores that share a NUMA node and a last-level cache, or the only one.

    The two are not hardware threads of one core, if the group has another.
    """
    places = topology()
    chosen = []
    for group in places.groups(caches()):
        here = [cpu for cpu in cores if cpu in group]
        if not here:
            continue
        own = places.cpu(here[0]).siblings
        others = [cpu for cpu in here[1:] if cpu not in own] or here[1:]
        chosen.append([here[0], *others[:1]])
    return chosen


experiment = Coherence()
