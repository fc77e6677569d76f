"""One trial of the data TLBs: lines placed anew, warmed up, timed several times."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from perflib.framework.brackets import BRACKET_COLUMNS, bracket_columns, core_mhz
from perflib.measure.arrays import LINE_BYTES, Arrays
from perflib.measure.pages.kinds import HUGE_PAGE_BYTES, SMALL_PAGES
from perflib.measure.schedule import Columns
from perflib.model.errors import MeasurementError

_ARRAY = "lines"
# In "window" order packed lines miss no TLB, even where there are more than 32 pages of them.
KINDS: Mapping[str, str] = {"spread": "spread", "packed": "window"}
_LEAST_LOADS = 2000
_WARM_LAPS, _LEAST_LAPS = 2, 2
_MEASURED = (
    "time_ns",
    "load_ns",
    "core_mhz",
    "involuntary_switches",
    *(column.name for column in BRACKET_COLUMNS),
)


class Configuration(NamedTuple):
    """What one trial measures, and in which rounds."""

    cpu: int
    backing: str
    lines: str
    stride: int
    pages: int
    loads: int
    every: int = 1  # rounds from one visit to the next


def page_bytes(backing: str) -> int:
    """The size of the pages of a backing."""
    return 4096 if backing == SMALL_PAGES else HUGE_PAGE_BYTES


def place(
    arrays: Arrays, order: str, backing: str, pages: int, seed: int, cpu: int, stride: int = 1
) -> str:
    """Place a line for each page, in an order of the kernel; why it is not as requested.

    ``stride``: lines that are spread are so many pages apart.
    """
    apart = stride * page_bytes(backing) if order == "spread" else LINE_BYTES
    return arrays.place(
        _ARRAY, order=order, bytes_=pages * apart, line_bytes=apart, backing=backing,
        seed=seed, cpu=cpu,
    )  # fmt: skip


class Trials:
    """The configurations of a run. In one round both kinds of lines have the same order.

    ``kinds``: the kernel's order by kind of lines.
    """

    def __init__(
        self,
        arrays: Arrays,
        configurations: Sequence[Configuration],
        *,
        seed: int,
        repeats: int,
        kinds: Mapping[str, str] = KINDS,
    ) -> None:
        self._arrays, self._configurations = arrays, configurations
        self._seed, self._repeats, self._kinds = seed, repeats, kinds
        self._problems: dict[str, None] = {}

    @property
    def violated(self) -> list[str]:
        """Conditions that are not in force, and why some trials are not used."""
        return [*self._arrays.violated, *self._problems]

    def provenance(self) -> dict[str, Any]:
        """Kernel and conditions."""
        return self._arrays.provenance()

    def take(self, round_: int, configuration: int) -> Columns:
        """One row for each repeat; one row that is not ``ok`` where there is none.

        None at all where the round leaves the configuration out.
        """
        cpu, backing, lines, stride, pages, loads, every = self._configurations[configuration]
        if round_ % every:
            return {}
        start_ns = time.monotonic_ns()
        labels = {"cpu": cpu, "backing": backing, "lines": lines, "stride": stride, "pages": pages}
        order, seed = self._kinds[lines], self._seed + round_
        why = place(self._arrays, order, backing, pages, seed, cpu, stride)
        if not why:
            warm = _WARM_LAPS * pages
            samples, why = self._arrays.run(_ARRAY, cpu, warm, loads, self._repeats)
        if why:
            self._problems[f"{backing} on cpu{cpu}, in some trials: {why}"] = None
            unknown = dict.fromkeys(_MEASURED, math.nan)
            row = {"repeat": 0, **labels, "loads": 0, **unknown, "start_ns": start_ns, "ok": False}
            return {name: [value] for name, value in row.items()}
        count, slices = len(samples), samples["sample"]
        return {
            "repeat": list(range(count)),
            **{name: [value] * count for name, value in labels.items()},
            "loads": samples["loads"].tolist(),
            "time_ns": slices["time_ns"].astype(float).tolist(),
            "load_ns": (slices["cpu_time_ns"] / samples["loads"]).tolist(),
            "core_mhz": core_mhz(slices).tolist(),
            "involuntary_switches": samples["involuntary_switches"].tolist(),
            "start_ns": slices["start_ns"].tolist(),
            **bracket_columns(slices),
            "ok": [True] * count,
        }


def calibrate(
    arrays: Arrays, cpu: int, wanted: Iterable[tuple[str, int, int]], trial_ms: float
) -> dict[tuple[str, int, int], int]:
    """How many loads of lines in pages of their own take ``trial_ms``.

    By backing, stride and pages.

    Two laps at least, so that each line counts alike.

    Raises
    ------
    MeasurementError
        The lines cannot be placed, or not be loaded from that core.
    """
    counts = {}
    for backing, stride, pages in wanted:
        why = place(arrays, "spread", backing, pages, 1, cpu, stride)
        if not why:
            laps = _LEAST_LAPS * pages
            samples, why = arrays.run(_ARRAY, cpu, laps, max(laps, _LEAST_LOADS), 2)
        if why:
            raise MeasurementError(why)
        each_ns = max(float((samples["sample"]["cpu_time_ns"] / samples["loads"]).min()), 0.1)
        counts[backing, stride, pages] = max(
            _LEAST_LOADS, _LEAST_LAPS * pages, int(trial_ms * 1e6 / each_ns)
        )
    arrays.release(_ARRAY)
    return counts
