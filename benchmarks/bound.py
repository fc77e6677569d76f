"""Which dose `sensitivity` names for jobs that are bound by one thing, and for one bound by none.

    python benchmarks/bound.py [RUNS] [BUDGET_S]

Each run of each job in random order. A job is named right where its own claim is supported and no
other is; "cannot say" where all are open; wrong where another claim is supported, or its own
refuted. The job that computes is right where nothing is supported.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from perflib.experiments import get
from perflib.model.finding import Finding

_TRUTH = {
    "compute": "",
    "chase": "cache_capacity",
    "triad": "memory_traffic",
    "walk": "translation",
}


def judged(job: str, found: list[Finding]) -> str:
    """Right, wrong, or cannot say."""
    verdicts = {one.of.name: one.verdict for one in found}
    named = {name for name, verdict in verdicts.items() if verdict == "supported"}
    truth = _TRUTH[job]
    if named - {truth} or verdicts.get(truth) == "refuted":
        return "wrong"
    return "right" if truth in named or not truth else "cannot say"


def main(runs: int = 10, budget_s: float = 75.0) -> None:
    """Print each run, then the table."""
    experiment = get("sensitivity")
    order = [(job, seed) for job in _TRUTH for seed in range(1, runs + 1)]
    random.Random(1).shuffle(order)
    counts = Counter[tuple[str, str]]()
    for job, seed in order:
        load = os.getloadavg()[0]
        params = experiment.params({"job": job, "budget_s": budget_s, "seed": seed})
        run = experiment.measure(params)
        found = experiment.analyse(run)
        counts[job, judged(job, found)] += 1
        rounds = run.samples["round"].nunique()
        print(f"{job}, seed {seed}, load {load:.1f}, {rounds} rounds: {judged(job, found)}")
        for one in found:
            print(f"    {one.verdict:13s}{one.plain}", flush=True)
    for job in _TRUTH:
        print(job, {word: n for (name, word), n in counts.items() if name == job})


if __name__ == "__main__":
    main(*(int(one) for one in sys.argv[1:2]), *(float(one) for one in sys.argv[2:3]))
