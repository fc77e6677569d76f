"""Everything that reads a file which perflib did not just write itself, as a function of bytes."""

from __future__ import annotations

import dataclasses
import json
import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import numpy as np

from perflib import experiments
from perflib.cli.stored import _main_facts
from perflib.instruments.counters import kernel_names
from perflib.instruments.joblog.joblog import parse
from perflib.instruments.joblog.logformat import FORMATS
from perflib.instruments.perf import script
from perflib.instruments.perf.data import PerfData
from perflib.instruments.simulators import lines, qemu
from perflib.instruments.simulators.models import StoreBufferModel, TlbModel
from perflib.instruments.threads import concurrency, samples, states, waits
from perflib.instruments.threads.formats import Selection
from perflib.instruments.threads.perf.descendants import read_tree
from perflib.instruments.threads.perf.events import Converted
from perflib.instruments.threads.perf.tracepoints import Tracepoints
from perflib.instruments.threads.preload import files, sampler
from perflib.instruments.threads.preload import recording as preload_recording
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.settings import Settings
from perflib.instruments.threads.symbols import Symbols
from perflib.machine import cpulist
from perflib.machine import files as kernel_files
from perflib.machine.activity import activity, interrupts, tasks
from perflib.machine.describe import describe
from perflib.machine.hardware import cgroup, memory
from perflib.machine.libraries import elf
from perflib.measure.journal import Journal
from perflib.model import run
from perflib.store import reading
from tests.fuzz.mutate import mutated, mutated_json
from tests.instruments.perf import perf_files as made
from tests.instruments.perf.perf_texts import NAMES, RECORDED
from tests.instruments.threads import made as made_threads
from tests.instruments.threads.perf.test_events import CLOCK, SWITCH, TRACEPOINTS
from tests.machine import trees

DATA = Path(__file__).parents[1] / "data"
Mutate = Callable[[random.Random, bytes, Sequence[bytes]], bytes]


@dataclasses.dataclass(frozen=True)
class Parser:
    """A parser, files that it reads, how they are damaged, and its share of the inputs."""

    seeds: Sequence[bytes]
    parse: Callable[[bytes], object]
    share: float
    mutate: Mutate = mutated


PARSERS: dict[str, Callable[[Path], Parser]] = {}
"""By name; each is given a folder of its own."""


def _parser(make: Callable[[Path], Parser]) -> Callable[[Path], Parser]:
    PARSERS[make.__name__.removeprefix("_")] = make
    return make


def _file(path: Path, use: Callable[[Path], object]) -> Callable[[bytes], object]:
    """What reads a file by its path."""

    def parse_bytes(data: bytes) -> object:
        path.write_bytes(data)
        return use(path)

    return parse_bytes


