"""Claims about matrices of cores: the source's servers, equal cores, gaps, the kernel's word."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.experiments.core_pairs.analyse import (
    core_findings,
    distances_finding,
    groups_finding,
    kernel_finding,
    own_finding,
)
from perflib.experiments.core_pairs.cells import Cells
from perflib.model.finding import Finding
from tests.experiments.core_pairs.cell_samples import (
    AMD,
    CCX,
    DIE,
    INTEL,
    SOCKET,
    amd_machine,
    flat,
    machine,
    samples,
)

TWO_NODES = [0] * 8 + [1] * 8


def cells_of(table: pd.DataFrame) -> Cells:
    return Cells(table, "alloc_cpu", "load_cpu", "latency_cycles")


def groups_of(cells: Cells, threshold: float = 2.0) -> Finding:
    return groups_finding(cells, "memory", "cycles", threshold)


@pytest.fixture(scope="module")
def amd() -> Cells:
    return cells_of(samples(AMD, rounds=16))


@pytest.fixture(scope="module")
def intel() -> Cells:
    return cells_of(samples(INTEL))


# --- groups --------------------------------------------------------------------------------------


def test_the_sources_amd_server(amd: Cells) -> None:
    found = groups_of(amd)
    assert (found.subject, found.unit, found.effect) == ("groups", "groups", 16.0)
    assert found.verdict == "supported"
    assert found.evidence["groups"] == {str(cpu): int(ccx) for cpu, ccx in enumerate(CCX)}
    classes = found.evidence["classes"]
    assert [near["latency"] for near in classes] == pytest.approx([185, 205, 300, 480, 630], 0.02)
    assert [near["pairs"] for near in classes] == [48, 72, 432, 144, 432]
    assert all(near["low"] < near["latency"] < near["high"] for near in classes)
    levels = [list(level.values()) for level in found.evidence["hierarchy"]]
    assert levels == [CCX.tolist(), DIE.tolist(), SOCKET.tolist()]
    dies = {(one // 2, other // 2) for one, other in found.evidence["partners"]}
    assert dies == {(die, die + 4) for die in range(4)}
    assert found.evidence["membership"][0, 24] == 3


def test_the_sources_intel_server(intel: Cells) -> None:
    found = groups_of(intel)
    assert (found.verdict, found.effect) == ("supported", 2.0)
    near, far = found.evidence["classes"]
    assert (near["latency"], far["latency"]) == pytest.approx((220, 360), 0.02)
    assert found.evidence["p"] < 0.001
    assert "220" in found.reason or "219" in found.reason or "221" in found.reason


def test_what_is_found_is_json(amd: Cells) -> None:
    told = json.loads(json.dumps(groups_of(amd).to_dict(), allow_nan=False))
    assert told["evidence"]["bound_percent"] is None
    assert len(told["evidence"]["membership"]) == 48


def test_null_cores_that_are_alike_are_one_group_with_a_bound() -> None:
    found = groups_of(cells_of(samples(flat(8), rounds=24, noise=0.05)))
    assert (found.verdict, found.effect) == ("refuted", 1.0)
    assert 0 < found.evidence["bound_percent"] < 2
    assert "two halves" in found.reason


def test_null_two_cores_of_which_little_can_be_said() -> None:
    quiet = groups_of(cells_of(samples(flat(2), rounds=24, noise=0.02)))
    assert (quiet.verdict, quiet.effect) == ("refuted", 1.0)
    assert "no cell" in quiet.reason
    noisy = groups_of(cells_of(samples(flat(2), rounds=8, noise=0.3)))
    assert (noisy.verdict, noisy.effect) == ("inconclusive", 1.0)
    assert noisy.evidence["bound_percent"] > 2


def test_too_little_to_say_anything() -> None:
    one_round = groups_of(cells_of(samples(flat(2), rounds=1)))
    assert one_round.verdict == "inconclusive"
    assert "two blocks" in one_round.reason
    one_core = groups_of(cells_of(samples(flat(1))))
    assert (one_core.verdict, one_core.effect) == ("inconclusive", 0.0)


def test_one_core_of_each_group_cannot_be_groups_and_nobody_says_so() -> None:
    """A group has two cores or more: with one of each, what differs is told by the bound."""
    found = groups_of(cells_of(samples(INTEL[np.ix_([0, 8], [0, 8])], noise=0.02)))
    assert found.verdict == "inconclusive"
    assert found.evidence["bound_percent"] > 20


def test_a_core_that_is_missing_and_cells_that_are() -> None:
    generator = np.random.default_rng(2)
    missing = generator.random(INTEL.shape) < 0.1
    missing[9, :] = missing[:, 9] = True
    found = groups_of(cells_of(samples(INTEL, missing=missing)))
    assert found.effect == 2.0
    assert found.evidence["groups"] == {str(c): c // 8 for c in range(16) if c != 9}


def test_of_a_sparse_matrix_no_bound_is_claimed() -> None:
    """Detail 'cores': each core with one of each group, both ways; of 120 pairs, 29."""
    heads = np.isin(np.arange(16), [0, 8])
    missing = ~(heads[:, None] | heads | np.eye(16, dtype=bool))
    found = groups_of(cells_of(samples(flat(16), rounds=10, missing=missing)))
    assert (found.verdict, found.effect) == ("inconclusive", 1.0)
    assert "24 % of the pairs" in found.reason
    assert np.isnan(found.evidence["bound_percent"])


# --- single cores, own memory --------------------------------------------------------------------


def test_a_core_that_is_slow_in_all_its_loads_is_no_group() -> None:
    """The source's vertical patterns: the way through the die is longer for some cores."""
    cells = cells_of(samples(INTEL, rounds=24, noise=0.03, slow={5: 0.08}))
    assert groups_of(cells).effect == 2.0
    found = core_findings(cells, "in loading memory", 2.0, where={5: "package 0, core 5"})
    assert [one.subject for one in found if one.verdict == "supported"] == ["cpu5"]
    slow = found[5]
    assert slow.low < 8 < slow.high
    assert slow.claim.startswith("cpu5 is more than 2 % slower")
    assert slow.evidence["where"] == "package 0, core 5"
    held = core_findings(cells, "in what others load from it", 2.0, "from")
    assert held[5].subject == "cpu5 held"
    assert {one.verdict for one in held} == {"refuted"}


