"""What the machine is said to be: by the topology, by numactl and by hwloc."""

from __future__ import annotations

import re
import shutil
import subprocess
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from perflib.machine.hardware.topology import topology
from tests.numa.layouts import Layout

Hardware = tuple[dict[int, list[int]], list[list[int]]]


def of(layout: Layout) -> Hardware:
    """CPUs of each node, and distances."""
    nodes = range(len(layout.distances))
    return {node: layout.cpus(node) for node in nodes}, [list(row) for row in layout.distances]


def output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def test_numpy_sorts_rightly_here() -> None:
    """Not a matter of course: see what ``tests.numa.guest`` says of AVX2."""
    numbers = np.random.default_rng(1).integers(0, 1 << 15, 5000)
    assert np.sort(numbers).tolist() == sorted(numbers.tolist())
    assert numbers[np.argsort(numbers)].tolist() == sorted(numbers.tolist())


def test_the_topology_has_nodes_cpus_memory_and_distances(layout: Layout) -> None:
    found = topology()
    cpus = {node.node: list(node.cpus) for node in found.nodes}
    assert (cpus, [list(node.distances) for node in found.nodes]) == of(layout)
    assert tuple(cpu.node for cpu in found.cpus) == layout.nodes
    assert found.allowed_cpus() == list(range(len(layout.nodes)))
    for node in found.nodes:
        assert node.memory_bytes is not None
        assert 0.8 * layout.node_mib < node.memory_bytes / 2**20 <= layout.node_mib


@pytest.mark.skipif(shutil.which("numactl") is None, reason="no numactl: apt-get install numactl")
def test_numactl_says_the_same(layout: Layout) -> None:
    said = output("numactl", "--hardware")
    cpus = re.findall(r"node (\d+) cpus: (.*)", said)
    table = said.partition("node distances:")[2].strip().splitlines()[1:]
    assert {int(node): [int(cpu) for cpu in these.split()] for node, these in cpus} == of(layout)[0]
    assert [[int(word) for word in row.split()[1:]] for row in table] == of(layout)[1]


@pytest.mark.skipif(shutil.which("lstopo") is None, reason="no lstopo: apt-get install hwloc-nox")
def test_hwloc_says_the_same(layout: Layout) -> None:
    machine = ET.fromstring(output("lstopo", "--of", "xml"))
    cpus = {}
    for node in machine.findall(".//object[@type='NUMANode']"):
        mask = int(node.attrib["cpuset"].replace(",", "").removeprefix("0x"), 16)
        cpus[int(node.attrib["os_index"])] = [bit for bit in range(64) if mask >> bit & 1]
    assert cpus == of(layout)[0]
    (latencies,) = machine.findall("./distances2[@name='NUMALatency']")
    words = " ".join(part.text or "" for part in latencies.findall("./u64values")).split()
    indexes = " ".join(part.text or "" for part in latencies.findall("./indexes")).split()
    values = iter(map(int, words))
    found = {(int(a), int(b)): next(values) for a in indexes for b in indexes}
    distances = of(layout)[1]
    assert found == {(a, b): distances[a][b] for a in cpus for b in cpus}
