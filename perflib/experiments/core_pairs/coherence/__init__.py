"""Cache coherence: what it costs one core to get a line that another core has.

Between every two cores: the protocols by which such latencies are usually reported, and single
lines that were put into a known state of the coherence protocol by one core and are taken by
another. Derumigny and Thomas 2018 could not do the latter: their lines came along with their
neighbours. So a control shows, on the first pair, where that happens and where not.

What a full matrix costs: on a virtual machine of two cores everything that is measured of one
ordered pair (three protocols, six states, loads and writes: 15 calls) takes 25 to 35 ms at the
defaults, compare-and-swap alone 1.7 ms. By that a round through the 16,256 ordered pairs of 128
threads, with all nine states (21 calls), would take 9 minutes, and of compare-and-swap alone half a
minute. With 64 disjoint pairs at the same time, what bounds it is this process, which needs 0.25 ms
for each call: 1.5 minutes, and 4 seconds. All of that is an extrapolation; no machine with more
than two cores was there to measure on. The pairs between two cores of each group come first.
"""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from perflib.experiments.core_pairs.coherence.claims import CLAIMS
from perflib.experiments.core_pairs.coherence.names import (
    ACCESSES,
    PROTOCOLS,
    STATES,
    USUAL_STATES,
)
from perflib.framework.experiment import Experiment
from perflib.framework.params import (
    AnyWords,
    Params,
    budget,
    known_names,
    limit,
    parameter,
    precision,
)
from perflib.framework.schema import Column, key, ok
from perflib.framework.steps import Drawing, Steps
from perflib.machine.hardware.topology import topology

__all__ = ["Coherence", "CoherenceParams", "experiment"]


class CoherenceParams(Params):
    """Which protocols and transitions, of which pairs of cores."""

    budget_s: float = budget(40.0)
    precision_percent: float = precision(
        1.0,
        "the half-width of each protocol's and transition's median is below this, "
        "and that of half of the pairs",
        "percent",
    )
    protocols: AnyWords = parameter(
        list(PROTOCOLS),
        "the figures that everybody compares: cas_one_line (round trip), write_read_two_lines "
        "(round trip), one_way_message; an empty list: none",
    )
    states: AnyWords = parameter(
        list(USUAL_STATES),
        "the line's state when it is taken; shared, forward and owned need a third core; "
        "last_level, which takes longer, must be named: the owner's caches have given the line up "
        "to the last one; an empty list: none",
    )
    accesses: AnyWords = parameter(
        list(ACCESSES), "what the other core does with the line: load, write (an exchange), or both"
    )
    detail: Literal["groups", "cores", "pairs", "planned"] = parameter(
        "pairs",
        "'groups': two cores of each group that the kernel names (NUMA node and last-level cache), "
        "with one another; 'cores': besides, each core with one of each group; 'pairs': all; the "
        "coarse ones come first. 'planned': all in one round, by one protocol, then those within a "
        "group, until none can hide a difference of threshold_percent; everything of a few pairs",
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
    threshold_percent: float = limit(5.0, "a difference between latencies counts from this on")

    @model_validator(mode="after")
    def _names_exist(self) -> CoherenceParams:
        known_names("protocols", "protocol", self.protocols, list(PROTOCOLS))
        known_names("states", "state", self.states, STATES)
        known_names("accesses", "access", self.accesses, ACCESSES)
        if not self.protocols and not (self.states and self.accesses):
            msg = "protocols: the list is empty, and there is no state with an access: name one"
            raise ValueError(msg)
        return self


class Coherence(Experiment, about=__file__):
    """Pairs of cores, protocols and states of a line, interleaved in rounds."""

    name = "coherence"
    notebook = "08_coherence"
    Params = CoherenceParams
    live_rounds = 0
    placed_by_line = True
    columns = (
        key("owner_cpu", "integer", "the core that owned the line, or answered"),
        key("requester_cpu", "integer", "the core that took it, and whose time it is"),
        key("what", "text", "a protocol, such as cas_one_line, or 'modified load' ..."),
        Column(
            "latency_ns",
            "number",
            "ns",
            "of one exchange, message or line: median",
            True,
            "measured",
        ),
        Column(
            "round", "integer", "", "number of the round; without it rows are counted", role="key"
        ),
        Column("position", "integer", "", "place of the trial in its round"),
        Column("start_ns", "integer", "ns", "when it began, on one clock for the whole run"),
        Column(
            "third_cpu",
            "integer",
            "",
            "the core that read the line, too; -1: none",
            role="key",
            least=-1,
        ),
        Column("kind", "text", "", "'protocol' or 'transfer'"),
        Column("way", "text", "", "what one is: 'round trip', 'one way', 'one line'"),
        Column("state", "text", "", "of the owner's copy, when the requester came"),
        Column("access", "text", "", "what the requester did: load, or write (an exchange)"),
        Column("layout", "text", "", "where the lines are and in which order they are taken"),
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
        Column(
            "empty_ns",
            "number",
            "ns",
            "what reading the clock takes, which is taken off",
            least=-(10**9),
        ),
        Column(
            "quarter_ns", "number", "ns", "a quarter of the samples were faster", least=-(10**9)
        ),
        Column(
            "three_quarters_ns",
            "number",
            "ns",
            "three quarters of the samples were faster",
            least=-(10**9),
        ),
        Column(
            "mean_ns", "number", "ns", "mean of the samples: beware, see the median", least=-(10**9)
        ),
        Column("latency_cycles", "number", "cycles", "latency_ns in cycles of the requester"),
        Column("core_mhz", "number", "MHz", "the requester's frequency at that moment"),
        Column("proven", "number", "", "share of lines that held what they should, of exchanges"),
        Column("involuntary_switches", "integer", "", "times that a thread was preempted"),
        Column("at_once", "integer", "", "how many pairs were being measured at that moment"),
        ok("not all as it should be"),
    )

    claims = CLAIMS

    def unavailable(self) -> str:
        """One core has nobody to share with."""
        if reason := super().unavailable():
            return reason
        allowed = topology().allowed_cpus()
        if len(allowed) < 2:
            return f"coherence is between two cores, and this process may use only cpu{allowed[0]}"
        return ""

    def _steps(self) -> Steps[CoherenceParams]:
        from perflib.experiments.core_pairs.coherence import analyse, measure

        return Steps(measure, analyse)

    def _figures(self) -> Drawing:
        from perflib.experiments.core_pairs.coherence import figures

        return figures


experiment = Coherence()
