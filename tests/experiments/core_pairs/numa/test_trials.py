"""Which cell is visited when, how large the arrays are, and what becomes of failures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from perflib.experiments.core_pairs.numa.trials import (
    Cell,
    NumaTrials,
    Stages,
    array_bytes,
    calibrate,
    likely_cause,
)
from perflib.measure.arrays import Arrays
from perflib.measure.schedule import Columns
from perflib.model.errors import MeasurementError, UserError
from tests.experiments.core_pairs.cell_samples import INTEL, FakeArrays

CORES = tuple(range(16))
NODES: dict[int, int | None] = {cpu: cpu // 8 for cpu in CORES}
MIB = 1 << 20


def visited(stages: Stages, round_: int) -> list[Cell]:
    cells = range(len(stages.cores) ** 2)
    return [stages.cell(cell) for cell in cells if stages.visits(round_, cell)]


# --- from coarse to fine -------------------------------------------------------------------------


def test_coarse_matrices_come_first() -> None:
    stages = Stages(CORES, (0, 8), "pairs")
    order = [stages.detail_of(round_) for round_ in range(6)]
    assert order == ["groups", "groups", "cores", "cores", "pairs", "pairs"]
    assert visited(stages, 0) == [Cell(0, 0), Cell(0, 8), Cell(8, 0), Cell(8, 8)]
    between = visited(stages, 2)
    assert Cell(3, 8) in between
    assert Cell(8, 3) in between
    assert Cell(3, 3) in between
    assert Cell(3, 4) not in between
    assert len(visited(stages, 4)) == 256


@pytest.mark.parametrize("heads", [(0, 1), (0, 8), (0, 4, 8, 12), CORES])
@pytest.mark.parametrize("detail", ["groups", "cores", "pairs"])
def test_cells_are_counted_as_they_are_visited(heads: tuple[int, ...], detail: str) -> None:
    stages = Stages(CORES, heads, detail)
    seen = {len(visited(stages, round_)): stages.detail_of(round_) for round_ in range(6)}
    assert seen == {stages.count(name): name for name in seen.values()}
    assert len(visited(stages, 5)) == stages.count(detail)


# --- how large -----------------------------------------------------------------------------------


def test_four_times_the_cache_and_at_least_64_mib() -> None:
    free = 100_000 * MIB
    assert array_bytes(None, 2, 32 * MIB, free) == (128 * MIB, "")
    assert array_bytes(None, 2, 4 * MIB, free) == (64 * MIB, "")
    assert array_bytes(None, 2, 0, free) == (64 * MIB, "")


def test_half_of_the_free_memory_at_most() -> None:
    size, remark = array_bytes(None, 100, 32 * MIB, 20_000 * MIB)
    assert size == 100 * MIB
    assert "100 MiB instead of 128 MiB" in remark
    with pytest.raises(UserError, match=r"100 arrays of 64 MiB .* name fewer cores.*twice"):
        array_bytes(None, 100, 32 * MIB, 12_000 * MIB)
    with pytest.raises(UserError, match="100 arrays of 1 MiB"):
        array_bytes(None, 100, 0, 100 * MIB)


def test_what_the_user_requests() -> None:
    size, remark = array_bytes(4, 2, 32 * MIB, 1000 * MIB)
    assert size == 4 * MIB
    assert "caches answer a part" in remark
    assert array_bytes(64, 2, 32 * MIB, 1000 * MIB) == (64 * MIB, "")
    with pytest.raises(UserError, match="array_mib: 2 arrays of 300 MiB take more than half"):
        array_bytes(300, 2, 32 * MIB, 1000 * MIB)


# --- trials --------------------------------------------------------------------------------------


def trials_of(fake: FakeArrays) -> NumaTrials:
    return NumaTrials(
        cast(Arrays, fake), Stages(CORES, (0, 8), "pairs"), NODES, loads=1000, repeats=3, seed=7,
        order="window", bytes_=MIB, backing="4k",
    )  # fmt: skip


def whole_round(trials: NumaTrials, round_: int) -> list[Columns]:
    taken = (trials.take(round_, cell) for cell in range(len(CORES) ** 2))
    return [columns for columns in taken if columns]


def good(rows: list[Columns]) -> set[tuple[int, int]]:
    return {
        (columns["alloc_cpu"][0], columns["load_cpu"][0]) for columns in rows if columns["ok"][0]
    }


def test_one_reading_of_the_frequency_that_an_interrupt_spoils(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeArrays(INTEL, noise=0.0)
    usual = fake.run

    def spoiled(*arguments: Any) -> Any:
        samples, why = usual(*arguments)
        samples["sample"]["chain_after_ns"][1] *= 5
        return samples, why

    monkeypatch.setattr(fake, "run", spoiled)
    trials = trials_of(fake)
    assert trials.take(4, 0)["latency_cycles"] == pytest.approx([220.0] * 3)


def test_arrays_are_placed_anew_in_each_round_at_their_first_use() -> None:
    fake = FakeArrays(INTEL)
    trials = trials_of(fake)
    whole_round(trials, 0)
    assert sorted(fake.placed) == [(0, 7), (8, 7)]
    whole_round(trials, 4)
    assert len(fake.placed) == 2 + 16
    assert set(fake.placed[2:]) == {(cpu, 11) for cpu in CORES}
    assert len(fake.loaded) == 4 + 256


def test_an_array_that_is_gone_with_its_worker_is_placed_again() -> None:
    fake = FakeArrays(INTEL)
    trials = trials_of(fake)
    trials.take(4, 0)
    fake.release(0)
    assert trials.take(4, 1)["ok"] == [True] * 3
    assert fake.placed == [(0, 11), (0, 11)]


def test_a_core_that_is_taken_away_during_the_run() -> None:
    """Its cells are marked, in both directions; the others continue, and it may come back."""
    fake = FakeArrays(INTEL)
    trials = trials_of(fake)
    assert len(good(whole_round(trials, 4))) == 256
    fake.gone = {5}
    rows = whole_round(trials, 5)
    assert len(rows) == 256
    assert good(rows) == {(a, b) for a in CORES for b in CORES if 5 not in (a, b)}
    bad = next(columns for columns in rows if not columns["ok"][0])
    assert math.isnan(bad["latency_cycles"][0])
    assert len([one for one in fake.placed[16:] if one[0] == 5]) == 1
    assert trials.problems == [
        "loads by cpu5 are left out: cpu5 cannot be used",
        "memory of cpu5 is left out: cpu5 cannot be used",
    ]
    fake.gone = set()
    assert len(good(whole_round(trials, 6))) == 256
    assert len(trials.problems) == 2


def test_a_node_whose_memory_is_refused_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "perflib.experiments.core_pairs.numa.trials.likely_cause", lambda *_: "It is full"
    )
    fake = FakeArrays(INTEL)
    fake.elsewhere = dict.fromkeys(range(8, 16), 0)
    trials = trials_of(fake)
    rows = whole_round(trials, 4)
    assert good(rows) == {(a, b) for a in range(8) for b in CORES}
    (problem,) = trials.problems
    assert problem == ("memory of node 1 is left out: only 0 of 16 pages are there. It is full")
    assert 9 not in fake


def test_a_thread_that_migrates_keeps_its_numbers_but_they_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeArrays(INTEL)
    usual = fake.run
    monkeypatch.setattr(fake, "run", lambda *given: (usual(*given)[0], "moved away"))
    trials = trials_of(fake)
    columns = trials.take(4, 0)
    assert columns["ok"] == [False] * 3
    assert all(np.isfinite(columns["latency_cycles"]))
    assert trials.problems == ["loads by cpu0 are left out: moved away"]


def test_a_whole_round_without_a_good_cell_ends_the_run() -> None:
    fake = FakeArrays(INTEL)
    fake.refused = dict.fromkeys(CORES, "no memory")
    trials = trials_of(fake)
    for round_ in range(4):  # coarse: the other cores may be better off
        whole_round(trials, round_)
    whole_round(trials, 4)
    with pytest.raises(MeasurementError, match="no cell could be measured: no memory"):
        trials.take(5, 0)


# --- before the first trial ----------------------------------------------------------------------


def test_nothing_is_available_anywhere() -> None:
    fake = FakeArrays(INTEL)
    fake.refused = dict.fromkeys(CORES, "no memory")
    with pytest.raises(MeasurementError, match=r"no core's memory is available .* no memory$"):
        calibrate(cast(Arrays, fake), NODES, 3, 2.0, order="window", bytes_=MIB, backing="4k")


def system(root: Path, *, allowed: str = "0-1", free_kb: int = 9_000_000) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/status").write_text(f"Name:\tx\nMems_allowed_list:\t{allowed}\n")
    node = root / "sys/devices/system/node/node1"
    node.mkdir(parents=True)
    (node / "meminfo").write_text(
        f"Node 1 MemTotal:       9999999 kB\nNode 1 MemFree:        {free_kb} kB\n"
    )
    return root


@pytest.mark.parametrize(
    ("described", "words"),
    [
        ({"allowed": "0"}, "memory of node 0 only: a control group's cpuset.mems"),
        ({"free_kb": 50 * 1024}, "Node 1 has 50 MiB free, the array takes 64 MiB"),
        ({}, "numa_balancing"),
    ],
)
def test_why_pages_are_elsewhere(tmp_path: Path, described: dict[str, Any], words: str) -> None:
    assert words in likely_cause(1, 64 * MIB, system(tmp_path, **described))


def test_why_pages_are_elsewhere_where_nothing_can_be_read(tmp_path: Path) -> None:
    assert "numa_balancing" in likely_cause(1, MIB, tmp_path)
