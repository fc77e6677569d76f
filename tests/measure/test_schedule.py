"""Rounds: the order of the arms, when it ends, what a failure costs, and going on after a kill."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib.measure import schedule as rounds
from perflib.measure.journal import Journal
from perflib.measure.process import WorkerError
from perflib.measure.schedule import Columns, Status, frame_of, round_order, take_rounds
from perflib.model.errors import MeasurementError

ARMS = ("cpu0", "cpu1", "cpu5")


class Clock:
    """Time that passes only when somebody says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(rounds, "time", made)
    return made


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal.create(tmp_path / "test.journal", {})
    yield made
    made.close()


def one_second(
    clock: Clock, calls: list[tuple[int, int]] | None = None
) -> Callable[[int, int], Columns]:
    """A trial that takes a second of the clock."""

    def trial(round_: int, arm: int) -> Columns:
        clock.now_s += 1.0
        if calls is not None:
            calls.append((round_, arm))
        return {"cpu": [arm] * 2, "time_ns": [100 * round_ + arm, 7]}

    return trial


def take(
    journal: Journal,
    trial: Callable[[int, int], Columns],
    half_width: Callable[[pd.DataFrame], float] = lambda _samples: math.inf,
    **changed: Any,
) -> str:
    wanted: dict[str, Any] = {"seed": 3, "budget_s": 12.0, "least_s": 0.0, "target": 1.0}
    return take_rounds(journal, len(ARMS), trial, half_width=half_width, **{**wanted, **changed})


# --- the order ---------------------------------------------------------------------------------


def test_order_of_old_runs_must_not_change() -> None:
    """This version resumes a run that an older one began."""
    assert [round_order(1, n, 5) for n in range(3)] == [
        [3, 4, 0, 1, 2],
        [3, 0, 2, 4, 1],
        [0, 3, 2, 1, 4],
    ]


def test_every_order_is_as_likely_as_any_other() -> None:
    seen = Counter(tuple(round_order(1, n, 3)) for n in range(6000))
    assert len(seen) == 6
    chi_square = sum((count - 1000) ** 2 / 1000 for count in seen.values())
    assert chi_square < 20.5  # one in a thousand, of 5 degrees of freedom
    following = Counter(
        (round_order(1, n, 3)[0], round_order(1, n + 1, 3)[0]) for n in range(0, 9000, 2)
    )
    assert sum((count - 500) ** 2 / 500 for count in following.values()) < 26.1  # of 8
    assert round_order(1, 0, 8) != round_order(2, 0, 8)


def test_an_arm_that_returns_nothing_is_left_out_of_the_round(
    journal: Journal, clock: Clock
) -> None:
    def trial(round_: int, arm: int) -> Columns:
        columns = one_second(clock)(round_, arm)
        return columns if round_ > 0 or arm == 1 else {}

    take(journal, trial)
    taken = {(entry["round"], entry["configuration"]) for entry in journal.trials}
    assert {arm for round_, arm in taken if round_ == 0} == {1}
    assert {arm for round_, arm in taken if round_ == 1} == {0, 1, 2}
    assert frame_of(journal.trials).groupby("round")["cpu"].nunique().tolist()[:2] == [1, 3]


# --- when it ends ------------------------------------------------------------------------------


def test_whole_rounds_until_the_budget_is_spent(clock: Clock, journal: Journal) -> None:
    calls: list[tuple[int, int]] = []
    assert take(journal, one_second(clock, calls), budget_s=10.0) == "budget spent"
    assert calls == [(n, arm) for n in range(4) for arm in round_order(3, n, 3)]
    assert [trial["position"] for trial in journal.trials] == [0, 1, 2] * 4
    assert [(trial["round"], trial["configuration"]) for trial in journal.trials] == calls
    assert {trial["wall_s"] for trial in journal.trials} == {1.0}


