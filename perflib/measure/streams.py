"""Cores that stream through memory, in a process of their own: placed, begun, accounted for.

See ``kernels_c/memory_load.c``.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perflib.kernels import build, record
from perflib.measure.conditions import Conditions
from perflib.measure.pages.kinds import BACKINGS
from perflib.measure.pages.placement import misplaced, pages_by_node
from perflib.measure.pages.refusals import explain
from perflib.measure.process import Out, WorkerError
from perflib.measure.stream_kinds import KINDS
from perflib.measure.workers import Workers, refused
from perflib.model.errors import MeasurementError

CHUNK_BYTES = 4096
_ARENA = record("memory_load", "load_arena")
ACCOUNT = record("memory_load", "load_account")
RESULT = record("memory_load", "load_result")
_ARGUMENT = 1  # stages of the kernel's answers
_NO_THREAD = 7  # of the stages in an answer
_PLACE_S, _CALL_S = 120.0, 30.0
_MOVED = (1, 1, 1, 2, 2, 2, 3, 3)
LIMIT_S = 5.0  # threads end by themselves, and whoever waits for a short trial has given up
_BURST_BYTES = CHUNK_BYTES / 8  # of each array, before each wait
_PILOT_S, _PILOT_TRIES, _PILOT_DELAY = 0.01, 3, 1000
CACHE_CHUNKS = 2  # of three arrays, for each core: 24 KiB fit any first-level cache


def moved_by(kind: str) -> int:
    """How many arrays a kind reads or writes: STREAM's count."""
    return _MOVED[KINDS.index(kind)]


@dataclass
class _Placed:
    arena: NDArray[Any]
    pid: int | None
    next_chunk: int = 0


class Streams(Workers):
    """The arenas of one worker, each under a key, and the threads that stream through one of them.

    If the worker dies, its arenas are gone: they are placed again when they are needed.
    """

    def __init__(self, conditions: Conditions) -> None:
        super().__init__(build("memory_load"), [conditions])
        self._arenas: dict[Hashable, _Placed] = {}
        self._begun: _Placed | None = None
        self._cpus: list[int] = []

    def __contains__(self, key: Hashable) -> bool:
        placed = self._arenas.get(key)
        return placed is not None and placed.pid == self[0].pid

    def place(self, key: Hashable, *, array_bytes: int, backing: str, cpu: int, node: int | None
              ) -> str:  # fmt: skip
        """Three arrays, touched first on a core; why they are not on ``node``, or empty.

        Raises
        ------
        WorkerError
            The worker died, or took too long.
        """
        worker = self[0]
        answer, (arena,) = worker.call(
            "load_place", array_bytes, BACKINGS[backing], cpu, Out(_ARENA, 1), timeout_s=_PLACE_S
        )
        if answer:
            return _explained(backing, int(answer))
        placed = _Placed(arena.copy(), worker.pid)
        self._arenas[key] = placed
        if int(arena["cpu"][0]) != cpu:
            return f"the thread migrated from cpu{cpu} while it touched the pages"
        return "" if node is None else self._placement(placed, node)

    def _placement(self, placed: _Placed, node: int) -> str:
        assert placed.pid is not None
        begin, end = int(placed.arena["begin"][0]), int(placed.arena["end"][0])
        try:
            return misplaced(pages_by_node(placed.pid, begin, end), node)
        except MeasurementError as error:
            said, _, why = str(error).partition("cannot be seen: ")
            self.problems[f"on which NUMA node the arrays are cannot be seen: {why or said}"] = None
            return ""

    def begin(
        self,
        key: Hashable,
        cpus: Sequence[int],
        kind: str,
        *,
        delay: int = 0,
        segment_chunks: int = 0,
        limit_s: float,
    ) -> str:
        """A thread on each of the cores streams through an arena; why not, or empty.

        Parameters
        ----------
        delay
            Steps of waiting after each burst of 512 bytes of each array.
        segment_chunks
            Each thread stays within so many chunks of ``CHUNK_BYTES`` of each array; 0: all share
            the arena, and begin where the last ones ended. ``CACHE_CHUNKS`` fit a core's own cache.
        limit_s
            They end by themselves after that.

        Raises
        ------
        WorkerError
            The worker died, or took too long. Its arenas are gone.
        """
        placed, worker = self._arenas[key], self[0]
        if worker.pid != placed.pid:
            msg = "the arena is gone with its worker"
            raise WorkerError(msg)
        cores = np.asarray(cpus, dtype=np.int64)
        answer, _ = worker.call(
            "load_begin", placed.arena, KINDS.index(kind), delay, placed.next_chunk,
            segment_chunks, cores, len(cores), round(limit_s * 1e9),
            timeout_s=_CALL_S,
        )  # fmt: skip
        self._begun, self._cpus = (None if segment_chunks else placed), list(cpus)
        return _explained("", int(answer))

    def end(
        self, windows: Sequence[tuple[int, int]] = ()
    ) -> tuple[NDArray[Any], NDArray[Any], str]:
        """Stop them, and account for them.

        Parameters
        ----------
        windows
            Moments of CLOCK_MONOTONIC, in ns.

        Returns
        -------
        ``ACCOUNT``, ``[window, core]``; ``RESULT`` of each core; why they are not usable.

        Raises
        ------
        WorkerError
            The worker died, or took too long. Its arenas are gone.
        """
        count = len(self._cpus)
        ends = np.asarray(windows, dtype=np.int64).reshape(-1, 2).T.copy()
        answer, (accounts, results) = self[0].call(
            "load_end", ends[0], ends[1], len(windows), Out(ACCOUNT, len(windows) * count),
            Out(RESULT, count), count, timeout_s=_CALL_S,
        )  # fmt: skip
        if answer:
            return accounts[:0].reshape(0, count), results, _explained("", int(answer))
        if self._begun is not None:
            chunks = int(self._begun.arena["array_bytes"][0]) // CHUNK_BYTES
            done = int(results["chunks"].max())
            self._begun.next_chunk = (self._begun.next_chunk + done) % chunks
        why = ""
        if (results["wrong"] > 0).any():
            why = "what was streamed is wrong: memory, or the kernel, is at fault"
        elif (results["cpu"] != self._cpus).any():
            why = "a thread that streamed migrated from its core"
        return accounts.reshape(len(windows), count), results, why


