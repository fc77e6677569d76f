"""From perf's records to events in the order of time: what no machine does at will, made up."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perflib.instruments.perf.data import Field, PerfData
from perflib.instruments.threads.formats import Event
from perflib.instruments.threads.perf import events as module
from perflib.instruments.threads.perf.descendants import read_tree
from perflib.instruments.threads.perf.events import Converted
from perflib.instruments.threads.perf.stacks import write_job_only
from perflib.instruments.threads.perf.tracepoints import Tracepoints, numbers
from perflib.instruments.threads.symbols import Mapping
from perflib.model.errors import MeasurementError
from tests.instruments.perf import perf_files as made
from tests.instruments.perf.perf_files import FileEvent, perf_file

RAW = made.USUAL | made.RAW
SWITCH = FileEvent(ids=(11, 12), sample_type=RAW, type=2, config=1)
WAKING = FileEvent(ids=(21, 22), sample_type=RAW, type=2, config=2)
WAIT = FileEvent(ids=(31, 32), sample_type=RAW, type=2, config=3)
DONE = FileEvent(ids=(41, 42), sample_type=RAW, type=2, config=4)
CLOCK = FileEvent(ids=(51, 52), sample_type=made.USUAL, period=5000)
EVENTS = [SWITCH, WAKING, WAIT, DONE, CLOCK]
LONG = [Field(8 * i, 8, True) for i in range(3)]
FIELDS = {
    "sched:sched_switch": LONG,
    "sched:sched_waking": LONG,
    "syscalls:sys_enter_futex": LONG,
    "syscalls:sys_exit_futex": LONG[:1],
}
TRACEPOINTS = Tracepoints(dict(zip(FIELDS, range(1, 5), strict=True)), FIELDS, state_bits=0xFF)
ROOT, CHILD = 100, 200


def traced(
    event: FileEvent, time_ns: int, *values: int, cpu: int = 0, tid: int = ROOT, pid: int = ROOT
) -> bytes:
    raw = struct.pack(f"<{len(values)}q", *values)
    return made.sample(event, event.ids[cpu], time_ns=time_ns, tid=tid, pid=pid, cpu=cpu, raw=raw)


def switch(time_ns: int, leaves: int, comes: int, state: int = 1, cpu: int = 0) -> bytes:
    return traced(SWITCH, time_ns, comes, state, leaves, cpu=cpu, tid=leaves, pid=leaves)


def came(time_ns: int, leaves: int, comes: int, cpu: int = 0) -> bytes:
    """The second record of a switch."""
    return made.cpu_switch(CLOCK, tid=comes, other=leaves, time_ns=time_ns, cpu=cpu, misc=0)


def converted(
    path: Path, records: list[bytes], since_ns: int = 0
) -> tuple[Converted, np.ndarray[Any, Any], list[int]]:
    path.write_bytes(perf_file(EVENTS, records))
    with PerfData(path) as data:
        found = Converted(data, TRACEPOINTS, (since_ns, 10**18))
        batches = list(found.batches())
    events = np.concatenate(batches)
    assert (np.diff(events["time_ns"]) >= 0).all()
    return found, events, [len(batch) for batch in batches if len(batch)]


def rows(events: np.ndarray[Any, Any], kind: Event, *names: str) -> list[tuple[int, ...]]:
    return [tuple(int(one[name]) for name in names) for one in events[events["kind"] == kind]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made.data"


def test_each_kind_of_event(path: Path) -> None:
    records = [
        made.comm(CLOCK, b"job", pid=ROOT, tid=ROOT),
        switch(10, ROOT, 0, state=0x100),
        switch(20, 0, ROOT, state=0),
        traced(WAKING, 30, 7, ROOT, 0),
        traced(WAKING, 31, 7, ROOT, 0x08),
        traced(WAIT, 40, 0xABC, 128, 2),
        traced(DONE, 50, -11),
        made.sample(CLOCK, 51, time_ns=60, pid=ROOT, tid=ROOT),
        made.task(CLOCK, 7, pid=ROOT, tid=101, ppid=ROOT, ptid=ROOT, time_ns=70),
        made.comm(CLOCK, b"other", pid=ROOT, tid=101, time_ns=80, exec_=True),
    ]
    found, events, _ = converted(path, records)
    assert rows(events, Event.SWITCH, "tid", "a", "b") == [(ROOT, 0, 0), (0, ROOT, 0)]
    assert rows(events, Event.WAKING, "tid", "a") == [(ROOT, 7), (0, 7)]  # the second: an interrupt
    assert rows(events, Event.FUTEX_WAIT, "tid", "pid", "a", "b") == [(ROOT, ROOT, 0xABC, 128)]
    assert rows(events, Event.FUTEX_EXIT, "a") == [(-11,)]
    assert rows(events, Event.SAMPLE, "a", "stack") == [(5000, -1)]
    assert rows(events, Event.FORK, "tid", "a", "b") == [(101, ROOT, ROOT)]
    assert rows(events, Event.COMM, "time_ns", "tid", "b") == [(0, ROOT, 1), (80, 101, 1)]
    assert (found.lost, found.missing, found.throttled) == ((0, 0), 0, 0)


def test_records_of_rounds_come_in_order_and_memory_is_bounded(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BATCH", 1)
    records, times = [], np.arange(1, 60_001)
    for begin in range(0, 60_000, 5000):
        for cpu in (0, 1):  # the buffers, one after the other
            records += [
                made.sample(CLOCK, 51 + cpu, time_ns=int(t), cpu=cpu)
                for t in times[begin : begin + 5000][cpu::2]
            ]
        records.append(made.finished_round())
    _, events, sizes = converted(path, records)
    assert events["time_ns"].tolist() == times.tolist()
    assert len(sizes) > 3
    assert max(sizes) <= 40_000


def test_record_that_comes_too_late_counts_as_then(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BATCH", 1)
    first = [made.sample(CLOCK, 51, time_ns=1000 + i) for i in range(20_000)]
    ends = [made.finished_round(), made.sample(CLOCK, 51, time_ns=90_000), made.finished_round()]
    late = [made.sample(CLOCK, 51, time_ns=5)] * 20_000
    _, events, _ = converted(path, [*first, *ends, *late])
    assert len(events) == 40_001


def test_losses_of_a_buffer_and_of_the_events(path: Path) -> None:
    records = [
        made.id_index([(51, 0), (52, 1)]),
        made.sample(CLOCK, 51, time_ns=100, cpu=0),
        made.sample(CLOCK, 52, time_ns=150, cpu=1),
        made.lost_record(CLOCK, 51, 7, time_ns=200, cpu=0),
        made.sample(CLOCK, 51, time_ns=300, cpu=0),
        made.lost_samples(CLOCK, 51, 7),  # the same ones
        made.lost_samples(CLOCK, 52, 5),  # of which no buffer could tell
    ]
    found, events, _ = converted(path, records)
    noted = rows(events, Event.LOST, "time_ns", "cpu", "a", "b")
    assert noted == [(200, 0, 7, 100), (300, 1, 5, 150)]
    assert (found.lost, found.lost_samples) == ((7, 12), 12)


def test_switch_that_is_not_reported_is_known_from_its_second_record(path: Path) -> None:
    records = [
        switch(10, ROOT, 0),
        came(12, ROOT, 0),
        came(22, 0, ROOT),  # from the idle thread
        switch(30, ROOT, 0, state=0),
        came(32, ROOT, 0),
        came(5, 0, ROOT, cpu=1),  # before the recording
    ]
    found, events, _ = converted(path, records, since_ns=8)
    switches = rows(events, Event.SWITCH, "time_ns", "tid", "a")
    assert switches == [(10, ROOT, 0), (22, 0, ROOT), (30, ROOT, 0)]
    assert found.missing == 0


def test_switch_of_which_nothing_is_known_counts_as_lost(path: Path) -> None:
    records = [switch(10, ROOT, 0), switch(30, ROOT, 7), switch(40, 7, ROOT)]
    found, events, _ = converted(path, records)
    assert rows(events, Event.LOST, "time_ns", "a", "b") == [(30, 1, 10)]
    assert found.missing == 1


def test_thread_ends_with_its_last_switch(path: Path) -> None:
    """What it wakes while it dies is woken by it."""
    end = made.task(CLOCK, 4, pid=ROOT, tid=ROOT, ppid=ROOT, ptid=ROOT, time_ns=10)
    waking = traced(WAKING, 20, 7, ROOT, 0)
    _, events, _ = converted(path, [end, waking, switch(30, ROOT, 0, state=0x10)])
    assert events["kind"].tolist() == [Event.WAKING, Event.SWITCH]
    _, events, _ = converted(path, [end, waking, switch(30, 8, 0)])  # it is lost
    assert events["kind"].tolist() == [Event.WAKING, Event.SWITCH, Event.EXIT]


def family(path: Path) -> None:
    """ROOT executes a program twice, has a child that executes none, and that one has another."""

    def mapped(pid: int, address: int, name: bytes, time_ns: int) -> bytes:
        return made.mmap2(CLOCK, name, pid=pid, address=address, size=4096, time_ns=time_ns)

    records = [
        mapped(-1, 1 << 40, b"[kernel.kallsyms]_text", 0),
        made.task(CLOCK, 7, pid=ROOT, tid=ROOT, ppid=1, ptid=1, time_ns=1),
        made.comm(CLOCK, b"launcher", pid=ROOT, tid=ROOT, time_ns=2, exec_=True),
        mapped(ROOT, 0x1000, b"/bin/launcher", 3),
        made.comm(CLOCK, b"job-with-a-long", pid=ROOT, tid=ROOT, time_ns=10, exec_=True),
        mapped(ROOT, 0x2000, b"/opt/job-with-a-long-name", 11),
        mapped(ROOT, 0x9000, b"//anon", 11),
        made.task(CLOCK, 7, pid=CHILD, tid=CHILD, ppid=ROOT, ptid=ROOT, time_ns=20),
        made.task(CLOCK, 7, pid=300, tid=300, ppid=CHILD, ptid=CHILD, time_ns=21),
        mapped(300, 0x3000, b"/lib/more.so", 22),
        made.task(CLOCK, 7, pid=400, tid=400, ppid=1, ptid=1, time_ns=23),
        switch(5, ROOT, 0),  # in the launcher
        switch(30, ROOT, 0),
        switch(31, ROOT, 0, state=0x100),
        switch(32, 400, 0),
        traced(WAKING, 33, 7, ROOT, 0),
        made.finished_round(),
    ]
    path.write_bytes(perf_file(EVENTS, records, after=b"features"))


def test_tree_of_processes_and_what_they_mapped(path: Path) -> None:
    family(path)
    tree = read_tree(path, ROOT)
    assert tree.pids == {ROOT, CHILD, 300}
    assert tree.executed == {ROOT: ["/bin/launcher", "/opt/job-with-a-long-name"]}
    job = Mapping(0x2000, 0x3000, 0, "/opt/job-with-a-long-name")
    assert tree.mappings(ROOT) == [job]
    assert tree.mappings(CHILD) == [job]
    assert tree.mappings(300) == [job, Mapping(0x3000, 0x4000, 0, "/lib/more.so")]


def test_copy_for_stacks_has_the_job_alone(path: Path, tmp_path: Path) -> None:
    family(path)
    out = tmp_path / "job.data"
    write_job_only(path, out, read_tree(path, ROOT), TRACEPOINTS)
    with PerfData(out) as data:
        assert numbers(data, TRACEPOINTS)[:4] == (-1, -1, -1, -1)  # no tracepoint needs a text
        found = np.concatenate(list(data.records()))
        names = [data.names[text] for text in found["text"] if text >= 0]
    assert data.cut == ""
    kernel = "[kernel.kallsyms]_text"
    assert names == [kernel, "/opt/job-with-a-long-name", "//anon", "/lib/more.so"]
    assert found["time_ns"][found["type"] == 9].tolist() == [30]
    assert found["pid"][found["type"] == 7].tolist() == [CHILD, 300]
    assert (found["type"] == 68).sum() == 1


def test_tracepoints_of_a_kernel(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="tracefs is not there"):
        Tracepoints.read(tmp_path)
    base = tmp_path / "sys/kernel/tracing/events"
    common = "field:unsigned char common_flags; offset:2; size:1; signed:0;\n"
    common += "field:int common_pid; offset:4; size:4; signed:1;\n"
    formats = {
        "sched/sched_switch": "field:char prev_comm[16]; offset:8; size:16; signed:0;\n"
        "field:pid_t prev_pid; offset:24; size:4; signed:1;\n"
        "field:long prev_state; offset:32; size:8; signed:1;\n"
        "field:pid_t next_pid; offset:56; size:4; signed:1;\n"
        'print fmt: { 0x0001, "S" }, { 0x0002, "D" }, { 0x0020, "Z" }',
        "sched/sched_waking": "field:pid_t pid; offset:24; size:4; signed:1;",
        "syscalls/sys_enter_futex": "field:u32 * uaddr; offset:16; size:8; signed:0;\n"
        "field:int op; offset:24; size:8; signed:0;\nfield:u32 val; offset:32; size:8; signed:0;",
        "syscalls/sys_exit_futex": "field:long ret; offset:16; size:8; signed:1;",
    }
    for number, (name, described) in enumerate(formats.items()):
        (base / name).mkdir(parents=True)
        (base / name / "id").write_text(f"{number + 70}\n")
        (base / name / "format").write_text(common + described)
    found = Tracepoints.read(tmp_path)
    assert found.ids["syscalls:sys_enter_futex"] == 72
    fields = [Field(56, 4, True), Field(32, 8, True), Field(24, 4, True)]
    assert found.fields["sched:sched_switch"] == fields
    assert found.state_bits == 0x23
    (base / "sched/sched_waking/format").write_text(
        "field:pid_t other; offset:0; size:4; signed:1;"
    )
    with pytest.raises(MeasurementError, match="no tracepoint sched:sched_waking with pid"):
        Tracepoints.read(tmp_path)