def test_precise_enough_but_not_before_the_least_time(clock: Clock, journal: Journal) -> None:
    requested: list[int] = []

    def half_width(samples: pd.DataFrame) -> float:
        requested.append(len(samples))
        return 0.5

    stopped = take(journal, one_second(clock), half_width, budget_s=100.0, least_s=5.0)
    assert stopped == "precise enough"
    assert requested == [12], "two rounds of three arms, two samples each"


def test_precision_is_looked_at_more_and_more_rarely(clock: Clock, journal: Journal) -> None:
    requested: list[int] = []

    def half_width(samples: pd.DataFrame) -> float:
        requested.append(len(samples))
        return 30.0 / math.sqrt(len(samples))

    assert take(journal, one_second(clock), half_width, budget_s=1000.0) == "precise enough"
    assert 900 <= requested[-1] < 900 * 1.2
    assert len(requested) < 5 + math.log(900 / 6, 1.15)


def test_stop_ends_it_after_the_turn(clock: Clock, journal: Journal) -> None:
    stop = threading.Event()

    def trial(round_: int, arm: int) -> Columns:
        if len(journal.trials) == 4:
            stop.set()
        return one_second(clock)(round_, arm)

    assert take(journal, trial, stop=stop) == "interrupted"
    assert len(journal.trials) == 5
    assert take(journal, trial, stop=stop) == "interrupted"
    assert len(journal.trials) == 5


# --- failures ----------------------------------------------------------------------------------


def failing(clock: Clock, fails: Callable[[int, int], bool]) -> Callable[[int, int], Columns]:
    def trial(round_: int, arm: int) -> Columns:
        if fails(round_, arm):
            msg = f"arm {arm} crashed"
            raise WorkerError(msg)
        return one_second(clock)(round_, arm)

    return trial


def test_failure_costs_its_turn_only(clock: Clock, journal: Journal) -> None:
    trial = failing(clock, lambda n, arm: arm == 1 and n % 3 != 2)
    assert take(journal, trial, budget_s=14.0) == "budget spent"
    failed = [(entry["round"], entry["failed"]) for entry in journal.trials if "failed" in entry]
    assert failed == [(n, "arm 1 crashed") for n in (0, 1, 3, 4)]
    assert Counter(entry["configuration"] for entry in journal.trials) == {0: 6, 1: 6, 2: 6}
    samples = frame_of(journal.trials)
    assert Counter(samples["cpu"]) == {0: 12, 1: 4, 2: 12}


def test_precision_is_asked_of_samples_only(clock: Clock, journal: Journal) -> None:
    """Where every trial of the first rounds failed there is nothing to ask it of."""

    def half_width(samples: pd.DataFrame) -> float:
        assert set(samples["cpu"]) == {0, 1, 2}
        return 0.5

    assert take(journal, failing(clock, lambda n, _: n < 2), half_width) == "precise enough"
    assert frame_of(journal.trials)["round"].unique().tolist() == [2]


def test_three_failures_in_a_row_end_it(clock: Clock, journal: Journal) -> None:
    assert take(journal, failing(clock, lambda _n, arm: arm == 1)) == "failed"
    last = journal.trials[-1]
    assert (last["round"], last["configuration"]) == (2, 1)
    assert frame_of(journal.trials)["round"].max() <= 2


def test_error_of_the_measurement_says_that_turns_are_kept(clock: Clock, journal: Journal) -> None:
    def trial(round_: int, arm: int) -> Columns:
        if round_ == 1:
            msg = "the disk is full"
            raise MeasurementError(msg)
        return one_second(clock)(round_, arm)

    with pytest.raises(MeasurementError, match=r"the disk is full\n3 trials are kept"):
        take(journal, trial)
    assert len(journal.trials) == 3


def test_mistake_in_an_experiment_is_not_hidden(clock: Clock, journal: Journal) -> None:
    with pytest.raises(ZeroDivisionError):
        take(journal, Mock(side_effect=ZeroDivisionError))
    assert journal.trials == []
    assert clock.now_s == 1000


