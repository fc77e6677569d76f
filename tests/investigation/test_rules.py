"""The table of rules: every branch, what is left out and why, and that a plan keeps its budget."""

from __future__ import annotations

import pytest

from perflib import experiments
from perflib.investigation.evidence import Evidence, Question, Step, Taken
from perflib.investigation.investigation import LOOKING
from perflib.investigation.rules import NO_TIME, RULES, next_step
from perflib.investigation.signs import SIGNS
from perflib.model.finding import Finding
from tests.investigation import cases


@pytest.fixture(autouse=True)
def everything_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {rule.experiment for rule in RULES}:
        monkeypatch.setattr(type(experiments.get(name)), "unavailable", lambda _: "")


def plan(evidence: Evidence, left_s: float = 1000.0) -> list[Step | Taken]:
    """All steps that follow, if none of them finds anything."""
    found: list[Step | Taken] = []
    while (step := next_step(evidence, left_s)) is not None:
        found.append(step)
        evidence.taken.append(step if isinstance(step, Taken) else Taken(step))
    return found


def names(found: list[Step | Taken]) -> list[str]:
    return [one.step.name if isinstance(one, Taken) else one.name for one in found]


# --- the table itself ----------------------------------------------------------------------------


def test_every_sign_of_a_rule_is_known_and_every_sign_is_used() -> None:
    assert {rule.when for rule in RULES} | set(LOOKING) == set(SIGNS)


# --- branches ------------------------------------------------------------------------------------


def test_it_begins_with_the_symptom_on_every_core() -> None:
    first = next_step(cases.evidence(cores=(0, 2, 4)), 300)
    assert isinstance(first, Step)
    assert (first.name, first.experiment) == ("symptom", "kv_per_core")
    assert first.params["cores"] == "0,2,4"


def test_a_healthy_machine_is_mapped_and_no_cause_is_looked_for() -> None:
    found = plan(cases.evidence(symptom=cases.healthy()))
    assert names(found) == ["levels", "iTLB reach", "lines", "store and load"]


def test_a_result_that_was_wrong_once_is_looked_for_again() -> None:
    found = plan(cases.evidence(symptom=[*cases.healthy(), cases.wrong_once(1)]))
    assert names(found)[0] == "symptom again"
    assert "cpu1 wrong" in found[0].why  # type: ignore[union-attr]
    assert "instructions" in names(found)
    found = plan(cases.evidence(symptom=[*cases.healthy(), cases.wrong(0), cases.wrong_once(1)]))
    assert isinstance(found[0], Step)
    assert (found[0].name, found[0].experiment) == ("instructions", "correctness")


def test_a_slow_core_is_profiled_beside_the_fastest_and_then_explained() -> None:
    slow = cases.slower(5, 12.0, slowest_events=[9])
    symptom = [cases.slower(0, 0.1), cases.slower(2, -0.4), slow]
    found = plan(cases.evidence(cores=(0, 2, 5), symptom=symptom))
    assert names(found) == ["profile", "calls", "code pages", "memory"]
    profile, calls, *_ = found
    assert isinstance(profile, Step)
    assert isinstance(calls, Step)
    assert profile.params["cores"] == calls.params["cores"] == "2,5"
    assert profile.params["reference_core"] == 2
    assert profile.params["event"] == 73
    assert "12.00 %" in profile.why


def test_of_a_slowdown_of_few_events_the_slowest_is_profiled() -> None:
    symptom = [
        cases.slower(0, 0.0),
        cases.slower(1, 5.0, events_slower_share=0.1, slowest_events=[7, 3]),
    ]
    profile = next_step(cases.evidence(symptom=symptom), 1000)
    assert isinstance(profile, Step)
    assert profile.params["event"] == 7


def test_a_function_that_stands_out_ends_the_search() -> None:
    found = plan(
        cases.evidence(symptom=cases.slow_core(), profile=[cases.function("propagate", 1)])
    )
    assert names(found) == []


def test_a_function_that_moves_buffers_leads_to_aliasing() -> None:
    found = plan(
        cases.evidence(symptom=cases.slow_core(), profile=[cases.function("memcpy_avx", 1)])
    )
    assert names(found) == ["buffers"]


def test_more_code_on_a_slow_core_leads_to_calls_into_so_much_of_it() -> None:
    (calls,) = plan(cases.evidence(symptom=cases.slow_core(), profile=[cases.footprint(1)]))
    assert isinstance(calls, Step)
    assert calls.experiment == "random_calls"
    assert calls.params["sizes_kib"] == "8,16,250,2000"


