"""Trials of the matrix of memory latencies: which cell when, how large, what if one fails."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perflib.framework.brackets import core_mhz
from perflib.machine.cpulist import parse_cpus
from perflib.machine.files import fields
from perflib.measure.arrays import Arrays
from perflib.measure.schedule import Columns
from perflib.model.errors import MeasurementError, UserError

DETAILS = ("groups", "cores", "pairs")  # from coarse to fine
_COARSE_ROUNDS = 2  # of each detail but the last: two, so that they have an interval
_WARM_LOADS = 512  # the thread has just come to the core: its TLBs and page tables are cold
_LEAST_LOADS, _CALIBRATION_LOADS = 256, 4096
_MIB = 1 << 20
_LEAST_BYTES = 64 * _MIB
_TIMES_CACHE, _LEAST_TIMES_CACHE = 4, 2


@dataclass(frozen=True)
class Cell:
    """Memory that one core touches first, loaded by one."""

    alloc_cpu: int
    load_cpu: int


@dataclass(frozen=True)
class Stages:
    """Which cells are visited in which round: a coarse matrix first, then all that are wanted.

    ``cores``: the CPUs; ``heads``: those of them that stand for a group; ``detail``: the finest.
    """

    cores: tuple[int, ...]
    heads: tuple[int, ...]
    detail: str

    def cell(self, configuration: int) -> Cell:
        """The cell that a configuration is."""
        alloc, load = divmod(configuration, len(self.cores))
        return Cell(self.cores[alloc], self.cores[load])

    def count(self, detail: str) -> int:
        """How many cells that detail has."""
        cores, heads = len(self.cores), len(self.heads)
        between = heads * heads
        if detail == "groups":
            return between
        return cores * cores if detail == "pairs" else 2 * cores * heads - between + cores - heads

    @property
    def _coarser(self) -> list[str]:
        wanted = DETAILS[: DETAILS.index(self.detail) + 1]
        steps = itertools.pairwise(wanted)
        return [name for name, finer in steps if self.count(name) < self.count(finer)]

    @property
    def whole_round(self) -> int:
        """The first round of the finest detail."""
        return _COARSE_ROUNDS * len(self._coarser)

    def detail_of(self, round_: int) -> str:
        """What is visited in a round."""
        return [*self._coarser, self.detail][min(round_, self.whole_round) // _COARSE_ROUNDS]

    def visits(self, round_: int, configuration: int) -> bool:
        """Whether a cell has a trial in a round."""
        detail, cell = self.detail_of(round_), self.cell(configuration)
        if detail == "pairs":
            return True
        heads = (cell.alloc_cpu in self.heads) + (cell.load_cpu in self.heads)
        if detail == "groups":
            return heads == 2
        return heads > 0 or cell.alloc_cpu == cell.load_cpu


# --- how large, how long -------------------------------------------------------------------------


def array_bytes(
    wanted_mib: int | None, arrays: int, cache_bytes: int, free_bytes: int
) -> tuple[int, str]:
    """How large an array is, and a sentence if it is smaller than it should be.

    Parameters
    ----------
    wanted_mib
        What the user wants; ``None``: four times the last-level cache, 64 MiB at least.
    arrays
        How many there are at once.
    cache_bytes
        What the last-level cache of a core holds; 0: not known.
    free_bytes
        Of memory; half of it is used at most.

    Raises
    ------
    UserError
        The arrays do not fit.
    """
    most = free_bytes // 2 // arrays // _MIB * _MIB
    wanted = max(_TIMES_CACHE * cache_bytes, _LEAST_BYTES)
    size = wanted_mib * _MIB if wanted_mib is not None else min(wanted, most)
    least = max(_LEAST_TIMES_CACHE * cache_bytes, _MIB)
    cache = f"the last-level cache of a core ({cache_bytes // _MIB} MiB)"
    if size > most or (wanted_mib is None and size < least):
        msg = (
            f"array_mib: {arrays} arrays of {max(size, least) // _MIB} MiB take more than half of "
            f"the {free_bytes // _MIB} MiB of memory that are free: name fewer cores, or smaller "
            "arrays"
        )
        if wanted_mib is None and cache_bytes:
            msg += f" (below twice {cache} they would not be in memory)"
        raise UserError(msg)
    if size < least:
        return size, (
            f"arrays of {size // _MIB} MiB are smaller than twice {cache}: caches answer a part of "
            "the loads, not memory"
        )
    if size < wanted and wanted_mib is None:
        return size, (
            f"the arrays are {size // _MIB} MiB instead of {wanted // _MIB} MiB each: all "
            f"{arrays} take half of the free memory"
        )
    return size, ""


def calibrate(
    arrays: Arrays, nodes: dict[int, int | None], repeats: int, trial_ms: float, **as_: Any
) -> int:
    """Loads of a repeat, so that all of a cell take about ``trial_ms``.

    Measured on the first core on whose node an array can be placed.

    Raises
    ------
    MeasurementError
        There is no such core.
    """
    reasons = {}
    for cpu, node in nodes.items():
        why = arrays.place("calibration", cpu=cpu, node=node, seed=1, **as_)
        if not why:
            samples, why = arrays.run("calibration", cpu, _WARM_LOADS, _CALIBRATION_LOADS, 3)
        if not why:
            arrays.release("calibration")
            each_ns = max(
                float(np.median(samples["sample"]["cpu_time_ns"] / samples["loads"])), 1e-2
            )
            return max(_LEAST_LOADS, int(trial_ms * 1e6 / repeats / each_ns))
        reasons[f"{why}{_why_elsewhere(arrays, 'calibration', node, as_['bytes_'])}"] = cpu
    each = "; ".join(f"cpu{cpu}: {why}" for why, cpu in reasons.items())
    msg = f"no core's memory is available where it should be: {each}"
    raise MeasurementError(msg)


# --- trials --------------------------------------------------------------------------------------


class NumaTrials:
    """One worker that has an array of each core, placed anew in every round.

    So where the pages are widens the interval. A cell that fails is marked; the others continue.
    """

    def __init__(
        self,
        arrays: Arrays,
        stages: Stages,
        nodes: dict[int, int | None],
        *,
        loads: int,
        repeats: int,
        seed: int,
        **as_: Any,
    ) -> None:
        self._arrays = arrays
        self._stages = stages
        self._nodes = nodes
        self._loads = loads
        self._repeats = repeats
        self._seed = seed
        self._as = as_
        self._placed: dict[int, tuple[int, str]] = {}  # by core: the round, and why it failed
        self._problems: dict[tuple[str, int], str] = {}
        self._round = -1
        self._good, self._bad = 0, ""

    @property
    def problems(self) -> list[str]:
        """A sentence for each core or node whose cells failed, with the likely cause."""
        return list(self._problems.values())

    def take(self, round_: int, configuration: int) -> Columns:
        """The samples of a cell; none if the round leaves it out.

        Raises
        ------
        MeasurementError
            In all of the round before no cell could be measured.
        WorkerError
            The worker died; its arrays are placed again when they are needed.
        """
        if not self._stages.visits(round_, configuration):
            return {}
        self._begin(round_)
        cell = self._stages.cell(configuration)
        why = self._place(round_, cell.alloc_cpu)
        if why:
            return self._row(cell, None, why)
        samples, why = self._arrays.run(
            cell.alloc_cpu, cell.load_cpu, _WARM_LOADS, self._loads, self._repeats
        )
        if why:
            self._problems.setdefault(
                ("load", cell.load_cpu), f"loads by cpu{cell.load_cpu} are left out: {why}"
            )
        return self._row(cell, samples if len(samples) else None, why)

    def _begin(self, round_: int) -> None:
        if round_ == self._round:
            return
        whole = self._round >= self._stages.whole_round
        if whole and self._bad and not self._good:
            msg = f"in a whole round no cell could be measured: {self._bad}"
            raise MeasurementError(msg)
        self._round, self._good, self._bad = round_, 0, ""

    def _place(self, round_: int, cpu: int) -> str:
        """Place a core's array at its first use in a round; why it cannot be used."""
        placed_in, why = self._placed.get(cpu, (-1, ""))
        if placed_in == round_ and (why or cpu in self._arrays):
            return why
        node = self._nodes[cpu]
        why = self._arrays.place(cpu, cpu=cpu, node=node, seed=self._seed + round_, **self._as)
        if why:
            cause = _why_elsewhere(self._arrays, cpu, node, self._as["bytes_"])
            whose = ("node", node) if cause and node is not None else ("alloc", cpu)
            name = f"node {node}" if whose[0] == "node" else f"cpu{cpu}"
            self._problems.setdefault(whose, f"memory of {name} is left out: {why}{cause}")
            self._arrays.release(cpu)
        self._placed[cpu] = round_, why
        return why

    def _row(self, cell: Cell, samples: Any, why: str) -> Columns:
        if why:
            self._bad = why
        else:
            self._good += 1
        count = 1 if samples is None else len(samples)
        unknown = [math.nan] * count
        columns: Columns = {
            "alloc_cpu": [cell.alloc_cpu] * count,
            "load_cpu": [cell.load_cpu] * count,
            "repeat": list(range(count)),
            "start_ns": [time.monotonic_ns()] * count,
            "latency_cycles": unknown,
            "latency_ns": unknown,
            "core_mhz": unknown,
            "loads": [0] * count,
            "time_ns": unknown,
        }
        if samples is not None:
            times = samples["sample"]
            each_ns = times["cpu_time_ns"] / samples["loads"]
            mhz = core_mhz(times)
            # In so short a time it is one frequency; an interrupt makes a reading of it too low.
            core_ghz = float(np.nanmedian(mhz)) / 1e3
            columns |= {
                "start_ns": times["start_ns"].tolist(),
                "latency_cycles": (each_ns * core_ghz).tolist(),
                "latency_ns": each_ns.tolist(),
                "core_mhz": mhz.tolist(),
                "loads": samples["loads"].tolist(),
                "time_ns": times["time_ns"].astype(float).tolist(),
            }
        for side, cpu in (("alloc_node", cell.alloc_cpu), ("load_node", cell.load_cpu)):
            if self._nodes[cpu] is not None:
                columns[side] = [self._nodes[cpu]] * count
        return columns | {"ok": [not why] * count}


