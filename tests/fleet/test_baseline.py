"""Today against a baseline: simulated runs whose scatter is not the analysis's own model."""

from __future__ import annotations

import numpy as np
import pytest

from perflib.fleet.analysis.baseline import LEAST_RUNS, UNCHANGED, against_baseline, parameters_of
from perflib.fleet.analysis.trend import ALL
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from tests.fleet.simulated_runs import CODE, a_run


def judged(
    seed: int, runs: int = 5, *, slower: float = 0.0, core: int | None = None
) -> dict[str, Finding]:
    rng = np.random.default_rng(seed)
    baseline = [a_run(rng, number) for number in range(runs)]
    found = against_baseline(
        CODE, "good", baseline, a_run(rng, runs, slower=slower, core=core), 2.0
    )
    return {one.about["what"]: one for one in found}


def test_an_unchanged_machine_is_not_called_changed() -> None:
    named = sum(
        any(one.verdict == "supported" for one in judged(seed).values()) for seed in range(60)
    )
    assert named <= 2


def test_a_change_of_the_whole_machine_is_found() -> None:
    found = [judged(seed, slower=0.06)[ALL] for seed in range(20)]
    assert sum(one.verdict == "supported" for one in found) >= 17
    assert np.median([one.effect for one in found]) == pytest.approx(6.2, abs=1)


def test_a_core_that_became_slow_is_named() -> None:
    found = [judged(seed, runs=8, slower=0.12, core=1) for seed in range(20)]
    assert sum(one["cpu1"].verdict == "supported" for one in found) >= 17


def test_few_runs_give_no_verdict() -> None:
    for runs in range(1, LEAST_RUNS):
        found = judged(0, runs, slower=1.0)
        assert [one.verdict for one in found.values()] == ["inconclusive"]
        assert f"has {runs} runs" in found[ALL].reason


def test_nothing_in_common_gives_no_verdict() -> None:
    rng = np.random.default_rng(1)
    baseline = [a_run(rng, number) for number in range(4)]
    other = a_run(rng, 5)
    other.samples["cpu"] += 100
    (found,) = against_baseline(CODE, "good", baseline, other)
    assert found.verdict == "inconclusive"
    assert "Of the baseline's 4 runs only 0 have" in found.reason


def test_what_some_runs_lack_is_left_out() -> None:
    """A core without a level in one run costs that run; one that most lack is not compared."""
    rng = np.random.default_rng(4)
    baseline = [a_run(rng, number) for number in range(6)]
    for run in baseline[:5]:
        run.samples = run.samples[run.samples["cpu"] != 3]
    baseline[0].samples = baseline[0].samples[baseline[0].samples["cpu"] != 1]
    found = against_baseline(CODE, "good", baseline, a_run(rng, 9))
    assert [one.about["what"] for one in found] == [ALL, "cpu0", "cpu1", "cpu2"]
    assert found[0].evidence["baseline_runs"] == [run.id for run in baseline[1:]]


def test_a_baseline_of_one_hour_says_what_it_cannot_know() -> None:
    rng = np.random.default_rng(2)
    baseline = [a_run(rng, 0) for _ in range(5)]
    for number, run in enumerate(baseline):
        run.id += f"-{number}"
    found = against_baseline(CODE, "good", baseline, a_run(rng, 9))[0]
    assert "from day to day" in found.reason
    assert found.of is UNCHANGED


def test_a_baseline_of_different_parameters_is_refused() -> None:
    rng = np.random.default_rng(3)
    runs = [a_run(rng, number) for number in range(3)]
    assert parameters_of(runs) == runs[0].params
    runs[2].params["budget_s"] = 1.0
    with pytest.raises(UserError, match="different budget_s"):
        parameters_of(runs)