def _json(rng: random.Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    return mutated_json(rng, data.decode()).encode()


def _after_the_first(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return data[:1] + mutated(rng, data[1:], others)


# --- perf -----------------------------------------------------------------------------------------


@_parser
def _perf_text(folder: Path) -> Parser:
    seeds = [(RECORDED / name).read_bytes()[:6000] for name in NAMES]
    return Parser(seeds, _file(folder / "perf.txt", script.read), 0.02)


def _perf_file() -> bytes:
    switch, clock = SWITCH, CLOCK
    records = [made.id_index([(51, 0), (52, 1)])]
    for i in range(8):
        raw = struct.pack("<3q", 100 * (i % 2), i % 3, 100 * (1 - i % 2))
        records += [
            made.sample(switch, 11, time_ns=10 * i, pid=100, tid=100, raw=raw),
            made.cpu_switch(clock, tid=100, other=0, time_ns=10 * i + 1, misc=0),
            made.sample(clock, 51 + i % 2, time_ns=10 * i + 5, pid=100, tid=100),
        ]
    records += [
        made.comm(clock, b"job", pid=100, tid=100, time_ns=15, exec_=True),
        made.task(clock, 7, pid=101, tid=101, ppid=100, ptid=100, time_ns=20),
        made.task(clock, 4, pid=101, tid=101, ppid=100, ptid=100, time_ns=50),
        made.mmap2(clock, b"/lib/x", pid=100, address=4096, size=8192),
        made.mmap(clock, b"/lib/y", pid=100, address=40960, size=8192),
        made.lost_record(clock, 51, 3, time_ns=60),
        made.lost_samples(clock, 51, 3),
        made.finished_round(),
        made.sample(clock, 52, time_ns=99, cpu=1),
        made.finished_round(),
    ]
    return made.perf_file([switch, clock], records)


@_parser
def _perf_data(folder: Path) -> Parser:
    def use(path: Path) -> None:
        with PerfData(path) as data:
            converted = Converted(data, TRACEPOINTS)
            machine = states.StateMachine(start_ns=0, names=data.names, cpus=[0, 1])
            machine.process(100)
            for events in converted.batches():
                machine.feed(events)
            machine.finish(converted.last_ns + 1)
            assert len(machine.threads) >= 0
        tree = read_tree(path, 100)
        for pid in tree.pids:
            tree.mappings(pid)

    whole = _perf_file()
    seeds = [whole, made.perf_file([CLOCK], [made.comm(CLOCK, b"x", pid=1, tid=1)])]
    return Parser(seeds, _file(folder / "perf.data", use), 0.008)


@_parser
def _tracepoints(folder: Path) -> Parser:
    words = {
        "sched/sched_switch": ("next_pid", "prev_state", "prev_pid"),
        "sched/sched_waking": ("pid", "common_pid", "common_flags"),
        "syscalls/sys_enter_futex": ("uaddr", "op", "val"),
        "syscalls/sys_exit_futex": ("ret",),
    }
    base = folder / "sys/kernel/tracing/events"
    for name, fields in words.items():
        (base / name).mkdir(parents=True)
        (base / name / "id").write_text("7\n")
        text = "".join(
            f"\tfield:long {field};\toffset:{8 * i};\tsize:8;\tsigned:1;\n"
            for i, field in enumerate(fields)
        )
        (base / name / "format").write_text(text)
    path = base / "sched/sched_switch/format"
    letters = 'print fmt: "{ 0x0001, "S" }, { 0x0002, "D" }, { 0x0100, "P" }"\n'

    def use(data: bytes) -> None:
        number, _, text = data.partition(b"\n")
        path.with_name("id").write_bytes(number)
        path.write_bytes(text)
        Tracepoints.read(folder)

    seed = b"372\n" + path.read_bytes() + letters.encode()
    return Parser([seed], use, 0.03)


# --- logs, and what other programs print ----------------------------------------------------------


@_parser
def _job_log(_folder: Path) -> Parser:
    seed = b"".join(
        b"AthenaEventLoopMgr INFO   ===>>>  start processing event #%d, run #1 <<<===\n"
        b"G4SimTimer INFO Event nr. %d took 3.%d s\n"
        b"===>>>  done processing event #%d, run #1\n" % (i, i, i, i)
        for i in range(12)
    )

    def use(data: bytes) -> None:
        chunks = [(at, data[at : at + 97]) for at in range(0, len(data), 97)]
        for log_format in FORMATS.values():
            for event in parse(chunks, log_format, []):
                assert event.end_ns >= event.begin_ns

    return Parser([seed, seed * 3], use, 0.05)


@_parser
def _qemu_counts(folder: Path) -> Parser:
    seed = (
        b"map 7f0000000000-7f0000002000 r-xp 00001000 fe:00 12   /usr/bin/job\n"
        b"guest_base 139637976727552\nplace 4198400 12 3 4\nplace 4198500 1 0 0\n"
        b"instructions 12345\nloads 12\nstores 3\nthreads 1\n"
    )

    def use(path: Path) -> None:
        counts = qemu.read_lines(qemu.whole_lines(path), qemu._counts)
        for by in ("program", "symbol", "place"):
            qemu._table(counts, TlbModel(64, 8), StoreBufferModel(42), by, "qemu 9")

    return Parser([seed], _file(folder / "counts", use), 0.02)


@_parser
def _qemu_lines(folder: Path) -> Parser:
    seed = (
        b"instructions 12345\nguest_base 139637976727552\n"
        b"map 7f0000000000-7f0000002000 r-xp 00001000 fe:00 12   /usr/bin/job\nshared_lines 1\n"
        b"line 4198400 12 3\nshare 0 9 3 255 15 4198500\nshare 1 8 2 65280 65280 4198504\n"
        b"threads 2\n"
    )

    def use(path: Path) -> None:
        lines._table(qemu.read_lines(qemu.whole_lines(path), lines._read))

    return Parser([seed], _file(folder / "lines", use), 0.02)


# --- recordings of threads ------------------------------------------------------------------------


def _use_recording(folder: Path) -> None:
    recording = Recording.open(folder)
    concurrency.thread_states(recording)
    concurrency.concurrency_over_time(recording, 7)
    concurrency.serial_parts(recording)
    waits.lock_waits(recording)
    waits.wait_paths(recording)
    waits.lock_holders(recording)
    waits.longest_waits(recording, 3)
    samples.cpu_samples(recording)
    samples.wait_samples(recording)
    some = Selection(recording.start_ns, recording.start_ns + 1000)
    concurrency.effective_concurrency(recording, some)
    if len(recording.threads):
        recording.at(0, recording.start_ns + 5)


def _recording_folder(folder: Path) -> list[Path]:
    made_threads.made_recording(folder, threads=3, seconds=0.1, per_second=100)
    return sorted(path for path in folder.iterdir() if path.is_file())


@_parser
def _recording(folder: Path) -> Parser:
    """One of its files is damaged; the first byte says which."""
    paths = _recording_folder(folder)
    whole = {path: path.read_bytes() for path in paths}

    def use(data: bytes) -> None:
        path = paths[data[0] % len(paths)] if data else paths[0]
        path.write_bytes(data[1:])
        try:
            _use_recording(folder)
        finally:
            path.write_bytes(whole[path])

    seeds = [bytes([i]) + whole[path] for i, path in enumerate(paths)]
    return Parser(seeds, use, 0.004, _after_the_first)


@_parser
def _recording_meta(folder: Path) -> Parser:
    """Its description is a record of other values."""
    _recording_folder(folder)
    path = folder / "meta.json"
    seed = json.dumps(json.loads(path.read_bytes())).encode()
    return Parser([seed], _file(path, lambda _: _use_recording(folder)), 0.004, _json)


def _waits_file() -> bytes:
    header = np.zeros(1, files.PROCESS)
    header["magic"], header["pid"], header["start_ns"], header["end_ns"] = files.MAGIC, 7, 100, 9000
    chunk = np.zeros(1, files.CHUNK)
    chunk["magic"], chunk["bytes"], chunk["tid"] = files.CHUNK_MAGIC, files.GRAIN, 7
    chunk["start_ns"], chunk["end_ns"], chunk["name"] = 100, 9000, b"job"
    slots = np.zeros(6, files.WAIT)
    slots["record"][:4] = files._WAIT
    slots["start_ns"][:4], slots["end_ns"][:4] = [200, 400, 600, 800], [300, 500, 700, 900]
    slots["lock"][:4], slots["owner"][:4], slots["stack"][:4] = 4096, 7, 1
    slots["record"][4:], slots["depth"][4:], slots["stack"][4] = [files._STACK, files._SAMPLE], 3, 1
    raw = header.tobytes().ljust(files.GRAIN, b"\0")
    return raw + chunk.tobytes().ljust(files.HEADER_BYTES, b"\0") + slots.tobytes()


@_parser
def _preload(folder: Path) -> Parser:
    """Only where something is written: most of the file are zeros."""
    (folder / "maps.7.0").write_text("1000-9000 r-xp 00000000 fe:00 12 /opt/job\n")
    place = folder / "waits.7.0"
    whole = _waits_file()
    header, rest = whole[: files.PROCESS.itemsize], whole[files.GRAIN :]

    def use(data: bytes) -> None:
        head = data[: len(header)].ljust(files.GRAIN, b"\0")
        place.write_bytes(head + data[len(header) :].ljust(files.GRAIN, b"\0"))
        processes = files.read_processes(folder)
        for process in processes:
            for thread in process.threads:
                thread.records()
        none = np.empty(0, sampler.READING)
        seen = sampler.Sampled([], none, {}, {}, [], [(0, 0), (10**4, 50)])
        parts = preload_recording.Parts("preload", 7, processes, seen, 0, 10**4, 2, Settings())
        preload_recording.write(parts, folder / "out")

    return Parser([header + rest], use, 0.002)


# --- programs -------------------------------------------------------------------------------------


@_parser
def _elf(folder: Path) -> Parser:
    seeds = [_library(symbols) for symbols in (3, 40)]

    def use(path: Path) -> None:
        elf.read_elf.cache_clear()
        elf.header(path)
        found = elf.read_elf(path)
        for table in (found.code, found.data):
            for start, _, _ in table:
                table.at(start + 1)
        found.address(4096)

    return Parser(seeds, _file(folder / "small.so", use), 0.04)


def _library(symbols: int) -> bytes:
    """A little program with a table of symbols, put together by hand."""
    strings = b"\0" + b"".join(b"_ZN3job%d4waitEi\0" % i for i in range(symbols))
    names = b"\0.symtab\0.strtab\0.text\0"
    rows = b"".join(
        struct.pack("<IBBHQQ", 1 + i, 0x12 if i % 2 else 0x11, 0, 1, 4096 + 16 * i, 16 * (i % 3))
        for i in range(symbols)
    )
    offsets = [64 + 56]
    for part in (strings, names):
        offsets.append(offsets[-1] + len(part))
    offsets.append(offsets[-1] + len(rows))
    sections = b"".join(
        struct.pack("<IIQQQQIIQQ", *one)
        for one in (
            (0,) * 10,
            (17, 1, 6, 4096, 0, 1 << 16, 0, 0, 16, 0),
            (1, 2, 0, 0, offsets[2], len(rows), 3, 0, 8, 24),
            (9, 3, 0, 0, offsets[0], len(strings), 0, 0, 1, 0),
            (9, 3, 0, 0, offsets[1], len(names), 0, 0, 1, 0),
        )
    )
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, offsets[3], 0, 64, 56, 1, 64, 5, 4)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 4096, 4096, 1 << 16, 1 << 16, 4096)
    return head + segment + strings + names + rows + sections