def test_what_decides_nothing_is_measured_again_once() -> None:
    open_ = [cases.slower(0, 0.6, 0.6), cases.slower(1, -0.6, 0.6)]
    found = plan(cases.evidence(symptom=open_))
    assert names(found)[0] == "symptom again"
    assert names(found).count("symptom again") == 1
    assert "profile" not in names(found)


def test_a_core_that_is_said_to_be_slow_is_looked_into_though_it_seems_fine() -> None:
    asked = cases.evidence(Question(core=1, against=0), symptom=cases.healthy())
    found = plan(asked)
    assert names(found)[:2] == ["profile", "calls"]
    assert isinstance(found[0], Step)
    assert "you say so" in found[0].why


def test_a_job_is_timed_on_every_core_after_our_own() -> None:
    question = Question(job="sim -n {events}", begin="b (?P<event>\\d+)", end="", events=7)
    found = plan(cases.evidence(question))
    assert names(found)[:2] == ["symptom", "job"]
    job = found[1]
    assert isinstance(job, Step)
    assert job.params["job_command"] == "sim -n {events}"
    assert job.params["events"] == 7
    assert job.params["job_begin"] == "b (?P<event>\\d+)"
    assert "job_end" not in job.params  # what is not given stays the experiment's own


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.name}: {rule.when}")
def test_every_rule_makes_parameters_that_its_experiment_accepts(
    rule: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {
        "cpu": 1, "against": 0, "pair": "0,1", "estimate": "12 %", "event": 3, "first": 0,
        "spread": 20.0, "function": "memcpy", "sizes": "8,16,256,2048", "subject": "cpu1",
    }  # fmt: skip
    monkeypatch.setattr("perflib.investigation.rules.RULES", [rule])
    monkeypatch.setattr("perflib.investigation.rules.evaluate", lambda *_: [seen])
    step = next_step(cases.evidence(Question(job="job {first} {events}")), 1000)
    assert isinstance(step, Step)
    params = experiments.get(step.experiment).params(dict(step.params), "quick")
    assert params.budget_s == step.budget_s
    assert "{" not in step.why


# --- what is left out ----------------------------------------------------------------------------


def test_without_perf_the_profile_is_left_out_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    profiled = type(experiments.get("event_profile"))
    monkeypatch.setattr(profiled, "unavailable", lambda _: "perf is not installed")
    found = plan(cases.evidence(symptom=cases.slow_core()))
    assert isinstance(found[0], Taken)
    assert found[0].skipped == "perf is not installed"
    assert names(found)[1:] == ["calls", "code pages", "memory"]


def test_a_replay_asks_neither_for_time_nor_for_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    profiled = type(experiments.get("event_profile"))
    monkeypatch.setattr(profiled, "unavailable", lambda _: "perf is not installed")
    step = next_step(cases.evidence(symptom=cases.slow_core()), 0.0, replayed=True)
    assert isinstance(step, Step)
    assert step.name == "profile"


def test_with_too_little_time_a_step_is_left_out_and_says_so() -> None:
    found = plan(cases.evidence(symptom=cases.slow_core()), left_s=18.0)
    left_out = {one.step.name: one.skipped for one in found if isinstance(one, Taken)}
    assert left_out == dict.fromkeys(("profile", "code pages", "memory"), NO_TIME)
    assert names(found) == ["profile", "calls", "code pages", "memory"]


@pytest.mark.parametrize("cores", [2, 16, 64])
@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("minutes", [1.0, 3.0, 5.0, 8.0])
def test_a_plan_stays_within_its_budget(cores: int, slow: bool, minutes: float) -> None:
    everywhere = list(range(cores))
    evidence = cases.evidence(cores=everywhere)
    left_s, spent_s = 60 * minutes, 0.0
    found: list[Finding] = cases.slow_core(1) if slow else cases.healthy(everywhere)
    around = {rule.name: rule.around_s for rule in RULES}
    while (step := next_step(evidence, left_s - spent_s)) is not None:
        if isinstance(step, Taken):
            evidence.taken.append(step)
            continue
        spent_s += step.budget_s + around[step.name]
        evidence.taken.append(Taken(step))
        if step.name == "symptom":
            evidence._analysed["symptom"] = found
            evidence._findings = [found]
    assert spent_s <= 60 * minutes
    assert evidence.step("symptom") is not None
