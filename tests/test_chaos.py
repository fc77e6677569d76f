"""The short form of benchmarks/chaos.py: each fault once, on experiments that take turns."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmarks.chaos import Outcome, Place, apart, can_be_private, pairs, table
from benchmarks.chaos_faults import FAULTS
from benchmarks.chaos_run import Held, described, lost, unlike

SEED = 20261123
TRIES = 4  # of other moments, where the run was over before the fault came
SHORT = ("machine", "numa")  # the others take longer to compile and to analyse
QUICK = ("kill -9 of all", "disk full for all calls")

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc: apt-get install gcc")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("chaos")
    folder.chmod(0o700)
    return Place(folder, Path(os.environ["PERFLIB_CACHE"]), can_be_private())


def strike(name: str, place: Place) -> Outcome:
    """The first case of a fault that hits."""
    fault, every = FAULTS[name], pairs(SEED)
    if fault.private and not place.private:
        pytest.skip("only root has mount namespaces of its own")
    own = [one for one in fault.experiments or SHORT if one in SHORT]
    experiment = (own or fault.experiments)[
        list(FAULTS).index(name) % len(own or fault.experiments)
    ]
    first = every.index((name, experiment))
    for number in range(first, first + TRIES * len(every), len(every)):
        outcome = apart(number, SEED, place)
        if outcome.struck or not outcome.survived:
            break
    return outcome


def cases() -> Iterator[Any]:
    """Every fault; by turns in two processes, as they wait a lot."""
    for number, name in enumerate(FAULTS):
        marks = [pytest.mark.xdist_group(f"chaos {number % 2}")]
        yield pytest.param(name, marks=[*marks, *[pytest.mark.slow] * (name not in QUICK)])


@pytest.mark.parametrize("name", list(cases()))
def test_nothing_is_lost_and_nothing_left(name: str, place: Place) -> None:
    outcome = strike(name, place)
    assert outcome.struck, "the run was always over before the fault came"
    assert (outcome.lost, outcome.left, outcome.problems) == (0, [], [])


# --- the suite itself ----------------------------------------------------------------------------

TRIALS = [
    {"round": 0, "position": 0, "columns": {"cpu": [0, 0], "time_ns": [0.1, None]}},
    {"round": 0, "position": 1, "columns": {"cpu": [1], "time_ns": [0.3]}},
]
SAVED = pd.DataFrame(
    {
        "round": [0, 0, 0, 1],
        "position": [0, 0, 1, 0],
        "cpu": [0, 0, 1, 0],
        "time_ns": [0.1, float("nan"), 0.3, 0.4],
    }
)


def test_samples_that_are_missing_or_changed_by_a_bit_are_lost() -> None:
    held = Held("run", TRIALS)
    assert lost(held, SAVED) == 0
    assert lost(held, None) == 3
    assert lost(held, SAVED.iloc[:2]) == 1
    assert lost(held, SAVED.assign(time_ns=[0.1, float("nan"), 0.30000000000000004, 0.4])) == 1
    assert lost(held, SAVED.iloc[[0, 0, 1, 2, 3]]) == 2
    assert lost(Held(), None) == 0


def test_a_run_may_lack_trials_that_it_never_planned_but_no_others() -> None:
    path = Path(__file__).parent / "data" / "runs" / "machine.parquet"
    usual = described(path, 1.0, 10)
    more = {**usual, "positions": [*usual["positions"], 99]}
    planned = {**more, "plan": {"cores": [0, 1, 2]}}
    assert unlike(usual, path, may_lack=True) == []
    assert unlike(planned, path, may_lack=True) == []
    assert unlike(more, path, may_lack=True) == ["round 0 lacks the trials at [99]"]
    assert unlike(planned, path) == ["round 0 lacks the trials at [99]"]


def test_the_table_counts_what_struck_and_what_did_not_survive() -> None:
    outcomes = [
        Outcome(0, "SIGTERM", "numa", held=5),
        Outcome(1, "SIGTERM", "machine", held=5, lost=2),
        Outcome(2, "SIGTERM", "threads", struck=False),
        Outcome(3, "disk errors", "numa", left=["process x", "tmp/y"]),
    ]
    _, _, *lines = table(outcomes)
    assert lines == [
        "| SIGTERM | 2 | 1 | 10 | 2 | 0 |",
        "| disk errors | 1 | 0 | 0 | 0 | 2 |",
        "| **all** | 3 | 1 | 10 | 2 | 2 |",
    ]


def test_a_seed_and_a_number_say_which_case_it_is() -> None:
    assert pairs(1) == pairs(1)
    assert sorted(pairs(1)) == sorted(pairs(2)) != pairs(2)
    assert {name for name, _ in pairs(1)} == set(FAULTS)
