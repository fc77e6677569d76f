"""How often groups of cores are recovered from noisy matrices, and how often noise makes some.

    python benchmarks/groups.py [--matrices 100] [--samples 16,12,8,4,1]
    python benchmarks/groups.py --planned [--matrices 100] [--pair-ms 1.7] [--everything-ms 30]

The matrices are synthetic, made from what the source tells of two servers; each sample of a cell is
off by 10 % (normal). The cores of each matrix are numbered at random, so that a group's cores are
no neighbours. "Exactly" means all of: which cores are a group; each level of groups of groups; the
number of classes of distance and the class of every pair of cores; and which groups are partners
across sockets. Of noise, it means one group. After the counts: Wilson's interval of 95 %.

``--planned``: machines of 128 hardware threads, visited as ``coherence`` does with
``detail=planned``. A sample is off by 10 % (normal), one in twenty by half as much again in the
mean (exponential), each core by 2 %, and each round by 5 %. What a pair takes is what was measured
on two virtual CPUs: 1.7 ms for compare-and-swap alone, 30 ms for everything (docs/memory.md). To
decide what comes next is not simulated: its CPU time is reported beside, on one core with
OMP_NUM_THREADS=1. Both together at most two minutes: is that reached?
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from perflib.experiments.core_pairs.cells import Cells
from perflib.experiments.core_pairs.coherence.plan import always_visited, whats_of
from perflib.experiments.core_pairs.coherence.planned import Deciding
from perflib.experiments.core_pairs.coherence.table import COLUMNS
from perflib.measure.schedule import frame_of
from perflib.stats.clusters import Groups, find_groups
from perflib.stats.partitions import scores_of_noise

_NOISE = 0.1
_SAMPLES = (16, 12, 8, 4, 1)  # of a cell
_FIGURE_SAMPLES, _FIGURE_SHARE = 16, 0.99
_PARTS = ("groups", "levels", "classes", "partners")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Server(NamedTuple):
    """What is true of a machine; cores and groups are numbered from 0."""

    name: str
    levels: tuple[Ints, ...]  # the group of each core, from the smallest groups to the largest
    kinds: Ints  # [core, core]: the class of distance
    cycles: tuple[float, ...]  # of each class
    partner_kind: int | None  # the class of partners across sockets


def _together(*levels: Ints) -> list[NDArray[np.bool_]]:
    return [level[:, None] == level for level in levels]


def intel() -> Server:
    """Four sockets of 16 cores."""
    socket = np.arange(64) // 16
    kinds = 1 - _together(socket)[0].astype(np.int64)
    return Server("Intel, 4 x 16 cores", (socket,), kinds, (220, 360), None)


def amd() -> Server:
    """Two sockets of 4 dies of 2 CCX of 3 cores; each die prefers one of the other socket's."""
    core = np.arange(48)
    ccx, die, socket = core // 3, core // 6, core // 24
    kinds: Ints = np.select(_together(ccx, die, socket, die % 4), list(np.arange(4)), np.int64(4))
    return Server(
        "AMD, 2 x 4 x 2 x 3 cores", (ccx, die, socket), kinds, (185, 205, 300, 480, 630), 3
    )


def noise(cores: int) -> Server:
    """All cores equally far from each other."""
    one = np.zeros(cores, dtype=np.int64)
    return Server(
        f"noise, {cores} cores", (one,), np.zeros((cores, cores), dtype=np.int64), (300,), None
    )


def _numbered(labels: Ints) -> list[int]:
    """Groups counted in the order of their first cores."""
    names = {label: number for number, label in enumerate(dict.fromkeys(labels.tolist()))}
    return [names[label] for label in labels.tolist()]


def right(found: Groups, server: Server, order: Ints) -> dict[str, bool]:
    """Which parts of what was found are true, for cores that were numbered anew."""
    levels = [_numbered(level[order]) for level in server.levels]
    kinds = server.kinds[np.ix_(order, order)]
    first = {label: core for core, label in reversed(list(enumerate(levels[0])))}
    count = len(first)
    partners = {
        (a, b)
        for a in range(count)
        for b in range(a + 1, count)
        if kinds[first[a], first[b]] == server.partner_kind
    }
    several = count > 1
    return {
        "groups": found.labels.tolist() == levels[0],
        "levels": [_numbered(level) for level in found.hierarchy] == (levels if several else []),
        "classes": len(found.classes) == len(server.cycles)
        and np.array_equal(found.membership, kinds),
        "partners": set(found.partners) == partners,
    }


