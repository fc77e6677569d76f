"""Profiles for https://profiler.firefox.com, in its processed format."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd

from perflib.instruments.profile.export.firefox_tables import Tables, meta
from perflib.instruments.profile.export.samples import by_event, unit, weights
from perflib.instruments.profile.views import object_of
from perflib.model.escape import visible

__all__ = ["write"]


def write(samples: pd.DataFrame, name: str, path: Path) -> None:
    """Write a profile, gzipped where the file's name ends so; a thread and an event is a track.

    A sample of a clock weighs its period in ms; of other events it weighs one, as the Profiler
    knows no other unit for them.
    """
    made = _profile(samples, name)
    written = json.dumps(made, allow_nan=False, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(written, 6, mtime=0))


def _profile(samples: pd.DataFrame, name: str) -> dict[str, Any]:
    tables = Tables(object_of(samples))
    stacks = [tables.stack(stack) for stack in samples["stack"].cat.categories]
    times = samples["time_ns"]
    start_ns, end_ns = (int(times.min()), int(times.max())) if len(times) else (0, 0)
    events = by_event(samples)
    threads = [
        thread
        for event, part in events.items()
        for thread in _threads(part, stacks, start_ns, event if len(events) > 1 else "")
    ]
    libs, shared = tables.finish()
    interval_ms = _interval_ms(samples)
    return {
        "meta": meta(name, interval_ms=interval_ms, start_ns=start_ns, end_ns=end_ns),
        "libs": libs,
        "shared": shared,
        "threads": threads,
    }


def _interval_ms(samples: pd.DataFrame) -> float:
    """The usual time between two samples of a thread."""
    gaps = samples.sort_values("time_ns").groupby(["event", "pid", "tid"], observed=True)["time_ns"]
    found = gaps.diff().median()
    return float(found) / 1e6 if found > 0 else 1.0


def _threads(
    samples: pd.DataFrame, stacks: list[int | None], start_ns: int, event: str
) -> list[dict[str, Any]]:
    ordered = samples.sort_values("time_ns", kind="stable")
    codes, times_ns = ordered["stack"].cat.codes.to_numpy(), ordered["time_ns"].to_numpy()
    on_cpu_ns = weights(ordered) if unit(ordered) == "nanoseconds" else None
    threads: list[dict[str, Any]] = []
    by_thread: dict[Any, Any] = ordered.groupby(["pid", "tid"]).indices
    for (pid, tid), rows in by_thread.items():
        comm = visible(str(ordered["comm"].iloc[rows].mode()[0]))
        relative_ms = (times_ns[rows] - start_ns) / 1e6
        taken: dict[str, Any] = {
            "time": relative_ms.tolist(),
            "stack": [stacks[code] for code in codes[rows].tolist()],
            "weight": None,
            "weightType": "samples",
            "length": len(rows),
        }
        if on_cpu_ns is not None:
            own_ns = on_cpu_ns[rows]
            taken |= {
                "weight": (own_ns / 1e6).tolist(),
                "weightType": "tracing-ms",
                "threadCPUDelta": own_ns.tolist(),  # what the track's height is
            }
        threads.append(
            {
                "name": f"{comm} ({event})" if event else comm,
                "processName": comm,
                "pid": str(tid if pid < 0 else pid),
                "tid": f"{tid} {event}" if event else int(tid),
                "isMainThread": bool(pid in {tid, -1}),
                "processType": "default",
                "processStartupTime": 0,
                "processShutdownTime": None,
                "registerTime": float(relative_ms[0]),
                "unregisterTime": None,
                "pausedRanges": [],
                "samples": taken,
                "markers": {
                    **{
                        column: []
                        for column in ("data", "name", "startTime", "endTime", "phase", "category")
                    },
                    "length": 0,
                },
            }
        )
    return sorted(threads, key=lambda thread: -int(thread["samples"]["length"]))
