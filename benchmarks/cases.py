"""What ``perflib investigate`` names on a machine whose trouble is known: ten cases, made here.

Each run makes one case on the first two cores that may be used, lets ``perflib investigate --json``
find out, and counts whether the right cause was named. The troubled core alternates. The jobs of
three cases are the C files in ``benchmarks/cases_c``. What was truly there is measured, too.

``nothing``: nothing is wrong. ``fifo_thief``: a process takes 7 % of a core in slices of a
millisecond under SCHED_FIFO. ``nice_job``: another process computes there with niceness 19.
``quota``: a control group allows the whole investigation 90 % of a core. ``memory_hog``: a process
streams through 256 MiB on one core. ``costlier_function``: a function of the job takes longer on
one core. ``larger_code``: the job runs 2 MiB of code on one core and 8 KiB on the other.
``aslr_aliasing``: the job's time depends on where its stack lies. ``softirq_flood``: packets of
the loopback device are received on one core, through a costly filter. ``buffered_log``: the job
writes its log when it ends.

``--load``: beside them, processes that work and pause on any core. Other tasks are then truly
there: naming them is not right, but no error either.

    python benchmarks/cases.py [--cases nothing,quota] [--runs 3] [--minutes 8] [--load]
        [--out cases.json]

Takes root, and gcc. All that was changed is put back at the end, after an interrupt, too.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import platform
import random
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.nulls import KINDS

SOURCES = Path(__file__).parent / "cases_c"
JOBS = ("functions", "code", "layout")  # files with the work of a job
FLAGS = ("-O2", "-g", "-fno-omit-frame-pointer")
UNTIMED = re.compile("cannot be timed|at once|hold.* back|held back|buffer")

_SLICE_S, _THIEF_SHARE = 0.001, 0.07
_STREAMED_BYTES = 256 << 20
_LOAD_MEAN_S = 0.2  # of work and of pauses
_STEERING = Path("/sys/class/net/lo/queues/rx-0/rps_cpus")
_GROUPS = Path("/sys/fs/cgroup")
_PERIOD_US, _QUOTA = 100_000, 0.9
_SEGMENTS, _FLOOD_S = 24, 0.002
_PR_SET_PDEATHSIG, _SO_ATTACH_FILTER, _UDP_SEGMENT = 1, 26, 103
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


# --- processes that cause trouble ----------------------------------------------------------------


def _die_with_parent(number: signal.Signals) -> None:
    """Have this signal sent when whoever started this process is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() == 1:
        os.kill(os.getpid(), number)


def _ready() -> None:
    print("ready", flush=True)


def _thief(cpu: int) -> NoReturn:
    os.sched_setaffinity(0, {cpu})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    _ready()
    while True:
        end = time.monotonic() + _SLICE_S
        while time.monotonic() < end:
            pass
        time.sleep(_SLICE_S * (1 / _THIEF_SHARE - 1))


def _nice(cpu: int) -> NoReturn:
    os.sched_setaffinity(0, {cpu})
    os.nice(19)
    _ready()
    while True:
        KINDS["integers"]()


def _stream(cpu: int) -> NoReturn:
    os.sched_setaffinity(0, {cpu})
    half = _STREAMED_BYTES // 2
    memory = ctypes.create_string_buffer(2 * half)
    start = ctypes.addressof(memory)
    _ready()
    while True:
        ctypes.memmove(start, start + half, half)
        ctypes.memmove(start + half, start, half)


def _restless(place: int) -> NoReturn:
    """Work and pause, of the kind for this place, wherever the kernel puts it."""
    work = list(KINDS.values())[place % len(KINDS)]
    chance = random.Random(place)
    _ready()
    while True:
        end = time.monotonic() + chance.expovariate(1 / _LOAD_MEAN_S)
        while time.monotonic() < end:
            work()
        time.sleep(chance.expovariate(1 / _LOAD_MEAN_S))


def _costly_filter(divisions: int) -> bytes:
    """A packet filter that divides so often and lets nothing through."""
    load, divide, refuse = (0x00, 0, 0, 0xFFFFFFFF), (0x34, 0, 0, 1), (0x06, 0, 0, 0)
    return b"".join(struct.pack("HBBI", *one) for one in (load, *[divide] * divisions, refuse))


