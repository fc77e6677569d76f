"""Compare-and-swap between cores and by core-to-core-latency, alternating; and the wall time.

    python benchmarks/core_to_core.py [--rounds 40] [--cpus 0,1] [--peer CORE_TO_CORE_LATENCY]

Both let two cores change one word by compare-and-swap in alternation, with as many round trips a
sample and as many samples. core-to-core-latency reports half a round trip, the mean over samples;
our kernel gives round trips, which are halved here. Its mean is what is compared, with our mean, as
was fixed beforehand; our median stands beside it. Both run under SCHED_FIFO where that is allowed:
at ordinary priority a mean counts whoever else had the core.

In each round each starts a process of its own, in random order: where the word is in memory,
and so which slice of a cache answers, stays as long as a process lives.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perflib.kernels import Build, build, record
from perflib.measure.conditions import Conditions
from perflib.measure.process import Out, Worker
from perflib.model.errors import MeasurementError
from perflib.stats.intervals import robust_mean, t_interval, time_batches

_FIFO_PRIORITY = 50
_CAS_ONE_LINE = 0  # the kernel's number of the protocol
_WAYS = 2  # of a round trip
_PERCENT = 10
_SAMPLE = record("coherence", "coherence_sample")

Floats = NDArray[np.float64]


class Matrix(NamedTuple):
    """One way in ns of each pair of cores, and the seconds it took to know."""

    mean_ns: Floats
    median_ns: Floats
    matrix_s: float
    start_s: float  # of the process, before the matrix


def ours(
    built: Build, pairs: Sequence[tuple[int, int]], priority: int | None, trips: int, samples: int
) -> Matrix:
    """A worker of its own, and a call for each pair."""
    means, medians = [], []
    begin = time.perf_counter()
    with Worker(built, Conditions(fifo_priority=priority)) as worker:
        worker.start()
        started = time.perf_counter()
        for one, other in pairs:
            answer, (taken,) = worker.call(
                "coherence_exchange", _CAS_ONE_LINE, one, other, trips, samples, 60 * 10**9,
                Out(_SAMPLE, samples), timeout_s=90.0,
            )  # fmt: skip
            if answer:
                msg = f"cpu{one} and cpu{other}: error {answer}"
                raise MeasurementError(msg)
            one_way_ns = taken["time_ns"] / taken["count"] / _WAYS
            means.append(one_way_ns.mean())
            medians.append(np.median(one_way_ns))
        end = time.perf_counter()
    return Matrix(np.array(means), np.array(medians), end - started, started - begin)


def theirs(
    path: str, cpus: Sequence[int], pairs: Sequence[tuple[int, int]], trips: int, samples: int
) -> Matrix:
    """A process, from its start to its end; its figures are one way already."""
    words = [path, "-b", "1", "--csv", "-c", ",".join(map(str, cpus)), str(trips), str(samples)]
    begin = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - begin
    rows = [line.split(",") for line in done.stdout.splitlines()]
    place = {cpu: number for number, cpu in enumerate(cpus)}
    found = [float(rows[place[other]][place[one]]) for one, other in pairs]
    return Matrix(np.array(found), np.full(len(pairs), math.nan), seconds, 0.0)


def _ratio(ratios: Floats, start_s: Floats) -> str:
    blocks = time_batches(start_s, len(ratios))
    logs = np.log(ratios)
    each = [robust_mean(logs[blocks == n, None])[0] for n in range(blocks.max() + 1)]
    mean, low, high = (math.exp(end) for end in t_interval(np.array(each)))
    return (
        f"{np.median(ratios):.3f} [{ratios.min():.3f}, {ratios.max():.3f}], "
        f"mean {mean:.3f} ({low:.3f} to {high:.3f})"
    )


def show(
    rounds: Sequence[tuple[Matrix, Matrix]],
    pairs: Sequence[tuple[int, int]],
    start_s: Floats,
) -> None:
    """A line for each figure."""
    print("ratios: ours / theirs, median of paired ratios [least, most], mean (its interval)")
    us, them = (np.array([both[n].mean_ns for both in rounds]) for n in range(2))
    medians = np.array([both[0].median_ns for both in rounds])
    ratios = np.exp(np.log(us / them).mean(axis=1))  # over the pairs of cores
    middle = float(np.median(ratios))
    verdict = "reached" if abs(middle - 1) <= _PERCENT / 100 else "MISSED"
    print(
        f"CAS_ONE_LINE, one way, {len(pairs)} pairs of cores: ours {np.median(us):.1f} ns "
        f"(round trip {_WAYS * np.median(us):.1f} ns), theirs {np.median(them):.1f} ns; "
        f"ratio of means {_ratio(ratios, start_s)}, within {_PERCENT} %: {verdict}"
    )
    beside = np.exp(np.log(medians / them).mean(axis=1))
    print(f"our median {np.median(medians):.1f} ns, over their mean: {_ratio(beside, start_s)}")
    if len(pairs) > 1:
        each = np.median(us / them, axis=0)
        far = int(np.abs(np.log(each)).argmax())
        print(f"farthest pair, cpu{pairs[far][0]} and cpu{pairs[far][1]}: {each[far]:.3f}")
    ours_s, theirs_s = (np.array([both[n].matrix_s for both in rounds]) for n in range(2))
    wall = ours_s / theirs_s
    verdict = "reached" if np.median(wall) <= 1 else "MISSED"
    print(
        f"whole matrix, wall time: ours {1e3 * np.median(ours_s):.1f} ms, theirs (the process) "
        f"{1e3 * np.median(theirs_s):.1f} ms; ratio {_ratio(wall, start_s)}, at most 1: {verdict}"
    )
    begin_s = np.array([both[0].start_s for both in rounds])
    print(
        f"our worker's start, once for any number of cores: {1e3 * np.median(begin_s):.0f} ms; "
        f"ratio with it {_ratio((ours_s + begin_s) / theirs_s, start_s)}",
        flush=True,
    )


def real_time() -> int | None:
    """This process and all that it starts get real-time priority, or all have the ordinary one."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_FIFO_PRIORITY))
    except PermissionError:
        print("no right to real-time priority: both at the ordinary one; means count preemption")
        return None
    return _FIFO_PRIORITY