@_parser
def _maps(_folder: Path) -> Parser:
    seed = Path("/proc/self/maps").read_bytes()[:1500]

    def use(data: bytes) -> None:
        symbols = Symbols.from_maps(data.decode(errors="surrogateescape"))
        symbols.name(0x1000)

    return Parser([seed], use, 0.2)


# --- runs, tables, journals -----------------------------------------------------------------------


def _records() -> dict[str, str]:
    """What the runs of the tests hold besides their samples, by experiment."""
    found = {}
    with duckdb.connect() as connection:
        for path in sorted((DATA / "runs").glob("*.parquet")):
            query = f"SELECT value FROM parquet_kv_metadata('{path}') WHERE key = 'perflib'"
            found[path.stem] = connection.execute(query).fetchall()[0][0].decode()
    return found


@_parser
def _run_file(folder: Path) -> Parser:
    paths = sorted((DATA / "runs").glob("*.parquet"), key=lambda path: path.stat().st_size)[:4]
    seeds = [path.read_bytes() for path in paths]
    return Parser(seeds, _file(folder / "run.parquet", reading.read_run), 0.001)


@_parser
def _run_record(_folder: Path) -> Parser:
    def use(data: bytes) -> None:
        record = reading.checked_record(data, Path("run.parquet"))
        repr(run.Run(samples=(), **record))  # type: ignore[arg-type]

    return Parser([text.encode() for text in _records().values()], use, 0.003, _json)


