"""How memory under load is measured: which cores load whose memory, at which rates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from perflib.experiments.memory_load import MemoryLoadParams
from perflib.experiments.memory_load.table import LoadTable
from perflib.experiments.memory_load.trials import (
    LoadConfiguration,
    LoadTrials,
    Pair,
    calibrate_loads,
)
from perflib.framework.experiment import Session
from perflib.kernels import build
from perflib.machine.hardware.caches import Cache, caches
from perflib.machine.hardware.memory import free_bytes
from perflib.machine.hardware.topology import Topology, topology
from perflib.measure.arrays import Arrays
from perflib.measure.pages.backings import why_not
from perflib.measure.streams import Streams, calibrate_delays
from perflib.model.errors import MeasurementError, UserError

_MIB = 1 << 20
_ARRAYS = 4.1  # a node: three that are streamed, one that is chased, with the order of its lines
_TIMES_CACHE, _LEAST_TIMES_CACHE = 4, 2  # STREAM's rule, and below what caches answer
_LEAST_BYTES = 64 * _MIB
_SHARE = 2  # of the free memory at most one part in so many
_BANDWIDTH_EVERY_ROUNDS = 3  # rounds from one visit of a kind of bandwidth to the next
_UNKNOWN_BYTES = 1 << 40  # of free memory, where the kernel does not say


# --- what is measured ----------------------------------------------------------------------------


def pairs_of(cores: Sequence[int], places: Topology) -> list[Pair]:
    """Every node's memory with every node's cores; the first of a node's cores chases.

    The others of its node stream, but hardware threads of the chase's own core; where it has none,
    those of other nodes.
    """
    by_node: dict[int, list[int]] = {}
    for cpu in cores:
        by_node.setdefault(places.cpu(cpu).node or 0, []).append(cpu)
    found = []
    for memory_node, near in by_node.items():
        for core_node, mine in by_node.items():
            chase = mine[0]
            own = {chase, *places.cpu(chase).siblings}
            others = [cpu for cpu in mine if cpu not in own] or [
                cpu for cpu in cores if cpu not in own
            ]
            found.append(Pair(memory_node, core_node, near[0], chase, tuple(others)))
    return found


def array_bytes(
    wanted_mib: int | None, nodes: int, cache_bytes: int, free: int
) -> tuple[int, list[str]]:
    """The size of each array, and what the run must note about it.

    Parameters
    ----------
    wanted_mib
        What the user wants; ``None``: four times the caches, 64 MiB at least.
    nodes
        How many have arrays.
    cache_bytes
        What the last-level caches of a node hold together; 0: not known.
    free
        Bytes of memory; half of it is used at most.

    Raises
    ------
    UserError
        The arrays do not fit.
    """
    most = int(free / _SHARE / nodes / _ARRAYS) // _MIB * _MIB
    wanted = max(_TIMES_CACHE * cache_bytes, _LEAST_BYTES)
    size = wanted_mib * _MIB if wanted_mib is not None else min(wanted, most)
    if size > most or size < _MIB:
        msg = (
            f"array_mib: arrays of {max(size, _MIB) // _MIB} MiB, four for each of {nodes} nodes, "
            f"take more than half of the {free // _MIB} MiB of memory that are free: give "
            f"{max(most // _MIB, 1)} at most, or name cores of fewer nodes"
        )
        raise UserError(msg)
    cache = f"the last-level caches of a node ({cache_bytes // _MIB} MiB)"
    if size < _LEAST_TIMES_CACHE * cache_bytes:
        note = f"arrays of {size // _MIB} MiB are smaller than twice {cache}"
        return size, [f"{note}: caches answer a part, not memory"]
    if size < _TIMES_CACHE * cache_bytes:
        note = f"arrays of {size // _MIB} MiB are less than four times {cache}"
        return size, [f"{note}, which STREAM's rules require"]
    return size, []


def _node_cache_bytes(cores: Sequence[int], found: Sequence[Cache], places: Topology) -> int:
    """The last-level caches of the node that has most of them, together."""
    last = max((one.level for one in found if one.kind == "unified"), default=0)
    held: dict[int, int] = {}
    for one in found:
        mine = [cpu for cpu in cores if cpu in one.shared_cpus]
        if one.kind == "unified" and one.level == last and mine:
            node = places.cpu(mine[0]).node or 0
            held[node] = held.get(node, 0) + one.size_bytes
    return max(held.values(), default=0)


def plan(params: MemoryLoadParams) -> dict[str, Any]:
    """Cores, pairs of nodes, and the size of the arrays.

    Raises
    ------
    UserError
        A memory policy is set, there is too little memory, or nothing is left to measure.
    """
    if params.memory_policy != "default":
        msg = (
            f"memory_policy: {params.memory_policy!r} decides where memory comes from; here "
            "each node's first core does: leave it at 'default'"
        )
        raise UserError(msg)
    if reason := why_not(params.backing):
        msg = f"backing: {reason}"
        raise UserError(msg)
    cores = params.resolved_cores()
    places, found = topology(), caches()
    pairs = pairs_of(cores, places)
    nodes = len({pair.memory_node for pair in pairs})
    size, notes = array_bytes(
        params.array_mib, nodes, _node_cache_bytes(cores, found, places),
        free_bytes() or _UNKNOWN_BYTES,
    )  # fmt: skip
    if not any(pair.stream_cpus for pair in pairs):
        notes.append(
            "one core only: nobody is there to load memory while it measures latency, so what load "
            "does stays open"
        )
    notes += [
        f"node {node.node} has memory and no CPU: no core's first touch allocates there, so it is "
        "left out"
        for node in places.nodes
        if not node.cpus
    ]
    notes += places.notes_of(cores)
    build("memory_load")  # what cannot be compiled fails here
    return {
        "cores": cores,
        "pairs": pairs,
        "nodes": [places.cpu(cpu).node if len(places.nodes) > 1 else None for cpu in cores],
        "array_bytes": size,
        "notes": notes,
    }


def pilot(params: MemoryLoadParams, plan: Mapping[str, Any]) -> dict[str, Any]:
    """How many loads a repeat takes; which waits make which rates."""
    pairs = _pairs(plan)
    delays = []
    with Arrays(params.conditions(None)) as arrays, Streams(params.conditions(None)) as streams:
        loads = None
        for pair in pairs:
            cpu = pair.place_cpu
            as_: dict[str, Any] = {
                "backing": params.backing, "cpu": cpu, "node": _nodes(plan)[cpu]
            }  # fmt: skip
            node = pair.memory_node
            why = ""
            if node not in streams:
                why = streams.place(node, array_bytes=plan["array_bytes"], **as_)
            if not why and loads is None:
                why = arrays.place(node, order="window", bytes_=plan["array_bytes"], **as_)
            if why:
                msg = f"memory of node {node} is not where it should be: {why}"
                raise MeasurementError(msg)
            if loads is None:
                loads = calibrate_loads(arrays, pair, params.trial_ms)
            rates = params.rates if pair.stream_cpus else []
            cpus, kind = pair.stream_cpus, params.traffic
            delays.append(calibrate_delays(streams, node, cpus, kind, rates) if rates else [])
    made = configurations(params, pairs, params.measured_kinds, delays)
    return {"loads": loads, "configurations": made}


def configurations(
    params: MemoryLoadParams,
    pairs: Sequence[Pair],
    kinds: Sequence[str],
    delays: Sequence[Sequence[int]],
) -> list[LoadConfiguration]:
    """Of each pair the curve, and bandwidths: a node's cores together, and each core alone.

    Bandwidths take longer, and scatter less: each kind comes in every third round, for all cores.
    Of other nodes' memory each core alone moves the curve's traffic only: there are as many cells
    as cores times nodes.
    """
    made = []
    for place, pair in enumerate(pairs):
        traffic, others = params.traffic, pair.stream_cpus
        made.append(LoadConfiguration(place, "latency", (), traffic, "idle", 0.0))
        if others:
            made.append(LoadConfiguration(place, "latency", others, traffic, "cache", 0.0))
            made += [
                LoadConfiguration(place, "latency", others, traffic, "memory", rate, delay)
                for rate, delay in zip(params.rates, delays[place], strict=True)
            ]
            made.append(LoadConfiguration(place, "latency", others, traffic, "memory"))
        mine = tuple(cpu for cpu in params.resolved_cores() if _on_node(pair, cpu))
        local = pair.memory_node == pair.core_node
        made += [
            LoadConfiguration(
                place,
                "bandwidth",
                cpus,
                kind,
                "memory",
                every=_BANDWIDTH_EVERY_ROUNDS,
                phase=number % _BANDWIDTH_EVERY_ROUNDS,
            )
            for cpus in dict.fromkeys([mine, *((cpu,) for cpu in mine)])
            for number, kind in enumerate(kinds)
            if local or cpus == mine or kind == traffic
        ]
    return made


def _on_node(pair: Pair, cpu: int) -> bool:
    return (topology().cpu(cpu).node or 0) == pair.core_node


def take(params: MemoryLoadParams, session: Session) -> str:
    """Every rate of every pair, and every bandwidth, once a round."""
    plan = session.plan
    configurations = [
        LoadConfiguration(one[0], one[1], tuple(one[2]), *one[3:]) for one in plan["configurations"]
    ]

    def half_width(samples: pd.DataFrame) -> float:
        if not samples["ok"].any() or samples["round"].max() < 1:
            return math.inf
        return LoadTable(samples).half_width

    with Arrays(params.conditions(None)) as arrays, Streams(params.conditions(None)) as streams:
        trials = LoadTrials(
            arrays,
            streams,
            _pairs(plan),
            configurations,
            nodes=_nodes(plan),
            array_bytes=plan["array_bytes"],
            backing=params.backing,
            loads=plan["loads"],
            trial_ms=params.trial_ms,
            repeats=params.repeats,
            seed=params.seed,
        )
        stopped = session.rounds(params, len(configurations), trials.take, half_width)
        session.note(arrays)
        session.problems += streams.violated
        session.provenance["kernels"] = [
            arrays.provenance()["kernel"], streams.provenance()["kernel"]
        ]  # fmt: skip
    session.problems += [*plan["notes"], *trials.problems]
    return stopped


def _pairs(plan: Mapping[str, Any]) -> list[Pair]:
    return [Pair(one[0], one[1], one[2], one[3], tuple(one[4])) for one in plan["pairs"]]


def _nodes(plan: Mapping[str, Any]) -> dict[int, int | None]:
    """By CPU, where its memory should be; ``None``: there is one node only."""
    return dict(zip(plan["cores"], plan["nodes"], strict=True))
