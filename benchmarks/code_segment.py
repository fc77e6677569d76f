"""Code and its pages: the branch chase's ratio, the knee, null sweeps, and the default sweep.

    python benchmarks/code_segment.py [--runs 10] [--nulls 20] [--only chase,knee,compiled]

Each line is a figure that was to be reached. Ratios are of configurations interleaved in one run;
every sample's pages were verified.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from typing import Any

import numpy as np

from perflib.experiments import get
from perflib.experiments.code_size.claims import (
    KNEE,
    KNEE_SHARED,
    RING_KNEE,
    RING_KNEE_SHARED,
    SAME_KNEE,
    SAME_KNEE_SIMULATED,
    SPLIT,
)
from perflib.experiments.code_size.code_segment import measure
from perflib.experiments.code_size.measure import trials
from perflib.experiments.code_size.table import CodeTable
from perflib.experiments.code_size.trials import CodeConfiguration
from perflib.framework.page_claims import HUGE_PAGES
from perflib.kernels import build
from perflib.measure.schedule import frame_of, round_order
from perflib.stats.interval import percent
from perflib.stats.intervals import t_interval

_SHOWN = (
    HUGE_PAGES, KNEE, RING_KNEE, KNEE_SHARED, RING_KNEE_SHARED, SPLIT, SAME_KNEE,
    SAME_KNEE_SIMULATED,
)  # fmt: skip
_NAMES = ("chase", "knee", "null", "compiled", "default")


def _run(given: dict[str, object]) -> tuple[CodeTable, list[str], float]:
    """A run's table, the sentences of its knees and huge pages, and how long it took."""
    experiment = get("code_segment")
    begin = time.monotonic()
    run = experiment.measure(experiment.params(given))
    seconds = time.monotonic() - begin
    shown = [str(found) for found in experiment.analyse(run) if found.of in _SHOWN]
    return CodeTable(run.samples), shown, seconds


def chase() -> None:
    """4 KiB over 2 MiB pages, at 64 and 512 pages, and beyond."""
    given = {"sizes_kib": [256, 512, 2048, 4096, 8192, 16384], "budget_s": 30}
    given |= {"patterns": ["chase", "line"], "simulated_sizes": 0, "precision_percent": 0.1}
    table, sentences, _ = _run(given)
    print(sentences[0], flush=True)
    huge = table.huge[0]
    controls = (
        (huge, table.page_ratio("chase", huge)),
        ("ring on few pages", table.ring_ratio()[1]),
    )
    for place, n in enumerate(table.sizes("chase")):
        times = [table.curve("chase", name)["step_ns"].iloc[place] for name in ("4k", huge)]
        times.append(table.curve("line", "4k")["step_ns"].iloc[place])
        print(f"branch chase, {n} jumps: " + ", ".join(f"{ns:.2f}" for ns in times) + " ns on 4k, "
              f"{huge}, few pages", flush=True)  # fmt: skip
        for name, blocks in controls:
            middle, least, most = (1 + end / 100 for end in percent(t_interval(blocks[:, place])))
            print(f"    4k over {name}: {middle:.3f} [{least:.3f}, {most:.3f}]", flush=True)


def knee(runs: int) -> None:
    """Where the knee of the chase lies, again and again."""
    for number in range(runs):
        given = {
            "patterns": ["chase", "line"],
            "budget_s": 25,
            "simulated_sizes": 0,
            "seed": number + 1,
        }
        _, sentences, seconds = _run(given)
        print(f"knee, run {number + 1} ({seconds:.0f} s): {' '.join(sentences)}", flush=True)


def null(runs: int) -> None:
    """4 KiB pages against 4 KiB pages, both in every round: no knee is to be found."""
    experiment = get("code_segment")
    found = 0
    for number in range(runs):
        params: Any = experiment.params(
            {"patterns": ["chase"], "backings": ["4k"], "seed": number + 1, "simulated_sizes": 0}
        )
        plan = experiment.plan(params)
        plan |= experiment.pilot(params, plan)
        twice = [CodeConfiguration(*one) for one in plan["configurations"] for _ in range(2)]
        plan["configurations"] = twice
        taken: list[dict[str, object]] = []
        with trials(measure.sweep(params), params, plan) as both:
            end = time.monotonic() + 12
            round_ = 0
            while time.monotonic() < end:
                for position, place in enumerate(round_order(params.seed, round_, len(twice))):
                    columns = both.take(round_, place)
                    columns["backing"] = ["thp" if place % 2 else "4k"] * len(columns["ok"])
                    taken.append({"round": round_, "position": position, "columns": columns})
                round_ += 1
        knees = CodeTable(frame_of(taken)).knees("chase", "thp")
        found += bool(knees.knees)
        print(
            f"null sweep {number + 1}: {len(knees.knees)} knees, p = {knees.p:.3f}, "
            f"bound {100 * np.expm1(knees.bound):.2f} %",
            flush=True,
        )
    print(f"null sweeps with a knee: {found} of {runs}", flush=True)


def compiled() -> None:
    """How long the compiled switch takes to be made, and its knee beside the assembled one's."""
    with tempfile.TemporaryDirectory() as cache:
        usual = os.environ.get("PERFLIB_CACHE")
        os.environ["PERFLIB_CACHE"] = cache
        for variant in (None, "compiled"):
            begin = time.monotonic()
            build("code_segment", variant=variant)
            print(f"variant {variant}, cold: {time.monotonic() - begin:.1f} s", flush=True)
        os.environ.pop("PERFLIB_CACHE")
        if usual is not None:
            os.environ["PERFLIB_CACHE"] = usual
    given = {"patterns": ["random", "compiled"], "budget_s": 60, "simulated_sizes": 20}
    _, sentences, _ = _run(given)
    print("\n".join(sentences), flush=True)


def default() -> None:
    """The default sweep, warm."""
    table, knees, seconds = _run({})
    rounds = table.samples["round"].nunique()
    print(f"the default sweep: {seconds:.1f} s, {rounds} rounds, at most 60 s", flush=True)
    print("\n".join(knees), flush=True)


def main() -> None:
    """Run those that are wanted, with runs of their own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--nulls", type=int, default=20)
    parser.add_argument("--only", default=",".join(_NAMES))
    given = parser.parse_args()
    wanted = given.only.split(",")
    if unknown := [name for name in wanted if name not in _NAMES]:
        parser.error(f"--only: unknown {', '.join(unknown)}; there are {', '.join(_NAMES)}")
    with tempfile.TemporaryDirectory() as home:
        os.environ["PERFLIB_HOME"] = home
        if "chase" in wanted:
            chase()
        if "compiled" in wanted:
            compiled()
        if "default" in wanted:
            default()
        if "knee" in wanted:
            knee(given.runs)
        if "null" in wanted:
            null(given.nulls)


if __name__ == "__main__":
    main()
