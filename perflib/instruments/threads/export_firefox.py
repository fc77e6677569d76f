"""A recording of threads for https://profiler.firefox.com: markers, and samples with stacks."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perflib.instruments.profile.export.firefox_tables import Tables, meta
from perflib.instruments.threads.export_pieces import names, pieces
from perflib.instruments.threads.formats import State
from perflib.instruments.threads.recording import Recording
from perflib.model.escape import visible

__all__ = ["write"]

_INTERVAL = "1"  # a marker's phase: it has a begin and an end
_DECIMALS = 6  # of a millisecond: nanoseconds
_MARKER = {
    "name": "threadState",
    "tooltipLabel": "{marker.name}",
    "tableLabel": "{marker.name}, by {marker.data.by}",
    "chartLabel": "{marker.name}",
    "display": ["marker-chart", "marker-table"],
    "fields": [{"key": "by", "label": "Woken by, or held by", "format": "unique-string"}],
}


def write(recording: Recording, path: Path) -> None:
    """Write a profile, gzipped, column by column.

    What a thread does while it does not run are markers: one that runs has its samples, with the
    CPU time that they stand for.
    """
    tables = Tables()
    stacks = [tables.stack(stack) for stack in recording.stacks]
    called = [tables.string(name) for name in names(recording)]
    threads = [tables.string(str(name)) for name in recording.threads["name"]]
    libs, shared = tables.finish()
    period_ms = float(recording.meta["sample_period_ns"]) / 1e6
    head = {
        "meta": meta(
            "threads",
            interval_ms=period_ms if period_ms > 0 else 1.0,
            start_ns=recording.start_ns,
            end_ns=recording.end_ns,
            markers=[_MARKER],
        ),
        "libs": libs,
        "shared": shared,
    }
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 1, raw, mtime=0) as file:
        for text in _whole(recording, head, stacks, called, threads):
            file.write(text.encode())


def _whole(
    recording: Recording,
    head: dict[str, Any],
    stacks: list[int | None],
    called: list[int],
    threads: list[int],
) -> Iterator[str]:
    yield json.dumps(head, allow_nan=False)[:-1] + ',"threads":['
    chosen = np.asarray(recording.samples["thread"])
    recording.check(rows=chosen, stacks=recording.samples["stack"])
    for row in range(len(recording.threads)):
        yield ("," if row else "") + json.dumps(_thread(recording, row))[:-1]
        yield ',"samples":' + json.dumps(
            _samples(recording, np.flatnonzero(chosen == row), stacks), allow_nan=False
        )
        yield from _markers(recording, row, stacks, called, threads)
        yield "}"
    yield "]}"


def _thread(recording: Recording, row: int) -> dict[str, Any]:
    one = recording.threads.iloc[row]
    return {
        "name": visible(str(one["name"])),
        "processName": visible(_first_of(recording, int(one["pid"]))),
        "pid": str(one["pid"]),
        "tid": int(one["tid"]),
        "isMainThread": bool(one["tid"] == one["pid"]),
        "processType": "default",
        "processStartupTime": 0,
        "processShutdownTime": None,
        "registerTime": (int(one["start_ns"]) - recording.start_ns) / 1e6,
        "unregisterTime": (int(one["end_ns"]) - recording.start_ns) / 1e6,
        "pausedRanges": [],
        "showMarkersInTimeline": True,
    }


def _first_of(recording: Recording, pid: int) -> str:
    """A process is named as its first thread."""
    threads = recording.threads
    return str(threads["name"][threads["pid"] == pid].iloc[0])


def _samples(
    recording: Recording, which: npt.NDArray[np.intp], stacks: list[int | None]
) -> dict[str, Any]:
    found = recording.samples[which]
    return {
        "time": _ms(found["time_ns"] - recording.start_ns),
        "stack": [stacks[at] if at >= 0 else None for at in found["stack"].tolist()],
        "weight": _ms(found["weight_ns"]),
        "weightType": "tracing-ms",
        "threadCPUDelta": found["weight_ns"].tolist(),
        "length": len(found),
    }


def _ms(time_ns: npt.NDArray[np.integer]) -> list[float]:
    times: list[float] = np.round(np.asarray(time_ns) / 1e6, _DECIMALS).tolist()
    return times


def _markers(
    recording: Recording,
    row: int,
    stacks: list[int | None],
    called: list[int],
    threads: list[int],
) -> Iterator[str]:
    """The table of a thread's markers: the intervals are gone through once for each column."""
    n_locks = len(recording.locks) + 1

    def data(piece: npt.NDArray[np.void]) -> Iterable[str]:
        made: dict[tuple[int, int], str] = {}
        for key in zip(piece["other"].tolist(), piece["stack"].tolist(), strict=True):
            if key not in made:
                made[key] = json.dumps(_data(*key, stacks, threads))
            yield made[key]

    def name(piece: npt.NDArray[np.void]) -> Iterable[str]:
        numbers = piece["state"].astype(np.int64) * n_locks + piece["lock"] + 1
        return (str(called[number]) for number in numbers.tolist())

    def time(field: str) -> Callable[[npt.NDArray[np.void]], Iterable[str]]:
        return lambda piece: map(repr, _ms(piece[field] - recording.start_ns))

    columns: dict[str, Callable[[npt.NDArray[np.void]], Iterable[str]]] = {
        "data": data,
        "name": name,
        "startTime": time("start_ns"),
        "endTime": time("end_ns"),
        "phase": lambda piece: [_INTERVAL] * len(piece),
        "category": lambda piece: ["0"] * len(piece),
    }
    length = 0
    yield ',"markers":{'
    for column, texts in columns.items():
        yield f'"{column}":['
        length = 0
        for piece in pieces(recording, row):
            off = piece[piece["state"] != State.RUNNING]
            if len(off):
                yield ("," if length else "") + ",".join(texts(off))
                length += len(off)
        yield "],"
    yield f'"length":{length}}}'


def _data(other: int, stack: int, stacks: list[int | None], threads: list[int]) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "threadState"}
    if other >= 0:
        made["by"] = threads[other]
    if stack >= 0 and stacks[stack] is not None:
        made["cause"] = {"stack": stacks[stack]}
    return made