def _flood(cpu: int) -> NoReturn:
    """Send packets that the kernel is to receive on a core.

    The sender keeps to another core, and has little to do: what it sends is one packet in many
    segments, which the receiving core takes apart, and each of which passes a costly filter there.
    """
    others = os.sched_getaffinity(0) - {cpu}
    os.sched_setaffinity(0, {min(others)})
    before = _STEERING.read_text()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        mask = 1 << cpu
        words = [f"{mask >> shift & 0xFFFFFFFF:x}" for shift in range(0, mask.bit_length(), 32)]
        _STEERING.write_text(",".join(reversed(words)))
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        ):
            code = ctypes.create_string_buffer(_costly_filter(4000))
            program = struct.pack("HL", len(code) // 8, ctypes.addressof(code))
            receiver.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
            receiver.bind(("127.0.0.1", 0))
            sender.connect(receiver.getsockname())
            sender.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, 8)
            _ready()
            while True:
                sender.send(bytes(8 * _SEGMENTS))
                time.sleep(random.uniform(0.5, 1.5) * _FLOOD_S)  # the tick must not see a pattern
    finally:
        _STEERING.write_text(before)
    sys.exit()


_TROUBLE: dict[str, Callable[[int], NoReturn]] = {
    "thief": _thief,
    "nice": _nice,
    "stream": _stream,
    "restless": _restless,
    "flood": _flood,
}


