"""What a farm's report says of simulated farms, how it scales, and what it costs.

The noise is none that the analysis assumes: heavy tails, interference that only slows, days that
resemble the day before, nodes of which some scatter ten times as much, times in coarse steps
(``tests/fleet/farms.py``). 300 nodes of 16 cores, two models, 5 % of the values missing.

    python benchmarks/farm.py [--reports 200] [--faults 100]
        [--only healthy,core,node,rack,bios,many,scaling,report]
"""

from __future__ import annotations

import argparse
import functools
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
from scipy.stats import binomtest

from perflib.fleet.analysis.comparisons import compare_farm
from tests.fleet.farms import NOISES, Healthy, report, reported, table

_KINDS = {"core": "position", "node": "node", "rack": "hours", "bios": "group"}
_FAULTS = {
    "core": (0.05, (1, 4)),
    "node": (0.03, (7, 14)),
    "rack": (0.02, (7, 14)),
    "bios": (0.02, (4,)),
}
_REPORT = """
import resource, time
from pathlib import Path
from perflib.fleet.analysis.simulated import simulated_farm
from perflib.lab.farm_report import write_farm_report
farm = simulated_farm(400, 128, 5, slow_core={"model A": (8, 0.12)}, slow_nodes={17: 0.03},
                      warm_rack=(3, 0.02), slow_bios=("2.2", 0.02))
begin = time.perf_counter()
write_farm_report(farm.levels, farm.nodes, Path(OUT))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(time.perf_counter() - begin, peak, Path(OUT).stat().st_size / 1e6)
"""


def _share(hits: int, trials: int) -> str:
    low, high = binomtest(hits, trials).proportion_ci()
    return f"{hits} of {trials} ({hits / trials:.1%} [{low:.1%}, {high:.1%}])"


def healthy(reports: int) -> None:
    """How many reports of a healthy farm name anything: at most 5 %."""
    everything = 0
    for noise in NOISES:
        naming = sum(len(report(Healthy(), seed, noise=noise)) > 0 for seed in range(reports))
        everything += naming
        print(f"healthy, {noise}: {_share(naming, reports)} reports name any", flush=True)
    print(f"healthy, all: {_share(everything, reports * len(NOISES))}", flush=True)


def fault(what: str, farms: int) -> None:
    """How often one fault is found, and how often anything else is named beside it."""
    part, all_days = _FAULTS[what]
    for days in all_days:
        for noise in NOISES:
            found = beside = 0
            for seed in range(farms):
                named = report(Healthy(), seed, noise=noise, days=days, slow={what: part})
                right = named["kind"] == _KINDS[what]
                if what == "core":
                    right &= named["name"].eq("cpu8") & named["model"].eq("A")
                found += bool(right.any())
                beside += bool((~right).any())
            words = f"{what} slower by {part:.0%}, {days} days, {noise}"
            print(f"{words}: {_share(found, farms)} found, {beside} name more", flush=True)


def many(farms: int) -> None:
    """Of what is named where a lot is wrong, how much is false: at most one in twenty."""
    shares, held = [], []
    for seed in range(farms):
        noise = NOISES[seed % len(NOISES)]
        levels, nodes = table(replace(Healthy(), days=10, noise=noise), seed)
        bad = set(nodes["node"][:20])
        levels["value"] *= np.where(levels["node"].isin(bad), 1.05, 1.0)
        farm = compare_farm(levels, nodes[["node", "model"]])
        named = reported(farm)
        shares.append(float((~named["name"].isin(bad)).mean()) if len(named) else 0.0)
        mine = farm.effects[farm.effects["name"].isin(bad)]
        held.append(float(((mine["low"] <= 5) & (mine["high"] >= 5)).mean()))
    print(f"20 bad nodes: {statistics.mean(shares):.2%} of what is named is false, on average")
    print(f"their 95 % intervals hold in {statistics.mean(held):.1%}", flush=True)


def scaling(sizes: Iterable[int] = (100, 300, 1000), repetitions: int = 5) -> None:
    """The analysis at several sizes, in CPU time, in turns."""
    farms = {size: table(replace(Healthy(), nodes=size, days=7), 0) for size in sizes}
    times: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(repetitions):
        for size, tables in farms.items():
            begin = time.process_time()
            compare_farm(*tables)
            times[size].append(time.process_time() - begin)
    for size, taken in times.items():
        each = [1e3 * one / size for one in taken]
        print(
            f"{size} nodes: {statistics.median(taken):.2f} s, a node "
            f"{statistics.median(each):.2f} ms [{min(each):.2f}, {max(each):.2f}]",
            flush=True,
        )


def whole_report(repetitions: int = 3) -> None:
    """The report of 400 nodes with 128 cores: at most 60 s and 4 GiB."""
    taken = []
    with tempfile.TemporaryDirectory() as folder:
        code = _REPORT.replace("OUT", repr(f"{folder}/report.html"))
        for _ in range(repetitions):
            said = subprocess.check_output([sys.executable, "-c", code], text=True).split()
            taken.append([float(one) for one in said])
    wall, peak, size = (statistics.median(column) for column in zip(*taken, strict=True))
    verdict = "reached" if wall <= 60 and peak <= 4 else "MISSED"
    print(
        f"report of 400 x 128: {wall:.1f} s, {peak:.2f} GiB, {size:.1f} MB: {verdict}", flush=True
    )


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--reports", type=int, default=200)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--only", default="healthy,core,node,rack,bios,many,scaling,report")
    given = parser.parse_args()
    parts: dict[str, Callable[[], None]] = {
        "healthy": lambda: healthy(given.reports),
        **{what: functools.partial(fault, what, given.faults) for what in _FAULTS},
        "many": lambda: many(given.faults),
        "scaling": scaling,
        "report": whole_report,
    }
    for name in given.only.split(","):
        parts[name]()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"largest memory of the analyses: {peak:.2f} GiB")


if __name__ == "__main__":
    main()
