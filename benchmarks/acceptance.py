"""How often `perflib accept` refuses a healthy node, and finds a slow one: by simulation.

    python benchmarks/acceptance.py [REPETITIONS [PROCESSES]]

One row a farm and noise: of so many new nodes, the share refused though healthy (as a whole, by a
core), and the share refused where the node is 3 % slower, or one of its cores 5 %. Both
measurements must show it. Noise is that of `tests/fleet/test_acceptance.py`: Student's t with three
degrees of freedom, lognormal, or normal with one in ten of four times the size; between nodes, days
(which resemble the day before), runs, and cores, lastingly and run by run.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))

from perflib.fleet.analysis.acceptance import compare_node
from tests.fleet.test_acceptance import NOISES, SLOW, SLOW_CORE, Model, tables

FARMS = (
    Model(nodes=5, days=1),
    Model(nodes=5, days=4),
    Model(nodes=20, days=1),
    Model(nodes=20, days=3),
    Model(nodes=40, days=7),
    Model(nodes=200, days=1, cores=16),
)
_LEAST = 0.01  # the threshold, log


class Outcome(NamedTuple):
    healthy_node: bool
    healthy_core: bool
    slow_node: bool
    slow_core: bool


def once(farm: Model, seed: int) -> Outcome:
    """One farm, and one new node, healthy and with each fault: faults move its levels alone."""
    log = farm.logs(np.random.default_rng(seed))
    core = seed % farm.cores

    def refused() -> pd.Series:
        both = [compare_node(*tables(log, again)).set_index("cpu") for again in (False, True)]
        shown = [one["effect"] > one["half"].clip(lower=_LEAST) for one in both]
        return shown[0] & shown[1]

    healthy = refused()
    log[-1] += SLOW
    slow = refused()
    log[-1] -= SLOW
    log[-1, :, core] += SLOW_CORE
    named = refused()
    of_core = bool(healthy.drop(-1).any())
    return Outcome(bool(healthy[-1]), of_core, bool(slow[-1]), bool(named[core]))


def main(repetitions: int = 300, processes: int = 2) -> None:
    """Print the table."""
    began = time.monotonic()
    print("nodes  days  cores  noise    healthy refused, %  core of it, %  3 % node  5 % core")
    with ProcessPoolExecutor(processes) as pool:
        for farm in FARMS:
            for noise in NOISES:
                one = Model(farm.nodes, farm.cores, farm.days, noise)
                seeds = range(repetitions)
                found = np.array(list(pool.map(once, [one] * repetitions, seeds, chunksize=5)))
                node, core, slow, named = 100 * found.mean(axis=0)
                print(
                    f"{one.nodes:5d}  {one.days:4d}  {one.cores:5d}  {noise:7s}  {node:18.1f}"
                    f"  {core:13.1f}  {slow:8.0f}  {named:8.0f}",
                    flush=True,
                )
    print(f"{repetitions} repetitions each, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