@_parser
def _run_analysed(_folder: Path) -> Parser:
    """The whole way of a run whose record was changed: its findings, and what is shown of it."""
    names = ("kv_per_core", "machine", "numa", "memory_levels", "coherence", "alias_environment")
    texts = _records()
    whole = {name: reading.read_run(DATA / "runs" / f"{name}.parquet") for name in names}

    def use(data: bytes) -> None:
        record = reading.checked_record(data, Path("run.parquet"))
        if record["experiment"] in whole:
            changed = dataclasses.replace(whole[record["experiment"]], **record)
            experiment = experiments.get(changed.experiment)
            experiment.analyse(changed)
            for make in experiment.derived(changed).values():
                make()
            _main_facts(changed.provenance)

    return Parser([texts[name].encode() for name in names], use, 0.0003, _json)


@_parser
def _table(folder: Path) -> Parser:
    header = b"cpu,time_ns,name,share\n"
    seed = header + b"".join(b"%d,%d,event %d,0.%d\n" % (i % 2, i * 1000, i, i) for i in range(20))
    return Parser([seed], _file(folder / "table.csv", reading.read_table), 0.001)


@_parser
def _journal(folder: Path) -> Parser:
    lines = [
        {"id": "machine-1", "experiment": "machine", "params": {"budget_s": 1.0}, "plan": {"a": 1},
         "start": "2026-01-02", "tag": "", "machine": {"hostname": "a"}},
        {"pilot": {"b": [1, 2]}},
        *({"round": i, "columns": {"time_ns": [1, 2]}, "wall_s": 0.1} for i in range(5)),
        {"round": 9, "failed": "it was killed", "wall_s": 0.1},
    ]  # fmt: skip

    def use(path: Path) -> None:
        journal = Journal.reopen(path)
        journal.close()

    def mutate(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        if rng.random() < 0.5:
            return mutated(rng, data, others)
        rows = data.splitlines()
        at = rng.randrange(len(rows))
        rows[at] = mutated_json(rng, rows[at].decode()).encode()
        return b"\n".join(rows) + b"\n"

    seed = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return Parser([seed], _file(folder / "machine-1.journal", use), 0.06, mutate)


# --- the kernel's texts ---------------------------------------------------------------------------

_TEXTS = {
    "proc/stat": "cpu  10 20 30 40 50 60 70 80\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu1 1 2 3 4 5 6 7 8",
    "proc/uptime": "12345.67 23456.78",
    "proc/loadavg": "0.02 0.03 0.00 1/900 1234",
    "proc/interrupts": "       CPU0  CPU1\n  0:   44     0   IO-APIC   2-edge\nNMI:    1     2",
    "proc/softirqs": f"{'CPU0':>24}{'CPU1':>11}\n{'HI':>12}:{5:>11}{6:>11}",
    "proc/schedstat": "version 15\ntimestamp 1\ncpu0 0 0 0 0 0 0 7 8 9\ncpu1 0 0 0 0 0 0 7 8 9",
    "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable:   500 kB",
    "proc/self/cgroup": "0::/a/b\n1:cpu,cpuacct:/c",
    "proc/self/mountinfo": "1 2 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
    "3 4 0:2 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct",
    "sys/fs/cgroup/a/b/cpu.max": "50000 100000",
    "sys/fs/cgroup/a/b/cpu.stat": "nr_periods 5\nnr_throttled 1",
    "sys/fs/cgroup/a/b/cpuset.cpus.effective": "0-3",
    "sys/fs/cgroup/a/b/memory.max": "1000000",
    "proc/7/task/7/stat": "7 (a job) S 1 " + "2 " * 60,
    "proc/7/task/7/schedstat": "123 45 6",
}


@_parser
def _kernel_texts(folder: Path) -> Parser:
    """One file of /proc or /sys is damaged; the first byte says which."""
    trees.write(folder, _TEXTS)
    trees.kvm_guest(folder / "guest")
    for path in sorted((folder / "guest").rglob("*")):
        if path.is_file() and not (folder / path.relative_to(folder / "guest")).exists():
            trees.write(folder, {str(path.relative_to(folder / "guest")): path.read_text()})
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and "guest" not in p.parts)
    whole = [path.read_bytes() for path in paths]

    def use(data: bytes) -> None:
        which = data[0] % len(paths) if data else 0
        paths[which].write_bytes(data[1:])
        try:
            describe(folder)
            activity.cpu_times(folder)
            activity.load_average(folder)
            interrupts.core_activity(1, folder)
            tasks.task_times(folder)
            cgroup.limits(folder)
            memory.free_bytes(folder)
        finally:
            paths[which].write_bytes(whole[which])

    seeds = [bytes([i]) + one for i, one in enumerate(whole)]
    return Parser(seeds, use, 0.015, _after_the_first)


