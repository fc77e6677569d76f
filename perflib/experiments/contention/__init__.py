"""Contended lines: what it costs cores to share a line, a counter, a lock.

Two counters on one line are false sharing: nobody shares data, and yet the line goes from core to
core. One counter for all is true sharing, and a lock is that with an order of service. The same
addition is made in all these ways, by one core, by pairs of cores at each distance, and by more and
more cores at once, so that what differs is the line or the lock.
"""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from perflib.experiments.contention.claims import CLAIMS
from perflib.framework.experiment import Experiment
from perflib.framework.params import Params, Words, budget, known_names, parameter, precision
from perflib.framework.schema import Column
from perflib.framework.steps import Drawing, Steps

__all__ = [
    "COUNTERS",
    "DISTANCES",
    "KINDS",
    "LOCKS",
    "Contention",
    "ContentionParams",
    "experiment",
]

COUNTERS = ("own_lines", "neighbour_lines", "one_line", "atomic_own", "fetch_add", "cas")
"""Ways to count without a lock."""
LOCKS = ("spin", "ticket", "mcs", "pthread", "futex")
"""Locks, under which the counter of all is added to."""
KINDS = COUNTERS + LOCKS
"""All of them, by the kernel's numbers; see ``kernels_c/contention.c``."""
DISTANCES = ("none", "sibling", "sibling (measured)", "cache", "node", "far")
"""How far apart cores are at most: one alone, threads of a core, of a cache, of a node, beyond."""


class ContentionParams(Params):
    """What cores do, and how much they do by themselves between two operations."""

    budget_s: float = budget(30.0)
    precision_percent: float = precision(
        1.0, "the half-widths are below this: of false sharing, with all cores"
    )
    kinds: Words = parameter(
        ["all"],
        f"what is measured: {', '.join(KINDS)}, or 'all'; of counters and of locks, what they are "
        "compared with (own_lines, atomic_own, pthread) is measured, too",
    )
    outside_cycles: int = parameter(
        100,
        "what a core does by itself between two operations: dependent additions",
        "cycles",
        ge=0,
        le=10**6,
    )
    trial_ms: float = parameter(0.5, "how long cores contend in each repeat", "ms", ge=0.1, le=1000)
    repeats: int = parameter(6, "how often, in each trial", ge=1, le=100)
    threshold_percent: float = parameter(
        10.0, "an operation takes longer, and a core gets less, from this on", "percent",
        gt=0, le=1000,
    )  # fmt: skip

    @model_validator(mode="after")
    def _kinds_exist(self) -> Self:
        known_names("kinds", "kind", self.kinds, KINDS, alone=["all"])
        return self

    @property
    def measured_kinds(self) -> list[str]:
        """The kinds by name, in the kernel's order, with those that they are compared with."""
        wanted = set(KINDS if self.kinds == ["all"] else self.kinds)
        if wanted & set(COUNTERS):
            wanted |= {"own_lines"}
        if wanted & {"fetch_add", "cas"}:
            wanted |= {"atomic_own"}
        if wanted & set(LOCKS):
            wanted |= {"pthread"}
        return [kind for kind in KINDS if kind in wanted]


class Contention(Experiment, about=__file__):
    """Counters and locks by number and distance of cores: false sharing, atomics, five locks."""

    name = "contention"
    notebook = "19_contention"
    Params = ContentionParams
    live_rounds = 2
    placed_by_line = True
    claims = CLAIMS
    columns = (
        Column("round", "integer", "", "number of the round", True, "key"),
        Column("position", "integer", "", "place of the trial in its round"),
        Column("kind", "text", "", f"what the cores did: {', '.join(KINDS)}", True, "key"),
        Column("cpus", "text", "", "the cores that did it at once, as 0-3,8", True, "key"),
        Column("distance", "text", "", "how far apart they are at most: 'none' (one core), "
               "'sibling' (threads of a core; '(measured)': the kernel "
               "says of two), 'cache' (of a last-level cache), 'node', 'far'",
               values=DISTANCES),
        Column("repeat", "integer", "", "number of the repeat in its trial", role="key"),
        Column("cpu", "integer", "", "the core whose account this is", True, "key"),
        Column("operations", "integer", "", "how many it did", True, "measured", least=0),
        Column("time_ns", "number", "ns", "wall time of all its operations", True, least=1),
        Column("cpu_time_ns", "number", "ns", "CPU time of its thread meanwhile: less, where a "
               "lock let it sleep", least=0),
        Column("run_delay_ns", "number", "ns", "meanwhile ready to run, but waiting for its core; "
               "missing where the kernel does not say", least=0),
        Column("involuntary_switches", "integer", "", "meanwhile, of its thread", least=0),
        Column("start_ns", "integer", "ns", "when it began, on one clock for the whole run"),
        Column("ok", "boolean", "", "false: its conditions were not in force, or the counters were "
               "wrong; it is not used"),
    )  # fmt: skip

    def _steps(self) -> Steps[ContentionParams]:
        from perflib.experiments.contention import analyse, measure

        return Steps(measure, analyse, levels=analyse.levels)

    def _figures(self) -> Drawing:
        from perflib.experiments.contention import figures

        return figures


experiment = Contention()
