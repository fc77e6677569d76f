"""One trial of a sweep over the size of the code: place it on its pages, verify, run, verify."""

from __future__ import annotations

import contextlib
import math
import os
import re
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from perflib.experiments.code_size.table import COMPILED, RINGS
from perflib.framework.brackets import BRACKET_COLUMNS, bracket_columns, core_mhz
from perflib.framework.page_control import timed_pairs
from perflib.framework.results import results
from perflib.framework.watch import Watch
from perflib.instruments.counters.events import event
from perflib.instruments.counters.groups import CounterGroup
from perflib.instruments.counters.watched import watch
from perflib.kernels import Build, record
from perflib.machine.activity.interrupts import CoreActivity, core_activity
from perflib.machine.hardware.pmu import pmu
from perflib.measure.conditions import Conditions
from perflib.measure.launch import command
from perflib.measure.pages import smaps
from perflib.measure.pages.kinds import BACKINGS, SMALL_PAGES
from perflib.measure.pages.refusals import explain
from perflib.measure.process import Out, Worker, WorkerError
from perflib.measure.schedule import Columns
from perflib.measure.workers import Workers
from perflib.model.errors import MeasurementError, UserError

PATTERNS = {"random": 0, "page": 1, "chase": 2, "line": 3, COMPILED: 4}
_PAGE_KIB, _HUGE_KIB = 4, 2048
_TIMEOUT_S = 60.0
_JUMP_BYTES = 5  # of a ring
_LEAST_STEPS = 2000
SAMPLE_MS = 0.3  # long compared with its probes, short with what a sibling does
_PILOT_SAMPLES = 4
_MOST_TIMES = 3  # as many samples as a trial has, where too few of them are alone
_ENOUGH = 3  # alone samples of a trial: their median is none that an interrupt made
_VISITS = 2  # warm-up: so many steps a piece of code leave one in seven untouched
_NEAR_REACH = (0.4375, 0.5, 0.5625, 0.625, 0.75, 0.875, 1.0, 1.125, 1.25)
_DUMPS = 2  # before and after
_EVENT = "iTLB-load-misses:u"
_MISSES = "itlb_misses"
_MEASURED = (  # unless the trial failed before, or was made by a program
    "core_mhz",
    "huge_bytes",
    "involuntary_switches",
    *(column.name for column in BRACKET_COLUMNS),
)
_TUPLE = re.compile(r"\((\d+), ([\d.]+), (\d+)\)")


class CodeConfiguration(NamedTuple):
    """What one trial measures, and in which rounds.

    ``core`` counts the run's cores from 0, ``steps`` are a sample's. It is visited in the first
    round, and in each ``every``-th.
    """

    core: int
    pattern: str
    n: int
    backing: str
    steps: int
    every: int = 1
    phase: int = 0

    def visited(self, round_: int) -> bool:
        """Is it measured in this round?"""
        return round_ == 0 or (round_ + self.phase) % self.every == 0


