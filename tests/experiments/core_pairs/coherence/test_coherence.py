"""coherence as its user meets it: parameters, plans, tables of users, a real run."""

from __future__ import annotations

import os
from typing import Any

import pytest

from perflib.experiments import get
from perflib.experiments.core_pairs import coherence
from perflib.experiments.core_pairs.coherence import CoherenceParams, measure, trials
from perflib.experiments.core_pairs.coherence.names import (
    LAYOUTS,
    PROTOCOLS,
    USUAL_STATES,
    WITH_THIRD,
)
from perflib.experiments.core_pairs.coherence.plan import PairConfiguration, configurations_of
from perflib.experiments.core_pairs.coherence.trials import CoherenceTrials
from perflib.machine.hardware.caches import Cache
from perflib.model.errors import UserError
from tests.experiments.topologies import places

COHERENCE = get("coherence")
CPUS = sorted(os.sched_getaffinity(0))
SMALL: dict[str, Any] = {
    "budget_s": 0.2, "repeats": 2, "exchanges": 10, "control_lines": 64,
    "cores": CPUS[:2],
}  # fmt: skip

pytestmark = pytest.mark.usefixtures("patient")
real = pytest.mark.skipif(bool(COHERENCE.unavailable()), reason=COHERENCE.unavailable())


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """With time enough, whatever else runs here."""
    monkeypatch.setattr(trials, "_AT_LEAST_S", 100.0)


# --- parameters ----------------------------------------------------------------------------------


def plan_of(**given: Any) -> dict[str, Any]:
    return COHERENCE.plan(COHERENCE.params(given))


@real
def test_one_core_is_too_few() -> None:
    with pytest.raises(UserError, match=f"is only cpu{CPUS[0]}: name several"):
        plan_of(cores=CPUS[:1])


@real
def test_more_pairs_at_once_than_there_are() -> None:
    with pytest.raises(UserError, match="at_once: 2 pairs at the same time need 4 cores, and 2"):
        plan_of(cores=CPUS[:2], at_once=2)


@real
def test_of_two_cores_there_is_no_third() -> None:
    plan = plan_of(cores=CPUS[:2])
    assert plan["states"] == [state for state in USUAL_STATES if state not in WITH_THIRD]
    with pytest.raises(UserError, match="states: shared, owned need a third core"):
        plan_of(cores=CPUS[:2], protocols=[], states=["shared", "owned"])


def test_a_process_with_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coherence, "topology", lambda: places({3: 0}))
    assert "only cpu3" in COHERENCE.unavailable()
    with pytest.raises(UserError, match="coherence is between two cores"):
        plan_of()


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight cores of two threads, four cores a cache: cpu0 and cpu8 are siblings."""
    threads = {cpu: (cpu % 8, cpu % 8 + 8) for cpu in range(16)}
    found_cpus = places(dict.fromkeys(range(16), 0), threads)
    shared = [tuple(cpu for cpu in range(16) if cpu % 8 // 4 == half) for half in range(2)]
    found = tuple(
        Cache(
            level=3, kind="unified", size_bytes=1 << 20, line_bytes=64, ways=16, sets=1024,
            shared_cpus=own,
        )
        for own in shared
    )  # fmt: skip
    monkeypatch.setattr(measure, "topology", lambda: found_cpus)
    monkeypatch.setattr(measure, "caches", lambda: found)
    monkeypatch.setattr(CoherenceParams, "resolved_cores", lambda self: self.cores)


@real
@pytest.mark.usefixtures("large")
def test_two_cores_stand_for_a_group_not_two_threads_of_one() -> None:
    plan = plan_of(cores=list(range(16)))
    assert plan["near"] == [[0, 1], [4, 5]]
    assert plan_of(cores=[0, 8, 5])["near"] == [[0, 8], [5]], "unless there is nothing else"
    assert plan["states"] == list(USUAL_STATES)


# --- for real ------------------------------------------------------------------------------------


@real
def test_a_short_run() -> None:
    run = COHERENCE.measure(COHERENCE.params(SMALL, "quick"))
    made = run.samples
    states = [state for state in USUAL_STATES if state not in WITH_THIRD]
    main_rows = made[made["control"] == ""]
    assert set(main_rows["what"]) == {
        *PROTOCOLS, *(f"{state} {access}" for state in states for access in ("load", "write")),
    }  # fmt: skip
    assert {column.name for column in COHERENCE.columns} == set(made)
    assert made["ok"].all()
    pairs = {tuple(pair) for pair in main_rows[["owner_cpu", "requester_cpu"]].to_numpy().tolist()}
    assert pairs == {tuple(CPUS[:2]), tuple(CPUS[1::-1])}
    counts = main_rows.groupby(["round", "owner_cpu", "what"]).size()
    assert (counts == 1).all()
    assert set(made.loc[made["control"] == "layout", "layout"]) == set(LAYOUTS)
    (problem,) = run.provenance["problems"]
    assert problem.startswith("left out, since they need a third core")
    assert problem.endswith("states shared, forward, owned")
    subjects = {one.subject for one in COHERENCE.analyse(run)}
    assert {"control", "preparation", "modified load", "protocols", "groups"} <= subjects


@real
def test_a_coarse_run_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a large machine, whose pairs come in the third round."""
    cores = CPUS[:2]
    coarse = configurations_of(cores, [cores], "pairs", 1)
    finer = [*coarse, PairConfiguration(10**9, ((cores[0], cores[1]),))]
    monkeypatch.setattr(measure, "configurations", lambda *_: finer)
    run = COHERENCE.measure(COHERENCE.params({**SMALL, "states": [], "precision_percent": 100.0}))
    assert run.provenance["stopped"] == "budget spent", "not precise enough: it is not complete"
    problems = " ".join(run.provenance["problems"])
    assert "ended in its coarse rounds: a round of all 1 pairs would take about" in problems


@real
def test_pairs_at_once_have_a_worker_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two cores there is one pair: that each of several has a worker is seen on the way."""
    wanted: list[int] = []
    pair = (CPUS[0], CPUS[1])
    together = [PairConfiguration(0, (pair,)), PairConfiguration(0, (pair, pair, pair))]
    monkeypatch.setattr(measure, "configurations", lambda *_: together)

    def take(self: CoherenceTrials, round_: int, _configuration: int) -> dict[str, list[Any]]:
        wanted.append(len(set(map(id, self.workers))))
        return {
            "owner_cpu": [pair[0]], "requester_cpu": [pair[1]], "what": ["cas_one_line"],
            "control": [""], "latency_ns": [50.0 + round_], "ok": [True],
        }  # fmt: skip

    monkeypatch.setattr(CoherenceTrials, "take", take)
    COHERENCE.measure(COHERENCE.params({**SMALL, "budget_s": 0.05}))
    assert set(wanted) == {3}
