"""A recording as a page of bounded size can hold it: columns of numbers, deflated.

What does not fit is made coarser, never cut off in time: the bins become wider, CPU samples are
summed over longer slots, of the intervals the shortest are left out. The head says which.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perflib.instruments.threads.formats import Flag, Selection, State
from perflib.instruments.threads.intervals import RETRY_NS
from perflib.instruments.threads.recording import Recording
from perflib.lab.threads import page, transitions

MOST_BYTES = 7_000_000
"""Of all parts, deflated: the page has them as base64, which is a third more."""

_MAX_THREADS = 1024
_MAX_CELLS = 1_400_000  # threads * bins, 6 bytes each before they are deflated
_MAX_BINS = 16_384
_BINS_BYTES, _SAMPLES_BYTES, _PATH_BYTES = 2_500_000, 800_000, 500_000
_MAX_SAMPLES = 150_000
_MOST_STACKS, _MAX_FRAMES = 5000, 100
_TRIED = 200_000  # intervals, of which the size of all is estimated

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Part:
    """Numbers of one kind: ``planes`` has how many bytes each column's numbers have."""

    planes: dict[str, int]
    count: int
    data: bytes


def packed(recording: Recording, most_bytes: int = MOST_BYTES) -> dict[str, str]:
    """The parts of a page, by name: base64 of deflated bytes.

    Returns
    -------
    dict
        ``head`` is JSON. ``bins`` has uint8[threads, bins, 6], the shares (of 255) of the states
        in the order ``page.DRAWN``, ``used`` uint8[bins, 5] as of ``page.used``. The others have
        columns of unsigned numbers: of each column first every number's lowest byte, then every
        number's next one, and so on.
    """
    rows = _rows(recording)
    new_row = np.full(len(recording.threads) + 1, -1, dtype=np.int64)  # the last: of -1
    new_row[rows] = np.arange(len(rows))
    n_bins, bins = _bins(recording, rows)
    used = zlib.compress(page.used(recording, n_bins, _whole(recording)).tobytes())
    path, path_words = _path(recording, new_row)
    samples, slot_ns = _samples(recording, new_row)
    left = most_bytes - sum(len(part) for part in (bins, used, path.data, samples.data))
    texts, new_stack, texts_bytes = _stacks(recording)
    intervals, counts, least_ns = _intervals(
        recording, rows, new_row, new_stack, left - texts_bytes - 40_000
    )
    table = recording.threads.iloc[rows]
    head = texts | {
        "duration": recording.end_ns - recording.start_ns,
        "cpus": int(recording.meta["cpus"]),
        "names": [page.shown(name) for name in table["name"]],
        "tids": table["tid"].tolist(),
        "starts": (table["start_ns"] - recording.start_ns).tolist(),
        "locks": [page.shown(lock.name) for lock in recording.locks],
        "counts": counts,
        "bins": n_bins,
        "slot_ns": slot_ns,
        "least_ns": least_ns,
        "stamped": recording.meta["backend"] == "preload",
        "retry_ns": 0 if recording.meta["backend"] == "preload" else RETRY_NS,
        "path_words": path_words,
        **page.legend(recording),
        "drawn": [int(state) for state in page.DRAWN],
        "flags": {flag.name: int(flag) for flag in Flag},
        "planes": {
            name: {"count": part.count, "columns": part.planes}
            for name, part in (("intervals", intervals), ("samples", samples), ("path", path))
        },
    }
    parts = {
        "head": zlib.compress(json.dumps(head).encode(), 9),
        "bins": bins,
        "used": used,
        "path": path.data,
        "samples": samples.data,
        "intervals": intervals.data,
    }
    return {name: base64.b64encode(data).decode() for name, data in parts.items()}


def _whole(recording: Recording) -> Selection:
    return Selection(*recording.span(page.window(recording, Selection())))


