"""Memory under load: our bandwidths beside STREAM's by its published rules; and the null.

    python benchmarks/memory_load.py stream [--rounds 12] [--busy N]
    python benchmarks/memory_load.py null [--runs 8] [--seconds 18] [--busy N]
    python benchmarks/memory_load.py simulated [--runs 200]

``stream``: the four kernels of STREAM (stream_rules.c, arrays four times the last-level cache, the
best of ten iterations without the first) and ours, on one core and on all, in random order in each
round; ratios are of the same round. The C program's loops are compiled so that stores stay
ordinary ones: with more optimisation gcc makes memcpy of the copy, which goes past the caches.

``null``: runs of the experiment in which the cores that should stream through memory stay in their
caches, always: latency must not be said to rise, and no core to move less.

``simulated``: how often a rise, a knee or a slow core is claimed where there is none, and how often
intervals cover; the noise has heavy tails, bursts of seconds and a drift.

``--busy``: so many programs meanwhile, each streaming through memory of its own, on any core.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from perflib.experiments import get
from perflib.experiments.memory_load.measure import array_bytes
from perflib.machine.hardware.caches import caches
from perflib.machine.hardware.memory import free_bytes
from perflib.measure.conditions import Conditions
from perflib.measure.streams import CACHE_CHUNKS, Streams
from perflib.stats.intervals import t_interval

_KINDS = {"copy": 2, "scale": 2, "add": 3, "triad": 3}
_FLAGS = ("-O2", "-ftree-vectorize", "-fno-tree-loop-distribute-patterns")
_ITERATIONS = 10
_OURS_S = 0.005
_SHAPES: dict[str, dict[str, Any]] = {
    "24 rounds of 1 s": {},
    "12 rounds of 1.5 s, slow half of the time": {
        "rounds": 12, "round_s": 1.5, "bursts": 0.5
    },
    "half of the samples under load starved": {"starved": 0.5},
    "busy cores slow the clock by 20 %": {"busy": 0.2},
    "the core that streams is a hidden sibling": {"probes": "sibling"},
}  # fmt: skip
_BUSY = "import numpy as np\na, b = np.ones((2, 1 << 23))\nwhile True: b[:] = a"


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """So many programs that stream through memory."""
    started = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(count)]
    try:
        if started:
            time.sleep(1.0)
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


def _theirs(program: Path, size: int, cpus: Sequence[int]) -> dict[str, list[float]]:
    """GB/s in each iteration but the first."""
    argv = [str(program), str(size // 8), str(_ITERATIONS), *map(str, cpus)]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    found = {}
    for line in said.splitlines():
        name, *seconds = line.split()
        found[name] = [_KINDS[name] * size / float(one) / 1e9 for one in seconds[1:]]
    return found


def _ours(streams: Streams, cpus: Sequence[int]) -> dict[str, list[float]]:
    """GB/s of as many windows."""
    found: dict[str, list[float]] = {}
    for kind in _KINDS:
        for _ in range(_ITERATIONS - 1):
            if why := streams.begin(0, cpus, kind, limit_s=5.0):
                raise SystemExit(why)
            time.sleep(0.0005)
            begin_ns = time.monotonic_ns()
            time.sleep(_OURS_S)
            window = begin_ns, time.monotonic_ns()
            accounts, _, why = streams.end([window])
            if why:
                raise SystemExit(why)
            moved = float(accounts["bytes"].clip(0).sum()) / (window[1] - window[0])
            found.setdefault(kind, []).append(moved)
    return found


def stream(rounds: int) -> None:
    """Print a line for each kernel and set of cores."""
    cpus = sorted(os.sched_getaffinity(0))
    cache = max((one.size_bytes for one in caches() if one.kind == "unified"), default=0)
    size, notes = array_bytes(None, 1, cache, free_bytes() or 1 << 34)
    print(f"arrays of {size >> 20} MiB, last-level cache {cache >> 20} MiB", *notes)
    sets = [cpus[:1], cpus] if len(cpus) > 1 else [cpus]
    best: dict[tuple[int, str, str], list[float]] = {}
    middle: dict[tuple[int, str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, Streams(Conditions()) as streams:
        program = Path(folder) / "stream_rules"
        source = Path(__file__).with_name("stream_rules.c")
        subprocess.run(
            ["gcc", *_FLAGS, "-o", str(program), str(source), "-lpthread", "-lm"], check=True
        )
        if why := streams.place(0, array_bytes=size, backing="4k", cpu=cpus[0], node=None):
            raise SystemExit(why)
        for round_ in range(rounds):
            turns = [(who, mine) for who in ("ours", "theirs") for mine in range(len(sets))]
            for who, mine in random.Random(round_).sample(turns, len(turns)):
                chosen = sets[mine]
                found = _ours(streams, chosen) if who == "ours" else _theirs(program, size, chosen)
                for kind, values in found.items():
                    best.setdefault((mine, kind, who), []).append(max(values))
                    middle.setdefault((mine, kind, who), []).append(float(np.median(values)))
    for mine, chosen in enumerate(sets):
        for kind in _KINDS:
            words = [f"{len(chosen)} core(s) {kind:6s}"]
            for name, taken in (("best of 9", best), ("median", middle)):
                ours, theirs = (np.array(taken[mine, kind, who]) for who in ("ours", "theirs"))
                ratio = ours / theirs
                mean = np.exp(t_interval(np.log(ratio)))
                words.append(
                    f"{name} {np.median(ours):.1f}, {np.median(theirs):.1f} GB/s: ratio "
                    f"{np.median(ratio):.3f} [{ratio.min():.3f}, {ratio.max():.3f}], mean "
                    f"{mean[0]:.3f} ({mean[1]:.3f} to {mean[2]:.3f})"
                )
            print("; ".join(words), flush=True)


def null(runs: int, seconds: float) -> None:
    """Print the verdicts of runs whose load leaves memory alone."""
    real = Streams.begin

    def in_cache(self: Streams, *given: Any, **more: Any) -> str:
        return real(self, *given, **{**more, "segment_chunks": CACHE_CHUNKS})

    Streams.begin = in_cache  # type: ignore[method-assign]
    experiment = get("memory_load")
    verdicts: Counter[tuple[str, str]] = Counter()
    for seed in range(1, runs + 1):
        given = {"budget_s": seconds, "kinds": ["read"], "seed": seed}
        run = experiment.measure(experiment.params(given, "quick"))
        found = experiment.analyse(run)
        verdicts.update((one.of.name, one.verdict) for one in found)
        rise = next(one for one in found if one.of.name == "latency_rises")
        print(f"run {seed}: {rise.effect:+.2f} % [{rise.low:+.2f}, {rise.high:+.2f}]", flush=True)
    for (name, verdict), count in sorted(verdicts.items()):
        print(f"{name}: {verdict} {count}")


def simulated(runs: int) -> None:
    """Print a line for each kind of simulated run."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.experiments.memory_load.load_samples import (
        MOST_GB_S,
        findings,
        nothing,
        queue,
        samples,
    )

    for name, shape in _SHAPES.items():
        for curve in (nothing, queue):
            truth = 100 * float(np.expm1(curve(MOST_GB_S)))
            crossing = next(
                (gb_s for gb_s in np.linspace(0, MOST_GB_S, 2001) if np.exp(curve(gb_s)) > 1.1),
                None,
            )
            said: Counter[str] = Counter()
            covered = knees = inside = 0
            for seed in range(runs):
                found = findings(samples(seed, curve, **shape))
                (rise,), (knee,) = found["latency_rises"], found["knee"]
                covered += rise.low <= truth <= rise.high
                if knee.verdict == "supported":
                    knees += 1
                    inside += crossing is not None and knee.low <= crossing <= knee.high
                for one in (rise, knee, *found["core_moves_less"]):
                    said[one.of.name] += one.verdict == "supported"
            print(
                f"{name}, true rise {truth:.0f} %: claimed {dict(said)}; interval of the rise "
                f"covers {covered / runs:.0%}, of the knee {inside} of {knees}",
                flush=True,
            )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["stream", "null", "simulated"])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seconds", type=float, default=18.0)
    parser.add_argument("--busy", type=int, default=0)
    given = parser.parse_args()
    with _busy(given.busy), tempfile.TemporaryDirectory() as home:
        os.environ |= {"PERFLIB_HOME": home, "PERFLIB_PROGRESS": "none"}
        if given.what == "stream":
            stream(given.rounds)
        elif given.what == "simulated":
            simulated(given.runs or 200)
        else:
            null(given.runs or 8, given.seconds)


if __name__ == "__main__":
    main()