def count(server: Server, samples: int, matrices: int) -> Counter[str]:
    """In how many matrices which part was recovered; ``exactly``: all of them."""
    generator = np.random.default_rng([samples, len(server.kinds), len(server.cycles)])
    cycles = np.array(server.cycles)[server.kinds]
    counts: Counter[str] = Counter()
    for _ in range(matrices):
        order = generator.permutation(len(cycles))
        scatter = generator.standard_normal((samples, *cycles.shape))
        cells = (cycles * (1 + _NOISE * scatter))[:, order][:, :, order]
        parts = right(find_groups(cells), server, order)
        counts.update(name for name, good in parts.items() if good)
        counts["exactly"] += all(parts.values())
    return counts


def show(server: Server, samples: int, matrices: int) -> None:
    """Count, and print a line."""
    begin = time.monotonic()
    counts = count(server, samples, matrices)
    seconds = time.monotonic() - begin
    exactly = counts["exactly"]
    share = binomtest(exactly, matrices).proportion_ci(method="wilson")
    text = (
        f"{server.name}, {samples} {'sample' if samples == 1 else 'samples'} a cell: exactly "
        f"{exactly} of {matrices} [{100 * share.low:.1f} %, {100 * share.high:.1f} %]"
    )
    if exactly < matrices:
        text += " (" + ", ".join(f"{name} {counts[name]}" for name in _PARTS) + ")"
    if samples == _FIGURE_SAMPLES or len(server.cycles) == 1:
        verdict = "reached" if exactly >= _FIGURE_SHARE * matrices else "MISSED"
        text += f", at least {100 * _FIGURE_SHARE:g} of 100: {verdict}"
    print(f"{text}; {seconds:.0f} s", flush=True)


# --- planned -------------------------------------------------------------------------------------

_LIMIT_S = 120.0
_TAIL_SHARE, _TAIL, _CORE, _ROUND = 0.05, 0.5, 0.02, 0.05
_THRESHOLD_PERCENT = 5.0  # of coherence, by default


def large() -> list[Server]:
    """Machines of 128 hardware threads."""
    core = np.arange(128)
    four, ccx, socket = core // 32, core // 8, core // 64
    two: Ints = np.select(_together(ccx, socket), list(np.arange(2)), np.int64(2))
    small, die = core // 4, core // 8
    kinds: Ints = np.select(_together(small, die, socket, die % 8), list(np.arange(4)), np.int64(4))
    return [
        Server("4 x 32 cores", (four,), 1 - _together(four)[0].astype(np.int64), (220, 360), None),
        Server("2 x 8 x 8 cores", (ccx, socket), two, (185, 300, 480), None),
        Server("2 x 8 x 2 x 4 cores", (small, die, socket), kinds, (185, 205, 300, 480, 630), 3),
        noise(128),
    ]


class Run(NamedTuple):
    """What a simulated run came to: ``measured_s`` is simulated, ``computed_s`` is CPU time."""

    right: bool
    measured_s: float
    computed_s: float


