"""Entries and ways of this machine's data TLBs, run by run; and a null, real and simulated.

    python benchmarks/data_tlb.py measure [--runs 6] [--seconds 20]
    python benchmarks/data_tlb.py null [--runs 8] [--seconds 12]
    python benchmarks/data_tlb.py simulated [--runs 200]

``null``: what is called one line a page are lines side by side, too, in an order of their own, so
nothing differs. ``simulated``: TLBs of several kinds, and none, under noise with heavy tails,
bursts and a drift; how often entries and ways are claimed, and covered.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from perflib.experiments import get
from perflib.experiments.data_tlb import measure
from perflib.experiments.data_tlb.trials import Trials
from perflib.model.finding import Finding


def _runs(count: int, **given: Any) -> list[list[Finding]]:
    experiment = get("data_tlb")
    found = []
    for seed in range(1, count + 1):
        run = experiment.measure(experiment.params({"seed": seed, **given}, "quick"))
        found.append(experiment.analyse(run))
        load = os.getloadavg()[0]
        words = [f"{run.samples['round'].max() + 1} rounds, load {load:.1f}"]
        words += [
            f"{one.subject}: {one.verdict} {one.effect:.1f} [{one.low:.1f}, {one.high:.1f}]"
            for one in found[-1]
        ]
        print(f"run {seed}:", *words, sep="\n  ", flush=True)
    return found


def null(runs: int, seconds: float) -> None:
    """Print what is found where both kinds of lines are the same."""
    alike = {"spread": "window", "packed": "window"}
    measure.Trials = partial(Trials, kinds=alike)  # type: ignore[attr-defined, assignment]
    given = {"budget_s": seconds, "strides": [], "backings": ["4k"]}
    found = _runs(runs, **given)
    said = Counter((one.of.name, one.verdict) for each in found for one in each)
    knees = sum(any(one.evidence["begins_pages"] for one in each) for each in found)
    print(f"knees in {knees} of {runs} runs; {dict(said)}")


def simulated(runs: int) -> None:
    """Print a line for each kind of machine."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from perflib.experiments.data_tlb.analyse import findings
    from tests.experiments.data_tlb.test_analyse import MACHINES, NONE
    from tests.experiments.data_tlb.tlb_samples import run_of, tlb

    for name, made in {**MACHINES, "no TLB": NONE}.items():
        entries = [level.entries for level, _ in made.levels] or [64, 1536]
        said: Counter[str] = Counter()
        for seed in range(runs):
            run = run_of(made.samples(10_000 + seed), tlb(1, entries[0], 4), tlb(2, entries[1], 12))
            for one, truth in zip(findings(run), entries, strict=True):
                said[f"{one.of.name} {one.verdict}"] += 1
                said[f"{one.of.name} covered"] += one.low <= truth <= one.high
                said["knees"] += len(one.evidence["begins_pages"]) if one.about["level"] == 1 else 0
        print(f"{name}, {runs} runs: {dict(sorted(said.items()))}", flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["measure", "null", "simulated"])
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seconds", type=float)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"PERFLIB_HOME": home, "PERFLIB_PROGRESS": "none"}
        if given.what == "measure":
            _runs(given.runs or 6, budget_s=given.seconds or 20.0)
        elif given.what == "null":
            null(given.runs or 8, given.seconds or 12.0)
        else:
            simulated(given.runs or 200)


if __name__ == "__main__":
    main()
