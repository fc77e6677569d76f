"""Pages lie where they were asked to lie, or a sentence says that they do not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perflib.experiments.core_pairs.numa.trials import likely_cause
from perflib.measure.arrays import Arrays
from perflib.measure.conditions import Conditions, MemoryPolicy, observe
from perflib.measure.launch import command
from perflib.model.errors import UserError
from tests.numa.layouts import Layout

MIB = 1 << 20
GROUPS = Path("/sys/fs/cgroup")


@pytest.fixture(scope="module")
def arrays() -> Iterator[Arrays]:
    """One worker for all: to start one takes seconds here."""
    with Arrays(Conditions()) as made:
        yield made


def lay(arrays: Arrays, cpu: int, node: int | None, span_mib: int = 2) -> str:
    """2 MiB of lines in so much memory, all of which is touched."""
    span = span_mib * MIB
    return arrays.place(cpu, order="random", bytes_=2 * MIB, span_bytes=span, cpu=cpu, node=node)


def worker_of(arrays: Arrays) -> int:
    pid = arrays[0].pid
    assert pid is not None
    return pid


def in_numa_maps(arrays: Arrays, key: object) -> dict[int, int]:
    """Pages by node of the mapping that begins where an array does: another way than move_pages."""
    begin = int(arrays._arrays[key].array["begin"][0])
    for line in Path(f"/proc/{worker_of(arrays)}/numa_maps").read_text().splitlines():
        if int(line.split()[0], 16) == begin:
            return {int(node): int(pages) for node, pages in re.findall(r"\bN(\d+)=(\d+)", line)}
    return {}


# --- first touch ---------------------------------------------------------------------------------


def test_each_core_s_first_touch_is_on_its_node(layout: Layout, arrays: Arrays) -> None:
    for cpu, node in enumerate(layout.nodes):
        assert lay(arrays, cpu, node) == ""
    for cpu, node in enumerate(layout.nodes):
        assert arrays.nodes(cpu) == {node: 512}
    assert arrays.violated == []


def test_numa_maps_say_the_same(layout: Layout, arrays: Arrays) -> None:
    for cpu, node in enumerate(layout.nodes):
        for other in range(len(layout.nodes)):  # the kernel counts neighbouring arrays together
            arrays.release(other)
        assert lay(arrays, cpu, node) == ""
        assert in_numa_maps(arrays, cpu) == {node: 512}


def test_loads_from_any_core_leave_the_pages_where_they_are(layout: Layout, arrays: Arrays) -> None:
    for alloc, node in enumerate(layout.nodes):
        assert lay(arrays, alloc, node) == ""
        for load in range(len(layout.nodes)):
            samples, why = arrays.run(alloc, load, 64, 256, 2)
            assert why == ""
            assert samples["cpu"].tolist() == [load, load]
        assert arrays.nodes(alloc) == {node: 512}


def test_pages_on_another_node_than_wanted_are_said(layout: Layout, arrays: Arrays) -> None:
    for cpu, node in enumerate(layout.nodes):
        wrong = (node + 1) % len(layout.distances)
        why = lay(arrays, cpu, wrong)
        assert why == f"only 0 of 512 pages are on node {wrong}, and 512 on node {node}"


# --- memory policies -----------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["bind", "preferred"])
def test_a_policy_decides_instead_of_first_touch(policy: MemoryPolicy, layout: Layout) -> None:
    node = len(layout.distances) - 1
    with Arrays(Conditions(memory_policy=policy, memory_node=node)) as made:
        assert lay(made, 0, node) == ""
        assert made.nodes(0) == {node: 512}
        assert made.violated == []
        got = observe(worker_of(made))
        assert (got["memory_policy"], got["memory_nodes"]) == (policy, [node])


def test_interleaved_pages_go_round_the_nodes(layout: Layout) -> None:
    nodes = range(len(layout.distances))
    with Arrays(Conditions(memory_policy="interleave")) as made:
        assert lay(made, 0, None) == ""
        assert made.nodes(0) == {node: 512 // len(nodes) for node in nodes}
        assert made.violated == []
        got = observe(worker_of(made))
        assert (got["memory_policy"], got["memory_nodes"]) == ("interleave", list(nodes))


def test_a_node_that_is_not_there_is_refused(layout: Layout) -> None:
    absent = len(layout.distances)
    there = ", ".join(map(str, range(absent)))
    with pytest.raises(UserError, match=f"no such node for this process, only {there}$"):
        Arrays(Conditions(memory_policy="bind", memory_node=absent))


# --- refused by a control group ------------------------------------------------------------------


@contextmanager
def control_group(**limits: str) -> Iterator[None]:
    """This process, and what it starts, in a control group of its own."""
    (GROUPS / "cgroup.subtree_control").write_text("+cpuset")
    group = GROUPS / "test"
    group.mkdir()
    try:
        for name, value in limits.items():
            (group / f"cpuset.{name}").write_text(value)
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (GROUPS / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


def test_memory_that_a_control_group_forbids_is_said(layout: Layout) -> None:
    cpu = len(layout.nodes) - 1
    node = layout.nodes[cpu]
    with control_group(mems="0"):
        with Arrays(Conditions()) as made:
            assert lay(made, 0, 0) == ""
            assert lay(made, cpu, node) == (
                f"only 0 of 512 pages are on node {node}, and 512 on node 0"
            )
        assert "memory of node 0 only: a control group's cpuset.mems" in likely_cause(node, MIB)
        with pytest.raises(UserError, match=r"no such node for this process, only 0$"):
            Arrays(Conditions(memory_policy="bind", memory_node=node))
    with Arrays(Conditions()) as made:
        assert lay(made, cpu, node) == ""


def test_a_core_that_a_control_group_forbids_is_said(layout: Layout) -> None:
    cpu = len(layout.nodes) - 1
    with control_group(cpus=f"0-{cpu - 1}"), Arrays(Conditions()) as made:
        assert lay(made, 0, 0) == ""
        assert lay(made, cpu, layout.nodes[cpu]).startswith(f"cpu{cpu} cannot be used")
        assert cpu not in made


# --- refused by a full node ----------------------------------------------------------------------

FILL = """
import pathlib, re, sys
node, keep_mib = map(int, sys.argv[1:])
held = []
def free_mib():
    text = pathlib.Path(f"/sys/devices/system/node/node{node}/meminfo").read_text()
    return int(re.search(r"MemFree: *([0-9]+)", text)[1]) // 1024
while free_mib() > keep_mib + 4:
    held.append(b"x" * (4 << 20))
print("full", flush=True)
sys.stdin.read()
"""
KEPT_MIB = 56  # from some 40 on the kernel looks for memory to take back


@contextmanager
def full(node: int) -> Iterator[None]:
    """A process that holds nearly all memory of a node."""
    Path("/proc/sys/vm/drop_caches").write_text("3")
    asked = Conditions(memory_policy="bind", memory_node=node)
    argv, environment = command(asked, [sys.executable, "-c", FILL, str(node), str(KEPT_MIB)])
    with subprocess.Popen(
        argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "full\n"
        yield
        process.stdin.close()


def test_a_full_node_is_said(layout: Layout) -> None:
    cpu = len(layout.nodes) - 1
    node = layout.nodes[cpu]
    wanted = 2 * KEPT_MIB
    with full(node), Arrays(Conditions()) as made:
        why = lay(made, cpu, node, wanted)
        found = re.match(rf"only (\d+) of 4096 pages are on node {node}, and \d+ on node", why)
        assert found is not None, why
        assert 0 < int(found[1]) < 4096
        made.release(cpu)
        assert lay(made, 0, 0) == ""
        assert f"Node {node} has" in likely_cause(node, wanted * MIB)
