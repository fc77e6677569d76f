"""Profiles in pprof's format: gzipped protocol buffers.

The fields are those of https://github.com/google/pprof/blob/main/proto/profile.proto.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from perflib.instruments.profile.export.protobuf import message, number, numbers, text
from perflib.instruments.profile.export.samples import by_event, unit, weights
from perflib.instruments.profile.python_frames import frame_parts
from perflib.instruments.profile.views import object_of
from perflib.model.escape import visible

_LABELS = ("comm", "pid", "tid", "cpu")  # what 'go tool pprof -tags' shows, and -tagfocus takes
_UNKNOWN = "[unknown]"


class _Strings:
    """The table of strings: the first is empty."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}

    def __getitem__(self, text_: str) -> int:
        return self._numbers.setdefault(visible(text_), len(self._numbers))

    def fields(self) -> Iterator[bytes]:
        return (text(6, one) for one in self._numbers)


def write(samples: pd.DataFrame, name: str, path: Path) -> None:
    """Write a profile with one type of value for each event.

    A value is a sum of periods (``nanoseconds`` of a clock), or of samples where there are none.
    Command, process, thread and CPU are labels. The objects of functions become mappings: those
    that samples were in, as a stack names none.
    """
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
        for piece in _fields(samples, name):
            file.write(piece)


def _fields(samples: pd.DataFrame, name: str) -> Iterator[bytes]:
    strings = _Strings()
    events = by_event(samples)
    for event, part in events.items():
        yield message(1, _value_type(strings, event, unit(part)))
    frames: dict[str, int] = {}
    stacks = [
        [frames.setdefault(frame, len(frames) + 1) for frame in reversed(stack.split(";"))]
        if stack
        else []
        for stack in samples["stack"].cat.categories
    ]
    yield from _samples(samples, list(events), stacks, strings)
    yield from _functions(samples, frames, strings)
    times = samples["time_ns"]
    yield number(10, int(times.max() - times.min()) if len(times) else 0)
    if len(events) == 1:
        ((event, part),) = events.items()
        periods = np.unique(weights(part))
        if len(periods) == 1:
            yield message(11, _value_type(strings, event, unit(part))) + number(12, int(periods[0]))
    yield number(13, strings[name])
    if events:
        yield number(14, strings[next(iter(events)) or "samples"])  # else the last is shown first
    yield from strings.fields()


def _value_type(strings: _Strings, event: str, unit_: str) -> bytes:
    return number(1, strings[event or "samples"]) + number(2, strings[unit_])


def _samples(
    samples: pd.DataFrame, events: list[str], stacks: list[list[int]], strings: _Strings
) -> Iterator[bytes]:
    """One message a stack, thread and CPU, with the sum of each event."""
    table = pd.DataFrame(
        {
            "stack": samples["stack"].cat.codes.to_numpy(),
            "comm": samples["comm"].cat.codes.to_numpy(),
            **{column: samples[column].to_numpy() for column in ("pid", "tid", "cpu")},
            "event": pd.Index(events).get_indexer(pd.Index(samples["event"].astype(str))),
            "weight": weights(samples),
        }
    )
    keys = ["stack", *_LABELS]
    sums = table.groupby([*keys, "event"])["weight"].sum().unstack("event", fill_value=0)
    sums = sums.reindex(columns=range(len(events)), fill_value=0)
    comms = [strings[str(comm)] for comm in samples["comm"].cat.categories]
    names = [strings[label] for label in _LABELS]
    for (stack, comm, *known), values in zip(sums.index, sums.to_numpy().tolist(), strict=True):
        labels = [message(3, number(1, names[0]) + number(2, comms[comm]))]
        labels += [
            message(3, number(1, label) + number(3, value))
            for label, value in zip(names[1:], known, strict=True)
            if value >= 0
        ]
        yield message(2, numbers(1, stacks[stack]) + numbers(2, values) + b"".join(labels))


def _functions(samples: pd.DataFrame, frames: Iterable[str], strings: _Strings) -> Iterator[bytes]:
    """A function and a location for each frame, and the mappings, the one of most samples first."""
    objects = object_of(samples)
    heaviest = samples["object"].value_counts()
    mappings = {str(one): at for at, one in enumerate(heaviest.index[heaviest > 0], start=1)}
    mappings.pop(_UNKNOWN, None)
    for file, at in mappings.items():
        # has_functions: what has no name here has none in the file, which no reader need open.
        yield message(3, number(1, at) + number(5, strings[file]) + number(7, 1))
    for at, frame in enumerate(frames, start=1):
        called, file = frame_parts(frame)
        mapping = mappings.get(objects.get(frame, ""), 0)
        line = message(4, number(1, at))
        yield message(4, number(1, at) + (number(2, mapping) if mapping else b"") + line)
        named = number(2, strings[called]) + number(3, strings[frame])
        yield message(5, number(1, at) + named + (number(4, strings[file]) if file else b""))
