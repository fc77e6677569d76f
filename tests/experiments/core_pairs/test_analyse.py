"""Findings about matrices of cores: published servers, equal cores, gaps, what the kernel names."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.experiments.core_pairs.analyse import core_findings, groups_finding, kernel_finding
from perflib.experiments.core_pairs.claims import GROUPS, KERNEL, SLOWER
from perflib.experiments.core_pairs.numa.analyse import cells_of
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
    run_of,
    samples,
)
from tests.experiments.judged import codes

TWO_NODES = [0] * 8 + [1] * 8
ONE_OF_EACH = INTEL[np.ix_([0, 8], [0, 8])]  # cores=groups, or two virtual cores on two sockets


def groups_of(table: pd.DataFrame) -> Finding:
    return groups_finding(cells_of(table), run_of(table), "memory")


def kernel_of(table: pd.DataFrame, described: dict[str, Any], kind: str = "node") -> Finding:
    run, cells = run_of(table, described), cells_of(table)
    found = kernel_finding(cells, run, groups_finding(cells, run, "memory"), kind)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def amd() -> pd.DataFrame:
    return samples(AMD, rounds=16)


@pytest.fixture(scope="module")
def intel() -> pd.DataFrame:
    return samples(INTEL)


# --- groups --------------------------------------------------------------------------------------


def test_the_published_amd_server(amd: pd.DataFrame) -> None:
    found = groups_of(amd)
    assert (found.of, found.unit, found.effect) == (GROUPS, "groups", 16.0)
    assert (found.verdict, codes(found)) == ("supported", ["classes"])
    assert found.evidence["p"] < 0.001
    assert found.evidence["groups"] == {str(cpu): int(ccx) for cpu, ccx in enumerate(CCX)}
    classes = found.evidence["classes"]
    assert [near["latency"] for near in classes] == pytest.approx([185, 205, 300, 480, 630], 0.02)
    assert [near["pairs"] for near in classes] == [48, 72, 432, 144, 432]
    assert all(near["latency_low"] < near["latency"] < near["latency_high"] for near in classes)
    levels = [list(level.values()) for level in found.evidence["hierarchy"]]
    assert levels == [CCX.tolist(), DIE.tolist(), SOCKET.tolist()]
    dies = {(one // 2, other // 2) for one, other in found.evidence["partners"]}
    assert dies == {(die, die + 4) for die in range(4)}
    assert found.evidence["membership"][0, 24] == 3
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert record["evidence"]["bound_percent"] is None
    assert len(record["evidence"]["membership"]) == 48


def test_null_cores_that_are_alike_are_one_group_with_a_bound() -> None:
    found = groups_of(samples(flat(8), rounds=24, noise=0.05))
    assert (found.verdict, found.effect) == ("refuted", 1.0)
    assert 0 < found.evidence["bound_percent"] < 2
    assert codes(found) == ["halves"]


def test_null_two_cores_of_which_little_can_be_said() -> None:
    quiet = groups_of(samples(flat(2), rounds=24, noise=0.02))
    assert (quiet.verdict, quiet.effect) == ("refuted", 1.0)
    assert codes(quiet) == ["own"]
    noisy = groups_of(samples(flat(2), rounds=8, noise=0.3))
    assert (noisy.verdict, noisy.effect) == ("inconclusive", 1.0)
    assert codes(noisy) == ["own", "wide"]
    assert noisy.evidence["bound_percent"] > 2


def test_too_little_to_say_anything() -> None:
    one_round = groups_of(samples(flat(2), rounds=1))
    assert (one_round.verdict, codes(one_round)) == ("inconclusive", ["too_few"])
    one_core = groups_of(samples(flat(1)))
    assert (one_core.verdict, one_core.effect) == ("inconclusive", 0.0)


def test_two_cores_without_a_diagonal_show_nothing() -> None:
    table = samples(ONE_OF_EACH, noise=0.02, missing=np.eye(2, dtype=bool))
    found = groups_of(table)
    assert (found.verdict, codes(found)) == ("inconclusive", ["pair"])
    assert kernel_of(table, machine([0, 0])).verdict == "inconclusive"
    assert kernel_of(table, machine([0, 1])).verdict == "inconclusive"


def test_a_core_that_is_missing_and_cells_that_are() -> None:
    generator = np.random.default_rng(2)
    missing = generator.random(INTEL.shape) < 0.1
    missing[9, :] = missing[:, 9] = True
    found = groups_of(samples(INTEL, missing=missing))
    assert found.effect == 2.0
    assert found.evidence["groups"] == {str(c): c // 8 for c in range(16) if c != 9}


def test_of_a_sparse_matrix_no_bound_is_claimed() -> None:
    """Detail 'cores': each core with one of each group, both ways; of 120 pairs, 29."""
    heads = np.isin(np.arange(16), [0, 8])
    missing = ~(heads[:, None] | heads | np.eye(16, dtype=bool))
    table = samples(flat(16), rounds=10, missing=missing)
    found = groups_of(table)
    assert (found.verdict, found.effect) == ("inconclusive", 1.0)
    assert codes(found) == ["sparse"]
    assert found.reasons[0].numbers["share"] == pytest.approx(29 / 120)
    assert np.isnan(found.evidence["bound_percent"])
    assert kernel_of(table, machine(TWO_NODES)).verdict == "inconclusive"


# --- single cores --------------------------------------------------------------------------------


def test_a_core_that_is_slow_in_all_its_loads_is_no_group() -> None:
    """Vertical stripes: the way through the die is longer for some cores."""
    table = samples(INTEL, rounds=24, noise=0.03, slow={5: 0.08})
    assert groups_of(table).effect == 2.0
    found = core_findings(cells_of(table), run_of(table, machine(TWO_NODES)), "in loading memory")
    assert [one.about["cpu"] for one in found if one.verdict == "supported"] == [5]
    slow = found[5]
    assert slow.of is SLOWER
    assert slow.low < 8 < slow.high
    assert slow.claim.startswith("cpu5 is more than 2 % slower")
    assert slow.evidence["where"] == "package 0, core 5, node 0"
    assert codes(slow) == ["every_segment", "where"]


def test_null_no_core_is_slow(amd: pd.DataFrame) -> None:
    verdicts = [one.verdict for one in core_findings(cells_of(amd), run_of(amd), "in loading")]
    assert "supported" not in verdicts
    assert len(verdicts) == 48


@pytest.mark.parametrize("cores", [[0, 1, 8, 9], [0, 1, 2, 8, 9, 10]])  # groups of two, of three
def test_null_one_or_two_wrong_samples_make_no_core_slow(cores: list[int]) -> None:
    table = samples(INTEL[np.ix_(cores, cores)], rounds=12, noise=0.03)
    generator = np.random.default_rng(3)
    for number in range(40):
        rows = generator.choice(len(table), 1)
        if number % 4 == 3:  # two of one round
            mine = np.flatnonzero(table["round"] == table["round"].iloc[rows[0]])
            rows = generator.choice(mine, 2, replace=False)
        wrong = table.copy()
        places = [list(wrong).index(name) for name in ("latency_cycles", "latency_ns")]
        wrong.iloc[rows, places] *= 10 ** generator.uniform(-2, 2)
        found = core_findings(cells_of(wrong), run_of(wrong), "in loading")
        assert "supported" not in {one.verdict for one in found}, (number, rows)
        gone = table.drop(table.index[rows])
        found = core_findings(cells_of(gone), run_of(gone), "in loading")
        assert "supported" not in {one.verdict for one in found}, (number, rows)


# --- what the kernel names -----------------------------------------------------------------------


def test_the_kernel_names_the_groups_of_the_amd_server(amd: pd.DataFrame) -> None:
    found = kernel_of(amd, amd_machine())
    assert (found.of, found.verdict, found.effect) == (KERNEL, "supported", 100.0)
    assert [level["equal_to"] for level in found.evidence["levels"]] == [
        ["last-level cache"], ["node"], ["package", "die"],
    ]  # fmt: skip
    assert found.evidence["kernel"]["package"] == ["0-23", "24-47"]


def test_a_kernel_that_knows_of_one_node_only(intel: pd.DataFrame) -> None:
    """As in a virtual machine whose host hides its sockets."""
    found = kernel_of(intel, machine([0] * 16))
    assert (found.verdict, codes(found)) == ("refuted", ["unlike"])
    assert found.effect < 60
    assert "1 by node" in found.facts["named"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cores", [2, 4])
def test_null_noise_that_could_hide_groups_says_nothing_of_the_kernel(
    seed: int, cores: int
) -> None:
    table = samples(flat(cores), rounds=8, noise=0.5, seed=seed)
    found = kernel_of(table, machine([0] * cores))
    assert found.verdict == "inconclusive"
    assert found.reasons == groups_of(table).reasons


def test_of_which_kind_one_group_should_be() -> None:
    """Of two nodes as under qemu's emulation, where all memory is equally far."""
    quiet = samples(flat(16), rounds=16, noise=0.03)
    assert kernel_of(quiet, machine(TWO_NODES)).verdict == "refuted"
    shared = machine([0] * 16, cache_of=TWO_NODES)
    assert kernel_of(quiet, shared).verdict == "supported"
    assert kernel_of(quiet, shared, "last-level cache").verdict == "refuted"


def test_nothing_is_known_of_the_machine(intel: pd.DataFrame) -> None:
    def kernel(described: dict[str, Any]) -> Finding | None:
        run, cells = run_of(intel, described), cells_of(intel)
        return kernel_finding(cells, run, groups_of(intel))

    assert kernel({}) is None
    assert kernel(machine([0, 0])) is None
    unknown = machine(TWO_NODES)
    unknown["cpus"][3]["node"] = None
    assert kernel(unknown) is None
