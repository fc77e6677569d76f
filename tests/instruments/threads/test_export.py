"""Recordings of threads for Perfetto."""

from __future__ import annotations

import gzip
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perflib.instruments.threads import export
from perflib.instruments.threads.formats import STATES
from perflib.instruments.threads.recording import Recording
from perflib.model.errors import UserError
from tests.instruments.profile.wire import Message, decode
from tests.instruments.threads.made import LOCKS, STACKS, made_recording, recording_of

MS = 1_000_000
# start, end, state, flags, cpu, lock, other, stack
FIRST = [(0, 4 * MS, 0, 0, 1), (4 * MS, 9 * MS, 3, 0, -1), (9 * MS, 10 * MS, 0)]
SECOND = [
    (1 * MS, 2 * MS, 0),
    (2 * MS, 3 * MS, 2, 0, -1, 0, 0, 0),  # waits for output_module; the first thread wakes it
    (3 * MS, 5 * MS, 1, 0, -1, 0, 0, 0),
    (5 * MS, 10 * MS, 4, 0, 3),
]


@pytest.fixture
def small(tmp_path: Path) -> Recording:
    return recording_of(
        tmp_path / "recording",
        [FIRST, SECOND],
        names=["main\x1b[2J", "worker"],
        samples=[(1 * MS, 0, 4, MS), (6 * MS, 1, -1, 2 * MS)],
        meta={"sample_period_ns": MS},
    )


def written(recording: Recording, folder: Path) -> bytes:
    path = folder / "out.perfetto"
    export.write(recording, path)
    return gzip.decompress(path.read_bytes())


def packets(data: bytes) -> list[Message]:
    return [decode(one) for one in decode(data)[1]]


def text(value: int | bytes) -> str:
    assert isinstance(value, bytes)
    return value.decode()


class Trace:
    """What the packets say, with names for numbers."""

    def __init__(self, data: bytes) -> None:
        self.threads: dict[Any, str] = {}
        self.slices: dict[str, list[Any]] = defaultdict(list)
        self.arrows: dict[Any, list[Any]] = defaultdict(list)
        names: dict[Any, str] = {}
        values: dict[Any, str] = {}
        events = []
        for packet in packets(data):
            for one in map(decode, packet[60]):
                if one[4]:
                    self.threads[one[1][0]] = text(decode(one[4][0])[5][0])
            if packet[12] and packet[10] == [1]:
                data_ = decode(packet[12][0])
                names = {one[1][0]: text(one[2][0]) for one in map(decode, data_[2])}
                values = {one[1][0]: text(one[2][0]) for one in map(decode, data_[29])}
            if packet[11]:
                events.append((packet[8][0], decode(packet[11][0])))
        open_: dict[str, Any] = {}
        for time, event in sorted(events, key=lambda pair: pair[0]):  # stable, as Perfetto's is
            thread = self.threads[event[11][0]]
            if event[9] == [1]:
                assert thread not in open_, "a slice begins in another"
                arguments = {}
                for one in map(decode, event[4]):
                    arguments[one[1][0]] = one[3][0] if one[3] else values[one[17][0]]
                open_[thread] = (time, names[event[10][0]], arguments)
            elif event[9] == [2]:
                start, name, arguments = open_.pop(thread)
                self.slices[thread].append((start, time, name, arguments))
            else:
                arrow = (event[47] or event[48])[0]
                self.arrows[arrow].append((names[event[10][0]], time, thread))
        assert not open_


def test_perfetto_has_every_interval_and_who_woke_whom(small: Recording, tmp_path: Path) -> None:
    trace = Trace(written(small, tmp_path))
    main = "main\\x1b[2J"
    assert list(trace.threads.values()) == [main, "worker"]
    stack = STACKS[0]
    assert trace.slices["worker"] == [
        (1 * MS, 2 * MS, "running", {1: 0}),
        (2 * MS, 3 * MS, "waiting: output_module", {2: main, 3: stack}),
        (3 * MS, 5 * MS, "ready: output_module", {2: main, 3: stack}),
        (5 * MS, 10 * MS, "spinning", {1: 3}),
    ]
    assert [(one[2], one[3]) for one in trace.slices[main]] == [
        ("running", {1: 1}), ("sleeping", {}), ("running", {1: 0}),
    ]  # fmt: skip
    (arrow,) = trace.arrows.values()
    assert arrow == [("wakes", 3 * MS, main), ("woken", 3 * MS, "worker")]


def test_perfetto_has_the_samples(small: Recording, tmp_path: Path) -> None:
    samples = [
        (one[8], decode(one[66][0]))
        for one in packets(written(small, tmp_path)) if one[66]
    ]  # fmt: skip
    found = sorted((time[0], one[3][0], one[6][0], bool(one[4])) for time, one in samples)
    assert found == [(1 * MS, 100, MS, True), (6 * MS, 101, 3 * MS, False)]


def test_perfetto_of_many_intervals_in_small_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = made_recording(tmp_path / "recording", threads=5, seconds=1.0)
    monkeypatch.setattr(export, "_PIECE", 7)
    trace = Trace(written(recording, tmp_path))
    for row, thread in enumerate(recording.threads["name"]):
        own = recording.intervals[recording.first[row] : recording.first[row + 1]]
        expected = [
            (one["start_ns"], one["end_ns"],
             STATES[one["state"]] + (f": {LOCKS[one['lock']].name}" if one["lock"] >= 0 else ""))
            for one in own
        ]  # fmt: skip
        assert [one[:3] for one in trace.slices[thread]] == expected
    ended = recording.intervals[export._woken(np.asarray(recording.intervals))]
    assert len(trace.arrows) == len(ended) > 50
    assert all([one[0] for one in both] == ["wakes", "woken"] for both in trace.arrows.values())


def test_perfettos_own_messages_read_it(small: Recording, tmp_path: Path) -> None:
    messages = pytest.importorskip(
        "perfetto.protos.perfetto.trace.perfetto_trace_pb2",
        reason="Perfetto's messages are missing: pip install perfetto",
    )
    trace = messages.Trace()
    trace.ParseFromString(written(small, tmp_path))
    kinds = [one.track_event.type for one in trace.packet if one.HasField("track_event")]
    assert sorted(kinds) == [1] * 7 + [2] * 7 + [3] * 2
    flows = [list(one.track_event.flow_ids) for one in trace.packet if one.track_event.flow_ids]
    ends = [
        list(one.track_event.terminating_flow_ids)
        for one in trace.packet if one.track_event.terminating_flow_ids
    ]  # fmt: skip
    assert flows == ends
    assert len(flows) == 1


def test_a_recording_without_anything_is_written(tmp_path: Path) -> None:
    data = written(recording_of(tmp_path / "recording", [], stacks=()), tmp_path)
    assert Trace(data).threads == {}


def test_a_damaged_recording_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    recording_of(folder, [[(0, 5, 2, 0, -1, 0, 0, 0)]])
    intervals = np.load(folder / "intervals.npy")
    intervals["lock"] = 99
    np.save(folder / "intervals.npy", intervals)
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError, match="it names lock 99 of 4"):
        export.write(Recording.open(folder), tmp_path / "out" / "file")
    assert list((tmp_path / "out").iterdir()) == []
