"""contention as its user meets it: which cores, what fails on the way, real runs, tiny."""

from __future__ import annotations

import os
from typing import Any

import pytest

from perflib.experiments.contention import KINDS, ContentionParams, experiment
from perflib.experiments.contention.measure import ContentionTrials, core_sets, distance
from perflib.machine.hardware.caches import Cache
from tests.experiments.contention.contention_samples import SETS, run_of, samples
from tests.experiments.topologies import places

CPUS = sorted(os.sched_getaffinity(0))
TINY: dict[str, Any] = {
    "budget_s": 0.2,
    "trial_ms": 0.1,
    "repeats": 2,
    "kinds": ["one_line", "mcs"],
}

needs_two_cores = pytest.mark.skipif(len(CPUS) < 2, reason="this needs two cores")


def params(**given: Any) -> Any:
    return experiment.params({**TINY, **given})


# --- parameters ----------------------------------------------------------------------------------


def test_what_a_kind_is_compared_with_is_measured_too() -> None:
    assert ContentionParams().measured_kinds == list(KINDS)
    assert params(kinds="cas").measured_kinds == ["own_lines", "atomic_own", "cas"]
    assert params(kinds="mcs,spin").measured_kinds == ["spin", "mcs", "pthread"]
    assert params(kinds="own_lines").measured_kinds == ["own_lines"]


# --- which cores ---------------------------------------------------------------------------------


def last_level(*groups: tuple[int, ...]) -> tuple[Cache, ...]:
    return tuple(Cache(3, "unified", 1 << 25, 16, 64, 1 << 15, group) for group in groups)


def test_distances_are_those_of_the_machine() -> None:
    machine = places(dict.fromkeys(range(6), 0) | {6: 1}, {0: (0, 5), 5: (0, 5)})
    found = last_level((0, 1, 5), (2, 3))
    assert [distance(0, other, machine, found) for other in (5, 1, 2, 6)] == [
        "sibling", "cache", "node", "far"
    ]  # fmt: skip


def test_pairs_at_each_distance_then_more_and_more_cores_siblings_last() -> None:
    """Two sockets of four cores with two threads each, numbered as Linux does."""
    siblings = {cpu: (cpu % 8, cpu % 8 + 8) for cpu in range(16)}
    machine = places({cpu: cpu % 8 // 4 for cpu in range(16)}, siblings)
    found = last_level((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))
    assert core_sets(list(range(16)), machine, found) == [
        ((0,), "none"),
        ((0, 8), "sibling"),
        ((0, 1), "cache"),
        ((0, 4), "far"),
        ((0, 1, 2, 3), "cache"),
        (tuple(range(8)), "far"),
        (tuple(range(16)), "far"),
    ]


def test_of_128_cores_there_are_few_sets() -> None:
    """So that a round takes about a second: 7 sets and a pair at each distance."""
    sets = core_sets(list(range(128)), places({cpu: cpu // 64 for cpu in range(128)}), ())
    assert [len(cpus) for cpus, _ in sets] == [1, 2, 2, 4, 8, 16, 32, 64, 128]


# --- what fails on the way -----------------------------------------------------------------------


def trials(cpus: tuple[int, ...], kind: str = "mcs") -> ContentionTrials:
    made = params()
    return ContentionTrials(
        made.conditions(None), [(kind, cpus, "cache")], outside_cycles=10, trial_ms=0.1, repeats=2
    )


def test_a_core_that_is_not_there_is_a_problem_of_the_run() -> None:
    with trials((CPUS[0], 9999)) as taken:
        columns = taken.take(0, 0)
        assert not any(columns["ok"])
        (problem,) = taken.problems
    assert "a core cannot be used: it is offline" in problem


def test_counters_that_lost_something_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with trials((CPUS[0],)) as taken:
        call = taken[0].call

        def losing(*arguments: Any, **named: Any) -> Any:
            answer, (accounts, counted) = call(*arguments, **named)
            return answer, (accounts, counted - 1)

        monkeypatch.setattr(taken[0], "call", losing)
        assert not any(taken.take(0, 0)["ok"])
        assert "the counters did not count what was done" in next(iter(taken.problems))


# --- real runs -----------------------------------------------------------------------------------


@needs_two_cores
def test_a_run_of_all_kinds_counts_what_it_should() -> None:
    run = experiment.measure(params(kinds="all", cores=CPUS[:2]))
    rows = run.samples
    assert set(rows["kind"]) == set(KINDS)
    assert rows["ok"].all()
    together = rows.groupby(["round", "kind", "cpus", "repeat"])["cpu"].nunique()
    assert set(together) == {1, 2}
    assert set(experiment.derived(run)["cost"]()["kind"]) == set(KINDS)


def test_one_core_runs_and_says_what_it_lacks() -> None:
    run = experiment.measure(params(cores=CPUS[:1]))
    (finding,) = experiment.analyse(run)
    assert finding.verdict == "inconclusive"
    assert "one core only" in finding.reason
    assert any("nobody is there to contend with" in one for one in run.provenance["problems"])


# --- figures -------------------------------------------------------------------------------------


def test_with_two_numbers_of_cores_there_is_no_curve_and_with_one_no_share() -> None:
    assert set(experiment.figures(run_of(samples(4, rounds=4)))) == {"cost", "shares"}
    alone = run_of(samples(4, rounds=4, sets=SETS[:1]))
    assert set(experiment.figures(alone)) == {"cost"}
