"""Who shares what: pairs of CPUs tried against each other.

Hypervisors hide siblings: two virtual CPUs may be threads of one core. One CPU times a piece of
work while another is busy and pauses by turns; what they share makes it slower. A core has few
threads, so many CPUs need no trials of all pairs: half of them are busy while the others pause, and
a few random halvings name the one that is felt.
"""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import model_validator

from perflib.experiments.core_pairs.sharing.claims import CLAIMS, RESOURCES
from perflib.framework.experiment import Experiment
from perflib.framework.params import (
    Cores,
    Params,
    Words,
    budget,
    known_names,
    limit,
    parameter,
    precision,
)
from perflib.framework.schema import START, Column, key, ok
from perflib.framework.steps import Drawing, Steps
from perflib.machine.hardware.topology import topology

__all__ = ["RESOURCES", "Sharing", "SharingParams", "experiment"]

_MOST_MS = 300.0  # of a trial: nothing else runs on its CPUs meanwhile


class SharingParams(Params):
    """Which CPUs are tried for what, and how long a trial is."""

    siblings_measured: ClassVar[bool] = False

    cores: Cores = parameter(
        "all",
        "which CPUs to try: 'all', 'physical' (one CPU of each core that the kernel names), "
        "'groups' (one of each NUMA node and last-level cache), 'first', or a list such as 0-3,8",
    )
    budget_s: float = budget(30.0)
    precision_percent: float = precision(2.0, "the half-width of each slow-down is below this")
    resources: Words = parameter(
        list(RESOURCES),
        "what they may share: ports (of a core: its hardware threads do), l1, l2, l3 (caches), "
        "memory (bandwidth)",
    )
    alternate_ms: float = parameter(
        10.0,
        "how long the others are busy, and pause, by turns (l3, memory: 50)",
        "ms",
        ge=2,
        le=100,
    )
    alternations: int = parameter(6, "how often, in a trial", ge=1, le=75)
    fifo_priority: int | None = parameter(
        50,
        "real-time priority, so that no other program runs on the CPUs of a trial (none: an "
        "ordinary process)",
        ge=1,
        le=99,
    )
    threshold_percent: float = limit(15.0, "something is shared from this slow-down on")

    @model_validator(mode="after")
    def _trial_is_short(self) -> Self:
        known_names("resources", "resource", self.resources, RESOURCES)
        trial_ms = 2 * self.alternations * self.alternate_ms
        if trial_ms > _MOST_MS:
            msg = (
                f"alternations: a trial takes {trial_ms:g} ms (2 * alternations * alternate_ms), "
                f"and nothing else runs on its CPUs meanwhile: {_MOST_MS:g} ms is the most"
            )
            raise ValueError(msg)
        return self


class Sharing(Experiment, about=__file__):
    """Pairs of CPUs, one busy by turns while the other times its work."""

    name = "sharing"
    notebook = "08_coherence"
    Params = SharingParams
    live_rounds = 2
    placed_by_line = True
    claims = CLAIMS
    columns = (
        key("round", "integer", "number of the round"),
        Column("position", "integer", "", "place of the trial in its round"),
        key("listener_cpu", "integer", "the CPU whose work is timed"),
        Column("busy_cpus", "text", "", "CPUs that are busy and pause by turns, as 0-3,8", True),
        Column("else_cpus", "text", "", "those busy while these pause; empty: none"),
        key("resource", "text", "ports, a cache by its level, or memory", values=RESOURCES),
        Column(
            "ratio", "number", "", "time of the work while busy_cpus are busy, over that while "
            "not: median over alternations", True, "measured",
        ),
        Column("busy_ns", "number", "ns", "the work while they are busy", least=0),
        Column("quiet_ns", "number", "ns", "while they are not", least=0),
        Column("clock_ratio", "number", "", "the same ratio of dependent additions", least=0),
        Column("alternations", "integer", "", "that could be used"),
        Column(
            "held_percent", "number", "percent", "of the time a busy CPU's thread ran at least"
        ),
        START,
        ok("a CPU could not be used, or its thread did not have it nearly all the time"),
    )  # fmt: skip

    def unavailable(self) -> str:
        """One CPU has nobody to share with."""
        if reason := super().unavailable():
            return reason
        allowed = topology().allowed_cpus()
        if len(allowed) < 2:
            return f"sharing needs two CPUs, and this process may use only cpu{allowed[0]}"
        return ""

    def _steps(self) -> Steps[SharingParams]:
        from perflib.experiments.core_pairs.sharing import analyse, measure

        return Steps(measure, analyse, levels=analyse.levels)

    def _figures(self) -> Drawing:
        from perflib.experiments.core_pairs.sharing import figures

        return figures


experiment = Sharing()
