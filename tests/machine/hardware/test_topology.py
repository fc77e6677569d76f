from __future__ import annotations

from pathlib import Path

import pytest

from perflib.machine.hardware.caches import caches
from perflib.machine.hardware.topology import topology
from perflib.model.errors import UserError
from tests.machine import trees


def test_two_sockets_numbered_alternately(tmp_path: Path) -> None:
    machine = topology(trees.haswell_ep(tmp_path))
    assert machine.packages() == [0, 1]
    assert len(machine.cores()) == 24
    assert machine.allowed_cpus() == list(range(48))
    assert machine.one_per_core() == list(range(24))
    assert machine.where(1) == "package 1, core 0, node 1, sibling of cpu25"
    assert machine.where(36) == "package 0, core 8, node 0, sibling of cpu12"
    assert [node.distances for node in machine.nodes] == [(10, 21), (21, 10)]
    assert machine.nodes[1].cpus == tuple(range(1, 48, 2))
    assert machine.nodes[0].memory_bytes == 65536000 * 1024


def test_groups_share_a_node_and_the_last_cache(tmp_path: Path) -> None:
    two_sockets = trees.haswell_ep(tmp_path / "haswell")
    even, odd = tuple(range(0, 48, 2)), tuple(range(1, 48, 2))
    assert topology(two_sockets).groups(caches(two_sockets)) == [even, odd]
    assert topology(two_sockets).groups() == [even, odd]
    complexes = trees.epyc(tmp_path / "epyc")
    groups = topology(complexes).groups(caches(complexes))
    assert len(groups) == 8
    assert groups[0] == (0, 1, 16, 17)
    assert len(topology(complexes).groups()) == 1  # they differ by the cache alone


def test_offline_cpus_have_no_place_and_isolated_ones_may_be_used(tmp_path: Path) -> None:
    machine = topology(trees.offline(tmp_path))
    assert [cpu.cpu for cpu in machine.cpus if not cpu.online] == [6, 7]
    assert machine.cpu(6).core is None
    assert machine.cpu(6).siblings == (6,)
    assert machine.where(7) == "offline"
    assert machine.allowed_cpus() == [0, 1, 2, 3, 4, 5]
    assert machine.where(5) == "package 0, core 5, isolated"


def test_a_cpuset_keeps_isolated_cpus_out(tmp_path: Path) -> None:
    trees.container(tmp_path)
    trees.write(tmp_path, {f"{trees.CPU}/isolated": "3,6"})
    trees.write(tmp_path, {"proc/self/status": "Cpus_allowed_list:\t0-2"})
    assert topology(tmp_path).allowed_cpus() == [0, 1, 2, 3]


def test_an_old_kernel_names_siblings_differently(tmp_path: Path) -> None:
    place = f"{trees.CPU}/cpu0/topology"
    files = {f"{trees.CPU}/online": "0-1", f"{place}/thread_siblings_list": "0-1"}
    machine = topology(trees.write(tmp_path, files))
    assert machine.cpu(0).siblings == (0, 1)
    assert machine.cpu(0).die is None


def test_dies_are_named_where_a_package_has_several(tmp_path: Path) -> None:
    files = {f"{trees.CPU}/online": "0-1"}
    files |= trees.cpu_files(0, 0, 0, "0", die=0) | trees.cpu_files(1, 0, 1, "1", die=1)
    assert topology(trees.write(tmp_path, files)).where(1) == "package 0, die 1, core 1"


def test_nothing_known_is_an_empty_machine(tmp_path: Path) -> None:
    machine = topology(tmp_path)
    assert machine.cpus == ()
    assert machine.nodes == ()
    assert machine.allowed_cpus() == []
    with pytest.raises(UserError, match="no CPU 0: it has none at all"):
        machine.where(0)


def test_an_unknown_cpu_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no CPU 48: it has 0-47"):
        topology(trees.haswell_ep(tmp_path)).cpu(48)