def _part(columns: Mapping[str, _Ints], level: int = 6) -> _Part:
    """The columns byte by byte: those that are the same in neighbours take next to no room."""
    planes, pieces, count = {}, [], 0
    for name, numbers in columns.items():
        count = len(numbers)
        wide = max(1, -(-int(numbers.max(initial=0)).bit_length() // 8))
        every = np.ascontiguousarray(numbers, dtype="<u8").view(np.uint8).reshape(-1, 8)
        pieces.append(np.ascontiguousarray(every[:, :wide].T).tobytes())
        planes[name] = wide
    return _Part(planes, count, zlib.compress(b"".join(pieces), level))


def _rows(recording: Recording) -> _Ints:
    """The threads that fit: those that ran or waited longest, in the recording's order."""
    busiest = page.ordered(recording, "CPU time")[: _MAX_THREADS // 2]
    waiting = page.ordered(recording, "waiting")
    kept = dict.fromkeys([*busiest, *waiting])
    return np.sort(np.array(list(kept)[:_MAX_THREADS], dtype=np.int64))


def _bins(recording: Recording, rows: _Ints) -> tuple[int, bytes]:
    span_ns = max(1, recording.end_ns - recording.start_ns)
    bins = min(_MAX_BINS, span_ns, _MAX_CELLS // max(1, len(rows)))
    while True:
        window = page.window(recording, Selection(rows=rows))
        stacked = page.levels(recording, bins, window)
        data = zlib.compress(np.diff(stacked, axis=2, prepend=np.uint8(0)).tobytes())
        if len(data) <= _BINS_BYTES or bins < 1000:
            return bins, data
        bins //= 2


def _stacks(recording: Recording) -> tuple[dict[str, Any], _Ints, int]:
    """Texts of stacks as numbers of frames, the new number of each old one, and their size."""
    stacks = [text.split(";")[::-1][:_MAX_FRAMES] for text in recording.stacks[:_MOST_STACKS]]
    frames: dict[str, int] = {}
    numbers = [
        [frames.setdefault(page.shown(one), len(frames)) for one in s if one] for s in stacks
    ]
    new = np.full(len(recording.stacks) + 1, -1, dtype=np.int64)
    new[: len(stacks)] = np.arange(len(stacks))
    texts = {"frames": list(frames), "stacks": numbers}
    return texts, new, len(zlib.compress(json.dumps(texts).encode(), 9))


def _path(recording: Recording, new_row: _Ints) -> tuple[_Part, str]:
    """The critical path of the whole recording: its parts follow each other without a gap."""
    parts = transitions.joined(recording, Selection())
    first = int(parts["start_ns"].iloc[0]) if len(parts) else recording.start_ns
    part = _part(
        {
            "gap": np.array([max(0, first - recording.start_ns)] + [0] * (len(parts) - 1))[
                : len(parts)
            ],
            "length": (parts["end_ns"] - parts["start_ns"]).to_numpy(dtype=np.int64),
            "row": new_row[parts["thread"].to_numpy(dtype=np.int64)] + 1,
        }
    )
    if len(part.data) > _PATH_BYTES:
        words = f"The critical path has {len(parts):,} parts, too many for this page."
        return _part({"gap": _none(), "length": _none(), "row": _none()}), words
    return part, ""


def _none() -> _Ints:
    return np.empty(0, dtype=np.int64)


def _samples(recording: Recording, new_row: _Ints) -> tuple[_Part, int]:
    """CPU time by thread and stack, in slots of time as long as it takes (ns; 0: each sample)."""
    rows = new_row[recording.samples["thread"]]
    known = rows >= 0
    times = (recording.samples["time_ns"] - recording.start_ns)[known]
    stacks = recording.samples["stack"].astype(np.int64)[known]
    stacks = np.where(stacks < min(_MOST_STACKS, len(recording.stacks)), stacks, -1)
    recording.check(stacks=stacks)
    columns = {
        "time": np.clip(times, 0, None),
        "row": rows[known],
        "stack": stacks + 1,
        "weight": np.clip(recording.samples["weight_ns"][known], 0, None).astype(np.int64),
    }
    span_ns = max(1, recording.end_ns - recording.start_ns)
    slots, slot_ns, kept = 1 << 15, 0, columns
    while True:
        if len(kept["time"]) <= _MAX_SAMPLES:
            part = _part(kept | {"time": np.diff(kept["time"], prepend=0)})
            if len(part.data) <= _SAMPLES_BYTES or slots == 1:
                return part, slot_ns
        slots = max(1, slots // 2)
        slot_ns = -(-span_ns // slots)
        kept = _summed(columns, slot_ns)
        if slots == 1 and len(kept["time"]) > _MAX_SAMPLES:
            order = np.sort(np.argsort(-kept["weight"], kind="stable")[:_MAX_SAMPLES])
            kept = {name: numbers[order] for name, numbers in kept.items()}


def _summed(columns: dict[str, _Ints], slot_ns: int) -> dict[str, _Ints]:
    slot = columns["time"] // slot_ns
    stacks = int(columns["stack"].max(initial=0)) + 1
    threads = int(columns["row"].max(initial=0)) + 1
    key = (slot * threads + columns["row"]) * stacks + columns["stack"]
    groups, which = np.unique(key, return_inverse=True)
    weight = np.bincount(which, weights=columns["weight"], minlength=len(groups))
    return {
        "time": groups // (stacks * threads) * slot_ns + slot_ns // 2,
        "row": groups // stacks % threads,
        "stack": groups % stacks,
        "weight": np.rint(weight).astype(np.int64),
    }


def _intervals(
    recording: Recording, rows: _Ints, new_row: _Ints, new_stack: _Ints, most_bytes: int
) -> tuple[_Part, list[int], int]:
    """All intervals, or the longest that fit; how many of each thread, and the least length."""
    sizes = np.diff(recording.first)
    whose = np.repeat(np.arange(len(sizes)), sizes)
    mine = np.isin(whose, rows)
    every = recording.intervals[mine]
    whose = new_row[whose[mine]]
    recording.check(others=every["other"], stacks=every["stack"])
    length = every["end_ns"] - every["start_ns"]
    keep = length > 0
    least_ns, wanted = 0, int(keep.sum())
    tried = _encoded(recording, every[:_TRIED], whose[:_TRIED], new_row, new_stack)
    if tried.count:
        wanted = min(wanted, int(max(0, most_bytes) * tried.count / len(tried.data)))
    while True:
        if wanted < int((length > 0).sum()):
            least_ns = int(np.partition(length, -wanted)[-wanted]) + 1 if wanted else 1 << 62
            keep = length >= least_ns
        part = _encoded(recording, every[keep], whose[keep], new_row, new_stack)
        if len(part.data) <= max(most_bytes, 200):
            return part, np.bincount(whose[keep], minlength=len(rows)).tolist(), least_ns
        wanted = int(wanted * min(0.95, 0.97 * most_bytes / len(part.data)))


def _encoded(
    recording: Recording,
    intervals: npt.NDArray[np.void],
    whose: _Ints,
    new_row: _Ints,
    new_stack: _Ints,
) -> _Part:
    start, end = intervals["start_ns"], intervals["end_ns"]
    before = np.empty_like(start)
    before[1:] = end[:-1]
    begins = np.flatnonzero(np.diff(whose, prepend=-1))
    before[begins] = recording.start_ns
    return _part(
        {
            "gap": np.maximum(start - before, 0),
            "length": end - start,
            "state": np.minimum(intervals["state"], int(State.UNKNOWN)).astype(np.int64),
            "lock": np.clip(intervals["lock"], -1, len(recording.locks) - 1).astype(np.int64) + 1,
            "other": new_row[intervals["other"]] + 1,
            "stack": new_stack[intervals["stack"]] + 1,
            "cpu": np.maximum(intervals["cpu"].astype(np.int64), -1) + 1,
            "flags": intervals["flags"].astype(np.int64),
        }
    )
