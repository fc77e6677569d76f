"""Speedscope's files: https://www.speedscope.app/file-format-schema.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from perflib.instruments.profile.export.samples import (
    by_event,
    of_one_event,
    thread_name,
    unit,
    weights,
)


def speedscope(samples: pd.DataFrame, name: str, event: str | None = None) -> dict[str, Any]:
    """A file for speedscope (https://www.speedscope.app), as its JSON schema wants it.

    One profile a thread and event, the one with most samples of an event first, its samples in
    their order. A sample weighs its period, in nanoseconds where the event is a clock, or one where
    there is none.

    Parameters
    ----------
    samples
        The table that ``perf.script.read`` makes, or a part of it.
    name
        What speedscope shows above the profile.
    event
        Default: all, the first sample's first.

    Raises
    ------
    UserError
        There is no such event.

    Examples
    --------
    >>> speedscope(profile.samples, "kv")["profiles"][0]["unit"]  # doctest: +SKIP
    'nanoseconds'
    """
    chosen = samples if event is None else of_one_event(samples, event)
    frames: dict[str, int] = {}
    stacks = [
        [frames.setdefault(frame, len(frames)) for frame in stack.split(";")] if stack else []
        for stack in chosen["stack"].cat.categories
    ]
    events = by_event(chosen)
    profiles = []
    for called, part in events.items():
        title = f"{called}: " if len(events) > 1 else ""
        profiles += _profiles(part, stacks, title)
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": "perflib",
        "name": name,
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": frame} for frame in frames]},
        "profiles": profiles,
    }


def _profiles(samples: pd.DataFrame, stacks: list[list[int]], title: str) -> list[dict[str, Any]]:
    """One event's, a thread each."""
    in_ns = unit(samples) == "nanoseconds"
    codes, weight = samples["stack"].cat.codes.to_numpy(), weights(samples)
    threads: dict[Any, Any] = samples.groupby(["pid", "tid"]).indices
    profiles = []
    for (pid, tid), rows in threads.items():
        own = weight[rows].tolist()
        profiles.append(
            {
                "type": "sampled",
                "name": title + thread_name(samples["comm"].iloc[rows].mode()[0], pid, tid),
                "unit": "nanoseconds" if in_ns else "none",
                "startValue": 0,
                "endValue": sum(own),
                "samples": [stacks[code] for code in codes[rows].tolist()],
                "weights": own,
            }
        )
    return sorted(profiles, key=lambda profile: -len(profile["samples"]))


def write(samples: pd.DataFrame, name: str, path: Path) -> None:
    """Write what `speedscope` makes."""
    path.write_text(json.dumps(speedscope(samples, name), allow_nan=False), encoding="utf-8")
