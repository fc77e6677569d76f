"""One trial of the levels of memory: an array placed anew, warmed up, timed several times."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perflib.framework.brackets import BRACKET_COLUMNS, bracket_columns, core_mhz
from perflib.framework.params import Params
from perflib.framework.watch import Watch
from perflib.machine.hardware.topology import topology
from perflib.measure.arrays import SAMPLE, Arrays
from perflib.measure.schedule import Columns
from perflib.model.errors import MeasurementError

_ARRAY = "array"
_LEAST_LOADS = 2000
_MOST_TIMES = 4  # as many repeats as requested, where too few have the core alone
_MEASURED = (
    "time_ns",
    "latency_ns",
    "latency_cycles",
    "core_mhz",
    "involuntary_switches",
    *(column.name for column in BRACKET_COLUMNS),
)


class Visits(NamedTuple):
    """In which rounds an array is visited, and whether until it was measured alone."""

    every: int = 1
    phase: int = 0
    until_alone: bool = False


class ArrayConfiguration(NamedTuple):
    """What one trial measures."""

    cpu: int
    order: str
    backing: str
    array_bytes: int
    loads: int
    warm_loads: int
    every: int = 1  # rounds from one visit to the next
    phase: int = 0
    until_alone: bool = False

    def visited(self, round_: int) -> bool:
        """Is it measured in this round?"""
        return (round_ + self.phase) % self.every == 0


class Trials:
    """The configurations of a run: in each trial an array is placed anew, and timed several times.

    Where fresh pages are scatters from trial to trial. In one round all configurations of a size
    and an order have their lines in the same order.
    """

    def __init__(
        self,
        arrays: Arrays,
        configurations: Sequence[ArrayConfiguration],
        params: Params,
        repeats: int,
    ) -> None:
        self._arrays = arrays
        self._configurations = configurations
        self._seed, self._repeats = params.seed, repeats
        places = topology()
        # Where the user says where memory comes from, and on one node, there is nothing to verify.
        verify = len(places.nodes) > 1 and params.memory_policy == "default"
        self._nodes = {
            one.cpu: places.cpu(one.cpu).node if verify else None for one in configurations
        }
        self._problems: dict[str, None] = {}
        self._watch = Watch()

    @property
    def violated(self) -> list[str]:
        """Conditions that are not in force, and why some trials are not used."""
        never = [
            f"cpu{cpu} was never seen alone: what its caches hold cannot be distinguished "
            "from what a sibling takes of them"
            for cpu in self._watch.never_alone
        ]
        return [*self._arrays.violated, *self._problems, *never]

    def provenance(self) -> dict[str, Any]:
        """Kernel and conditions."""
        return self._arrays.provenance()

    def take(self, round_: int, configuration: int) -> Columns:
        """One row for each repeat; one row that is not ``ok`` where there is none.

        None at all where the round leaves the configuration out.
        """
        wanted = self._configurations[configuration]
        if not wanted.visited(round_):
            return {}
        cpu, order, backing, array_bytes = wanted[:4]
        start_ns = time.monotonic_ns()
        why = self._arrays.place(
            _ARRAY, order=order, bytes_=array_bytes, backing=backing,
            seed=self._seed + round_, cpu=cpu, node=self._nodes[cpu],
        )  # fmt: skip
        labels = {"cpu": cpu, "order": order, "backing": backing, "array_bytes": array_bytes}
        samples: NDArray[Any] = np.zeros(0, SAMPLE)
        if not why:
            samples, why = self._run(wanted)
        if why:
            self._problems[f"{backing} on cpu{cpu}, in some trials: {why}"] = None
        if not len(samples):
            unknown = dict.fromkeys(_MEASURED, math.nan)
            row = {"repeat": 0, **labels, "loads": 0, **unknown, "start_ns": start_ns, "ok": False}
            return {name: [value] for name, value in row.items()}
        count, slices = len(samples), samples["sample"]
        latency_ns = slices["cpu_time_ns"] / samples["loads"]
        mhz = core_mhz(slices)
        return {
            "repeat": list(range(count)),
            **{name: [value] * count for name, value in labels.items()},
            "loads": samples["loads"].tolist(),
            "time_ns": slices["time_ns"].astype(float).tolist(),
            "latency_ns": latency_ns.tolist(),
            "latency_cycles": (latency_ns * mhz / 1000).tolist(),
            "core_mhz": mhz.tolist(),
            "involuntary_switches": samples["involuntary_switches"].tolist(),
            "start_ns": slices["start_ns"].tolist(),
            **bracket_columns(slices),
            "ok": [not why] * count,
        }

    def _run(self, wanted: ArrayConfiguration) -> tuple[NDArray[Any], str]:
        """The slices of an array that is placed; where being alone counts, until enough were."""
        cpu, loads = wanted.cpu, wanted.loads
        samples, why = self._arrays.run(_ARRAY, cpu, wanted.warm_loads, loads, self._repeats)
        for _ in range(_MOST_TIMES - 1):
            if why or not wanted.until_alone:
                break
            alone = self._watch.alone(cpu, samples["sample"])
            if alone is None or alone >= self._repeats:
                break
            more, why = self._arrays.run(_ARRAY, cpu, 0, loads, self._repeats)
            samples = np.concatenate([samples, more])
        if not why:
            self._watch.add(cpu, samples["sample"])
        return samples, why


def calibrate(
    arrays: Arrays,
    cpu: int,
    backing: str,
    wanted: Iterable[tuple[str, int]],
    trial_ms: float,
) -> dict[tuple[str, int], int]:
    """How many loads take about ``trial_ms``, by order and size.

    A first few say how many take a tenth of that, and those how many take all of it: what a
    bracket takes by itself must not count.

    Raises
    ------
    MeasurementError
        An array cannot be placed, or not be loaded from that core.
    """
    counts: dict[tuple[str, int], int] = {}
    for order, size in wanted:
        if why := arrays.place(_ARRAY, order=order, bytes_=size, backing=backing, cpu=cpu):
            raise MeasurementError(why)
        count = _LEAST_LOADS
        for part in (0.1, 1.0):
            samples, why = arrays.run(_ARRAY, cpu, count, count, 2)
            if why:
                raise MeasurementError(why)
            each_ns = max(float(samples["sample"]["cpu_time_ns"].min()) / count, 0.1)
            count = max(_LEAST_LOADS, int(part * trial_ms * 1e6 / each_ns))
        counts[order, size] = count
    arrays.release(_ARRAY)
    return counts
