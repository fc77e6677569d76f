"""A planned run visits all pairs once, then those that decide the groups, and ends with them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from perflib.experiments import get
from perflib.experiments.core_pairs.cells import Cells
from perflib.experiments.core_pairs.coherence.names import main_of
from perflib.experiments.core_pairs.coherence.plan import (
    PLANNED,
    Pair,
    always_visited,
    configurations_of,
    whats_of,
)
from perflib.experiments.core_pairs.coherence.planned import Deciding, undecided
from perflib.experiments.core_pairs.coherence.table import COLUMNS
from perflib.framework import recordings
from perflib.lab.theme import png
from perflib.measure.schedule import frame_of

CORES = range(16)
EVERY = list(itertools.permutations(CORES, 2))
ALWAYS = always_visited([[0, 1], [8, 9], [3, 4]])
Ints = NDArray[np.int64]
FAR = 1.6  # times as long as near


class Machine:
    """16 cores whose latencies are drawn with tails, and what a planned run does to them."""

    def __init__(self, group: Ints, seed: int = 1, small: float = 1.0) -> None:
        self._rng = np.random.default_rng(seed)
        half = np.arange(16) % 2  # of each group: farther from each other by ``small``
        apart = np.where(half[:, None] == half, 1.0, small)
        self._ns = 100 * np.where(group[:, None] == group, apart, FAR)
        self.trials: list[dict[str, Any]] = []
        self.deciding = Deciding(self.trials, "cas_one_line", ALWAYS, 5.0)

    def visit(self, round_: int) -> list[Pair]:
        """Take a round; the pairs that it visited."""
        pairs = self.deciding.of_round(round_, EVERY)
        count = len(pairs)
        noise = 0.1 * self._rng.standard_normal(count) + 0.05 * self._rng.standard_normal()
        noise += (self._rng.random(count) < 0.05) * self._rng.exponential(0.5, count)
        columns = {
            "owner_cpu": [one for one, _ in pairs],
            "requester_cpu": [other for _, other in pairs],
            "what": ["cas_one_line"] * count,
            "control": [""] * count,
            "latency_ns": [
                float(self._ns[pair] * math.exp(off))
                for pair, off in zip(pairs, noise, strict=True)
            ],
            "start_ns": [round_ * 10**9 + place for place in range(count)],
            "ok": [True] * count,
        }
        self.trials.append({"round": round_, "position": 0, "columns": columns})
        return pairs

    def run(self, most: int = 120) -> None:
        """Take rounds until it is enough."""
        for round_ in range(most):
            self.visit(round_)
            if self.deciding.half_width(frame_of(self.trials)) == 0:
                return

    @property
    def labels(self) -> list[int]:
        """The groups that all samples show."""
        cells = Cells(frame_of(self.trials), COLUMNS)
        return [int(label) for label in cells.groups(least=math.log1p(0.05)).labels]


TWO = np.arange(16) // 8


@functools.cache
def ended(seed: int, small: float = 1.0) -> Machine:
    """Of two groups, after the run; nobody visits it again."""
    machine = Machine(TWO, seed, small=small)
    machine.run()
    return machine


WITHIN = {pair for pair in EVERY if TWO[pair[0]] == TWO[pair[1]]}


def test_all_pairs_come_once_and_then_those_within_groups() -> None:
    machine = Machine(TWO)
    assert machine.visit(0) == EVERY
    for round_ in range(1, 5):
        assert set(machine.visit(round_)) == WITHIN | ALWAYS
    assert set(machine.visit(5)) == WITHIN
    assert len(WITHIN | ALWAYS) < len(EVERY) / 2 + len(ALWAYS)


def cells_of(noise: NDArray[np.float64], rounds: int) -> Cells:
    """Of two groups of 8 cores; ``noise``: how far the cells of each core scatter."""
    generator = np.random.default_rng(1)
    rows = [
        (
            round_, one, other,
            100 * (1 if TWO[one] == TWO[other] else FAR)
            * math.exp(max(noise[[one, other]]) * generator.standard_normal()),
        )
        for round_ in range(rounds) for one, other in EVERY
    ]  # fmt: skip
    return Cells(pd.DataFrame(rows, columns=["round", *COLUMNS.names]), COLUMNS)


def test_a_group_is_visited_until_it_can_hide_nothing() -> None:
    noise = np.where(TWO == 0, 0.01, 0.2)
    assert undecided(cells_of(noise, 1), 0.05, {}) == WITHIN
    settled: dict[tuple[int, ...], bool] = {}
    waiting = undecided(cells_of(noise, 2), 0.05, settled)
    assert waiting == {pair for pair in WITHIN if TWO[pair[0]] == 1}
    assert sorted(settled.values()) == [False, True, True]
    assert undecided(cells_of(np.full(16, 0.01), 2), 0.05, {}) == set()


def test_neighbours_that_alone_are_one_group_are_visited_together() -> None:
    """A partition that cuts one group too many is found out, since the pairs between come again."""
    cells = cells_of(np.full(16, 0.01), 2)
    found = cells.groups(least=0.05)
    first = [core for core in CORES if TWO[core] == 0]
    labels = found.labels.copy()
    labels[first[:4]] = 2
    cells._found[0.95, 0.05] = dataclasses.replace(found, labels=labels)
    assert undecided(cells, 0.05, {}) == set(itertools.permutations(first, 2))


def test_a_group_that_is_decided_is_left_alone_while_others_are_not() -> None:
    machine = ended(1, 1.1)
    counts = [len(one["columns"]["what"]) for one in machine.trials]
    assert counts[1] == len(WITHIN | ALWAYS)
    assert len(ALWAYS) < counts[-1] < len(WITHIN) / 2


def test_a_long_run_visits_all_pairs_again() -> None:
    rounds = (0, 1, 159, 160, 161, 319, 320, 321)
    deciding = ended(1).deciding
    whole = [round_ for round_ in rounds if deciding.of_round(round_, EVERY) == EVERY]
    assert whole == [0, 160, 320]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_groups_are_those_of_the_machine_and_it_ends(seed: int) -> None:
    machine = ended(seed)
    assert 2 <= len(machine.trials) < 60
    assert machine.labels == TWO.tolist()


@pytest.mark.parametrize("seed", [0, 1])
def test_what_a_group_hides_is_found_before_it_ends(seed: int) -> None:
    """Halves 10 % apart within each group: a single round cannot show them."""
    truth = [2 * (core // 8) + core % 2 for core in CORES]
    names = {label: place for place, label in enumerate(dict.fromkeys(truth))}
    assert ended(seed, 1.1).labels == [names[label] for label in truth]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_null_cores_that_are_all_alike_are_one_group(seed: int) -> None:
    machine = Machine(np.zeros(16, dtype=np.int64), seed)
    machine.run(60)
    assert set(machine.labels) == {0}


def test_a_run_that_is_resumed_visits_the_same_pairs() -> None:
    machine = Machine(TWO, small=1.1)
    visited = [machine.visit(round_) for round_ in range(6)]
    again = Deciding(machine.trials, "cas_one_line", ALWAYS, 5.0)
    assert [again.of_round(round_, EVERY) for round_ in range(6)] == visited


def test_where_nothing_could_be_used_all_pairs_are_visited_again() -> None:
    machine = Machine(TWO)
    machine.visit(0)
    machine.trials[0]["columns"]["ok"] = [False] * len(EVERY)
    assert machine.visit(1) == EVERY


def test_everything_is_measured_of_few_pairs_only() -> None:
    whats = whats_of(["write_read_two_lines", "cas_one_line"], ["modified"], ["load"], 8)
    machine = Machine(TWO)
    (few, all_of_it), (others, main) = machine.deciding.batches(0, [(0, 1), (2, 3)], whats)
    assert (few, others) == ([(0, 1)], [(2, 3)])
    assert list(all_of_it) == whats
    assert [what.name for what in main] == ["cas_one_line"]
    machine.visit(0)
    assert machine.deciding.batches(1, [(2, 12)], whats) == []
    for round_ in range(1, 5):
        machine.visit(round_)
    assert len(machine.deciding.batches(4, [(0, 1)], whats)[0][1]) == len(whats)
    assert [main for _, main in machine.deciding.batches(5, [(0, 1)], whats)] == [main]


def test_all_pairs_are_planned_both_ways_without_coarse_rounds() -> None:
    found = configurations_of(CORES, [[0, 1], [8, 9]], PLANNED, 4)
    plain = [one for one in found if not one.control]
    assert {one.stage for one in found} == {0}
    assert sorted(pair for one in plain for pair in one.pairs) == EVERY


@pytest.mark.parametrize(
    ("whats", "main"),
    [
        (["modified write", "modified load", "cas_one_line"], "cas_one_line"),
        (["one_way_message", "write_read_two_lines"], "write_read_two_lines"),
        (["modified write", "modified load"], "modified load"),
        (["invalid load", "modified write"], "modified write"),
        (["invalid load"], "invalid load"),
        ([], None),
    ],
)
def test_which_matrix_shows_the_groups(whats: list[str], main: str | None) -> None:
    assert main_of(whats) == main


@pytest.mark.skipif(bool(get("coherence").unavailable()), reason="it takes two cores")
def test_a_planned_run_here() -> None:
    coherence = get("coherence")
    given = {
        "detail": "planned", "budget_s": 1.0, "lines": 8, "control_lines": 16, "exchanges": 20,
        "repeats": 3, "states": ["modified"], "protocols": ["cas_one_line"],
    }  # fmt: skip
    run = coherence.measure(coherence.Params.make(given))
    assert {"cas_one_line", "modified load"} <= set(run.samples["what"])
    assert coherence.analyse(run)


def test_a_planned_run_of_sixteen_cores_is_drawn() -> None:
    experiment = get("coherence")
    wanted = experiment.params({"detail": "planned"}, "quick")
    run = recordings.recorded(experiment, "intel-16-guest", wanted)
    figures = experiment.figures(run)
    assert figures.keys() >= {"heatmap_cas_one_line", "over_time"}
    assert experiment.derived(run)["over_time"]().index.is_unique
    assert png(figures["over_time"]).startswith(b"\x89PNG")
