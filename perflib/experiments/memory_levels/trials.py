"""One trial of the levels of memory: an array placed anew, warmed up, timed several times."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perflib.framework.params import Params
from perflib.machine.hardware.topology import topology
from perflib.measure.arrays import SAMPLE, Arrays
from perflib.measure.schedule import Columns
from perflib.model.errors import MeasurementError

__all__ = ["Configuration", "Trials", "calibrate"]

_ARRAY = "array"
_LEAST_LOADS = 2000


class Configuration(NamedTuple):
    """What one trial measures."""

    cpu: int
    order: str
    backing: str
    array_bytes: int
    loads: int
    warm_loads: int


class Trials:
    """The configurations of a run: in each trial an array is placed anew, and timed several times.

    Where fresh pages lie scatters from trial to trial. In one round all configurations of a size
    and an order have their lines in the same order.
    """

    def __init__(
        self, arrays: Arrays, configurations: Sequence[Configuration], params: Params, repeats: int
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

    @property
    def violated(self) -> list[str]:
        """Conditions that are not in force, and why some trials are not used."""
        return [*self._arrays.violated, *self._problems]

    def provenance(self) -> dict[str, Any]:
        """Kernel and conditions."""
        return self._arrays.provenance()

    def take(self, round_: int, configuration: int) -> Columns:
        """One row for each repeat; one row that is not ``ok`` where there is none."""
        cpu, order, backing, array_bytes, loads, warm = self._configurations[configuration]
        start_ns = time.monotonic_ns()
        why = self._arrays.lay(
            _ARRAY, order=order, bytes_=array_bytes, backing=backing,
            seed=self._seed + round_, cpu=cpu, node=self._nodes[cpu],
        )  # fmt: skip
        labels = {"cpu": cpu, "order": order, "backing": backing, "array_bytes": array_bytes}
        samples: NDArray[Any] = np.zeros(0, SAMPLE)
        if not why:
            samples, why = self._arrays.run(_ARRAY, cpu, warm, loads, self._repeats)
        if why:
            self._problems[f"{backing} on cpu{cpu}, in some trials: {why}"] = None
        if not len(samples):
            unknown = dict.fromkeys(
                ("time_ns", "latency_ns", "latency_cycles", "core_mhz", "involuntary_switches"),
                math.nan,
            )
            row = {"repeat": 0, **labels, "loads": 0, **unknown, "start_ns": start_ns, "ok": False}
            return {name: [value] for name, value in row.items()}
        count = len(samples)
        latency_ns = samples["time_ns"] / samples["loads"]
        return {
            "repeat": list(range(count)),
            **{name: [value] * count for name, value in labels.items()},
            "loads": samples["loads"].tolist(),
            "time_ns": samples["time_ns"].astype(float).tolist(),
            "latency_ns": latency_ns.tolist(),
            "latency_cycles": (latency_ns * samples["core_mhz"] / 1000).tolist(),
            "core_mhz": samples["core_mhz"].tolist(),
            "involuntary_switches": samples["involuntary_switches"].tolist(),
            "start_ns": samples["begin_ns"].tolist(),
            "ok": [not why] * count,
        }


def calibrate(
    arrays: Arrays,
    cpu: int,
    backing: str,
    wanted: Iterable[tuple[str, int]],
    trial_ms: float,
) -> dict[tuple[str, int], int]:
    """How many loads take about ``trial_ms``, by order and size.

    Raises
    ------
    MeasurementError
        An array cannot be placed, or not be loaded from that core.
    """
    counts: dict[tuple[str, int], int] = {}
    for order, size in wanted:
        why = arrays.lay(_ARRAY, order=order, bytes_=size, backing=backing, cpu=cpu)
        if not why:
            samples, why = arrays.run(_ARRAY, cpu, _LEAST_LOADS, _LEAST_LOADS, 2)
        if why:
            raise MeasurementError(why)
        each_ns = max(float((samples["time_ns"] / samples["loads"]).min()), 0.1)
        counts[order, size] = max(_LEAST_LOADS, int(trial_ms * 1e6 / each_ns))
    arrays.release(_ARRAY)
    return counts