# --- why not there? ------------------------------------------------------------------------------


def _why_elsewhere(arrays: Arrays, key: Any, node: int | None, wanted: int) -> str:
    """The likely reason, as the end of a sentence, if pages are on another node; else empty."""
    try:
        if node is None or key not in arrays or set(arrays.nodes(key)) == {node}:
            return ""
    except MeasurementError:  # the worker has just died
        return ""
    return f". {likely_cause(node, wanted)}"


def likely_cause(node: int, wanted: int, root: Path = Path("/")) -> str:
    """Why pages that a core touches first do not come to its node.

    Parameters
    ----------
    node
        The core's node.
    wanted
        How many bytes should be there.
    root
        Where /proc and /sys are found.
    """
    allowed = fields(root / "proc/self/status").get("Mems_allowed_list", "")
    if allowed and node not in parse_cpus(allowed):
        return (
            f"This process may use memory of node {allowed} only: a control group's cpuset.mems, "
            "as a container or a batch system sets it, forbids the others"
        )
    meminfo = fields(root / f"sys/devices/system/node/node{node}/meminfo")
    words = meminfo.get(f"Node {node} MemFree", "").split()
    if words and int(words[0]) * 1024 < wanted:
        return (
            f"Node {node} has {int(words[0]) // 1024} MiB free, the array takes {wanted // _MIB} "
            "MiB: other processes or the file cache fill it"
        )
    return (
        "A memory policy that this process was started with (numactl), or pages that the kernel "
        "moves by itself (numa_balancing), can be the cause"
    )
