"""numa as its user meets it: many cores simulated, a run here, what fails."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.experiments import get
from perflib.experiments.core_pairs.numa import Numa, measure
from perflib.experiments.core_pairs.numa.claims import DISTANCES, OWN
from perflib.lab.theme import figures
from perflib.machine.hardware.topology import NumaNode, Topology, topology
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.store.run_files import runs
from tests.experiments.core_pairs.cell_samples import (
    AMD,
    INTEL,
    FakeArrays,
    amd_machine,
    flat,
    machine,
    run_of,
    samples,
)
from tests.experiments.judged import by_subject
from tests.experiments.topologies import places

NUMA = get("numa")
TINY: dict[str, Any] = {"budget_s": 0.5, "array_mib": 4, "trial_ms": 0.3}

TWO_NODES = [0] * 8 + [1] * 8

needs_this_processor = pytest.mark.skipif(bool(NUMA.unavailable()), reason=NUMA.unavailable())
needs_two_cores = pytest.mark.skipif(
    len(topology().allowed_cpus()) < 2, reason="a matrix takes two cores"
)


def found_in(
    table: pd.DataFrame, described: dict[str, Any] | None = None, **params: Any
) -> dict[str, Finding]:
    return by_subject(NUMA.analyse(run_of(table, described, **params)))


# --- what it says --------------------------------------------------------------------------------


def test_what_matters_is_the_users_choice() -> None:
    table = samples(INTEL, noise=0.02)
    assert found_in(table, threshold_percent=100.0)["groups"].effect == 1


def test_a_cores_own_memory() -> None:
    assert "own" not in found_in(samples(flat(4), missing=np.eye(4, dtype=bool)))
    same = found_in(samples(flat(4), rounds=24, noise=0.03))["own"]
    assert (same.of, same.verdict) == (OWN, "refuted")
    own = found_in(samples(flat(4) - 40 * np.eye(4), rounds=24, noise=0.03))["own"]
    assert own.verdict == "supported"
    assert own.low < 25 < own.high


def test_the_firmwares_distances_are_coarser_but_in_order() -> None:
    found = found_in(samples(AMD, rounds=16), amd_machine())["distances"]
    assert (found.of, found.verdict, found.effect) == (DISTANCES, "supported", 100.0)
    at = found.evidence["classes_at_distance"]
    assert [round(one, -1) for one in at["32"]] == [480, 630]
    assert [round(one, -1) for one in at["16"]] == [300]


def test_distances_that_are_the_wrong_way_round() -> None:
    described = machine(TWO_NODES, [[20, 10], [10, 20]])
    found = found_in(samples(INTEL), described)["distances"]
    assert (found.verdict, found.effect, found.facts["against"]) == ("refuted", 0.0, 100.0)


def test_distances_where_nothing_can_be_compared() -> None:
    table = samples(INTEL)
    unknown = machine(TWO_NODES)
    unknown["cpus"][3]["node"] = None
    for described in ({}, machine([0] * 16), unknown):
        assert "distances" not in found_in(table, described)
    found = found_in(samples(flat(16), noise=0.05), machine(TWO_NODES))["distances"]
    assert (found.verdict, found.reasons[0].code) == ("inconclusive", "one_class")


def test_runs_are_compared_by_their_cores() -> None:
    first = run_of(samples(flat(4), rounds=16, noise=0.02))
    second = run_of(samples(flat(4), rounds=16, noise=0.02, slow={2: 0.2}))
    changed = by_subject(NUMA.compare(first, second))
    assert changed["cpu2"].verdict == "supported"
    assert 15 < changed["cpu2"].effect < 25


# --- figures -------------------------------------------------------------------------------------


def heatmap_of(run: Run) -> Any:
    return figures(run)["heatmap"].axes[0]


def test_nodes_by_the_machines_description() -> None:
    axes = heatmap_of(run_of(samples(INTEL), machine([0] * 8 + [3] * 8)))
    assert [text.get_text() for text in axes.texts][-2:] == ["node 0", "node 3"]
    bare = heatmap_of(run_of(samples(INTEL)))
    assert len(bare.lines) == 0


# --- a machine with two sockets, simulated -------------------------------------------------------


def two_sockets_and_memory() -> Topology:
    """16 cores on 2 nodes, and a node of memory only."""
    nodes = [NumaNode(n, tuple(range(8 * n, 8 * n + 8)), 1 << 34, (10, 21, 17)) for n in (0, 1)]
    memory = NumaNode(2, (), 1 << 34, (17, 17, 10))
    return replace(places({cpu: cpu // 8 for cpu in range(16)}), nodes=(*nodes, memory))


@pytest.fixture
def two_sockets(monkeypatch: pytest.MonkeyPatch) -> FakeArrays:
    """That machine, simulated."""
    found = two_sockets_and_memory()
    fake = FakeArrays(INTEL)
    monkeypatch.setattr(measure, "topology", lambda: found)
    monkeypatch.setattr("perflib.framework.params.topology", lambda **_: found)
    monkeypatch.setattr(measure, "caches", lambda: ())
    monkeypatch.setattr(measure, "free_bytes", lambda: 1 << 40)
    monkeypatch.setattr(measure, "Arrays", fake)
    monkeypatch.setattr(Numa, "unavailable", lambda _self: "")
    return fake


def measured(rounds: int, **given: Any) -> Run:
    """A run that is stopped in the first trial after so many rounds."""
    stop = threading.Event()

    def progress(status: Any) -> None:
        if status.rounds >= rounds:
            stop.set()

    return NUMA.measure(NUMA.params({"budget_s": 600.0} | given), progress, stop)


def test_groups_of_a_simulated_machine(two_sockets: FakeArrays) -> None:
    run = measured(6)
    plan = run.provenance["plan"]
    assert plan["heads"] == [0, 8]
    assert plan["memory_only"] == [2]
    assert any("node 2 has memory and no CPU" in text for text in run.provenance["problems"])
    assert two_sockets.violated == []
    found = by_subject(NUMA.analyse(run))
    assert found["groups"].effect == 2
    assert set(run.samples.columns) == {column.name for column in NUMA.columns}
    by_round = run.samples.groupby("round")["position"].nunique()
    assert by_round.head(5).tolist() == [4, 4, 74, 74, 256]


def test_for_a_coarse_matrix_only_its_arrays_are_placed(two_sockets: FakeArrays) -> None:
    run = measured(2, detail="groups")
    assert {key for key, _ in two_sockets.placed} == {"calibration", 0, 8}
    assert set(run.samples["alloc_cpu"]) == {0, 8}


def test_a_run_that_is_interrupted_early_shows_the_coarse_picture(
    two_sockets: FakeArrays,
) -> None:
    run = measured(3)
    assert run.provenance["stopped"] == "interrupted"
    assert any(
        "coarse rounds: a round of all 256 pairs" in text for text in run.provenance["problems"]
    )
    assert len(two_sockets.loaded) == 1 + 4 + 4 + 74 + 1
    verdict = by_subject(NUMA.analyse(run))["groups"].verdict
    assert verdict in ("supported", "inconclusive")
    assert "heatmap" in figures(run)


def test_nothing_is_measured_before_there_is_a_journal(
    two_sockets: FakeArrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan measures nothing; loads are counted with the requested settings in force."""
    plan = NUMA.plan(NUMA.params({}))
    assert two_sockets.placed == []
    assert "loads" not in plan
    monkeypatch.setattr(measure, "why_not", lambda name: f"{name} is off")
    with pytest.raises(UserError, match="backing: thp is off"):
        measured(1, backing="thp")
    assert two_sockets.placed == []
    assert runs() == []