@dataclass(frozen=True)
class Bounds:
    """How large the code of a kernel is: pieces (cases, functions) and pages.

    ``compiled``, ``compiled_bytes``: cases of the compiled switch, and the size of all of them.
    """

    most: int
    piece_bytes: int
    chase_pages: int
    text_bytes: int
    compiled: int = 0
    compiled_bytes: int = 0

    def bytes_each(self, pattern: str) -> float:
        """How much a piece adds to the extent of the code; the compiler's cases in the mean."""
        if pattern == COMPILED:
            return self.compiled_bytes / self.compiled
        return self.piece_bytes if pattern == "random" else _PAGE_KIB << 10

    def most_of(self, pattern: str) -> int:
        """How many pieces a pattern has at most."""
        if pattern in RINGS:
            return self.chase_pages
        if pattern == COMPILED:
            return self.compiled
        return int(self.most * self.piece_bytes / self.bytes_each(pattern))

    def pieces(
        self, patterns: Iterable[str], sizes_kib: Iterable[int], reach_kib: int = 0
    ) -> dict[str, list[int]]:
        """How many pieces of code make the sizes, each number once: ``{pattern: [n]}``.

        A ring of the pattern ``line``, the control of the chase, has as many jumps as the chase of
        that size. Between the smallest and the largest size the rings have more sizes, near the
        instruction TLB's reach and near half of it, which is what two threads leave each other.
        Of the compiled switch, which is smaller, larger sizes are left out where smaller ones stay.

        Raises
        ------
        UserError
            A size beyond what was built, or below one piece.
        """
        found: dict[str, list[int]] = {}
        wanted = sorted(sizes_kib)
        near = [int(part * reach_kib) // _PAGE_KIB * _PAGE_KIB for part in _NEAR_REACH]
        near = [size for size in near if wanted[0] < size < wanted[-1]]
        for pattern in patterns:
            bytes_each, most = self.bytes_each(pattern), self.most_of(pattern)
            mine = sorted({*wanted, *near}) if pattern in RINGS else wanted
            if pattern == COMPILED:
                mine = [size for size in wanted if size << 10 <= most * bytes_each] or wanted
            numbers = {size: int((size << 10) / bytes_each) for size in mine}
            for size, n in numbers.items():
                if not 1 <= n <= most:
                    low, high = math.ceil(bytes_each / 1024), int(most * bytes_each / 1024)
                    msg = (
                        f"sizes_kib: {size} KiB is not available with pattern {pattern!r}: its "
                        f"code goes from {low} to {high} KiB"
                    )
                    raise UserError(msg)
            found[pattern] = list(dict.fromkeys(numbers.values()))
        return found

    def huge_pages(self, pieces: Mapping[str, Sequence[int]]) -> int:
        """2 MiB pages that one process needs: of the code, and of what is about to replace it."""
        chase_kib = _PAGE_KIB * max(pieces.get("chase", ()), default=0)
        pages = -(-chase_kib // _HUGE_KIB)
        if set(pieces) - {*RINGS, COMPILED}:
            pages += self.text_bytes // (_HUGE_KIB << 10)
        if COMPILED in pieces:
            pages += -(-self.compiled_bytes // (_HUGE_KIB << 10))
        return 2 * pages


def bounds_of(build: Build, conditions: Conditions) -> Bounds:
    """Ask a kernel how large its code is."""
    with Worker(build, conditions) as worker:
        _, (out,) = worker.call("code_bounds", Out("i8", 10), timeout_s=_TIMEOUT_S)
    text_bytes, compiled_bytes = int(out[6] - out[5]), int(out[9] - out[8])
    return Bounds(int(out[0]), int(out[1]), int(out[4]), text_bytes, int(out[7]), compiled_bytes)


def _warm_steps(pattern: str, n: int) -> int:
    return max(2 * n if pattern in RINGS else _VISITS * n, _LEAST_STEPS)


def _place(worker: Worker, pattern: str, n: int, backing: str, seed: int) -> tuple[int, int, int]:
    """Place the code: the kernel's answer (0: it is there), and the range of addresses."""
    answer, (where,) = worker.call(
        "code_lay", PATTERNS[pattern], n, BACKINGS[backing], seed, Out("u8", 2),
        timeout_s=_TIMEOUT_S,
    )  # fmt: skip
    return int(answer), int(where[0]), int(where[1])


def _run(worker: Worker, pattern: str, warm_steps: int, steps: int, samples: int) -> NDArray[Any]:
    """Samples in a row, after warm-up."""
    answer, (done,) = worker.call(
        "code_run",
        warm_steps,
        steps,
        samples,
        Out(record(worker.target.name, "code_sample"), samples),
        timeout_s=_TIMEOUT_S,
    )
    if answer:
        msg = f"code_run() of pattern {pattern!r} fails: {os.strerror(int(answer))}"
        raise MeasurementError(msg)
    found: NDArray[Any] = done
    return found


def calibrate(
    build: Build,
    conditions: Conditions,
    pieces: Mapping[str, Sequence[int]],
    backings: Sequence[str],
    sample_ms: float,
) -> tuple[dict[tuple[str, int], int], dict[str, str]]:
    """Steps that take about ``sample_ms``, by pattern and n; and the backings that fail here."""
    steps: dict[tuple[str, int], int] = {}
    failed: dict[str, str] = {}
    with Worker(build, conditions) as worker:
        for pattern, numbers in pieces.items():
            for name in backings:
                if name in BACKINGS and name not in failed:
                    answer, begin, end = _place(worker, pattern, max(numbers), name, 1)
                    if answer:
                        failed[name] = explain(name, answer)
                    elif lacking := _violated(name, worker, begin, end):
                        failed[name] = lacking
            for n in numbers:
                answer, _, _ = _place(worker, pattern, n, SMALL_PAGES, 1)
                if answer:
                    raise MeasurementError(explain(SMALL_PAGES, answer))
                done = _run(worker, pattern, _warm_steps(pattern, n), _LEAST_STEPS, _PILOT_SAMPLES)
                each_ns = max(float((done["sample"]["time_ns"] / done["steps"]).min()), 1e-3)
                steps[pattern, n] = max(int(sample_ms * 1e6 / each_ns), n)
    return steps, failed


def _violated(backing: str, worker: Worker, begin: int, end: int) -> str:
    return smaps.violated(backing, _pages(worker, begin, end))


def _pages(worker: Worker, begin: int, end: int) -> smaps.TextPages:
    if worker.pid is None:
        msg = f"the worker of kernel {worker.target.name!r} is gone"
        raise WorkerError(msg)
    try:
        return smaps.backing_of(smaps.read(worker.pid), begin, end)
    except MeasurementError as error:  # it was killed just now
        worker.kill()
        raise WorkerError(str(error)) from error


def page_reach(
    build: Build, conditions: Conditions, backings: Sequence[str]
) -> dict[str, list[list[float]]]:
    """The times of the control of page sizes, for the plan; see ``timed_pairs``."""
    with Worker(build, conditions) as worker:

        def pair(name: str, seed: int) -> list[float] | None:
            answer, (times, where) = worker.call(
                "code_page_reach", BACKINGS[name], seed, Out("f8", 2), Out("u8", 2),
                timeout_s=_TIMEOUT_S,
            )  # fmt: skip
            failed = answer or _violated(name, worker, int(where[0]), int(where[1]))
            return None if failed else list(times)

        return timed_pairs([name for name in backings if name in BACKINGS], pair)


class CodeTrials(Workers):
    """A worker on each core, which places the code anew in every trial.

    One process measures all backings of a core, so that process-to-process variation is not taken
    for an effect of the pages. Each trial has fresh pages, so that their physical place
    widens the interval.
    """

    def __init__(
        self,
        build: Build,
        program: Build | None,
        conditions: Sequence[Conditions],
        configurations: Sequence[CodeConfiguration],
        *,
        piece_bytes: int,
        trial_ms: float,
        seed: int,
        perf_map: bool,
    ) -> None:
        super().__init__(build, conditions)
        self._program = program
        self._conditions = conditions
        self._configurations = configurations
        self._piece_bytes = piece_bytes
        self._samples = max(round(trial_ms / SAMPLE_MS), 1)
        self._watch = Watch()
        self._seed = seed
        self._perf_map = perf_map
        self._maps: set[Path] = set()
        self._checksums: dict[tuple[int, str, int], list[int]] = {}
        self._counters: dict[int, tuple[int, CounterGroup]] = {}
        self._columns: list[str] = []
        self._counts = False

    def __enter__(self) -> Self:
        super().__enter__()
        known = _activity(core_activity(self._conditions[0].cpu or 0))
        self._counts = bool(pmu().available)
        self._columns = [*_MEASURED, *known]
        if self._opened(0, self[0]) is not None:
            self._columns.append(_MISSES)
        return self

    def __exit__(self, *_: object) -> None:
        for _pid, group in self._counters.values():
            group.close()
        super().__exit__()
        for path in self._maps:
            path.unlink(missing_ok=True)

    def provenance(self) -> dict[str, Any]:
        """Kernel and conditions."""
        program = {"program": self._program.provenance} if self._program else {}
        return super().provenance() | program

    def take(self, round_: int, configuration: int) -> Columns:
        """Samples in a row, none where the round leaves the configuration out.

        The code's order is the same for all configurations of a round.
        """
        wanted = self._configurations[configuration]
        if not wanted.visited(round_):
            return {}
        cpu = self._conditions[wanted.core].cpu
        assert cpu is not None
        start_ns = time.monotonic_ns()
        if wanted.backing == "hugectl":
            values = self._by_program(wanted, cpu, self._seed + round_)
        else:
            values = self._by_worker(wanted, cpu, round_)
        labels = {
            "cpu": cpu,
            "pattern": wanted.pattern,
            "backing": wanted.backing,
            "n": wanted.n,
            "start_ns": start_ns,
        }
        unknown = dict.fromkeys(self._columns, math.nan)
        columns = labels | unknown | values
        count = max(len(value) for value in columns.values() if isinstance(value, list))
        return {
            name: value if isinstance(value, list) else [value] * count
            for name, value in columns.items()
        }

    # --- in a worker -----------------------------------------------------------------------------

    def _by_worker(self, wanted: CodeConfiguration, cpu: int, round_: int) -> dict[str, Any]:
        worker = self[wanted.core]
        answer, begin, end = _place(
            worker, wanted.pattern, wanted.n, wanted.backing, self._seed + round_
        )
        if answer:
            self.problems[
                f"{wanted.backing}, in some trials: {explain(wanted.backing, answer)}"
            ] = None
            return {"code_bytes": 0, "steps": 0, "time_ns": [math.nan], "ok": False}
        self._write_map(worker)
        # Copies on small pages are advised against huge ones: what is small afterwards always was.
        before_too = wanted.backing != SMALL_PAGES
        lacking = _violated(wanted.backing, worker, begin, end) if before_too else ""
        counters = self._opened(wanted.core, worker)
        before = core_activity(cpu)
        if counters is not None:
            counters.reset()
        done = self._until_alone(worker, wanted, cpu)
        misses = float(counters.read()["scaled"].iloc[0]) if counters is not None else None
        meanwhile = core_activity(cpu) - before
        pages = _pages(worker, begin, end)
        lacking = lacking or smaps.violated(wanted.backing, pages)
        if lacking:
            self.problems[f"{wanted.backing}, in some trials: {lacking}"] = None
        checksums = done["checksum"].tolist()
        known = self._known(wanted, round_, checksums, cpu)
        right = done["checksum"] == np.array(known, np.uint64)
        here = done["cpu"] == cpu
        if not here.all():
            self.problems[f"in some trials the thread migrated from cpu{cpu}"] = None
        # A compiled case is as large as an assembled one, within a few bytes.
        last_bytes = _JUMP_BYTES if wanted.pattern in RINGS else self._piece_bytes
        sample = done["sample"]
        counted = _activity(meanwhile) | ({_MISSES: misses} if misses is not None else {})
        return {
            "code_bytes": int(done["last_ip"].max()) + last_bytes - int(done["first_ip"].min()),
            "steps": done["steps"].tolist(),
            "time_ns": sample["time_ns"].astype(float).tolist(),
            "start_ns": sample["start_ns"].tolist(),
            "core_mhz": core_mhz(sample).tolist(),
            "huge_bytes": pages.huge_bytes,
            **bracket_columns(sample),
            **{name: count / len(done) for name, count in counted.items()},
            "involuntary_switches": done["involuntary_switches"].tolist(),
            "ok": (right & here & (not lacking)).tolist(),
            **results(known, checksums),
        }

    def _until_alone(self, worker: Worker, wanted: CodeConfiguration, cpu: int) -> NDArray[Any]:
        """The samples of a trial: more of them where too few had the core alone."""
        pattern, warm_steps = wanted.pattern, _warm_steps(wanted.pattern, wanted.n)
        done = _run(worker, pattern, warm_steps, wanted.steps, self._samples)
        enough = min(_ENOUGH, self._samples)
        for _ in range(1, _MOST_TIMES):
            alone = self._watch.alone(cpu, done["sample"])
            if alone is None or alone >= enough:
                break
            # The code continues; what another task put in its place meanwhile is warmed up.
            more = _run(worker, pattern, wanted.steps, wanted.steps, self._samples)
            done = np.concatenate([done, more])
        self._watch.add(cpu, done["sample"])
        return done

    def _known(
        self, wanted: CodeConfiguration, round_: int, checksums: list[int], cpu: int
    ) -> list[int]:
        """What the first core of the round computed in these samples."""
        known = self._checksums.setdefault((round_, wanted.pattern, wanted.n), [])
        known += checksums[len(known) :]
        if known[: len(checksums)] != checksums:
            self.problems[
                f"cpu{cpu} ran other code than the first core of its round, or ran it wrongly: a "
                "core or memory that is broken is the likeliest cause"
            ] = None
        return known[: len(checksums)]

    def _write_map(self, worker: Worker) -> None:
        """Names for a profiler that attaches: the code is no longer in the library's file."""
        path = Path(f"/tmp/perf-{worker.pid}.map")  # noqa: S108 (where perf looks)
        if not self._perf_map or path in self._maps:
            return
        self._maps.add(path)
        raw = np.frombuffer(bytes(path) + b"\0", dtype=np.uint8)
        answer, _ = worker.call("code_write_map", raw, timeout_s=_TIMEOUT_S)
        if answer:
            self.problems[f"{path} cannot be written: {os.strerror(int(answer))}"] = None

    def _opened(self, core: int, worker: Worker) -> CounterGroup | None:
        """A counter of iTLB misses on the worker, where the processor has one."""
        if not self._counts or worker.pid is None:
            return None
        pid, group = self._counters.get(core, (0, None))
        if group is None or pid != worker.pid:
            if group is not None:
                group.close()
            group = CounterGroup([event(_EVENT)], watch(pid=worker.pid))
            group.enable()
            self._counters[core] = (worker.pid, group)
        if group.refused:
            self.problems[f"iTLB misses are not counted: {group.refused[_EVENT]}"] = None
            return None
        return group

    # --- as a program ----------------------------------------------------------------------------

    def _by_program(self, wanted: CodeConfiguration, cpu: int, seed: int) -> dict[str, Any]:
        """Time and pages as the program under hugectl reports them."""
        assert self._program is not None
        words = ["hugectl", "--text", str(self._program.library), "--smaps"]
        words += ["--pattern", wanted.pattern]
        steps = self._samples * wanted.steps
        words += ["--steps", str(steps), "--seed", str(seed), str(wanted.n)]
        argv, environment = command(self._conditions[wanted.core], words)
        before = core_activity(cpu)
        try:
            answer = subprocess.run(
                argv, env=environment, capture_output=True, text=True, check=False,
                timeout=_TIMEOUT_S,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise WorkerError(str(error)) from error
        meanwhile = core_activity(cpu) - before
        printed = _TUPLE.search(answer.stdout)
        if answer.returncode or printed is None:
            msg = f"{' '.join(words)} ended with status {answer.returncode}: {answer.stderr[:500]}"
            raise WorkerError(msg)
        found = _dumped_pages(answer.stderr)
        lacking = next(filter(None, map(_violated_by_program, found)), "")
        if len(found) != _DUMPS:
            lacking = "the program did not report its pages"
        if lacking:
            self.problems[f"{wanted.backing}, in some trials: {lacking}"] = None
        return {
            "code_bytes": int(printed[1]),
            "steps": steps,
            "time_ns": [float(printed[2]) * 1e9],
            "huge_bytes": found[-1].huge_bytes if found else 0,
            **_activity(meanwhile),
            "ok": not lacking,
        }


def _activity(meanwhile: CoreActivity) -> dict[str, int]:
    """What this kernel counts."""
    counts = {
        "softirqs": meanwhile.softirqs,
        "interrupts": meanwhile.interrupts,
        "switches": meanwhile.switches,
    }
    return {name: count for name, count in counts.items() if count is not None}


def _violated_by_program(pages: smaps.TextPages) -> str:
    """A program's text comes into memory as it is touched: what is there must be on huge pages."""
    return smaps.violated("hugectl", replace(pages, size_bytes=max(pages.resident_bytes, 1)))


def _dumped_pages(text: str) -> list[smaps.TextPages]:
    """What ``--smaps`` wrote: the pages before and after the timing."""
    found = []
    for part in text.split("range ")[1:]:
        head, _, rest = part.partition("\n")
        with contextlib.suppress(ValueError):
            begin, end = (int(word, 16) for word in head.split())
            found.append(smaps.backing_of(rest.partition("\nend\n")[0], begin, end))
    return found