def planned(server: Server, seed: int, pair_s: float, everything_s: float) -> Run:
    """Whether a planned run finds the groups of a machine, and how long it takes."""
    scores_of_noise.cache_clear()  # a run begins in a process of its own
    generator = np.random.default_rng([seed, len(server.cycles)])
    cores = len(server.kinds)
    order = generator.permutation(cores)
    slow = _CORE * generator.standard_normal(cores)
    logs = np.log(np.array(server.cycles))[server.kinds[np.ix_(order, order)]]
    logs = logs + slow[:, None] + slow
    every = list(itertools.permutations(range(cores), 2))
    near = [np.flatnonzero(server.levels[0][order] == group)[:2].tolist() for group in range(2)]
    always = always_visited([group for group in near if len(group) > 1])
    whats = whats_of(["cas_one_line"], ["modified"], ["load"], 1)  # one thing, and everything
    trials: list[dict[str, Any]] = []
    deciding = Deciding(trials, "cas_one_line", always, _THRESHOLD_PERCENT)
    measured_s, computed_s, round_, enough = 0.0, 0.0, 0, False
    while not enough and measured_s <= 2 * _LIMIT_S:
        begin = time.process_time()
        batches = deciding.batches(round_, every, whats)
        computed_s += time.process_time() - begin
        pairs = np.array([pair for these, _ in batches for pair in these])
        count = len(pairs)
        rare = generator.random(count) < _TAIL_SHARE
        values = logs[pairs[:, 0], pairs[:, 1]] + _ROUND * generator.standard_normal()
        values = values + _NOISE * generator.standard_normal(count)
        values = values + rare * generator.exponential(_TAIL, count)
        columns = {
            "owner_cpu": pairs[:, 0].tolist(),
            "requester_cpu": pairs[:, 1].tolist(),
            "what": ["cas_one_line"] * count,
            "control": [""] * count,
            "latency_ns": np.exp(values).tolist(),
            "start_ns": (1e9 * (measured_s + pair_s * np.arange(count))).astype(int).tolist(),
            "ok": [True] * count,
        }
        trials.append({"round": round_, "position": 0, "columns": columns})
        measured_s += sum(
            len(these) * (everything_s if len(those) > 1 else pair_s) for these, those in batches
        )
        begin = time.process_time()
        samples = frame_of(trials)
        enough = deciding.half_width(samples) == 0
        computed_s += time.process_time() - begin
        round_ += 1
    found = Cells(samples, COLUMNS).groups(least=math.log1p(_THRESHOLD_PERCENT / 100))
    return Run(right(found, server, order)["groups"], measured_s, computed_s)


def show_planned(server: Server, runs: Sequence[Run]) -> None:
    """Print a line."""
    good = sum(run.right for run in runs)
    share = binomtest(good, len(runs)).proportion_ci(method="wilson")
    times = {
        "measured (simulated)": [run.measured_s for run in runs],
        "computed": [run.computed_s for run in runs],
        "both": [run.measured_s + run.computed_s for run in runs],
    }
    reached = good >= _FIGURE_SHARE * len(runs) and max(times["both"]) <= _LIMIT_S
    texts = [
        f"{name} {np.median(each):.1f} s [{min(each):.1f}, {max(each):.1f}]"
        for name, each in times.items()
    ]
    print(
        f"planned, {server.name}: right groups {good} of {len(runs)} [{100 * share.low:.1f} %, "
        f"{100 * share.high:.1f} %]; {', '.join(texts)}; {100 * _FIGURE_SHARE:g} of 100, all in "
        f"{_LIMIT_S:g} s: {'reached' if reached else 'MISSED'}",
        flush=True,
    )


def _numbers(words: str) -> Sequence[int]:
    return [int(word) for word in words.split(",")]


def main() -> None:
    """Both servers and noise, with fewer and fewer samples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--matrices", type=int, default=100)
    parser.add_argument("--samples", type=_numbers, default=_SAMPLES, help="of a cell, each")
    parser.add_argument("--planned", action="store_true", help="which pairs decide, on 128 cores")
    parser.add_argument("--pair-ms", type=float, default=1.7, help="what one protocol takes a pair")
    parser.add_argument("--everything-ms", type=float, default=30.0, help="what all of it takes")
    parser.add_argument("--quick", action="store_true", help="is it in order? few matrices")
    asked = parser.parse_args()
    if asked.matrices < 1 or min(asked.samples) < 1:
        parser.error("--matrices and --samples are numbers from 1 on")
    matrices, each = (3, [_FIGURE_SAMPLES]) if asked.quick else (asked.matrices, asked.samples)
    if asked.planned:
        for server in large()[: 1 if asked.quick else None]:
            pair_s, everything_s = asked.pair_ms / 1e3, asked.everything_ms / 1e3
            seeds = range(matrices)
            show_planned(server, [planned(server, seed, pair_s, everything_s) for seed in seeds])
        return
    for server in (intel(), amd(), noise(16), noise(48), noise(64)):
        for samples in each:
            show(server, samples, matrices)


if __name__ == "__main__":
    main()
