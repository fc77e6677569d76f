"""Trials of memory under load: a chase while cores stream, or cores that only stream."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from perflib.experiments.memory_load.table import valid
from perflib.framework.brackets import BRACKET_COLUMNS, bracket_columns
from perflib.machine.cpulist import format_cpus
from perflib.measure.arrays import Arrays
from perflib.measure.schedule import Columns
from perflib.measure.streams import CACHE_CHUNKS, LIMIT_S, Streams, accounted, timed
from perflib.model.errors import MeasurementError

_BANDWIDTH_TIMES = 5  # as long as a slice of loads, a bandwidth is timed
_LEAST_LOADS, _PILOT_LOADS = 256, 4096
_MOST_TIMES = 4  # as many repeats as requested, where others take the cores
_LAYING_SHARE = 0.25  # of the time arrays may be placed anew
_SETTLE_S = 0.0005  # what was in the caches and the queues before has gone
_UNKNOWN = dict.fromkeys((column.name for column in BRACKET_COLUMNS), math.nan)


class Pair(NamedTuple):
    """A node's memory, and a node's cores that use it."""

    memory_node: int
    core_node: int
    place_cpu: int  # touches the memory first
    chase_cpu: int
    stream_cpus: tuple[int, ...]  # the others


class LoadConfiguration(NamedTuple):
    """What one trial measures."""

    pair: int
    what: str
    cpus: tuple[int, ...]  # that stream
    kind: str
    load: str
    rate_percent: float = 100.0
    delay: int = 0
    every: int = 1  # rounds from one visit to the next
    phase: int = 0

    def visited(self, round_: int) -> bool:
        """Is it measured in this round?"""
        return (round_ + self.phase) % self.every == 0


def warm_loads(loads: int) -> int:
    """Loads before those that are timed: TLBs and page tables come back."""
    return min(loads, 512)


class LoadTrials:
    """Two workers: one has the arrays that are chased through, the other those that are streamed.

    The chase's array is placed anew, on other pages, as often as a quarter of the time allows.

    Parameters
    ----------
    arrays, streams
        The workers.
    pairs, configurations
        As the plan has them.
    nodes
        By CPU: its node, where placement is to be verified; else ``None``.
    array_bytes, backing, loads, trial_ms, repeats, seed
        Of each array, and each trial.
    """

    def __init__(
        self,
        arrays: Arrays,
        streams: Streams,
        pairs: Sequence[Pair],
        configurations: Sequence[LoadConfiguration],
        *,
        nodes: Mapping[int, int | None],
        array_bytes: int,
        backing: str,
        loads: int,
        trial_ms: float,
        repeats: int,
        seed: int,
    ) -> None:
        self._arrays, self._streams = arrays, streams
        self._pairs, self._configurations = pairs, configurations
        self._nodes = nodes
        self._bytes, self._backing = array_bytes, backing
        self._loads, self._trial_s, self._repeats = loads, trial_ms / 1e3, repeats
        self._seed = seed
        self._laid: dict[int, int] = {}  # by node: in which round
        self._laying_s = 0.0
        self._begun_s = time.monotonic()
        self._problems: dict[str, None] = {}

    @property
    def problems(self) -> list[str]:
        """Why some trials are not used, each once."""
        return list(self._problems)

    def take(self, round_: int, configuration: int) -> Columns:
        """One row for each repeat; one that is not ``ok`` where there is none.

        None at all where the round leaves the configuration out.

        Raises
        ------
        WorkerError
            A worker died; its arrays are placed again when they are needed.
        """
        wanted = self._configurations[configuration]
        if not wanted.visited(round_):
            return {}
        pair = self._pairs[wanted.pair]
        why = self._place(pair, round_, chase=wanted.what == "latency")
        rows: list[dict[str, Any]] = []
        if not why:
            measure = self._latency if wanted.what == "latency" else self._bandwidth
            for _ in range(_MOST_TIMES):
                more, why = measure(pair, wanted)
                rows += [row | {"ok": not why} for row in more]
                if why or 2 * valid(pd.DataFrame(rows)).sum() >= len(more):
                    break
        if why:
            self._problems[f"in some trials: {why}"] = None
        labels = {
            "what": wanted.what,
            "cpu": pair.chase_cpu if wanted.what == "latency" else wanted.cpus[0],
            "streams": format_cpus(wanted.cpus) if wanted.cpus else "none",
            "memory_node": pair.memory_node,
            "core_node": pair.core_node,
            "kind": wanted.kind,
            "load": wanted.load,
            "rate_percent": wanted.rate_percent,
        }
        unknown = {"start_ns": time.monotonic_ns(), "bandwidth_gb_s": math.nan, "ok": False}
        rows = rows or [unknown | _UNKNOWN]
        full = [
            labels | {"repeat": place, "latency_ns": math.nan, "core_share": math.nan, "loads": 0,
                      "time_ns": math.nan} | row
            for place, row in enumerate(rows)
        ]  # fmt: skip
        return {name: [row[name] for row in full] for name in full[0]}

    # --- arrays -----------------------------------------------------------------------------------

    def _place(self, pair: Pair, round_: int, *, chase: bool) -> str:
        node, cpu = pair.memory_node, pair.place_cpu
        if node not in self._streams:
            why = self._streams.place(
                node, array_bytes=self._bytes, backing=self._backing, cpu=cpu, node=self._nodes[cpu]
            )
            if why:
                return why
        if not chase or (node in self._arrays and self._laid.get(node) == round_):
            return ""
        spent = time.monotonic() - self._begun_s
        if node in self._arrays and self._laying_s > _LAYING_SHARE * spent:
            return ""
        begin_s = time.monotonic()
        why = self._arrays.place(
            node, order="window", bytes_=self._bytes, backing=self._backing,
            seed=self._seed + round_, cpu=cpu, node=self._nodes[cpu],
        )  # fmt: skip
        self._laying_s += time.monotonic() - begin_s
        self._laid[node] = round_
        if why:
            self._arrays.release(node)
        return why

    # --- a trial ----------------------------------------------------------------------------------

    def _latency(self, pair: Pair, wanted: LoadConfiguration) -> tuple[list[dict[str, Any]], str]:
        if wanted.cpus:
            why = self._streams.begin(
                pair.memory_node, wanted.cpus, wanted.kind, delay=wanted.delay,
                segment_chunks=CACHE_CHUNKS if wanted.load == "cache" else 0, limit_s=LIMIT_S,
            )  # fmt: skip
            if why:
                return [], why
            time.sleep(_SETTLE_S)
        samples, why = self._arrays.run(
            pair.memory_node, pair.chase_cpu, warm_loads(self._loads), self._loads, self._repeats
        )
        slices = samples["sample"]
        windows = [(int(one["start_ns"]), int(one["start_ns"] + one["time_ns"])) for one in slices]
        moved = np.zeros(len(windows))
        share = np.full(len(windows), math.nan)
        if wanted.cpus:
            accounts, _, problem = self._streams.end(windows or [(0, 0)])
            why = why or problem
            moved, share = accounted(accounts[: len(windows)], windows)
        rows = [
            {
                "start_ns": int(one["start_ns"]),
                "time_ns": float(one["time_ns"]),
                "loads": int(loads),
                "latency_ns": round(float(one["cpu_time_ns"]) / int(loads), 2),
                "bandwidth_gb_s": moved[place] if wanted.load == "memory" else 0.0,
                "core_share": share[place],
            }
            for place, (one, loads) in enumerate(zip(slices, samples["loads"], strict=True))
        ]
        brackets = bracket_columns(slices)
        return [
            row | {name: values[place] for name, values in brackets.items()}
            for place, row in enumerate(rows)
        ], why

    def _bandwidth(self, pair: Pair, wanted: LoadConfiguration) -> tuple[list[dict[str, Any]], str]:
        rows: list[dict[str, Any]] = []
        for _ in range(max(1, self._repeats // 2)):
            row, why = self._once(pair, wanted)
            if why:
                return rows, why
            rows.append(row)
        return rows, ""

    def _once(self, pair: Pair, wanted: LoadConfiguration) -> tuple[dict[str, Any], str]:
        why = self._streams.begin(pair.memory_node, wanted.cpus, wanted.kind, limit_s=LIMIT_S)
        if why:
            return {}, why
        time.sleep(_SETTLE_S)
        window = [timed(_BANDWIDTH_TIMES * self._trial_s)]
        accounts, results, why = self._streams.end(window)
        if why:
            return {}, why
        moved, share = accounted(accounts, window)
        row = dict(_UNKNOWN)
        if len(wanted.cpus) == 1:  # whose core it was that had company is known of one only
            row |= {
                f"{name}_ns": float(results[f"{name}_ns"][0])
                for name in ("probe_before", "probe_after", "chain_before", "chain_after")
                if results[f"{name}_ns"][0] > 0
            }
            row["cpu_time_ns"] = float(accounts["cpu_time_ns"][0, 0])
        return row | {
            "start_ns": window[0][0],
            "time_ns": float(window[0][1] - window[0][0]),
            "bandwidth_gb_s": moved[0],
            "core_share": share[0],
        }, ""


# --- before the first round ----------------------------------------------------------------------


def calibrate_loads(arrays: Arrays, pair: Pair, trial_ms: float) -> int:
    """How many loads take about ``trial_ms``; the array of the pair's memory is placed.

    Raises
    ------
    MeasurementError
        They cannot be loaded from that core.
    """
    samples, why = arrays.run(pair.memory_node, pair.chase_cpu, 512, _PILOT_LOADS, 3)
    if why:
        raise MeasurementError(why)
    each_ns = float(np.median(samples["sample"]["cpu_time_ns"] / samples["loads"]))
    return max(_LEAST_LOADS, int(trial_ms * 1e6 / max(each_ns, 0.1)))