def test_a_run_of_an_earlier_schema_is_read() -> None:
    old = Run("old", "numa", {"turn_ms": 3.0}, samples(flat(2)))
    assert NUMA.current(old).params["trial_ms"] == 3.0
    assert NUMA.analyse(old)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cores": [3]}, "compares cores and needs two"),
        ({"cores": [1, 77]}, "this machine has no CPU 77"),
        ({"memory_policy": "interleave"}, "each core's first touch does"),
        ({"array_mib": 65536}, "array_mib: 16 arrays"),
    ],
)
def test_what_this_machine_cannot_do(
    two_sockets: FakeArrays, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], words: str
) -> None:
    monkeypatch.setattr(measure, "free_bytes", lambda: 1 << 34)
    with pytest.raises(UserError, match=words):
        measured(1, **given)
    assert two_sockets.placed == []


# --- here ----------------------------------------------------------------------------------------


@needs_this_processor
@needs_two_cores
def test_a_run_here() -> None:
    cpus = topology().allowed_cpus()[:2]
    run = NUMA.measure(NUMA.params(TINY | {"cores": cpus}))
    assert run.samples["ok"].all()
    assert set(run.samples["alloc_cpu"]) == set(run.samples["load_cpu"]) == set(cpus)
    assert (run.samples["latency_cycles"] > 0).all()
    here = topology()
    assert [here.cpu(int(cpu)).node for cpu in run.samples["alloc_cpu"]] == (
        run.samples["alloc_node"].tolist()
    )
    found = by_subject(NUMA.analyse(run))
    # During other tests so short a run may see two groups in two cores; the null tests simulate.
    assert found["groups"].effect in (1, 2)
    assert found["kernel"].subject == "kernel"
    assert list(figures(run)) == ["heatmap", "groups", "classes"]
