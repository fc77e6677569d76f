"""One trial of cache coherence: disjoint pairs of cores, everything that is measured of each."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from perflib.experiments.core_pairs.coherence.names import (
    ACCESSES,
    ALONE,
    LAYOUT_CONTROL,
    LAYOUTS,
    PROTOCOLS,
    STATES,
    WITH_THIRD,
    way_of,
)
from perflib.experiments.core_pairs.coherence.plan import Pair, PairConfiguration, What
from perflib.experiments.core_pairs.coherence.planned import Deciding
from perflib.kernels import record
from perflib.measure.process import Out, WorkerError
from perflib.measure.schedule import Columns
from perflib.model.errors import MeasurementError

SAMPLE = record("coherence", "coherence_sample")
_CPU, _MEMORY, _THREAD, _LATE = 2, 4, 5, 6  # stages of the kernel's answers
_EACH_S, _AT_LEAST_S = 20e-6, 2.0  # far more than an exchange or a line takes anywhere
_WORKER_S = 30.0
_NOBODY = -1
_ALONE_PAIRS = 4  # that are measured alone, too, in each round


class Call(NamedTuple):
    """One call of the kernel."""

    what: What
    owner: int
    requester: int
    third: int
    control: str
    seed: int


class Caller(Protocol):
    """What a worker is used for here."""

    def begin(self, function: str, *arguments: float | Out | NDArray[Any]) -> None:
        """Begin a call."""

    def end(self, *, timeout_s: float) -> tuple[Any, list[NDArray[Any]]]:
        """Wait for the oldest that was begun."""

    def kill(self) -> None:
        """End the worker."""


# --- a trial -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Done:
    """A call that was answered."""

    slot: int
    call: Call
    answer: int
    samples: NDArray[Any]


class CoherenceTrials:
    """As many workers as pairs are measured at once; the kernel's threads are where they should be.

    All calls of a pair are handed to its worker together, in random order, so that this process
    sleeps while they are made.

    Parameters
    ----------
    workers
        Of the kernel ``coherence``, one for each pair of the largest configuration.
    configurations, whats, layouts
        What trials are of, what is measured of each pair, and of the pair that is the layouts'
        control.
    cores
        Those that a third reader is taken from.
    repeats, exchanges
        Samples in a call, and exchanges in a sample of a protocol.
    seed
        Of the orders, of where lines are, and of the third readers.
    deciding
        Which pairs a round visits, and what is measured of them; ``None``: all, everything.
    """

    def __init__(
        self,
        workers: Sequence[Caller],
        configurations: Sequence[PairConfiguration],
        whats: Sequence[What],
        layouts: Sequence[What],
        *,
        cores: Sequence[int],
        repeats: int,
        exchanges: int,
        seed: int,
        deciding: Deciding | None = None,
    ) -> None:
        self.workers = workers
        self._deciding = deciding
        self._configurations = configurations
        self._last_stage = max(one.stage for one in configurations)
        self._whats = whats
        self._layouts = layouts
        self._cores = cores
        self._repeats = repeats
        self._exchanges = exchanges
        self._seed = seed
        self._problems: dict[str, None] = {}

    @property
    def problems(self) -> list[str]:
        """What went wrong, each once."""
        return list(self._problems)

    def take(self, round_: int, configuration: int) -> Columns:
        """One row of each call; none of a configuration that is not of the round."""
        wanted = self._configurations[configuration]
        stage = min(round_, self._last_stage)
        if not wanted.control and wanted.stage != stage:
            return {}
        rng = random.Random(f"{self._seed}/{round_}/{configuration}")
        whats = self._layouts if wanted.control == LAYOUT_CONTROL else self._whats
        batches: list[tuple[Sequence[Pair], Sequence[What]]] = [(wanted.pairs, whats)]
        if wanted.control == ALONE:
            alone = self._alone(round_, stage, rng)
            batches = [batch for pair in alone for batch in self._of(round_, [pair])]
        elif not wanted.control:
            batches = self._of(round_, wanted.pairs)
        rows: list[dict[str, Any]] = []
        lost: list[WorkerError] = []
        for pairs, whats in batches:
            for phase in self._phases(pairs, whats, wanted.control, rng):
                done = self._together(phase, lost)
                rows += self._rows(done)
        if not rows and lost:
            raise lost[0]
        self._problems.update(dict.fromkeys(map(str, lost)))
        return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}

    def _of(
        self, round_: int, pairs: Sequence[Pair]
    ) -> list[tuple[Sequence[Pair], Sequence[What]]]:
        """What is measured of which of these pairs."""
        if self._deciding is None:
            return [(pairs, self._whats)]
        return [*self._deciding.batches(round_, pairs, self._whats)]

    def _alone(self, round_: int, stage: int, rng: random.Random) -> list[Pair]:
        """Some of the pairs that are measured with others in the rounds of a stage."""
        together = [one for one in self._configurations if one.stage == stage]
        among = [pair for one in together if len(one.pairs) > 1 for pair in one.pairs]
        if self._deciding is not None:
            among = self._deciding.of_round(round_, among)
        return rng.sample(among, min(_ALONE_PAIRS, len(among)))

    def _phases(
        self, pairs: Sequence[Pair], whats: Sequence[What], control: str, rng: random.Random
    ) -> Iterator[list[list[Call]]]:
        """Queues of calls, one a worker, that may be made at the same time.

        A third reader must not be a core of another pair that is being measured. So half of the
        pairs wait, and lend their cores to the others.
        """
        plain = [what for what in whats if what.state not in WITH_THIRD]
        if plain:
            order = rng.sample(plain, len(plain))
            yield [
                [self._call(what, pair, _NOBODY, control, rng) for what in order] for pair in pairs
            ]
        third = [what for what in whats if what.state in WITH_THIRD]
        if not third:
            return
        order = rng.sample(third, len(third))
        half = (len(pairs) + 1) // 2
        for active, resting in ((pairs[:half], pairs[half:]), (pairs[half:], pairs[:half])):
            free = [cpu for pair in resting for cpu in pair]
            if not resting:
                free = [cpu for cpu in self._cores if cpu not in active[0]]
            thirds = rng.sample(free, len(active))
            if active:
                yield [
                    [self._call(what, pair, cpu, control, rng) for what in order]
                    for pair, cpu in zip(active, thirds, strict=True)
                ]

    def _call(self, what: What, pair: Pair, third: int, control: str, rng: random.Random) -> Call:
        return Call(what, *pair, third, control, rng.getrandbits(62))

    # --- in the workers ---------------------------------------------------------------------------

    def _limit_s(self, call: Call) -> float:
        """How long all of its samples may take."""
        each = self._exchanges if call.what.kind == "protocol" else call.what.lines
        return _AT_LEAST_S + self._repeats * each * _EACH_S

    def _begin(self, worker: Caller, call: Call) -> None:
        what, limit_ns = call.what, round(self._limit_s(call) * 1e9)
        out = Out(SAMPLE, self._repeats)
        if what.kind == "protocol":
            worker.begin(
                "coherence_exchange", list(PROTOCOLS).index(what.name), call.requester, call.owner,
                self._exchanges, self._repeats, limit_ns, out,
            )  # fmt: skip
        else:
            worker.begin(
                "coherence_transfer", call.owner, call.requester, call.third,
                STATES.index(what.state), ACCESSES.index(what.access), LAYOUTS.index(what.layout),
                what.lines, self._repeats, call.seed, limit_ns, out,
            )  # fmt: skip

    def _together(self, queues: Sequence[Sequence[Call]], lost: list[WorkerError]) -> list[Done]:
        """Make the calls of each queue in a worker of its own, all at the same time."""
        done = []
        try:
            for worker, queue in zip(self.workers, queues, strict=False):
                for call in queue:
                    self._begin(worker, call)
            for slot, queue in enumerate(queues):
                for call in queue:
                    limit_s = self._limit_s(call) + _WORKER_S
                    try:
                        answer, (samples,) = self.workers[slot].end(timeout_s=limit_s)
                    except WorkerError as error:
                        lost.append(error)
                        break  # with the worker all that it still had to do is gone
                    done.append(Done(slot, call, int(answer), samples))
                    if int(answer) >> 16 == _LATE:  # the others would wait as long, for nothing
                        self.workers[slot].kill()
                        break
        except BaseException:  # an answer that came now would be taken for the next trial's
            for worker in self.workers:
                worker.kill()
            raise
        return done

    # --- rows -------------------------------------------------------------------------------------

    def _rows(self, done: Sequence[Done]) -> list[dict[str, Any]]:
        spans: dict[int, tuple[int, int]] = {}
        for one in done:
            begun = one.samples["begin_ns"][one.samples["count"] > 0]
            if begun.size:
                low, high = spans.get(one.slot, (begun[0], begun[0]))
                spans[one.slot] = min(low, begun[0]), max(high, begun[-1])
        rows = [self._row(one) for one in done]
        for row in rows:
            row["at_once"] = sum(
                bool(low <= row["start_ns"] <= high) for low, high in spans.values()
            )
        return rows

    def _row(self, one: Done) -> dict[str, Any]:
        """The call's median sample, and how the others scatter about it."""
        call, what = one.call, one.call.what
        labels = {
            "owner_cpu": call.owner, "requester_cpu": call.requester, "third_cpu": call.third,
            "what": what.name, "kind": what.kind, "way": way_of(what.name) or "one line",
            "state": what.state, "access": what.access, "layout": what.layout,
            "lines": what.lines, "control": call.control,
        }  # fmt: skip
        problem = _explained(one.answer, call, self._limit_s(call))
        taken = one.samples[one.samples["count"] > 0]
        if not len(taken):
            self._problems[problem or f"{_place(call)} gave no sample"] = None
            unknown = dict.fromkeys(_MEASURED, math.nan)
            return (
                labels | {"start_ns": time.monotonic_ns(), "samples": 0} | unknown | {"ok": False}
            )
        latency = _latency_ns(what, taken)
        order = np.argsort(latency, kind="stable")
        middle, quarter = int(order[(len(order) - 1) // 2]), (len(order) - 1) // 4
        expected = what.lines if what.kind == "transfer" else self._exchanges
        proven = float((taken["proven"] / expected).min())
        if not problem and proven != 1:
            problem = f"{_place(call)}: not every line, or exchange, was what it should be"
        if not problem and (taken["cpus"] != [call.requester, call.owner, call.third]).any():
            problem = f"{_place(call)}: a thread migrated from its core"
        if problem:
            self._problems[problem] = None
        sample = taken[middle]
        return labels | {
            "start_ns": int(sample["begin_ns"]),
            "samples": len(taken),
            "count": int(sample["count"]),
            "time_ns": int(sample["time_ns"]),
            "empty_ns": float(sample["empty_ns"]),
            "latency_ns": float(latency[middle]),
            "quarter_ns": float(latency[order[quarter]]),
            "three_quarters_ns": float(latency[order[-1 - quarter]]),
            "mean_ns": float(latency.mean()),
            "latency_cycles": float(latency[middle] * sample["core_mhz"] / 1e3),
            "core_mhz": float(sample["core_mhz"]),
            "proven": proven,
            "involuntary_switches": int(taken["involuntary_switches"].sum()),
            "ok": not problem and bool(latency[middle] > 0),
        }


_MEASURED = (
    "count", "time_ns", "empty_ns", "latency_ns", "quarter_ns", "three_quarters_ns", "mean_ns",
    "latency_cycles", "core_mhz", "proven", "involuntary_switches",
)  # fmt: skip


def _latency_ns(what: What, samples: NDArray[Any]) -> NDArray[np.float64]:
    """One of what was counted; the clock's own time is in a message's sum each time."""
    each = samples["time_ns"] / samples["count"]
    once = samples["empty_ns"] / (1 if what.name == "one_way_message" else samples["count"])
    return np.asarray(each - once)


def _place(call: Call) -> str:
    third = f" and cpu{call.third}" if call.third != _NOBODY else ""
    return f"cpu{call.owner} to cpu{call.requester}{third}"


def _explained(answer: int, call: Call, limit_s: float) -> str:
    """What the kernel's answer means; empty where all is well.

    Raises
    ------
    MeasurementError
        It was called wrongly.
    """
    if not answer:
        return ""
    stage, number = divmod(answer, 1 << 16)
    if stage == _CPU:
        return (
            f"{_place(call)}: a core cannot be used: it is offline, or this process may not run "
            "there (any more)"
        )
    if stage == _LATE:
        return (
            f"{_place(call)}: not done within {limit_s:.0f} s: another program kept one of the "
            "cores"
        )
    if stage in (_MEMORY, _THREAD):
        return f"{_place(call)}: no memory or no thread available: {os.strerror(number)}"
    msg = f"coherence refused its arguments (stage {stage}): {os.strerror(number)}"
    raise MeasurementError(msg)
