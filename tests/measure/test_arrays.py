"""Arrays in a worker: placed, verified, loaded, and gone with it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from perflib.machine.hardware.topology import topology
from perflib.measure import arrays as memory_arrays
from perflib.measure.arrays import Arrays
from perflib.measure.conditions import Conditions
from perflib.measure.pages import smaps
from perflib.measure.pages.backings import why_not
from perflib.measure.process import WorkerError
from perflib.model.errors import MeasurementError
from tests.reference import memory_chase as reference

# They change, or depend on, the machine's huge pages: one after the other.
pytestmark = [
    pytest.mark.xdist_group("huge pages"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="the kernel is written for x86-64"),
]

CPUS = topology().allowed_cpus()
KIB = 1024
NO_CPU = 1 << 13


@pytest.fixture
def arrays() -> Iterator[Arrays]:
    with Arrays(Conditions()) as made:
        yield made


def test_an_array_is_placed_on_a_core_and_loaded_from_another(arrays: Arrays) -> None:
    assert arrays.place("a", order="random", bytes_=64 * KIB, cpu=CPUS[0]) == ""
    samples, why = arrays.run("a", CPUS[-1], 0, 500, 3)
    assert why == ""
    assert samples["loads"].tolist() == [500] * 3
    assert set(samples["cpu"].tolist()) == {CPUS[-1]}
    assert (samples["sample"]["time_ns"] > 0).all()
    assert (samples["sample"]["probe_after_ns"] > 0).all()
    follows = samples["sample"]["probe_before_ns"][1:]
    assert (follows == samples["sample"]["probe_after_ns"][:-1]).all()


def test_several_arrays_are_there_at_once(arrays: Arrays) -> None:
    for seed in (1, 2):
        assert arrays.place(seed, order="random", bytes_=8 * KIB, seed=seed) == ""
    one, _ = arrays.run(1, CPUS[0], 0, 50, 1)
    two, _ = arrays.run(2, CPUS[0], 0, 50, 1)
    again, _ = arrays.run(1, CPUS[0], 0, 128 - 50, 1)
    orders = [reference.visits("random", 128, 64, seed) for seed in (1, 2)]
    assert [int(sample["reached_bytes"][0]) for sample in (one, two)] == [
        order[50] for order in orders
    ]
    assert int(again["reached_bytes"][0]) == orders[0][0]
    arrays.release(1)
    assert 1 not in arrays
    assert 2 in arrays


def test_the_pages_are_looked_at(arrays: Arrays, monkeypatch: pytest.MonkeyPatch) -> None:
    for backing in ("4k", "thp"):
        if not why_not(backing):
            assert arrays.place(backing, order="window", bytes_=4 << 20, backing=backing) == ""
    monkeypatch.setattr(smaps, "violated", lambda *_: "found something else")
    assert arrays.place("a", order="window", bytes_=4 << 20) == "found something else"


def test_pages_on_another_node_are_said(arrays: Arrays, monkeypatch: pytest.MonkeyPatch) -> None:
    assert arrays.place("a", order="random", bytes_=64 * KIB, cpu=CPUS[0], node=1023) != ""
    monkeypatch.setattr(memory_arrays, "pages_by_node", lambda *_: {0: 10, 1: 6})
    why = arrays.place("a", order="random", bytes_=64 * KIB, node=1)
    assert why == "only 6 of 16 pages are on node 1, and 10 on node 0"


def test_where_pages_cannot_be_seen_the_run_says_so_once(
    arrays: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = MeasurementError("the nodes of process 7's pages cannot be seen: it is forbidden")
    monkeypatch.setattr(memory_arrays, "pages_by_node", Mock(side_effect=refused))
    for key in "ab":
        assert arrays.place(key, order="random", bytes_=64 * KIB, node=0) == ""
    assert arrays.violated == ["the NUMA node of the arrays cannot be seen: it is forbidden"]


def test_a_core_that_cannot_be_had_is_said(arrays: Arrays) -> None:
    why = arrays.place("a", order="random", bytes_=64 * KIB, cpu=NO_CPU)
    assert why.startswith(f"cpu{NO_CPU} cannot be used: it is offline")
    assert "a" not in arrays
    arrays.place("a", order="random", bytes_=64 * KIB)
    samples, why = arrays.run("a", NO_CPU, 0, 100, 2)
    assert len(samples) == 0
    assert why.startswith(f"cpu{NO_CPU} cannot be used")
    assert arrays.run("a", CPUS[0], 0, 100, 2)[1] == ""


def test_refused_arguments_and_an_empty_pool_are_said(arrays: Arrays) -> None:
    assert "refused its arguments" in arrays.place("a", order="random", bytes_=100)
    if why_not("hugetlb", may_reserve=False):
        why = arrays.place("a", order="random", bytes_=64 * KIB, backing="hugetlb")
        assert "pool of huge pages" in why or "no pool" in why


def test_arrays_are_gone_with_their_worker(arrays: Arrays) -> None:
    arrays.place("a", order="random", bytes_=64 * KIB)
    pid = arrays._workers[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerError):
        arrays.run("a", CPUS[0], 0, 100, 1)
    assert "a" not in arrays
    with pytest.raises(WorkerError, match="gone with its worker"):
        arrays.run("a", CPUS[0], 0, 100, 1)
    arrays.release("a")
    assert arrays.place("a", order="random", bytes_=64 * KIB) == ""
    assert arrays.run("a", CPUS[0], 0, 100, 1)[1] == ""