# --- going on ----------------------------------------------------------------------------------


@given(data=st.data())
def test_killed_anywhere_it_goes_on_as_if_nothing_had_been(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The journal is cut at any byte; the same trials are taken in the same order, each once."""
    folder = tmp_path_factory.mktemp("resumed")
    path = folder / "test.journal"
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "time", clock)
        journal = Journal.create(path, {})
        assert take(journal, one_second(clock)) == "budget spent"
        journal.close()
        whole = path.read_bytes()
        cut = data.draw(st.integers(3, len(whole)))
        path.write_bytes(whole[:cut])
        journal = Journal.reopen(path)
        before = len(journal.trials)
        calls: list[tuple[int, int]] = []
        clock.now_s += data.draw(st.integers(0, 10**6))
        assert take(journal, one_second(clock, calls)) == "budget spent"
        journal.close()
    assert path.read_bytes() == whole
    assert len(calls) == 12 - before


def test_time_before_a_kill_counts(clock: Clock, journal: Journal) -> None:
    seen: list[Status] = []
    take(journal, one_second(clock), budget_s=6.0)
    clock.now_s += 5000
    assert take(journal, one_second(clock), budget_s=8.0, progress=seen.append) == "budget spent"
    assert len(journal.trials) == 9
    assert [status.elapsed_s for status in seen] == [7.0, 8.0, 9.0]
    assert {status.rounds for status in seen} == {2}


def test_a_round_that_was_cut_off_is_finished_whatever_was_spent(
    clock: Clock, journal: Journal
) -> None:
    def interrupted_in_the_second_round(round_: int, arm: int) -> Columns:
        if len(journal.trials) == len(ARMS) + 1:
            raise KeyboardInterrupt
        return one_second(clock)(round_, arm)

    assert take(journal, interrupted_in_the_second_round) == "interrupted"
    assert len(journal.trials) == len(ARMS) + 1
    assert take(journal, one_second(clock), budget_s=1.0) == "budget spent"
    assert len(journal.trials) == 2 * len(ARMS)


# --- progress and the table --------------------------------------------------------------------


def test_progress_after_every_turn(clock: Clock, journal: Journal) -> None:
    seen: list[tuple[Status, int]] = []

    def watch(status: Status) -> None:
        seen.append((status, len(status.samples())))

    def half_width(samples: pd.DataFrame) -> float:
        return 12.0 / math.sqrt(len(samples))

    take(journal, one_second(clock), half_width, target=2.0, budget_s=30.0, progress=watch)
    assert [rows for _, rows in seen] == list(range(2, 38, 2))
    assert [status.elapsed_s for status, _ in seen] == list(range(1, 19))
    first, later = seen[0][0], seen[3][0]
    assert (first.half_width, first.left_s) == (None, 29.0)
    assert later.half_width == pytest.approx(12 / math.sqrt(6))
    assert later.left_s == pytest.approx(4 * (6 - 1)), "the width shrinks with the root of time"
    assert all(0 <= status.left_s <= 30 - status.elapsed_s for status, _ in seen)


def test_table_has_one_row_a_sample(clock: Clock, journal: Journal) -> None:
    take(journal, one_second(clock), budget_s=3.0)
    samples = frame_of(journal.trials)
    assert list(samples) == ["round", "position", "cpu", "time_ns"]
    order = round_order(3, 0, 3)
    assert samples["cpu"].tolist() == [arm for arm in order for _ in range(2)]
    assert samples["position"].tolist() == [0, 0, 1, 1, 2, 2]
    assert samples["time_ns"].tolist() == [value for arm in order for value in (arm, 7)]
    assert frame_of([]).empty
    assert frame_of([{"round": 0, "position": 0, "failed": "it crashed"}]).empty
    assert frame_of([{"round": 0, "position": 0, "columns": {"cpu": []}}]).empty
