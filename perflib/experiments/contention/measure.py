"""How contention is measured: which cores at once, in which order, and what each did."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.contention import DISTANCES, KINDS, ContentionParams
from perflib.experiments.contention.table import ContentionTable, valid
from perflib.framework.experiment import Session
from perflib.kernels import build, record
from perflib.machine.cpulist import format_cpus
from perflib.machine.hardware.caches import Cache, caches
from perflib.machine.hardware.topology import Topology, topology
from perflib.measure.conditions import Conditions
from perflib.measure.process import Out
from perflib.measure.schedule import Columns
from perflib.measure.workers import Workers, refused

_ACCOUNT = record("contention", "contention_account")
_NO_THREAD = 3  # of the stages in an answer
_BEGIN_S = 0.0001  # before each sample
_GRACE_S = 10.0  # for threads that others keep from their cores
_MOST_TIMES = 3  # as many repeats as requested, where others take the cores


def distance(a: int, b: int, places: Topology, found: Sequence[Cache]) -> str:
    """How far apart two cores are: one of ``DISTANCES``."""
    if b in places.cpu(a).siblings:
        kernel = places.cpu(a).kernel_siblings
        return "sibling" if kernel is None or b in kernel else "sibling (measured)"
    if places.cpu(a).node != places.cpu(b).node:
        return "far"
    last = max((cache.level for cache in found if cache.kind == "unified"), default=0)
    shared = any(
        cache.level == last and cache.kind == "unified" and {a, b} <= set(cache.shared_cpus)
        for cache in found
    )
    return "cache" if shared else "node"


def core_sets(
    cores: Sequence[int], places: Topology, found: Sequence[Cache]
) -> list[tuple[tuple[int, ...], str]]:
    """Which cores contend at once, each set with how far its cores are from the first.

    The first core alone; with the nearest at each distance; then the 4, 8, ... nearest, and all.
    Second threads of a core come last.
    """
    first, *others = cores
    far = {cpu: DISTANCES.index(distance(first, cpu, places, found)) for cpu in others}
    pairs = {DISTANCES[far[cpu]]: (first, cpu) for cpu in reversed(others)}
    sets = [(first,), *(pairs[name] for name in DISTANCES if name in pairs)]

    def later(cpu: int) -> tuple[bool, int, int]:
        before = cores[: cores.index(cpu)]
        return any(other in places.cpu(cpu).siblings for other in before), far[cpu], cpu

    ranked = [first, *sorted(others, key=later)]
    count = 4
    while count < len(ranked):
        sets.append(tuple(sorted(ranked[:count])))
        count *= 2
    sets.append(tuple(sorted(ranked)))
    return [
        (one, DISTANCES[max((far[cpu] for cpu in one if cpu != first), default=0)])
        for one in dict.fromkeys(sets)
    ]


class ContentionTrials(Workers):
    """One worker, whose threads contend.

    Parameters
    ----------
    conditions
        What the worker is to have.
    configurations
        Each a kind, the cores, and how far apart they are.
    outside_cycles, trial_ms, repeats
        As the parameters have them.
    """

    def __init__(
        self,
        conditions: Conditions,
        configurations: Sequence[tuple[str, tuple[int, ...], str]],
        *,
        outside_cycles: int,
        trial_ms: float,
        repeats: int,
    ) -> None:
        super().__init__(build("contention"), [conditions])
        self._configurations = configurations
        self._outside = outside_cycles
        self._sample_ns, self._repeats = round(trial_ms * 1e6), repeats

    def take(self, round_: int, configuration: int) -> Columns:  # noqa: ARG002 all in each round
        """One row a repeat and core; one that is not ``ok`` where there is none.

        Raises
        ------
        WorkerError
            The worker died, or took too long.
        """
        kind, cpus, far = self._configurations[configuration]
        parts: list[pd.DataFrame] = []
        for _ in range(_MOST_TIMES):
            part = self._run(kind, cpus)
            parts.append(part.assign(repeat=part["repeat"] + len(parts) * self._repeats))
            together = pd.concat(parts)
            if 2 * valid(together).sum() >= len(part) or not part["ok"].any():
                break
        labels = {"kind": kind, "cpus": format_cpus(cpus), "distance": far}
        frame = together.assign(**labels)
        columns: Columns = {str(name): frame[name].tolist() for name in frame}
        return columns

    def _run(self, kind: str, cpus: tuple[int, ...]) -> pd.DataFrame:
        count, repeats = len(cpus), self._repeats
        cores = np.asarray(cpus, dtype=np.int64)
        answer, (accounts, counted) = self[0].call(
            "contention_run", KINDS.index(kind), cores, count, self._outside, self._sample_ns,
            repeats, Out(_ACCOUNT, repeats * count), Out("i8", repeats),
            timeout_s=_GRACE_S + repeats * (self._sample_ns / 1e9 + _BEGIN_S),
        )  # fmt: skip
        accounts = accounts.reshape(repeats, count)
        why = refused("contention", int(answer), _NO_THREAD)
        if not why and (accounts["operations"].sum(axis=1) != counted).any():
            why = "the counters did not count what was done: memory, or the kernel, is at fault"
        if not why and (accounts["cpu"] != cores).any():
            why = "a thread migrated from its core"
        if why:
            self.problems[f"in some trials of {kind}: {why}"] = None
        flat = accounts.reshape(-1)
        delay = flat["run_delay_ns"].astype(np.float64)
        frame: pd.DataFrame = pd.DataFrame(
            {
                "repeat": np.repeat(np.arange(repeats), count),
                "cpu": np.tile(cores, repeats),
                "operations": flat["operations"],
                "time_ns": np.maximum(flat["time_ns"], 1).astype(np.float64),
                "cpu_time_ns": flat["cpu_time_ns"].astype(np.float64),
                "run_delay_ns": np.where(delay < 0, math.nan, delay),
                "involuntary_switches": flat["involuntary_switches"],
                "start_ns": flat["start_ns"],
                "ok": not why,
            }
        )
        return frame


def plan(params: ContentionParams) -> dict[str, Any]:
    """Which cores contend at once.

    Raises
    ------
    UserError
        A core cannot be used.
    """
    cores = params.resolved_cores()
    sets = core_sets(cores, topology(), caches())
    build("contention")  # what cannot be compiled fails here
    notes = [] if len(cores) > 1 else ["one core only: nobody is there to contend with"]
    return {"cores": cores, "sets": sets, "notes": notes}


def take(params: ContentionParams, session: Session) -> str:
    """Every kind by every set of cores, once a round."""
    sets = [(tuple(cpus), far) for cpus, far in session.plan["sets"]]
    configurations = [(kind, *one) for kind in params.measured_kinds for one in sets]

    def half_width(samples: pd.DataFrame) -> float:
        if not samples["ok"].any() or samples["round"].max() < 1:
            return math.inf
        return ContentionTable(samples).half_width

    with ContentionTrials(
        params.conditions(None),
        configurations,
        outside_cycles=params.outside_cycles,
        trial_ms=params.trial_ms,
        repeats=params.repeats,
    ) as trials:
        stopped = session.rounds(params, len(configurations), trials.take, half_width)
        session.note(trials)
    session.problems += session.plan["notes"]
    return stopped
