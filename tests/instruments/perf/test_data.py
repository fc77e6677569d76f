"""perf's data files: what they hold, whatever became of them; with made files and a real one."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perflib.instruments.perf.data import Field, PerfData, Type, lost
from perflib.kernels import record
from perflib.model.errors import MeasurementError, PerflibError, UserError
from tests.instruments.perf import perf_files as made
from tests.instruments.perf.perf_files import FileEvent, perf_file
from tests.instruments.perf.test_recorder import needs_perf

SWITCH = FileEvent(ids=(11, 12), sample_type=made.USUAL | made.RAW, type=2, config=372)
CLOCK = FileEvent(ids=(21, 22), sample_type=made.USUAL | made.CALLCHAIN)


def everything(path: Path) -> tuple[PerfData, np.ndarray[Any, Any]]:
    with PerfData(path) as data:
        records = [np.empty(0, record("perf_data", "perf_data_record")), *data.records()]
    return data, np.concatenate(records)


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "made.data"
    path.write_bytes(content)
    return path


RECORDS = [
    made.id_index([(11, 0), (12, 1)]),
    made.comm(CLOCK, b"odd \xff name ==> next_comm=x\n", pid=5, tid=6),
    made.task(CLOCK, 7, pid=5, tid=7, ppid=5, ptid=6, time_ns=10),
    made.mmap2(CLOCK, b"/lib/libx.so", pid=5, address=0x7000, size=0x1000, offset=0x40),
    made.sample(SWITCH, 12, time_ns=100, tid=6, cpu=1, raw=struct.pack("<ibq", -7, 3, -1)),
    made.sample(CLOCK, 21, time_ns=90, tid=7, chain=[1, 2, 3], period=500),
    made.lost_record(CLOCK, 21, 4, time_ns=110, cpu=1),
    made.finished_round(),
    made.record(17, bytes(16)),
    made.task(CLOCK, 4, pid=5, tid=7, ppid=5, ptid=6, time_ns=120),
    made.lost_samples(CLOCK, 22, 9),
]


def test_records_of_a_made_file(tmp_path: Path) -> None:
    data, records = everything(written(tmp_path, perf_file([SWITCH, CLOCK], RECORDS)))
    assert [event.ids for event in data.events] == [(11, 12), (21, 22)]
    assert [(event.type, event.config) for event in data.events] == [(2, 372), (1, 0)]
    assert (data.clock, data.cut, data.remarks) == ("CLOCK_MONOTONIC", "", [])
    assert data.names == ["odd � name ==> next_comm=x\n", "/lib/libx.so"]
    assert records["type"].tolist() == [69, 69, 3, 7, 10, 9, 9, 2, 68, 4, 13]
    mapped = records[records["type"] == Type.MMAP2][0]
    assert [mapped[name] for name in "abcd"] == [0x7000, 0x1000, 0x40, 5]
    assert records[records["type"] == Type.ID_INDEX][["a", "c"]].tolist() == [(11, 0), (12, 1)]
    assert lost(records) == (4, 9)
    gone = records[records["type"] == Type.LOST][0]
    assert [gone[name] for name in ("a", "b", "cpu", "time_ns")] == [21, 4, 1, 110]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    bits=st.sets(st.sampled_from([1 << bit for bit in range(11)])),
    layout=st.tuples(st.integers(0, 31), st.booleans()),
    times=st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 2),
    who=st.tuples(*[st.integers(-(2**31), 2**31 - 1)] * 3),
    words=st.lists(st.integers(0, 2**64 - 1), max_size=3),
    raw=st.binary(min_size=7, max_size=24),
)
def test_records_of_every_layout_have_what_was_written(
    tmp_path: Path, bits: set[int], layout: tuple[int, bool], times: tuple[int, int],
    who: tuple[int, int, int], words: list[int], raw: bytes,
) -> None:  # fmt: skip
    read_format, trailers = layout
    first = FileEvent(ids=(11, 12), sample_id_all=trailers)
    event = replace(
        first, ids=(21, 22), sample_type=made.IDENTIFIER | sum(bits), read_format=read_format
    )
    (time_ns, period), (pid, tid, cpu) = times, who
    records = [
        made.sample(event, 22, time_ns=time_ns, pid=pid, tid=tid, cpu=cpu, period=period,
                    chain=words, counts=words, raw=raw),
        made.sample(event, 999, time_ns=time_ns),
        made.task(event, 7, pid=pid, tid=tid, ppid=5, ptid=6, time_ns=time_ns),
    ]  # fmt: skip
    with PerfData(written(tmp_path, perf_file([first, event], records))) as data:
        data.fields(1, [Field(0, 4, True), Field(4, 2, False), Field(6, 1, True)])
        sample, stray, fork = np.concatenate(list(data.records()))
    assert [sample[name] for name in ("event", "time_ns", "period", "pid", "tid", "cpu")] == [
        1, time_ns * (made.TIME in bits), period * (made.PERIOD in bits),
        *(who[:2] if made.TID in bits else (-1, -1)), cpu if made.CPU in bits else -1,
    ]  # fmt: skip
    fields = struct.unpack("<iHb", raw[:7]) if made.RAW in bits else (0, 0, 0)
    assert tuple(sample[name] for name in "abc") == fields
    assert (stray["event"], stray["time_ns"]) == (-1, 0)
    assert [fork[name] for name in ("event", "time_ns", "pid", "tid", "a", "b")] == [
        1 if trailers else -1, time_ns, pid, tid, 5, 6,
    ]  # fmt: skip


def test_killed_perf_leaves_a_file_without_a_size(tmp_path: Path) -> None:
    content = perf_file([SWITCH, CLOCK], RECORDS, size_known=False)
    data, records = everything(written(tmp_path, content))
    assert len(records) == 11
    assert data.cut == "perf was killed: it did not end its data file."


def test_files_cut_anywhere(tmp_path: Path) -> None:
    whole = perf_file([SWITCH, CLOCK], RECORDS)
    begin = len(whole) - sum(map(len, RECORDS))
    _, all_records = everything(written(tmp_path, whole))
    for size in range(0, len(whole), 3):
        path = written(tmp_path, whole[:size])
        if size < begin - 32:  # its ids may be missing, but not its events
            with pytest.raises(PerflibError, match=r"no data file|empty|cut within its header"):
                everything(path)
            continue
        data, records = everything(path)
        assert data.cut
        if size >= begin:
            assert f" {len(whole) - size} bytes at its end" in data.cut
            assert records.tolist() == all_records[: len(records)].tolist()
            assert len(records) <= 11


def test_many_records_come_in_parts(tmp_path: Path) -> None:
    samples = [made.sample(CLOCK, 21, time_ns=i, raw=b"") for i in range(40_000)]
    with PerfData(written(tmp_path, perf_file([CLOCK], samples))) as data:
        parts = [part["time_ns"] for part in data.records()]
    assert np.concatenate(parts).tolist() == list(range(40_000))
    assert max(map(len, parts)) < 20_000


def test_record_whose_length_cannot_be_ends_the_reading(tmp_path: Path) -> None:
    content = perf_file([SWITCH, CLOCK], [*RECORDS[4:6], bytes(8), *RECORDS])
    data, records = everything(written(tmp_path, content))
    assert len(records) == 2
    assert data.cut.startswith(
        f"The data file is damaged after {sum(map(len, RECORDS[4:6]))} bytes"
    )


def test_damaged_records_are_counted(tmp_path: Path) -> None:
    short = made.record(9, struct.pack("<Q", 21))
    data, records = everything(written(tmp_path, perf_file([CLOCK], [short, RECORDS[5]])))
    assert len(records) == 1
    assert data.remarks == ["1 of 2 records are damaged and were left out."]


@pytest.mark.parametrize("kind", [81, 83])
def test_compressed_records_are_refused(tmp_path: Path, kind: int) -> None:
    path = written(tmp_path, perf_file([CLOCK], [RECORDS[5], made.record(kind, bytes(80))]))
    with pytest.raises(MeasurementError, match=r"is compressed \(perf record -z\).*perf inject"):
        everything(path)


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        (b"", UserError, "is empty"),
        (b"some text", UserError, "no data file of perf"),
        (b"2ELIFREP" + bytes(200), UserError, "another byte order"),
        (b"PERFILE2" + struct.pack("<Q", 16) + bytes(90), MeasurementError, "perf's pipe"),
        (b"PERFILE2" + struct.pack("<Q", 104) + bytes(88), MeasurementError, "makes no sense"),
        (b"PERFILE2", MeasurementError, "cut within its header"),
    ],
)
def test_what_is_no_data_file(
    tmp_path: Path, content: bytes, error: type[PerflibError], said: str
) -> None:
    with pytest.raises(error, match=said):
        PerfData(written(tmp_path, content))


@pytest.mark.parametrize(
    ("clock", "name"),
    [(0, "CLOCK_REALTIME"), (4, "CLOCK_MONOTONIC_RAW"), (77, "clock 77"), (None, "perf's own")],
)
def test_other_clocks_are_named(tmp_path: Path, clock: int | None, name: str) -> None:
    data, _ = everything(written(tmp_path, perf_file([FileEvent(clock=clock)], [])))
    assert data.clock == name


def test_attributes_of_an_older_perf_are_shorter(tmp_path: Path) -> None:
    event = FileEvent(clock=None)
    content = perf_file([event], [made.sample(event, 1, time_ns=3)], attr_bytes=72)
    data, records = everything(written(tmp_path, content))
    assert (data.clock, records["time_ns"].tolist()) == ("perf's own", [3])


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        PerfData(tmp_path / "none")
    with pytest.raises(UserError, match="cannot be read: it is a directory"):
        PerfData(tmp_path)


def test_fields_that_cannot_be(tmp_path: Path) -> None:
    path = written(tmp_path, perf_file([SWITCH], []))
    with PerfData(path) as data, pytest.raises(UserError, match="1, 2, 4 or 8 bytes"):
        data.fields(0, [Field(0, 3, True)])
    with PerfData(path) as data, pytest.raises(UserError, match="four at most"):
        data.fields(0, [Field(0, 4, True)] * 5)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_headers_are_errors_or_read(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(perf_file([SWITCH, CLOCK], RECORDS))
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(8, 400))
        content[at : at + 1] = data.draw(st.binary(min_size=1, max_size=1))
    if data.draw(st.booleans()):
        at = 8 * data.draw(st.integers(1, 48))
        content[at : at + 8] = struct.pack("<Q", data.draw(st.integers(0, 2**64 - 1)))
    with contextlib.suppress(PerflibError):
        _, records = everything(written(tmp_path, bytes(content)))
        assert len(records) < 200


# --- the real perf -----------------------------------------------------------------------------


@needs_perf
def test_recorded_samples_are_those_of_perf_script(tmp_path: Path) -> None:
    path = tmp_path / "data"
    before_ns = time.monotonic_ns()
    burn = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"
    argv = ["perf", "record", "-q", "-e", "cpu-clock", "-c", "1000000", "-o", str(path), "-g"]
    argv += ["-k", "CLOCK_MONOTONIC", "--", "sh", "-c", burn]
    subprocess.run(argv, check=True, env=os.environ | {"PERF_CONFIG": os.devnull})
    data, records = everything(path)
    samples = records[records["type"] == Type.SAMPLE]
    script = ["perf", "script", "-i", str(path), "--ns", "-F", "pid,tid,time", "-G"]
    text = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    theirs = []
    for line in text.splitlines():
        who, when = line.replace(":", "").split()
        seconds, nanoseconds = when.split(".")
        theirs.append((*map(int, who.split("/")), int(seconds) * 10**9 + int(nanoseconds)))
    ours = sorted(samples[["pid", "tid", "time_ns"]].tolist(), key=lambda row: row[2])
    assert ours == sorted(theirs, key=lambda row: row[2])
    assert len(ours) > 5
    assert before_ns < samples["time_ns"].min() <= samples["time_ns"].max() < time.monotonic_ns()
    assert (data.cut, data.remarks, data.clock) == ("", [], "CLOCK_MONOTONIC")
    assert "sh" in data.names