@_parser
def _cpu_list(_folder: Path) -> Parser:
    def use(data: bytes) -> None:
        cpulist.parse_cpus(data.decode(errors="replace"))

    return Parser([b"0-3,8,10-11", b"0", b"0-65535"], use, 0.3)


@_parser
def _small_texts(folder: Path) -> Parser:
    def use(path: Path) -> None:
        kernel_files.integer(path)
        kernel_files.kib_of(path, "MemTotal")
        kernel_files.assignments(path)
        kernel_files.fields(path)

    return Parser([b"MemTotal:  123 kB\n", b"12\n", b'A="b"\n'], _file(folder / "text", use), 0.15)


@_parser
def _event_terms(folder: Path) -> Parser:
    base = folder / "sys/bus/event_source/devices/cpu"
    trees.write(
        folder,
        {
            "sys/bus/event_source/devices/cpu/type": "4",
            "sys/bus/event_source/devices/cpu/format/event": "config:0-7,32-35",
            "sys/bus/event_source/devices/cpu/format/umask": "config1:8-15",
            "sys/bus/event_source/devices/cpu/events/cycles": "event=0x3c,umask=0x1",
        },
    )

    def use(data: bytes) -> None:
        layout, _, described = data.partition(b"\n")
        (base / "format/event").write_bytes(layout)
        (base / "events/cycles").write_bytes(described)
        kernel_names.sysfs_event("cpu", "cycles", folder)

    return Parser([b"config:0-7,32-35\nevent=0x3c,umask=0x1\n"], use, 0.09)
