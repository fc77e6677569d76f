"""One trial of alias_offsets: a function timed at every offset, in random order, in its worker."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perflib.experiments.aliasing.addresses import LINE_BYTES, PERIOD_BYTES
from perflib.experiments.aliasing.offsets.functions import DGEMV, FUNCTIONS, Configuration
from perflib.framework.brackets import bracket_columns, core_mhz
from perflib.framework.results import results
from perflib.kernels import Build, build, record
from perflib.machine.libraries.blas import ONE_THREAD, Blas
from perflib.measure.conditions import Conditions
from perflib.measure.process import Out, Worker, WorkerError
from perflib.measure.schedule import Columns
from perflib.measure.workers import Workers
from perflib.model.errors import MeasurementError

# Columns of samples, and the fields of the kernel's that they are.
_COLUMNS = {
    "calls": "calls", "first_address": "first", "second_address": "second",
    "others_ns": "others_ns", "involuntary_switches": "involuntary_switches",
}  # fmt: skip
_TIMEOUT_S = 120.0
_MOST_OTHERS = 0.02  # share of the time that other threads may take, as clocks are read in turn
_OTHERS_NS = 20_000
_LONG_NS = 1_000_000
# Shorter than the segments in which a sibling works, longer than the probes (8 microseconds).
_SLICE_MS = 0.25
_ANSWER_BYTES = 512
_TOGETHER_DISTANCE = 2048
TRIAL = (_TOGETHER_DISTANCE,) * 3  # offsets of the calls that say how long one takes
_STAGES = {1: "its arguments", 2: "its memory", 3: "the library", 4: "its result"}


def fitting(routine: str, offsets: Iterable[int]) -> list[int]:
    """Those of the offsets that are multiples of the routine's items."""
    return [offset for offset in offsets if offset % (8 if routine == DGEMV else 4) == 0]


def visiting(seed: str, offsets: Sequence[int], visits: int) -> list[int]:
    """All offsets so many times, in a fresh random order each time."""
    draw = random.Random(seed)
    return [offset for _ in range(visits) for offset in draw.sample(offsets, len(offsets))]


class OffsetTrials(Workers):
    """A worker for each build of the kernel and for each BLAS library, on each core.

    Parameters
    ----------
    configurations
        What is measured.
    conditions
        What the workers of each core are to have.
    libraries
        Those that configurations name.
    offsets
        In bytes; a function is given those that are multiples of its items.
    seed
        Of the order of the offsets in each trial.
    together
        Both buffers shift, in whole cache lines: the null test.
    """

    def __init__(
        self,
        configurations: Sequence[Configuration],
        conditions: Sequence[Conditions],
        libraries: Sequence[Blas],
        offsets: Sequence[int],
        *,
        seed: int,
        together: bool = False,
    ) -> None:
        builds = {one.build: _built(one) for one in configurations}
        if libraries:
            conditions = [
                replace(one, environment={**ONE_THREAD, **one.environment}) for one in conditions
            ]
        super().__init__(list(builds.values()), conditions)
        self._first = {name: i * len(conditions) for i, name in enumerate(builds)}
        self.configurations = configurations
        self._conditions = conditions
        self._libraries = {library.name: library for library in libraries}
        self._offsets = list(offsets)
        self._seed = seed
        self._together = together
        self._opened: dict[Worker, int | None] = {}
        self._checksums: dict[str, int] = {}

    def take(self, round_: int, which: int) -> Columns:
        """Every offset as often as the configuration says, in a fresh random order each time."""
        wanted = self.configurations[which]
        fit = fitting(wanted.routine, self._offsets)
        offsets = visiting(f"{self._seed}/{round_}/{which}", fit, wanted.visits)
        samples = self.sweep(wanted, offsets)
        ok, timed = self._usable(wanted, offsets, samples), samples["timed"]
        cpu = self._conditions[wanted.core].cpu
        return {
            "cpu": [cpu] * len(offsets),
            **{name: [value] * len(offsets) for name, value in wanted.swept.columns.items()},
            "offset_bytes": offsets,
            "start_ns": timed["start_ns"].tolist(),
            "time_ns": timed["time_ns"].tolist(),
            **{column: samples[name].tolist() for column, name in _COLUMNS.items()},
            **bracket_columns(timed),
            "core_mhz": core_mhz(timed).round(1).tolist(),
            "ok": ok.tolist(),
            **results(
                [self._checksums[wanted.swept.name]] * len(offsets), samples["checksum"].tolist()
            ),
        }

    def sweep(self, wanted: Configuration, offsets: Sequence[int]) -> NDArray[Any]:
        """The kernel's ``offset_sample`` of each offset, in the order given.

        Raises
        ------
        WorkerError
            The worker died, or took too long.
        MeasurementError
            The kernel refused, or the library cannot be opened.
        """
        worker = self[self._first[wanted.build] + wanted.core]
        # Both shift by whole lines: a place in a line has a cost of its own.
        shifts = np.array(offsets, dtype=np.int64)
        if self._together:
            shifts = shifts // LINE_BYTES * LINE_BYTES
        function, number = "offsets_sweep", FUNCTIONS.get(wanted.routine, 0)
        if wanted.routine == DGEMV:
            self._open(wanted, worker)
            function, number = "blas_sweep", int(wanted.order == "column")
        answer, (samples,) = worker.call(
            function, number, wanted.n, shifts, len(shifts),
            int(self._together), wanted.warm_calls, wanted.calls,
            Out(record(worker.target, "offset_sample"), len(shifts)), timeout_s=_TIMEOUT_S,
        )  # fmt: skip
        if answer:
            msg = f"{wanted.swept.name}: {_explained(int(answer))}"
            raise MeasurementError(msg)
        return samples

    def _open(self, wanted: Configuration, worker: Worker) -> None:
        """Open the library in its worker, anew where the worker was."""
        if worker.pid is not None and self._opened.get(worker) == worker.pid:
            return
        library = self._libraries[wanted.build]
        words = [
            np.frombuffer(os.fsencode(word) + b"\0", dtype=np.uint8)
            for word in (library.path, library.dgemv, library.set_threads)
        ]
        answer, (text,) = worker.call(
            "blas_open", *words, Out("u1", _ANSWER_BYTES), _ANSWER_BYTES, timeout_s=_TIMEOUT_S
        )
        if answer:
            why = text.tobytes().partition(b"\0")[0].decode(errors="replace")
            msg = f"{library.path} cannot be used: {why or _explained(int(answer))}"
            raise MeasurementError(msg)
        self._opened[worker] = worker.pid

    def _usable(
        self, wanted: Configuration, offsets: Sequence[int], samples: NDArray[Any]
    ) -> NDArray[np.bool_]:
        """Which samples are what they should be; why the others are not is a problem of the run."""
        cpu, name = self._conditions[wanted.core].cpu, wanted.swept.name
        first = self._checksums.setdefault(name, int(samples["checksum"][0]))
        apart = _TOGETHER_DISTANCE if self._together else np.array(offsets) % PERIOD_BYTES
        others = np.maximum(samples["timed"]["time_ns"] * _MOST_OTHERS, _OTHERS_NS)
        checks = {
            f"the thread migrated from cpu{cpu}": samples["cpu"] == cpu,
            "its result differs from sample to sample": samples["checksum"] == first,
            "the buffers are not where they should be": (
                (samples["second"] - samples["first"]) % PERIOD_BYTES == apart
            ),
            "other threads of the process took time, although it is to use one": (
                samples["others_ns"] <= others
            ),
        }
        for words, right in checks.items():
            if not right.all():
                self.problems[f"{name}: {words}"] = None
        return np.asarray(np.all(list(checks.values()), axis=0))