def _explained(backing: str, answer: int) -> str:
    if backing and answer >> 16 not in (_ARGUMENT, *range(_NO_THREAD, _NO_THREAD + 3)):
        return explain(backing, answer)
    return refused("memory_load", answer, _NO_THREAD)


def timed(seconds: float) -> tuple[int, int]:
    """Wait, and say from when until when."""
    begin_ns = time.monotonic_ns()
    time.sleep(seconds)
    return begin_ns, time.monotonic_ns()


def accounted(
    accounts: NDArray[Any], windows: Sequence[tuple[int, int]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """GB/s of all cores together in each window, and the least share of it that one was at work.

    A core that was not at work all of the time has a share of 0.
    """
    times = np.array([max(high - low, 1) for low, high in windows], dtype=np.float64)
    there = (accounts["bytes"] >= 0).all(axis=1)
    moved = np.where(there, accounts["bytes"].sum(axis=1) / times, 0.0)
    share = np.where(there, (accounts["cpu_time_ns"] / times[:, None]).min(axis=1), 0.0)
    return moved.round(3), share.round(3)


# --- rates ---------------------------------------------------------------------------------------


def delays_of(rates: Sequence[float], flat_ns: float, issue_ns: float, step_ns: float) -> list[int]:
    """Steps of waiting after each burst, for shares of the highest rate.

    Parameters
    ----------
    rates
        The shares.
    flat_ns
        What a burst takes without waiting.
    issue_ns
        What it takes in a core's own cache.
    step_ns
        A step. The wait continues while loads are on their way, so it hides behind them until it is
        longer.

    >>> delays_of([50, 100], 50.0, 10.0, 0.25)
    [360, 160]
    """
    return [max(0, round((100 * flat_ns / rate - issue_ns) / step_ns)) for rate in rates]


def calibrate_delays(
    streams: Streams, key: Hashable, cpus: Sequence[int], kind: str, rates: Sequence[float]
) -> list[int]:
    """The waits that set the rates of streams through a placed arena; see ``delays_of``.

    By CPU time, which others that use the cores do not change.

    Raises
    ------
    MeasurementError
        A core cannot be used.
    """

    def burst_ns(on: Sequence[int], delay: int, segment_chunks: int) -> float:
        found = []
        for _ in range(_PILOT_TRIES):
            why = streams.begin(
                key, on, kind, delay=delay, segment_chunks=segment_chunks, limit_s=LIMIT_S
            )
            if why:
                raise MeasurementError(why)
            accounts, _, _ = streams.end([timed(_PILOT_S)])
            bytes_ = float(accounts["bytes"].clip(0).sum())
            cpu_ns = float(accounts["cpu_time_ns"].sum())
            if bytes_ > 0 and cpu_ns > 0:
                found.append(cpu_ns * _BURST_BYTES * moved_by(kind) / bytes_)
        if not found:
            msg = "the cores that should stream did not get to run"
            raise MeasurementError(msg)
        return min(found)

    first = cpus[:1]
    issue_ns = burst_ns(first, 0, CACHE_CHUNKS)
    step_ns = (burst_ns(first, _PILOT_DELAY, CACHE_CHUNKS) - issue_ns) / _PILOT_DELAY
    flat_ns = burst_ns(cpus, 0, 0)
    return delays_of(rates, flat_ns, issue_ns, max(step_ns, 1e-3))
