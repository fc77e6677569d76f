"""Does the annotation side by side find an instruction that was made 20 % costlier in one build?

Usage: python benchmarks/annotation.py [--trials 100] [--seed 1] [--count 8000]

Simulated sampling of a function as kernels have them: instructions of very unequal cost, whose
times vary from one repetition to the next by themselves (overdispersion), interrupts that are
taken one or several instructions late (skid), bursts that slow a whole repetition. One
instruction of the second build is made 20 % costlier; beside it, builds in which nothing differs.
Printed: how often an instruction at it or within the skid behind it is named, how often any other
is, and in how many of the nulls any is.

The real thing, on an idle machine: perflib run event_profile -p costlier_core=1, then
perflib annotate RUN: that build repeats one multiplication of kv_runge_kutta ten times.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
import pandas as pd

from perflib.instruments.profile.side_by_side import SideBySide, side_by_side

SKIDS = {
    "precise": (1.0,),
    "counter": (0.15, 0.6, 0.2, 0.05),  # of instructions behind the costly one
    "clock": (0.3, 0.3, 0.2, 0.1, 0.1),
}


class Function(NamedTuple):
    """What is simulated: each instruction's share of the function's time, and which is changed."""

    shares: np.ndarray
    changed: int


def function(generator: np.random.Generator, instructions: int = 60) -> Function:
    """A function of which few instructions take most of the time; one of these is changed."""
    shares = generator.lognormal(0.0, 1.3, instructions)
    shares /= shares.sum()
    costly = np.argsort(shares[: instructions - 6])[-4:]
    return Function(shares, int(generator.choice(costly)))


def samples(
    generator: np.random.Generator,
    of: Function,
    costlier: float,
    *,
    skid: str = "clock",
    rounds: int = 20,
    count: int = 4000,
    spread: float = 0.05,
) -> pd.DataFrame:
    """Samples of both builds in every round, ``count`` in each on average.

    ``spread``: by how much an instruction's time varies from one repetition to the next beside the
    others', by a normal distribution of its logarithm; neighbours vary together.
    """
    parts = []
    kernel = np.array(SKIDS[skid])
    for round_ in range(rounds):
        for build in ("old", "new"):
            times = of.shares * np.exp(spread * generator.normal(size=len(of.shares)))
            block = generator.normal(size=len(of.shares) // 10 + 1)  # a basic block as a whole
            times *= np.exp(spread * np.repeat(block, 10)[: len(times)])
            if build == "new":
                times[of.changed] *= 1 + costlier
            burst = 2.0 if generator.random() < 0.05 else 1.0
            seen = np.convolve(times, kernel)[: len(times)]
            taken = generator.poisson(count * burst * seen)
            place = np.repeat(np.arange(len(times)), taken)
            parts.append(pd.DataFrame({"configuration": build, "round": round_, "place": place}))
    made = pd.concat(parts, ignore_index=True)
    clock = {"clock": "cpu-clock", "counter": "cycles", "precise": "cycles:pp"}[skid]
    return pd.DataFrame(
        {
            "configuration": made["configuration"],
            "round": made["round"],
            "offset": 4 * made["place"].astype(np.int64),
            "ip": np.uint64(0),
            "period": 1,
            "event": clock,
            "symbol": "work",
            "object": "/simulated/job",
            "stack": "main;work",
        }
    ).astype(dict.fromkeys(("event", "symbol", "object", "stack"), "category"))


def compared(made: pd.DataFrame) -> SideBySide:
    """The two builds beside each other; their code is the same, offsets tell which is which."""
    return side_by_side(made, "old", "new", "work")


def right(found: SideBySide, of: Function, skid: str) -> tuple[bool, bool]:
    """Whether the changed one is named as costlier, and whether any other is named."""
    named = found.named()
    places = named["offset_second"].astype(int) // 4 - of.changed
    here = places.between(0, len(SKIDS[skid]) - 1) & (named["costlier_percent"] > 0)
    return bool(here.any()), bool((~here).any())


def main() -> None:
    """Run and print the table of the report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=8000, help="samples of a repetition")
    options = parser.parse_args()
    print("skid     spread  found  another named  nulls that name any")
    for skid in SKIDS:
        for spread in (0.0, 0.05):
            generator = np.random.default_rng(options.seed)
            hits = []
            nulls = 0
            for _ in range(options.trials):
                of = function(generator)
                found = compared(
                    samples(generator, of, 0.2, skid=skid, spread=spread, count=options.count)
                )
                hits.append(right(found, of, skid))
                null = compared(
                    samples(generator, of, 0.0, skid=skid, spread=spread, count=options.count)
                )
                nulls += not null.named().empty
            named, wrong = (100 * np.mean(values) for values in zip(*hits, strict=True))
            rate = 100 * nulls / options.trials
            print(f"{skid:8} {spread:6.2f} {named:5.0f} % {wrong:12.0f} % {rate:18.0f} %")


if __name__ == "__main__":
    main()
