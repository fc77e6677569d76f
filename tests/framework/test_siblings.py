"""A sibling that is kept busy for the probes' sake: simulated ones, and CPUs that are none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pandas as pd
import pytest

from perflib.experiments import get
from perflib.framework import siblings
from perflib.framework.brackets import SIBLING_COLUMNS, classify
from perflib.framework.siblings import with_siblings
from perflib.kernels import record
from perflib.machine.hardware.topology import Topology
from perflib.measure.process import WorkerError
from perflib.stats.alone import CHAIN_NAMES, PORT_NAMES
from perflib.store.run_files import load
from tests.experiments.topologies import places

QUIET_NS, CHAIN_NS = 4000.0, 1700.0
NAMES = [one.name for one in SIBLING_COLUMNS]
CPUS = sorted(os.sched_getaffinity(0))
NO_CORE = 3 << 16 | 22


class Siblings:
    """A worker whose pairs of CPUs slow each other down; those that it lacks cannot be tried."""

    cost: Mapping[tuple[int, ...], float]
    held: float = 1.0
    disturbed: int = 0  # alternations that another program took

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def call(self, name: str, *given: Any, timeout_s: float) -> tuple[int, list[Any]]:
        assert (name, given[0], given[3]) == ("sharing_run", 0, 0)
        assert timeout_s > 1
        cpus = tuple(map(int, given[1]))
        assert given[2] == len(cpus) - 1
        found = np.zeros(given[7], record("sharing", "sharing_alternation"))
        account = np.zeros(1, record("sharing", "sharing_account"))
        if cpus not in self.cost:
            return NO_CORE, [found, account]
        rng = np.random.default_rng(cpus[0])
        clock = rng.uniform(1.0, 1.1, len(found))
        found["quiet_ns"] = QUIET_NS * (1 + 0.2 * (np.arange(len(found)) % 2))  # a neighbour
        found["busy_ns"] = found["quiet_ns"] * clock * self.cost[cpus]
        found["chain_ns"], found["chain_ratio"] = CHAIN_NS, clock
        found["busy_ns"][: self.disturbed] = 0
        account["held"] = self.held
        return 0, [found, account]


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> type[Siblings]:
    made = type("Made", (Siblings,), {"cost": {(0, 2): 1.5, (1, 3): 1.4}})
    monkeypatch.setattr(siblings, "Worker", made)
    return made


def there(monkeypatch: pytest.MonkeyPatch, *cores: tuple[int, ...], without: int = -1) -> None:
    """A machine with these cores, of which this process may not use one CPU."""
    mine = {cpu: core for core in cores for cpu in core}
    found = places(dict.fromkeys(mine, 0), mine)
    cpus = tuple(replace(one, allowed=one.cpu != without) for one in found.cpus)
    monkeypatch.setattr(siblings, "topology", lambda: Topology(cpus, ()))


def samples(*cpus: int, rounds: int = 200) -> pd.DataFrame:
    """Of cores that were always alone."""
    rng = np.random.default_rng(1)
    made = pd.DataFrame({"cpu": list(cpus) * rounds})
    made.index += 7
    for names, time_ns in ((PORT_NAMES, QUIET_NS), (CHAIN_NAMES, CHAIN_NS)):
        for name in names:
            made[name] = time_ns * (1 + 0.001 * rng.random(len(made)))
    return made


def statuses(made: pd.DataFrame) -> list[str]:
    found = classify(made)
    assert found is not None
    return [one.status for one in found.calibrations.values()]


@pytest.mark.usefixtures("worker")
def test_cores_whose_sibling_is_kept_busy_are_calibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    there(monkeypatch, (0, 2), (1, 3))
    before = samples(0, 1)
    found, problems = with_siblings(before)
    assert problems == []
    pd.testing.assert_frame_equal(found[list(before)], before)
    for cpu, cost in ((0, 1.5), (1, 1.4)):
        (values,) = {tuple(row) for row in found.loc[found["cpu"] == cpu, NAMES].to_numpy()}
        assert values == pytest.approx((QUIET_NS, CHAIN_NS, QUIET_NS * cost))
    assert statuses(before) == ["no second state"] * 2
    assert statuses(found) == ["calibrated"] * 2


@pytest.mark.parametrize(
    ("changed", "without", "said", "cpus"),
    [
        ({}, 3, "busy one only where it came by: this process may not run there", "1"),
        ({"cost": {(0, 2): 1.5}}, -1, "busy one only where it came by: a core cannot be used", "1"),
        ({"held": 0.7}, -1, "busy one only where it came by: other programs", "0-1"),
        ({"disturbed": 3}, -1, "busy one only where it came by: other programs", "0-1"),
    ],
)
def test_a_sibling_that_cannot_be_kept_busy_is_said_and_nothing_is_known_of_it(
    changed: dict[str, Any],
    without: int,
    said: str,
    cpus: str,
    worker: type[Siblings],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there(monkeypatch, (0, 2), (1, 3), without=without)
    for name, value in changed.items():
        monkeypatch.setattr(worker, name, value)
    found, (problem,) = with_siblings(samples(0, 1))
    assert said in problem
    assert f"CPUs {cpus}," in problem
    if cpus == "1":
        assert found.loc[found["cpu"] == 1, NAMES].isna().all(axis=None)
        assert found.loc[found["cpu"] == 0, NAMES].notna().all(axis=None)
    else:
        assert not {*NAMES} & {*found}


def test_a_worker_that_dies_costs_the_run_nothing(
    worker: type[Siblings], monkeypatch: pytest.MonkeyPatch
) -> None:
    there(monkeypatch, (0, 2))

    def dies(*_: Any, **__: Any) -> None:
        msg = "it crashed\nwith a long log"
        raise WorkerError(msg)

    monkeypatch.setattr(worker, "call", dies)
    found, (problem,) = with_siblings(samples(0))
    assert problem.endswith(": it crashed")
    assert not {*NAMES} & {*found}


@pytest.mark.parametrize("made", [samples(0, 1), pd.DataFrame(), samples(0).drop(columns="cpu")])
def test_null_without_siblings_or_probes_nothing_is_started(
    made: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(siblings, "Worker", None)
    there(monkeypatch, (0,), (1,))
    found, problems = with_siblings(made)
    assert (found is made, problems) == (True, [])


@pytest.mark.skipif(len(CPUS) < 2, reason="sharing needs two CPUs")
def test_a_run_keeps_what_was_measured_of_two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Called siblings here, whether they are or not."""
    there(monkeypatch, tuple(CPUS[:2]))
    kv = get("kv_per_core")
    params = kv.params({"cores": CPUS[:1], "events": 2, "budget_s": 0.5}, "quick")
    run = load(kv.measure(params).id)
    if {*NAMES} <= {*run.samples}:
        assert run.samples[NAMES].gt(0).all(axis=None)
    else:
        assert any("no sibling was kept busy" in one for one in run.provenance["problems"])
    assert len(kv.analyse(run)) > 0
