"""pprof and Perfetto: what was written says what the table says."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perflib.instruments.perf.script import read
from perflib.instruments.profile.export import FORMATS
from perflib.instruments.profile.export.protobuf import varint
from perflib.instruments.profile.python_frames import frame_parts, python_frame
from perflib.model.errors import UserError
from tests.instruments.perf.perf_texts import RECORDED
from tests.instruments.profile.tables import sample, table
from tests.instruments.profile.wire import decode, packed

NAMES = sorted(path.stem for path in RECORDED.glob("*.txt"))
STRANGE = 'a"\x1b[2J\n<script>\u202e'


def two_events() -> pd.DataFrame:
    rows = [
        sample("main;f", time_ns=3_000_000, cpu=1, period=2_000_000),
        sample("main;f", time_ns=1_000_000, cpu=1, period=3_000_000),
        sample("main;py::Fit.run:/opt/fit/fit.py;g", tid=101, time_ns=2_000_000),
        sample("main;f", event="faults", period=7, time_ns=4_000_000, object="[kernel.kallsyms]"),
        sample("", event="faults", period=-1, time_ns=5_000_000, pid=-1, tid=9, cpu=-1),
    ]
    return table(rows)


def recorded(name: str) -> pd.DataFrame:
    return read(RECORDED / f"{name}.txt").samples


def sums(samples: pd.DataFrame) -> Counter[tuple[str, str]]:
    """Weight by event and stack."""
    found: Counter[tuple[str, str]] = Counter()
    columns = (samples[name] for name in ("event", "stack", "period"))
    for event, stack, period in zip(*columns, strict=True):
        found[event, stack] += 1 if period < 0 else int(period)
    return found


def written(name: str, samples: pd.DataFrame, folder: Path) -> bytes:
    path = folder / f"out.{name}"
    FORMATS[name].write(samples, "a profile", path)
    assert [one.name for one in folder.iterdir()] == [path.name]
    return path.read_bytes()


def test_negative_numbers_are_64_bit_complements() -> None:
    assert packed(varint(-1)) == [2**64 - 1]


def test_python_frames() -> None:
    assert python_frame("py::<module>:/a/b.py") == "<module> (b.py)"
    assert frame_parts("py::f:/a:b.py") == ("f", "/a:b.py")
    assert python_frame("py::f") == "f"
    assert python_frame("std::py::f") == "std::py::f"


# --- pprof ---------------------------------------------------------------------------------------


def pprof_sums(data: bytes) -> Counter[tuple[str, str]]:
    profile = decode(gzip.decompress(data))
    strings = [one.decode() for one in profile[6] if isinstance(one, bytes)]
    assert strings[0] == ""
    assert len(set(strings)) == len(strings)

    def string(at: int | bytes) -> str:
        assert isinstance(at, int)
        return strings[at]

    events = [string(decode(one)[1][0]) for one in profile[1]]
    functions = {one[1][0]: string(one[3][0]) for one in map(decode, profile[5])}
    mappings = {one[1][0] for one in map(decode, profile[3])}
    locations = {}
    for one in map(decode, profile[4]):
        assert set(one[2]) <= mappings
        (line,) = one[4]
        locations[one[1][0]] = functions[decode(line)[1][0]]
    found: Counter[tuple[str, str]] = Counter()
    for one in map(decode, profile[2]):
        stack = ";".join(locations[at] for at in reversed(packed(one[1][0])))
        values = packed(one[2][0])
        assert len(values) == len(events)
        for event, value in zip(events, values, strict=True):
            if value:
                found["" if event == "samples" else event, stack] += value
    return found


@pytest.mark.parametrize("name", NAMES)
def test_pprof_has_every_event_and_stack(name: str, tmp_path: Path) -> None:
    samples = recorded(name)
    assert pprof_sums(written("pprof", samples, tmp_path)) == sums(samples)


def test_pprof_of_two_events_with_labels_objects_and_sources(tmp_path: Path) -> None:
    data = written("pprof", two_events(), tmp_path)
    assert pprof_sums(data) == sums(two_events())
    profile = decode(gzip.decompress(data))
    strings = [one.decode() for one in profile[6] if isinstance(one, bytes)]
    files = [strings[one[4][0]] for one in map(decode, profile[5]) if one[4]]
    assert files == ["/opt/fit/fit.py"]
    objects = [strings[decode(one)[5][0]] for one in profile[3]]
    assert objects == ["/usr/bin/job", "[kernel.kallsyms]"]
    assert [decode(one)[7] for one in profile[3]] == [[1], [1]]  # has_functions: names are there
    units = [strings[decode(one)[2][0]] for one in profile[1]]
    assert units == ["nanoseconds", "count"]
    assert strings[profile[14][0]] == "cpu-clock"
    assert profile[10] == [4_000_000]
    labels = [{strings[decode(x)[1][0]] for x in decode(one)[3]} for one in profile[2]]
    assert {"comm", "tid"} in labels  # neither process nor CPU of the last sample is known
    assert {"comm", "pid", "tid", "cpu"} in labels


@pytest.mark.slow  # Go compiles its tool first
@pytest.mark.parametrize("name", NAMES)
def test_go_reads_pprof(name: str, tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("no go on PATH: apt-get install golang-go")
    samples = recorded(name)
    path = tmp_path / "out.pb.gz"
    FORMATS["pprof"].write(samples, "a profile", path)
    environment = os.environ | {"PPROF_TMPDIR": str(tmp_path), "GOTOOLCHAIN": "local"}
    done = subprocess.run(
        ["go", "tool", "pprof", "-raw", path],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "no such tool" in done.stderr:
        pytest.skip("this go has no pprof: apt-get install golang-go")
    assert done.returncode == 0, done.stderr
    text = done.stdout
    first = sums(samples[(samples["event"] == samples["event"].iloc[0]).to_numpy()])
    totals = [int(row.split()[0]) for row in re.findall(r"^ +([0-9 ]+):", text, re.MULTILINE)]
    assert sum(totals[: text.split("Locations")[0].count("tid:")]) == sum(first.values())


# --- Perfetto ------------------------------------------------------------------------------------


def perfetto_sums(data: bytes) -> Counter[tuple[str, str]]:
    """Weights from the counters, which rise on each CPU of each event."""
    events: dict[Any, str] = {}
    stacks: dict[Any, dict[Any, str]] = {}
    counts: dict[Any, int] = {}
    found: Counter[tuple[str, str]] = Counter()
    for packet in map(decode, decode(data)[1]):
        sequence = tuple(packet[10])
        if packet[12]:
            assert packet[13] == [1]
            timebase = decode(decode(decode(packet[59][0])[12][0])[1][0])
            name = decode(timebase[3][0])[1][0]
            assert isinstance(name, bytes)
            events[sequence] = name.decode()
            data_ = decode(packet[12][0])
            functions = {one[1][0]: one[2][0] for one in map(decode, data_[5])}
            mappings = {one[1][0] for one in map(decode, data_[19])}
            frames = {}
            for one in map(decode, data_[6]):
                assert set(one[3]) <= mappings
                called = functions[one[2][0]]
                assert isinstance(called, bytes)
                frames[one[1][0]] = called.decode()
            stacks[sequence] = {
                one[1][0]: ";".join(frames[at] for at in one[2]) for one in map(decode, data_[7])
            }
        elif packet[66]:
            assert packet[13] == [2]
            one = decode(packet[66][0])
            key = (sequence, one[1][0])
            (count,) = one[6]
            assert isinstance(count, int)
            stack = stacks[sequence][one[4][0]] if one[4] else ""
            event = events[sequence]
            found["" if event == "samples" else event, stack] += count - counts.get(key, 0)
            counts[key] = count
    return found


@pytest.mark.parametrize("name", NAMES)
def test_perfetto_has_every_event_and_stack(name: str, tmp_path: Path) -> None:
    samples = recorded(name)
    assert perfetto_sums(written("perfetto", samples, tmp_path)) == sums(samples)


def test_perfettos_own_messages_read_it(tmp_path: Path) -> None:
    messages = pytest.importorskip(
        "perfetto.protos.perfetto.trace.perfetto_trace_pb2",
        reason="Perfetto's messages are missing: pip install perfetto",
    )
    trace = messages.Trace()
    trace.ParseFromString(written("perfetto", two_events(), tmp_path))
    samples = [one.perf_sample for one in trace.packet if one.HasField("perf_sample")]
    assert [one.tid for one in samples] == [100, 101, 100, 100, 9]
    assert [one.timebase_count for one in samples] == [3_000_000, 1_000_000, 5_000_000, 7, 8]
    assert [one.HasField("callstack_iid") for one in samples] == [True] * 4 + [False]


# --- all of them ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_takes_strange_names_and_several_events(name: str, tmp_path: Path) -> None:
    samples = table([sample(f"main;{STRANGE}", comm=STRANGE), sample("f", event=STRANGE)])
    path = tmp_path / "out"
    FORMATS[name].write(samples, STRANGE, path)
    data = path.read_bytes()
    assert data
    if name in {"pprof", "perfetto", "folded"}:
        plain = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        assert b"\x1b[2J" not in plain
    assert FORMATS[name].help.endswith(".")


@pytest.mark.parametrize("name", FORMATS)
def test_no_format_leaves_a_part(name: str, tmp_path: Path) -> None:
    samples = table([sample("main;f")])
    with pytest.raises(UserError, match="cannot be written"):
        FORMATS[name].write(samples, "x", tmp_path)
    old = tmp_path / "old"
    old.write_text("old")
    with pytest.raises((AttributeError, TypeError, UserError)):
        FORMATS[name].write(None, "x", old)  # type: ignore[arg-type]
    assert old.read_text() == "old"
    assert list(tmp_path.iterdir()) == [old]
