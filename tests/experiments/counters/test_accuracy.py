"""The published formula for the error of counts, and the scatter with which it is compared."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib.experiments.counters.accuracy import (
    errors_by_event,
    errors_by_round,
    relative_errors,
)
from perflib.experiments.counters.costs import by_trials, cost_of_counting
from perflib.experiments.counters.modes import ALONE, ONE_SET, ROTATED
from perflib.framework.published import published
from perflib.model.errors import UserError


def counts(plain: list[float], rotated: list[float]) -> pd.DataFrame:
    count = len(plain)
    return pd.DataFrame(
        {
            "mode": [ONE_SET] * count + [ROTATED] * count,
            "jobs": 1,
            "round": [*range(count)] * 2,
            "event": "loads",
            "value": [*plain, *rotated],
        }
    )


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    found = errors_by_event(errors_by_round(table), repeatable_percent=5.0)
    return [{str(name): value for name, value in row.items()} for row in found.to_dict("records")]


# --- the formula ---------------------------------------------------------------------------------


def test_the_formula_by_hand() -> None:
    (row,) = rows_of(counts([100, 200, 400], [99, 210, 400]))
    assert row["average_error_percent"] == pytest.approx((1 + 5 + 0) / 3)
    assert row["error_percent_low"] == 0
    assert row["error_percent_high"] > 5
    assert row["max_error_percent"] == pytest.approx(5)
    assert row["pairs"] == 3


def test_three_jobs_of_jurga_2006() -> None:
    """Its counts of three jobs in 420 s and in 540 s: all but cycles and L2LS agree."""
    table = published("perfctr_three_jobs").set_index("counter")
    errors = dict(
        zip(
            table.index,
            100 * relative_errors(table["run_420s"], table["run_540s"]),
            strict=True,
        )
    )
    assert errors["CYC"] == pytest.approx(31, abs=0.5)  # as printed
    assert errors["L2LS"] == pytest.approx(28, abs=0.5)
    assert max(errors[name] for name in ("TOT", "FP", "LOAD", "L2LM")) < 0.06


@given(st.lists(st.tuples(st.floats(1, 1e15), st.floats(0, 1e15)), min_size=1, max_size=20))
def test_errors_are_none_exactly_where_counts_agree(pairs: list[tuple[float, float]]) -> None:
    without, sampled = (np.array(column) for column in zip(*pairs, strict=True))
    errors = relative_errors(without, sampled)
    assert (errors >= 0).all()
    assert ((errors == 0) == (without == sampled)).all()
    assert (relative_errors(without, without) == 0).all()


def test_a_reference_of_zero_has_no_relative_error() -> None:
    assert np.isnan(relative_errors([0, math.nan, 2], [5, 1, math.nan])).all()
    assert rows_of(counts([0, 0], [0, 1])) == []


# --- compared with the scatter -------------------------------------------------------------------


def test_the_scatter_is_also_that_of_rounds_which_the_mode_lacks() -> None:
    table = counts([100, 101, 150], [100, 101, 150])
    lacking = table[(table["mode"] == ONE_SET) | (table["round"] < 2)]
    (whole,), (part,) = rows_of(table), rows_of(lacking)
    assert part["pairs"] == 2
    assert part["scatter_average_percent"] == whole["scatter_average_percent"]


@pytest.mark.parametrize(("plain", "repeatable"), [(2.0, False), (29.0, False), (30.0, True)])
def test_two_rounds_that_agree_say_nothing_of_few_counts(plain: float, repeatable: bool) -> None:
    (row,) = rows_of(counts([plain, plain], [2 * plain, 2 * plain]))
    assert row["average_error_percent"] == 100
    assert row["repeatable"] is repeatable


def test_what_was_not_counted_has_no_row() -> None:
    assert rows_of(counts([math.nan] * 2, [math.nan] * 2)) == []
    assert rows_of(counts([100, 101], [math.nan] * 2)) == []
    alone = counts([100, 101], [100, 101])
    assert rows_of(alone[alone["mode"] == ROTATED]) == []


def test_a_count_that_is_there_twice_is_refused() -> None:
    table = counts([1, 1], [1, 1])
    with pytest.raises(UserError, match="mode=one set, event=loads, jobs=1, round=0 more than"):
        errors_by_round(pd.concat([table, table]))


# --- cost ----------------------------------------------------------------------------------------


def times(generator: np.random.Generator, cost: float, rounds: int = 12) -> pd.DataFrame:
    rows = []
    for round_ in range(rounds):
        level = math.exp(generator.normal(0, 0.2))  # the machine's speed, shared by the pair
        for mode, factor in ((ALONE, 1.0), (ONE_SET, 1 + cost)):
            time_ns = 1e9 * level * factor * math.exp(generator.normal(0, 0.01))
            rows.append({"mode": mode, "jobs": 1, "round": round_, "time_ns": time_ns})
    return pd.DataFrame(rows)


def test_the_interval_of_the_cost_covers() -> None:
    generator = np.random.default_rng(8)
    covered = 0
    for _ in range(150):
        row = cost_of_counting(by_trials(times(generator, 0.02), "time_ns")).iloc[0]
        covered += bool(row["cost_percent_low"] <= 2 <= row["cost_percent_high"])
    assert covered / 150 >= 0.9


def test_without_an_uncounted_job_there_is_no_cost() -> None:
    table = times(np.random.default_rng(9), 0.5)
    assert cost_of_counting(by_trials(table[table["mode"] == ONE_SET], "time_ns")).empty