@contextlib.contextmanager
def trouble(kind: str, number: int) -> Iterator[int]:
    """A process of that kind on that core, by its id; it ends in the end."""
    argv = [sys.executable, __file__, "--trouble", kind, "--number", str(number)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                msg = f"the process that makes the trouble {kind!r} ended before it began"
                raise RuntimeError(msg)
            yield process.pid
        finally:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def load() -> Iterator[None]:
    """Three processes for each core, pinned to none."""
    with contextlib.ExitStack() as stack:
        for place in range(3 * len(os.sched_getaffinity(0))):
            stack.enter_context(trouble("restless", place))
        yield


# --- cases ---------------------------------------------------------------------------------------


@dataclass
class Made:
    """A case that was made: what to give the command, and what was truly there."""

    arguments: list[str] = field(default_factory=list)
    group: Path | None = None
    truth: str = ""


def _cpu_s(pid: int) -> float:
    """CPU time of a process so far."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) * _TICK_S


def _busy_s() -> float:
    """Time that all cores were busy so far, less that of processes which this one waited for."""
    fields = Path("/proc/stat").read_text().split(maxsplit=9)[1:9]
    user, nice, system, _idle, _wait, irq, softirq, _stolen = (int(one) for one in fields)
    own = os.times()
    busy_s = (user + nice + system + irq + softirq) * _TICK_S
    return busy_s - own.children_user - own.children_system


def _softirq_s() -> dict[str, float]:
    """Time in soft interrupts so far, by core."""
    lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    return {line[0]: int(line[7]) * _TICK_S for line in lines if re.match(r"cpu\d", line[0])}


def _none(_cpu: int, _folder: Path) -> AbstractContextManager[Made]:
    return contextlib.nullcontext(Made())


def _process(kind: str) -> Callable[[int, Path], AbstractContextManager[Made]]:
    @contextlib.contextmanager
    def make(cpu: int, _folder: Path) -> Iterator[Made]:
        made = Made()
        with trouble(kind, cpu) as pid:
            begin, begin_cpu, softirq = time.monotonic(), _cpu_s(pid), _softirq_s()
            try:
                yield made
            finally:
                wall_s = time.monotonic() - begin
                made.truth = f"the process took {(_cpu_s(pid) - begin_cpu) / wall_s:.1%} of a core"
                if kind == "flood":
                    shares = {name: (end - softirq[name]) / wall_s
                              for name, end in _softirq_s().items()}  # fmt: skip
                    made.truth += "; soft interrupts: "
                    made.truth += ", ".join(f"{name} {of:.1%}" for name, of in shares.items())

    return make


@contextlib.contextmanager
def _limited(_cpu: int, _folder: Path) -> Iterator[Made]:
    first = (_GROUPS / "cpu" / "cpu.cfs_period_us").exists()  # version 1 of control groups
    top = _GROUPS / "cpu" if first else _GROUPS
    if not first:
        (top / "cgroup.subtree_control").write_text("+cpu")
    group = top / f"cases-{os.getpid()}"
    group.mkdir()
    made = Made(group=group)
    quota_us = round(_QUOTA * _PERIOD_US)
    try:
        if first:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (group / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}")
        yield made
        stat = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
        made.truth = f"held up in {stat['nr_throttled']} of {stat['nr_periods']} periods"
    finally:
        for _ in range(50):
            for pid in (group / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)


def compiled(work: str, folder: Path) -> Path:
    """The job with that work, compiled once in a folder."""
    program = folder / f"job_{work}"
    if not program.exists():
        sources = [str(SOURCES / "job.c"), str(SOURCES / f"{work}.c")]
        subprocess.run(["gcc", *FLAGS, *sources, "-o", str(program), "-lm"], check=True)
    return program


def command_of(program: Path, special_cpu: int, log: str = "lines") -> str:
    """The command line of a job, its placeholders open."""
    return f"{shlex.quote(str(program))} {special_cpu} {log} {{first}} {{events}} {{seed}}"


def _job(work: str, *, special: bool) -> Callable[[int, Path], AbstractContextManager[Made]]:
    def make(cpu: int, folder: Path) -> AbstractContextManager[Made]:
        command = command_of(compiled(work, folder), cpu if special else -1)
        return contextlib.nullcontext(Made(["--job", command]))

    return make


def _buffered(_cpu: int, folder: Path) -> AbstractContextManager[Made]:
    expressions = ["--begin", r"start processing event #(?P<event>\d+)"]
    expressions += ["--end", r"done processing event #(?P<event>\d+)"]
    command = command_of(compiled("functions", folder), -1, "buffered")
    return contextlib.nullcontext(Made(["--job", command, *expressions]))


@dataclass(frozen=True)
class Case:
    """A case: how it is made, what is right to say of it, and whether it has a core."""

    make: Callable[[int, Path], AbstractContextManager[Made]]
    causes: tuple[str, ...] = ()
    verdict: str = "cause"
    on_core: bool = False
    sentence: re.Pattern[str] | None = None


CASES: Mapping[str, Case] = {
    "nothing": Case(_none, verdict="healthy"),
    "fifo_thief": Case(_process("thief"), ("other_task",), on_core=True),
    "nice_job": Case(_process("nice"), ("other_task",), on_core=True),
    "quota": Case(_limited, ("quota",)),
    "memory_hog": Case(_process("stream"), ("other_task", "memory"), on_core=True),
    "costlier_function": Case(_job("functions", special=True), ("function",), on_core=True),
    "larger_code": Case(_job("code", special=True), ("code_size", "itlb"), on_core=True),
    "aslr_aliasing": Case(_job("layout", special=False), ("aliasing",)),
    "softirq_flood": Case(_process("flood"), ("softirq",), on_core=True),
    "buffered_log": Case(_buffered, verdict="undecided", sentence=UNTIMED),
}


# --- runs ----------------------------------------------------------------------------------------


def judge(case: Case, answer: Mapping[str, Any], cpu: int, *, busy: bool) -> dict[str, Any]:
    """What was named, whether it is right, and whether something wrong was called certain.

    Right is a cause of the case on the case's core, be it called certain or likely. Beside a load
    another task is never wrong.
    """
    headline = answer["headline"]
    about = headline.get("about") or {}
    named, core = headline.get("cause"), about.get("cpu")
    said = [headline["plain"], *(one["plain"] for one in answer.get("undecided", []))]
    verdicts = (case.verdict, "undecided") if case.causes else (case.verdict,)
    right = (
        headline["verdict"] in verdicts
        and (named in case.causes or not case.causes)
        and (core == cpu or not case.on_core)
        and (case.sentence is None or any(map(case.sentence.search, said)))
    )
    true_too = busy and named == "other_task"
    certain = bool(about.get("certain"))
    wrong = headline["verdict"] == "cause" and not right and not true_too
    return {
        "verdict": headline["verdict"],
        "cause": named,
        "cpu": core,
        "certain": certain,
        "right": right,
        "wrong_certain": wrong and certain,
        "plain": headline["plain"],
    }


def investigate(made: Made, minutes: float, folder: Path) -> dict[str, Any]:
    """What the command says; an answer with the verdict ``failed`` where it says nothing.

    The command starts in its control group, and ends when this process does.
    """
    argv = [sys.executable, "-m", "perflib", "investigate", "--json", *made.arguments]
    argv += ["--minutes", f"{minutes:g}", "--out", str(folder / "report")]
    start = [sys.executable, __file__, "--become", shlex.join(argv)]
    if made.group is not None:
        start += ["--group", str(made.group)]
    environment = {**os.environ, "PERFLIB_HOME": str(folder / "home")}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        start, stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True
    ) as process:
        try:
            output, errors = process.communicate(timeout=120 * minutes + 300)
        except subprocess.TimeoutExpired:
            return _failed("it did not end in twice its time and five minutes")
        finally:
            _end(process)
    try:
        answer: dict[str, Any] = json.loads(output)
    except json.JSONDecodeError:
        tail = " ".join(errors.split()[-60:])
        return _failed(f"status {process.returncode}, no JSON: {tail}")
    return answer


def _failed(why: str) -> dict[str, Any]:
    return {"headline": {"verdict": "failed", "plain": why, "about": {}, "cause": None}}


def _end(process: subprocess.Popen[str]) -> None:
    """Interrupt it, so that it puts back what it changed; kill what does not end."""
    with contextlib.suppress(ProcessLookupError):
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
        os.killpg(process.pid, signal.SIGKILL)


def _become(command: str, group: Path | None) -> NoReturn:
    """Enter the group and turn into a command that ends with its parent."""
    _die_with_parent(signal.SIGTERM)
    if group is not None:
        (group / "cgroup.procs").write_text(str(os.getpid()))
    argv = shlex.split(command)
    os.execvp(argv[0], argv)


def run_case(name: str, cpu: int, given: argparse.Namespace, jobs: Path) -> dict[str, Any]:
    """Make a case, investigate, and print a line."""
    begin, begin_busy_s = time.monotonic(), _busy_s()
    with tempfile.TemporaryDirectory() as folder, CASES[name].make(cpu, jobs) as made:
        answer = investigate(made, given.minutes, Path(folder))
    seconds = time.monotonic() - begin
    record = {
        "case": name,
        "busy": given.load,
        "case_cpu": cpu if CASES[name].on_core else None,
        **judge(CASES[name], answer, cpu, busy=given.load),
        "seconds": seconds,
        "truth": made.truth,
        "others_percent": 100 * (_busy_s() - begin_busy_s) / seconds,
    }
    busy = "busy" if given.load else "quiet"
    core = "-" if record["case_cpu"] is None else f"cpu{cpu}"
    print(f"{name} {core}, {busy}: {'right' if record['right'] else 'WRONG'}: {record['verdict']}, "
          f"cause {record['cause']}, cpu {record['cpu']}, certain {record['certain']}, "
          f"{seconds:.0f} s: {record['plain']} [{made.truth}; others kept the cores busy for "
          f"{record['others_percent']:.0f} % of one]", flush=True)  # fmt: skip
    return {**record, "answer": answer}


def table(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lines: for each case how many runs were right, and how many wrong and certain."""
    yield f"{'case':18s} runs  right cause first  wrong cause called certain"
    for name in dict.fromkeys(one["case"] for one in records):
        mine = [one for one in records if one["case"] == name]
        right, wrong = (sum(one[key] for one in mine) for key in ("right", "wrong_certain"))
        yield f"{name:18s} {len(mine):4d}  {right:17d}  {wrong:26d}"


def main() -> None:
    """Make the cases, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=8.0, help="that an investigation may take")
    parser.add_argument("--load", action="store_true", help="beside processes on both cores")
    parser.add_argument("--out", type=Path)
    for name in ("--trouble", "--become"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--group", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.become:
        _become(given.become, given.group)
    if given.trouble:
        _die_with_parent(signal.SIGTERM)
        _TROUBLE[given.trouble](given.number)
    names = given.cases.split(",")
    if unknown := set(names) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    cores = sorted(os.sched_getaffinity(0))[:2]
    if os.geteuid() != 0 or len(cores) < 2 or platform.machine() != "x86_64":
        parser.error("the cases take root and two cores of an x86-64 processor")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    records = []
    with (
        tempfile.TemporaryDirectory() as jobs,
        load() if given.load else contextlib.nullcontext(),
    ):
        for run in range(given.runs):
            for place, name in enumerate(names):
                cpu = cores[(run + place) % 2]
                records.append(run_case(name, cpu, given, Path(jobs)))
                if given.out:
                    given.out.write_text(json.dumps(records, indent=1) + "\n")
    print("\n".join(table(records)))


if __name__ == "__main__":
    main()