def _found_peer() -> str | None:
    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "bin"
    name = "core-to-core-latency"
    return shutil.which(name) or shutil.which(name, path=str(cargo))


def main() -> None:
    """Rounds of both, and what they say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", default=_found_peer(), help="core-to-core-latency")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--cpus", help="such as 0,1,4; all that may be used unless told")
    parser.add_argument("--iterations", type=int, default=1000, help="round trips a sample")
    parser.add_argument("--samples", type=int, default=300, help="of each pair of cores")
    parser.add_argument("--quick", action="store_true", help="is it in order? three rounds")
    asked = parser.parse_args()
    allowed = sorted(os.sched_getaffinity(0))
    cpus = [int(word) for word in asked.cpus.split(",")] if asked.cpus else allowed
    if not asked.peer:
        parser.error(
            "there is no core-to-core-latency: cargo install core-to-core-latency, or give its "
            "path by --peer"
        )
    if len(set(cpus)) < 2 or not set(cpus) <= set(allowed):
        parser.error(f"--cpus: two or more of {allowed}")
    if min(asked.rounds, asked.iterations, asked.samples) < 1:
        parser.error("--rounds, --iterations and --samples are numbers from 1 on")
    pairs = list(itertools.combinations(cpus, 2))
    generator = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as home:
        os.environ["PERFLIB_HOME"] = home
        built = build("coherence")
        priority = real_time()
        rounds, start_s = [], []
        for _ in range(3 if asked.quick else asked.rounds):
            start_s.append(time.monotonic())
            found: dict[int, Matrix] = {}
            for who in generator.permutation(2):
                found[int(who)] = (
                    theirs(asked.peer, cpus, pairs, asked.iterations, asked.samples)
                    if who
                    else ours(built, pairs, priority, asked.iterations, asked.samples)
                )
            rounds.append((found[0], found[1]))
    show(rounds, pairs, np.array(start_s))


if __name__ == "__main__":
    main()