def _built(wanted: Configuration) -> Build:
    if wanted.routine == DGEMV:
        return build("alias_blas")
    return build("alias_offsets", variant=wanted.build)


def _explained(answer: int) -> str:
    stage, number = divmod(answer, 1 << 16)
    return f"the kernel refused {_STAGES.get(stage, stage)}: {os.strerror(number)}"


def calls_for(trial_ns: Sequence[float], sample_ms: float) -> tuple[int, int, int]:
    """Calls and warm-up calls of a sample, and samples of each offset in a round.

    Several short samples are better than a long one, of which whoever else uses the core would
    lengthen each. A call that is itself long is one sample, and is not warmed up by another.

    Parameters
    ----------
    trial_ns
        Times of single calls.
    sample_ms
        How long each offset is timed in a round.
    """
    each_ns = max(float(min(trial_ns)), 1.0)
    calls = max(1, round(min(sample_ms, _SLICE_MS) * 1e6 / each_ns))
    visits = max(1, round(sample_ms * 1e6 / (calls * each_ns)))
    return calls, max(int(each_ns < _LONG_NS), calls // 10), visits


def with_calls(
    trials: OffsetTrials, configurations: Sequence[Configuration], sample_ms: float
) -> list[Configuration]:
    """Configurations with as many calls and samples as take ``sample_ms`` at an offset.

    They come with one call a sample, and those of one name get the same on all cores. First calls
    take longer, so that the number is found from one call, and then from as many as that says.
    """
    counted: dict[str, tuple[int, int, int]] = {}
    found = []
    for one in configurations:
        name = one.swept.name
        if name not in counted:
            tried = one
            for _ in range(2):
                try:
                    samples = trials.sweep(tried, TRIAL)
                except WorkerError as error:
                    raise MeasurementError(str(error)) from error
                each_ns = samples["timed"]["time_ns"] / tried.calls
                counted[name] = calls_for(each_ns.tolist(), sample_ms)
                tried = tried._replace(calls=counted[name][0])
        calls, warm_calls, visits = counted[name]
        found.append(one._replace(calls=calls, warm_calls=warm_calls, visits=visits))
    return found