def test_null_no_core_is_slow(amd: Cells) -> None:
    verdicts = [one.verdict for one in core_findings(amd, "in loading memory", 2.0)]
    assert "supported" not in verdicts
    assert len(verdicts) == 48


def test_own_memory() -> None:
    assert own_finding(cells_of(samples(flat(4), missing=np.eye(4, dtype=bool))), "it", 2) is None
    same = own_finding(cells_of(samples(flat(4), rounds=24, noise=0.03)), "it", 2)
    assert same is not None
    assert same.verdict == "refuted"
    nearer = flat(4) - 40 * np.eye(4)
    own = own_finding(cells_of(samples(nearer, rounds=24, noise=0.03)), "it", 2)
    assert own is not None
    assert own.verdict == "supported"
    assert own.low < 25 < own.high


# --- the kernel's word ---------------------------------------------------------------------------


def kernel_of(cells: Cells, described: dict[str, Any], kind: str = "node") -> Finding:
    found = kernel_finding(cells, described, 2.0, kind)
    assert found is not None
    return found


def test_the_kernel_names_the_groups_of_the_amd_server(amd: Cells) -> None:
    found = kernel_of(amd, amd_machine())
    assert (found.verdict, found.effect) == ("supported", 100.0)
    assert [level["equal_to"] for level in found.evidence["levels"]] == [
        ["last-level cache"], ["node"], ["package", "die"],
    ]  # fmt: skip
    assert found.evidence["kernel"]["package"] == ["0-23", "24-47"]


def test_the_kernel_names_the_nodes_of_the_intel_server(intel: Cells) -> None:
    found = kernel_of(intel, machine(TWO_NODES))
    assert found.verdict == "supported"
    assert "2 nodes" in found.reason


def test_a_kernel_that_knows_of_one_node_only(intel: Cells) -> None:
    """As in a virtual machine whose host hides its sockets."""
    found = kernel_of(intel, machine([0] * 16))
    assert found.verdict == "refuted"
    assert found.effect < 60
    assert "1 node" in found.reason


def test_a_kernel_that_names_other_cores(intel: Cells) -> None:
    found = kernel_of(intel, machine([0, 1] * 8))
    assert found.verdict == "refuted"


def test_one_group_and_one_node_agree() -> None:
    found = kernel_of(cells_of(samples(flat(2), rounds=24, noise=0.02)), machine([0, 0]))
    assert (found.verdict, found.effect) == ("supported", 100.0)
    assert "1 group" in found.reason
    assert "1 node" in found.reason


def test_one_group_where_the_kernel_names_two() -> None:
    """As under qemu's emulation, where all memory is equally far."""
    quiet = cells_of(samples(flat(16), rounds=16, noise=0.03))
    assert kernel_of(quiet, machine(TWO_NODES)).verdict == "refuted"
    noisy = cells_of(samples(flat(4), rounds=8, noise=0.5))
    found = kernel_of(noisy, machine([0, 0, 1, 1]))
    assert found.verdict == "inconclusive"
    assert "noise" in found.reason


def test_of_which_kind_one_group_should_be() -> None:
    quiet = cells_of(samples(flat(16), rounds=16, noise=0.03))
    shared = machine([0] * 16, cache_of=TWO_NODES)
    assert kernel_of(quiet, shared).verdict == "supported"
    assert kernel_of(quiet, shared, "last-level cache").verdict == "refuted"


def test_nothing_is_known_of_the_machine(intel: Cells) -> None:
    assert kernel_finding(intel, {}, 2.0) is None
    assert kernel_finding(intel, machine([0, 0]), 2.0) is None
    assert distances_finding(intel, {}, 2.0) is None
    unknown = machine(TWO_NODES)
    unknown["cpus"][3]["node"] = None
    assert kernel_finding(intel, unknown, 2.0) is None
    assert distances_finding(intel, unknown, 2.0) is None


def test_the_firmwares_distances_are_coarser_but_in_order(amd: Cells) -> None:
    found = distances_finding(amd, amd_machine(), 2.0)
    assert found is not None
    assert (found.verdict, found.effect) == ("supported", 100.0)
    at = found.evidence["classes_at_distance"]
    assert [round(one, -1) for one in at["32"]] == [480, 630]
    assert [round(one, -1) for one in at["16"]] == [300]


def test_distances_that_are_the_wrong_way_round(intel: Cells) -> None:
    found = distances_finding(intel, machine(TWO_NODES, [[20, 10], [10, 20]]), 2.0)
    assert found is not None
    assert (found.verdict, found.effect) == ("refuted", 0.0)


def test_distances_where_nothing_can_be_compared(intel: Cells) -> None:
    assert distances_finding(intel, machine([0] * 16), 2.0) is None
    alike = cells_of(samples(flat(16), noise=0.05))
    found = distances_finding(alike, machine(TWO_NODES), 2.0)
    assert found is not None
    assert found.verdict == "inconclusive"
