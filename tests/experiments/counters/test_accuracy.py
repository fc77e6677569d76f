"""The source's formula for the error of sampled counts, and what stands beside it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib.experiments.counters.accuracy import (
    _p_value,
    accuracy,
    beside_published,
    job_cost,
    relative_errors,
)
from perflib.framework.published import published
from perflib.instruments.counters.sets import published_names
from perflib.model.errors import UserError

PLAIN, SAMPLED = "one set", "our turns"


def simulated(
    generator: np.random.Generator,
    *,
    shift: float = 0.0,
    extra: float = 0.0,
    scatter: float = 0.01,
    repetitions: int = 5,
    drift: float = 0.0,
) -> pd.DataFrame:
    """Runs of one event: the reference, and a mode with a shift and an extra scatter."""
    rows = []
    for repetition in range(repetitions):
        level = 1e6 * (1 + drift * repetition)
        for mode, bias, spread in (
            (PLAIN, 0.0, scatter),
            (SAMPLED, shift, math.hypot(scatter, extra)),
        ):
            value = level * (1 + bias + spread * generator.normal())
            rows.append(
                {
                    "mode": mode, "jobs": 1, "repetition": repetition,
                    "event": "page-faults", "value": value,
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def of_mode(runs: pd.DataFrame, mode: str = SAMPLED) -> dict[str, Any]:
    table = accuracy(runs, reference=PLAIN)
    (row,) = table[table["mode"] == mode].to_dict("records")
    return {str(name): value for name, value in row.items()}


def runs(plain: list[float], sampled: list[float], **more: list[float]) -> pd.DataFrame:
    count = len(plain)
    both = {
        "mode": [PLAIN] * count + [SAMPLED] * count,
        "jobs": 1,
        "repetition": [*range(count)] * 2,
        "event": "loads",
        "value": [*plain, *sampled],
    }
    return pd.DataFrame({**both, **more})


# --- the formula ---------------------------------------------------------------------------------


def test_the_formula_by_hand() -> None:
    row = of_mode(runs([100, 200, 400], [99, 210, 400]))
    assert row["average_error_percent"] == pytest.approx((1 + 5 + 0) / 3)
    assert row["max_error_percent"] == pytest.approx(5)
    assert row["pairs"] == 3


def test_the_sources_three_jobs() -> None:
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
    assert of_mode(runs([0, 0], [0, 1]))["verdict"].startswith("the reference counted none")


# --- beside the scatter --------------------------------------------------------------------------


def test_the_scatter_is_that_of_the_reference_from_run_to_run() -> None:
    row = of_mode(runs([100, 110], [100, 110]))
    assert row["average_error_percent"] == 0
    assert row["scatter_average_percent"] == pytest.approx((10 + 100 / 11) / 2)
    assert row["scatter_max_percent"] == pytest.approx(10)
    reference = of_mode(runs([100, 110], [100, 110]), PLAIN)
    assert reference["average_error_percent"] == row["scatter_average_percent"]
    assert reference["verdict"] == "the scatter from run to run"


def found(generator: np.random.Generator, draws: int, **wrong: Any) -> float:
    """In which share of simulated experiments the errors are larger than the scatter, at 5 %."""
    said = 0
    for _ in range(draws):
        values = simulated(generator, **wrong)["value"].to_numpy(np.float64)
        p_value = _p_value(values[::2], values[1::2], np.zeros(len(values) // 2), generator)
        said += p_value <= 0.05
    return said / draws


@pytest.mark.parametrize("drift", [0.0, 0.02])
def test_a_mode_that_does_nothing_is_rarely_said_to_err(drift: float) -> None:
    generator = np.random.default_rng(4)
    assert found(generator, 300, drift=drift) <= 0.09  # 5 % and three standard deviations


@pytest.mark.parametrize("wrong", [{"shift": 0.04}, {"shift": -0.04}, {"extra": 0.2}])
def test_a_mode_that_errs_is_found(wrong: dict[str, Any]) -> None:
    assert found(np.random.default_rng(5), 60, **wrong) >= 0.8
    row = of_mode(simulated(np.random.default_rng(6), **wrong))
    assert row["verdict"] == "larger than the scatter from run to run"


def test_with_many_repetitions_names_are_drawn() -> None:
    generator = np.random.default_rng(6)
    small = of_mode(simulated(generator, shift=0.004, repetitions=40))
    assert small["verdict"] == of_mode(simulated(generator, shift=0.02, repetitions=40))["verdict"]
    none = of_mode(simulated(generator, repetitions=40))
    assert none["verdict"] == "no larger than the scatter from run to run"
    assert none["p_value"] > 0.05


@pytest.mark.parametrize(("repetitions", "word"), [(1, "know"), (2, "tell")])
def test_few_repetitions_say_that_they_are_few(repetitions: int, word: str) -> None:
    row = of_mode(simulated(np.random.default_rng(7), shift=0.5, repetitions=repetitions))
    assert row["verdict"].startswith(f"too few repetitions to {word}")


def test_jobs_of_one_repetition_are_compared_each_with_itself() -> None:
    table = pd.DataFrame(
        [
            {
                "mode": mode, "jobs": 2, "repetition": repetition, "event": "loads",
                "job": job, "value": 1000.0 * (job + 1),
            }
            for mode in (PLAIN, SAMPLED)
            for repetition in range(3)
            for job in range(2)
        ]
    )  # fmt: skip
    row = of_mode(table)
    assert row["pairs"] == 6
    assert row["average_error_percent"] == row["scatter_max_percent"] == 0
    with pytest.raises(UserError, match="column 'job'"):
        accuracy(table.drop(columns="job"), reference=PLAIN)


# --- what is missing -----------------------------------------------------------------------------


def test_samples_collected() -> None:
    table = runs([100, 100], [100, 100], got=[10, 10, 9, 10], due=[10, 10, 10, 10])
    assert of_mode(table)["collected_percent"] == pytest.approx(95)
    assert of_mode(runs([100, 100], [100, math.nan]))["collected_percent"] == 50


def test_events_that_were_not_counted_are_rows_that_say_so() -> None:
    assert of_mode(runs([math.nan] * 2, [math.nan] * 2))["verdict"] == "not counted"
    row = of_mode(runs([100, 101], [math.nan] * 2))
    assert row["verdict"] == "not counted in this mode"
    assert math.isnan(row["average_error_percent"])


def test_an_event_without_a_reference_is_a_row() -> None:
    table = runs([100, 101], [100, 101])
    table = table[table["mode"] == SAMPLED].assign(event="stores")
    both = pd.concat([runs([1, 1], [1, 1]), table])
    rows = accuracy(both, reference=PLAIN)
    assert list(rows[rows["event"] == "stores"]["verdict"]) == ["not counted"]


def test_a_wrong_table_is_refused() -> None:
    good = runs([1, 1], [1, 1])
    with pytest.raises(UserError, match="lacks jobs, value"):
        accuracy(good.drop(columns=["jobs", "value"]), reference=PLAIN)
    with pytest.raises(UserError, match="did you mean 'one set'"):
        accuracy(good, reference="one sets")


# --- cost ----------------------------------------------------------------------------------------


def times(generator: np.random.Generator, cost: float, repetitions: int = 12) -> pd.DataFrame:
    rows = []
    for repetition in range(repetitions):
        level = math.exp(generator.normal(0, 0.2))  # the machine's mood, shared by the pair
        for mode, factor in (("none", 1.0), (PLAIN, 1 + cost)):
            time_ns = 1e9 * level * factor * math.exp(generator.normal(0, 0.01))
            rows.append({"mode": mode, "jobs": 1, "repetition": repetition, "time_ns": time_ns})
    return pd.DataFrame(rows)


def test_the_interval_of_the_cost_covers() -> None:
    generator = np.random.default_rng(8)
    covered = 0
    for _ in range(150):
        row = job_cost(times(generator, 0.02), without="none").iloc[0]
        covered += bool(row["cost_low_percent"] <= 2 <= row["cost_high_percent"])
    assert covered / 150 >= 0.9


def test_a_single_pair_has_no_interval() -> None:
    row = job_cost(times(np.random.default_rng(9), 0.5, 1), without="none").iloc[0]
    assert row["cost_percent"] == pytest.approx(50, abs=5)
    assert np.isnan([row["cost_low_percent"], row["cost_high_percent"]]).all()


def test_the_cost_needs_the_mode_without_counting() -> None:
    table = times(np.random.default_rng(9), 0.5, 1)
    with pytest.raises(UserError, match="unknown mode 'nothing'"):
        job_cost(table, without="nothing")
    with pytest.raises(UserError, match="lacks time_ns"):
        job_cost(table.drop(columns="time_ns"), without="none")


# --- beside the published table ------------------------------------------------------------------


def test_the_published_table_stands_beside() -> None:
    table = beside_published(
        accuracy(runs([100, 200], [99, 210]), reference=PLAIN),
        published("perfctr_sampling_accuracy"),
        published_names(),
    )
    assert set(table.columns) == {
        "event", "mode", "jobs", "average_error_percent", "max_error_percent", "from",
    }  # fmt: skip
    loads = table[(table["event"] == "loads") & (table["from"] == "published")]
    assert list(loads["max_error_percent"]) == [3.14, 3.52]
    assert "FP" in set(table["event"])  # no event of ours is the same count
    assert list(table["from"].unique()) == ["this machine", "published"]
