"""A farm's runs without a measurement, and nodes that measure what a test gives them.

``python -m tests.fleet.accepting ARGUMENT...`` is the command line on such a node: what it finds
stands in ``PERFLIB_TEST_NODES``, a file of JSON, by the node's name in Slurm.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perflib.experiments import get
from perflib.fleet.acceptance import BATTERY
from perflib.framework.experiment import Experiment
from perflib.model.run import Run
from perflib.store.reading import read_run
from perflib.store.run_files import save

RECORDED = Path(__file__).parents[1] / "data" / "runs"
_TIMES = ("time_ns", "cpu_time_ns", "latency_ns")
_ROUNDS = 40  # of the recorded ones: enough, and soon analysed


@dataclass(frozen=True)
class Node:
    """What a node's runs show: how much slower (parts) it is and its cpu1, what others take of its
    cores, whether cpu1 computes wrong; ``once``: only the first time."""

    slower: float = 0.0
    core: float = 0.0
    taken: float = 0.0
    wrong: bool = False
    once: bool = False


def a_run(name: str, node: str, shown: Node, number: int, start: str, seed: int = 0) -> Run:
    """A recorded run, as if the node had measured it; ``number`` of the node's runs of it."""
    recorded = read_run(RECORDED / f"{name}.parquet")
    rng = np.random.default_rng([seed, number, len(name)])
    samples = recorded.samples[recorded.samples["round"] < _ROUNDS].copy()
    first = number == 0 or not shown.once
    if name == "correctness":
        if not (shown.wrong and first):
            samples = samples.assign(wrong=0, expected="", found="", first_index=-1)
    else:
        by = 1 + 0.001 * rng.standard_t(4) + (shown.slower if first else 0.0)
        factor = np.where(samples["cpu"] == 1, by * (1 + shown.core * first), by)
        for column in set(_TIMES) & set(samples):
            samples[column] = (samples[column] * factor).astype(samples[column].dtype)
        if name == "kv_per_core" and shown.taken:
            samples["cpu_time_ns"] = samples["time_ns"]
            samples["time_ns"] = (samples["time_ns"] / (1 - shown.taken)).astype(int)
            samples["run_delay_ns"] = samples["time_ns"] - samples["cpu_time_ns"]
    machine = {**recorded.provenance["machine"], "hostname": node}
    about = {**recorded.provenance, "machine": machine, "start": start, "tag": ""}
    day = start[:10].replace("-", "")
    given = {name: value for name, value in BATTERY.get(name, {}).items() if name == "budget_s"}
    id_ = f"{name}-{day}-{number:06d}-{node}-{seed:010d}"
    return Run(id_, name, {**recorded.params, **given}, samples, about)


def save_farm(nodes: int = 6, days: int = 2, names: tuple[str, ...] = ("kv_per_core",)) -> None:
    """Save a farm's runs in the store."""
    for node in range(nodes):
        for day in range(days):
            for name in names:
                start = f"2026-11-{day + 1:02d}T0{node % 10}:00:00+00:00"
                run = a_run(name, f"n{node}", Node(), day, start, seed=node + 1)
                save(run, reported=get(name).reported(run))


def measuring(patch: pytest.MonkeyPatch, shown: Node, name: str = "new") -> None:
    """From now on experiments measure what a node of this kind would."""
    times: dict[str, int] = {}

    def measure(experiment: Experiment, *_: Any, **__: Any) -> Run:
        number = times[experiment.name] = times.get(experiment.name, -1) + 1
        return a_run(experiment.name, name, shown, number, "2026-11-20T00:00:00+00:00", seed=99)

    patch.setattr(Experiment, "measure", measure)


def _main() -> None:
    from perflib.cli import main

    node = os.environ.get("SLURMD_NODENAME", "new")
    given = json.loads(Path(os.environ["PERFLIB_TEST_NODES"]).read_text())
    with pytest.MonkeyPatch.context() as patch:
        measuring(patch, replace(Node(), **given.get(node, {})), node)
        main(sys.argv[1:])


if __name__ == "__main__":
    _main()
