"""Memory latency from each core to the memory of each: the NUMA heatmap.

Each core allocates an array by touching it first, and each core loads from it. The source's
Microbench did so on two servers, and saw what no data sheet says: two halves of a die 20 cycles
apart, and partners among the dies of two sockets.

What a full matrix costs is the arrays and the cells: on a virtual machine of two cores, an array of
128 MiB is laid and verified in 0.1 to 0.3 s, and a cell takes 3 ms at the default ``turn_ms``. By
that a round through the 16,384 cells of 128 threads would take 60 to 90 s and 16 GiB; its 256 cells
between 16 groups, which come first, 3 to 6 s. That is an extrapolation: no such machine was there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pandas as pd

from perflib.experiments.core_pairs.analyse import (
    core_findings,
    distances_finding,
    found_groups,
    groups_finding,
    kernel_finding,
    own_finding,
)
from perflib.experiments.core_pairs.cells import Cells
from perflib.experiments.core_pairs.numa.measure import NumaTurns, Stages, array_bytes, calibrate
from perflib.framework.experiment import Column, Experiment, Session
from perflib.framework.params import Params, parameter
from perflib.framework.published import published
from perflib.machine.hardware.caches import caches
from perflib.machine.hardware.memory import free_bytes
from perflib.machine.hardware.topology import topology
from perflib.machine.settings.changes import settings
from perflib.measure.arrays import LINE_BYTES, Arrays
from perflib.measure.pages.text_backings import why_not
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.clusters import Groups

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Numa", "NumaParams", "experiment"]

_REPEATS, _FEW_CORES = 3, 10
_UNKNOWN_BYTES = 1 << 50  # of free memory, where the kernel does not say
_UNFINISHED = "unfinished"  # the form's name of a run that is still being measured
_FROM, _TO = "CPU that touched the memory first", "CPU that loads"


class NumaParams(Params):
    """Which cells, and of what arrays."""

    budget_s: float = parameter(
        40.0, "the longest time to measure; precision may be reached earlier", "s", gt=0, le=1e6
    )
    precision_percent: float = parameter(
        1.0,
        "measure until half of the cells have an interval whose half-width is below this",
        "percentage points",
        gt=0,
        le=100,
    )
    detail: Literal["groups", "cores", "pairs"] = parameter(
        "pairs",
        "'groups': one core of each group that shares a NUMA node and a last-level cache; "
        "'cores': besides, each core with those; 'pairs': all. The first rounds are coarser",
    )
    array_mib: int | None = parameter(
        None,
        "size of each core's array (none: four times the last-level cache and at least 64 MiB, "
        "but all together half of the free memory at most)",
        "MiB",
        ge=1,
        le=1 << 16,
    )
    order: Literal["random", "page", "sequential", "lmbench", "window"] = parameter(
        "window", "the order of the loads; 'window' keeps TLB misses out, 'random' has them"
    )
    backing: Literal["4k", "thp", "collapse"] = parameter(
        "4k", "the pages that the arrays lie on: 4 KiB, or 2 MiB by the kernel's choice or demand"
    )
    turn_ms: float = parameter(
        2.0,
        f"how long a cell is timed, in {_REPEATS} repeats; below {_FEW_CORES} cores in more of "
        "them, since laying the arrays takes longer",
        "ms",
        ge=0.1,
        le=10_000,
    )
    threshold_percent: float = parameter(
        5.0, "a core, or a group of cores, counts as farther from this on", "percent", gt=0, le=1000
    )


class Numa(Experiment):
    """The matrix, the groups in it, and what the kernel says of them."""

    name = "numa"
    title = "NUMA: memory latency from core to core"
    question = "Which cores are near which memory, and does the kernel know?"
    notebook = "07_numa_heatmap"
    Params: ClassVar[type[Params]] = NumaParams
    live_rounds: ClassVar[int] = 0
    columns = (
        Column("alloc_cpu", "integer", "", "the core that touched the memory first", True),
        Column("load_cpu", "integer", "", "the core that loads", True),
        Column("latency_cycles", "number", "cycles", "of one load, in core cycles", True),
        Column(
            "round", "integer", "", "number of the round; without it, a cell's first row is of "
            "round 0, its second of round 1 ...",
        ),
        Column("position", "integer", "", "place of the cell's turn in its round"),
        Column("repeat", "integer", "", "of the same array in the same turn; the median counts"),
        Column("start_ns", "integer", "ns", "when it began, on one clock for the whole run"),
        Column("latency_ns", "number", "ns", "of one load"),
        Column("core_mhz", "number", "MHz", "the core's frequency just before and after"),
        Column("loads", "integer", "", "loads that were timed"),
        Column("time_ns", "number", "ns", "wall time of all loads"),
        Column("alloc_node", "integer", "", "the NUMA node of the memory: verified, if ok"),
        Column("load_node", "integer", "", "the NUMA node of the core that loads"),
        Column(
            "ok", "boolean", "", "false: the core could not be had, or the pages lay elsewhere; it "
            "is not used",
        ),
    )  # fmt: skip
    x86_only = True
    profiles: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"budget_s": 20.0},
        "full": {"budget_s": 600.0, "cores": "all", "turn_ms": 5.0},
    }

    def published(self) -> pd.DataFrame:
        """What the source found on its two servers."""
        table = published("microbench_latency")
        table = table[table["level"].str.contains("RAM")]
        return table[["machine", "level", "latency_cycles"]].reset_index(drop=True)

    def check_samples(self, samples: pd.DataFrame) -> None:
        """As for all experiments; a row that says it is not ok need not have a latency."""
        if "ok" in samples and len(samples):
            good = samples["ok"].fillna(value=True).astype(bool)
            samples = samples[good] if good.any() else samples
        super().check_samples(samples)

    # --- measuring -------------------------------------------------------------------------------

    def plan(self, params: NumaParams) -> dict[str, Any]:
        """Cores, nodes, groups, the size of the arrays, and how many loads a repeat takes."""
        if reason := self.unavailable():
            raise UserError(reason)
        if params.memory_policy != "default":
            msg = (
                f"memory_policy: {params.memory_policy!r} decides where memory comes from; here "
                "each core's first touch does: leave it at 'default'"
            )
            raise UserError(msg)
        cores = params.resolved_cores()
        if len(cores) < 2:
            msg = f"cores: this experiment compares cores and needs two; only {cores} are asked for"
            raise UserError(msg)
        places, found = topology(), caches()
        mine = [[cpu for cpu in group if cpu in cores] for group in places.groups(found)]
        heads = [group[0] for group in mine if group]
        holds = [c.size_bytes for c in found if c.kind == "unified" and cores[0] in c.shared_cpus]
        allocating = len(heads) if params.detail == "groups" else len(cores)
        size, smaller = array_bytes(
            params.array_mib, allocating, max(holds, default=0), free_bytes() or _UNKNOWN_BYTES
        )
        plan: dict[str, Any] = {
            "cores": cores,
            "heads": heads if len(heads) > 1 else cores[:2],
            "nodes": [places.cpu(cpu).node for cpu in cores],
            "array_bytes": size,
            "smaller": smaller,
            "repeats": max(_REPEATS, _FEW_CORES * _REPEATS // len(cores) | 1),
            "memory_only": [node.node for node in places.nodes if not node.cpus],
        }
        with settings(params.settings):
            if reason := why_not(params.backing):
                msg = f"backing: {reason}"
                raise UserError(msg)
            with Arrays(params.conditions(None)) as arrays:
                plan["loads"] = calibrate(
                    arrays, _nodes(plan), _REPEATS, params.turn_ms, **_laid(params, size)
                )
        return plan

    def take(self, params: NumaParams, session: Session) -> str:
        """Each cell once a round, in random order, the coarser matrices first."""
        plan = session.plan
        stages = Stages(tuple(plan["cores"]), tuple(plan["heads"]), params.detail)

        def half_width(samples: pd.DataFrame) -> float:
            last = int(samples["round"].max())
            whole = last > 0 and stages.detail_of(last - 1) == stages.detail
            return _cells(samples).half_width if whole and samples["ok"].any() else np.inf

        with Arrays(params.conditions(None)) as arrays:
            turns = NumaTurns(
                arrays,
                stages,
                _nodes(plan),
                loads=plan["loads"],
                repeats=plan["repeats"],
                seed=params.seed,
                **_laid(params, plan["array_bytes"]),
            )
            stopped = session.rounds(params, len(plan["cores"]) ** 2, turns.take, half_width)
            session.note(arrays)
        session.problems += turns.problems + self._remarks(plan, stages, session)
        return stopped

    @staticmethod
    def _remarks(plan: Mapping[str, Any], stages: Stages, session: Session) -> list[str]:
        said = [plan["smaller"]] if plan["smaller"] else []
        said += [
            f"node {node} has memory and no CPU: no core's first touch allocates there, so it is "
            "not in the matrix"
            for node in plan["memory_only"]
        ]
        turns = session.journal.turns
        reached = stages.detail_of(max((turn["round"] for turn in turns), default=0))
        if reached != stages.detail:
            each_s = sum(turn["wall_s"] for turn in turns) / max(len(turns), 1)
            cells = stages.count(stages.detail)
            said.append(
                f"the run ended in its coarse rounds (detail {reached!r}): one round of all "
                f"{cells} cells would take about {each_s * cells:.0f} s more"
            )
        return said

    # --- what it says ----------------------------------------------------------------------------

    def analyse(self, run: Run) -> list[Finding]:
        """Groups, the kernel's word, a core's own memory, and each core."""
        threshold = NumaParams.make(run.params).threshold_percent
        machine = run.provenance.get("machine", {})
        where = {place["cpu"]: place["where"] for place in machine.get("cpus", ())}
        cells = _cells(run.samples)
        groups = groups_finding(cells, "memory", "cycles", threshold)
        _add_ns(groups, cells, found_groups(cells, threshold))
        found = [
            groups,
            kernel_finding(cells, machine, threshold),
            distances_finding(cells, machine, threshold),
            own_finding(cells, "memory that another core of its group touched first", threshold),
        ]
        return [
            *(finding for finding in found if finding is not None),
            *core_findings(cells, "in loading memory", threshold, where=where),
        ]

    def figures(self, run: Run) -> dict[str, Figure]:
        """The matrix, by nodes; its cores by the groups found; its cells by class of distance."""
        from perflib.experiments.core_pairs import figures as cell_figures

        cells = _cells(run.samples)
        node_of = _node_of(cells, run)
        order = sorted(cells.cpus, key=lambda cpu: (node_of.get(cpu, -1), cpu))
        nodes = [node_of.get(cpu) for cpu in order]
        edges = [place - 0.5 for place in range(1, len(nodes)) if nodes[place] != nodes[place - 1]]
        named = [nodes[0], *(nodes[int(edge + 0.5)] for edge in edges)]
        drawn = {
            "heatmap": cell_figures.heatmap(
                cells,
                "Latency of memory",
                "core cycles",
                _FROM,
                _TO,
                {"node": edges} if edges else None,
                order,
                [] if None in named else [f"node {node}" for node in named],
            )
        }
        if run.id == _UNFINISHED:  # finding groups can take longer than the form may wait
            return drawn
        found = found_groups(cells, NumaParams.make(run.params).threshold_percent)
        if found.count:
            title = f"Groups of cores found: {found.count}"
            drawn["groups"] = cell_figures.in_groups(cells, found, title, "cycles", _FROM, _TO)
            drawn["classes"] = cell_figures.by_class(
                cells, found, "Latency of memory by class of distance", "core cycles"
            )
        return drawn


def _cells(samples: pd.DataFrame) -> Cells:
    return Cells(samples, "alloc_cpu", "load_cpu", "latency_cycles")


def _nodes(plan: Mapping[str, Any]) -> dict[int, int | None]:
    return dict(zip(plan["cores"], plan["nodes"], strict=True))


def _laid(params: NumaParams, size: int) -> dict[str, Any]:
    """How arrays are laid."""
    whole = size // LINE_BYTES * LINE_BYTES
    return {"order": params.order, "bytes_": whole, "backing": params.backing}


def _add_ns(finding: Finding, cells: Cells, found: Groups) -> None:
    """The classes of distance in ns, too, where that is known."""
    samples = cells.samples
    if "latency_ns" not in samples:
        return
    known = samples[samples["latency_ns"] > 0]
    by_cell = known.groupby(["alloc_cpu", "load_cpu"])["latency_ns"].median()
    matrix = by_cell.unstack().reindex(index=cells.cpus, columns=cells.cpus).to_numpy(np.float64)
    others = np.isfinite(matrix) & ~np.eye(len(matrix), dtype=bool)
    for number, near in enumerate(finding.evidence["classes"]):
        own = matrix[(found.membership == number) & others]
        near["latency_ns"] = float(np.exp(np.log(own).mean())) if own.size else None


def _node_of(cells: Cells, run: Run) -> dict[int, int]:
    """The NUMA node of each core, from the samples or the machine's description."""
    machine = run.provenance.get("machine", {})
    known = {p["cpu"]: p["node"] for p in machine.get("cpus", ()) if p["node"] is not None}
    for side in ("alloc", "load"):
        if f"{side}_node" in cells.samples:
            pairs = cells.samples[[f"{side}_cpu", f"{side}_node"]].dropna().drop_duplicates()
            known |= {int(cpu): int(node) for cpu, node in pairs.itertuples(index=False)}
    return known


experiment = Numa()
