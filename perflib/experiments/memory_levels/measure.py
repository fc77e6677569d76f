"""One turn of the levels of memory: an array laid anew, warmed up, timed; and what comes before."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perflib.experiments.memory_levels.table import SMALL_PAGES
from perflib.framework.params import Params
from perflib.machine.hardware.topology import topology
from perflib.measure.arrays import LINE_BYTES, SAMPLE, Arrays
from perflib.measure.schedule import Columns
from perflib.model.errors import MeasurementError

__all__ = ["Arm", "Turns", "calibrate", "page_reach", "walk"]

_ARRAY = "array"
_LEAST_LOADS = 2000
_REPEATS = 9  # of the control of page sizes


class Arm(NamedTuple):
    """What one turn measures."""

    cpu: int
    order: str
    backing: str
    array_bytes: int
    loads: int
    warm_loads: int


class Turns:
    """The arms of a run. In each turn an array is laid anew, warmed up, and timed several times.

    Fresh pages in every turn make the luck of where they lie scatter; in one round all arms of a
    size and an order have their lines in the same order.
    """

    def __init__(self, arrays: Arrays, arms: Sequence[Arm], params: Params, repeats: int) -> None:
        self._arrays = arrays
        self._arms = arms
        self._seed, self._repeats = params.seed, repeats
        places = topology()
        # Where the user says where memory comes from, and on one node, there is nothing to verify.
        verify = len(places.nodes) > 1 and params.memory_policy == "default"
        self._nodes = {arm.cpu: places.cpu(arm.cpu).node if verify else None for arm in arms}
        self._problems: dict[str, None] = {}

    @property
    def unmet(self) -> list[str]:
        """Conditions that are not in force, and why some turns are not used."""
        return [*self._arrays.unmet, *self._problems]

    def provenance(self) -> dict[str, Any]:
        """Kernel and conditions."""
        return self._arrays.provenance()

    def take(self, round_: int, arm: int) -> Columns:
        """One row for each repeat; one row that is not ``ok`` where there is none."""
        cpu, order, backing, array_bytes, loads, warm = self._arms[arm]
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
            self._problems[f"{backing} on cpu{cpu}, in some turns: {why}"] = None
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


# --- beforehand -----------------------------------------------------------------------------------


def calibrate(
    arrays: Arrays,
    cpu: int,
    backing: str,
    wanted: Iterable[tuple[str, int]],
    turn_ms: float,
) -> dict[tuple[str, int], int]:
    """How many loads take about ``turn_ms``, by order and size."""
    counts: dict[tuple[str, int], int] = {}
    for order, size in wanted:
        why = arrays.lay(_ARRAY, order=order, bytes_=size, backing=backing, cpu=cpu)
        if not why:
            samples, why = arrays.run(_ARRAY, cpu, _LEAST_LOADS, _LEAST_LOADS, 2)
        if why:
            raise MeasurementError(why)
        each_ns = max(float((samples["time_ns"] / samples["loads"]).min()), 0.1)
        counts[order, size] = max(_LEAST_LOADS, int(turn_ms * 1e6 / each_ns))
    arrays.release(_ARRAY)
    return counts


def page_reach(arrays: Arrays, backings: Sequence[str]) -> dict[str, list[list[float]]]:
    """By backing, pairs of ns a load through one page and through many; see the kernel.

    Only where there are huge pages: the small ones are what they are compared with.
    """
    found: dict[str, list[list[float]]] = {}
    if set(backings) <= {SMALL_PAGES}:
        return found
    for seed in range(_REPEATS):
        for name in dict.fromkeys([SMALL_PAGES, *backings]):
            pair = arrays.page_reach(name, seed)
            if pair is not None:
                found.setdefault(name, []).append(list(pair))
    return found


def walk(arrays: Arrays, order: str, bytes_: int, cpu: int, seed: int = 1) -> list[int]:
    """The lines of an array in the order in which the chase comes by, of one lap.

    It is found by loading one line at a time, so it shows what is measured.

    Raises
    ------
    MeasurementError
        The array could not be laid, or loaded from that core.
    """
    lines = bytes_ // LINE_BYTES
    why = arrays.lay("walk", order=order, bytes_=bytes_, seed=seed, cpu=cpu)
    if why:
        raise MeasurementError(why)
    samples, why = arrays.run("walk", cpu, 0, 1, lines)
    arrays.release("walk")
    if why:
        raise MeasurementError(why)
    return [int(place) // LINE_BYTES for place in samples["reached_bytes"]]
