"""Contended lines: how often something is claimed where cores share nothing; how well it is known.

    python -m benchmarks.contention null [--runs 8] [--seconds 12] [--quiet]
    python -m benchmarks.contention cost [--runs 8] [--seconds 12] [--quiet]
    python -m benchmarks.contention simulated [--runs 200]

``null``: runs of the experiment in which every kind counts on lines of its own: nothing may be said
to take longer than anything else, and no core to get less. ``cost``: real runs; of each kind, what
an operation takes a core alone and with all. Both run beside the load of ``nulls.py``, three
processes on each core that work and pause; ``--quiet``: without it.

``simulated``: how often a claim is supported that is not so, and how often the interval of false
sharing covers; one core is slower in bursts, threads lose their cores, noise has heavy tails.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import tempfile
from collections import Counter
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.nulls import load
from perflib.experiments import get
from perflib.experiments.contention import measure
from perflib.experiments.contention.analyse import table_of
from perflib.model.run import Run
from tests.experiments.contention.contention_samples import SHARED_NS, findings, samples

_ONE_LINE = 0.3  # log of how much longer, in simulation
_SHAPES: dict[str, dict[str, Any]] = {
    "24 rounds": {},
    "10 rounds": {"rounds": 10},
    "half of the samples disturbed, one core slow most of the time": {
        "rounds": 40, "bursts": 0.6, "preempted": 0.5
    },
    "heavy noise": {"rounds": 12, "round_s": 1.5, "noise": 0.1},
}  # fmt: skip


def _run(seed: int, seconds: float) -> Run:
    experiment = get("contention")
    given = {"budget_s": seconds, "seed": seed}
    return experiment.measure(experiment.params(given, "quick"))


def null(runs: int, seconds: float) -> None:
    """Print the verdicts of runs whose cores share nothing."""
    own_lines = mock.Mock(index=lambda _kind: 0)
    verdicts: Counter[tuple[str, str]] = Counter()
    for seed in range(1, runs + 1):
        with mock.patch.object(measure, "KINDS", own_lines):
            run = _run(seed, seconds)
        found = get("contention").analyse(run)
        verdicts.update((one.of.name, one.verdict) for one in found)
        sharing = next(one for one in found if one.of.name == "false_sharing")
        print(
            f"run {seed}: false sharing {sharing.effect:+.2f} % [{sharing.low:+.2f}, "
            f"{sharing.high:+.2f}]; {100 * run.samples['ok'].mean():.0f} % of rows usable, "
            f"{100 * table_of(run).rows['valid'].mean():.0f} % valid",
            flush=True,
        )
    for (name, verdict), count in sorted(verdicts.items()):
        print(f"{name}: {verdict} {count}")


def cost(runs: int, seconds: float) -> None:
    """Print what an operation takes, over several runs."""
    times: dict[tuple[str, str], list[float]] = {}
    for seed in range(1, runs + 1):
        run = _run(seed, seconds)
        table = table_of(run)
        for kind in table.kinds:
            for cpus in filter(None, (table.alone, table.all)):
                effect = table.operation_ns(kind, cpus).effect
                times.setdefault((kind, cpus), []).append(effect)
        more = table.more("one_line", table.all, "own_lines", table.all)
        print(f"run {seed}: false sharing {more.effect:.1f} % [{more.low:.1f}, {more.high:.1f}]",
              flush=True)  # fmt: skip
    for (kind, cpus), found in times.items():
        known = np.array([one for one in found if math.isfinite(one)])
        print(f"{kind:16s} CPUs {cpus}: {np.median(known):.1f} ns [{known.min():.1f}, "
              f"{known.max():.1f}] in {len(known)} runs")  # fmt: skip


def simulated(runs: int) -> None:
    """Print a line for each kind of simulated run."""
    truth = 100 * math.expm1(_ONE_LINE)
    for name, shape in _SHAPES.items():
        claimed: Counter[str] = Counter()
        made: Counter[str] = Counter()
        supported = covered = 0
        for seed in range(runs):
            for claim, mine in findings(samples(seed, **shape)).items():
                made[claim] += len(mine)
                claimed[claim] += sum(one.verdict == "supported" for one in mine)
            (one,) = findings(
                samples(seed, one_line=_ONE_LINE, shared_ns=SHARED_NS,
                        kinds=("own_lines", "one_line"), **shape)
            )["false_sharing"]  # fmt: skip
            supported += one.verdict == "supported"
            covered += one.low <= truth <= one.high
        wrong = ", ".join(f"{claim} {claimed[claim]} of {made[claim]}" for claim in made)
        print(f"{name}: nothing shared, claimed: {wrong}; false sharing of {truth:.0f} %: found in "
              f"{supported} of {runs}, covered in {covered / runs:.0%}", flush=True)  # fmt: skip


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["null", "cost", "simulated"])
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--quiet", action="store_true", help="without the load")
    given = parser.parse_args()
    if given.what == "simulated":
        simulated(given.runs or 200)
        return
    beside = contextlib.nullcontext() if given.quiet else load()
    with beside, tempfile.TemporaryDirectory() as home:
        os.environ |= {"PERFLIB_HOME": home, "PERFLIB_PROGRESS": "none"}
        (null if given.what == "null" else cost)(given.runs or 8, given.seconds)


if __name__ == "__main__":
    main()
