"""What is said of each case: the cause that is named, and that nothing is named in vain."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from perflib.experiments.correctness.claims import WRONG
from perflib.investigation.causes import CAUSES, candidates, wrong_cores
from perflib.investigation.conclusion import MOST_FINDINGS, conclude
from perflib.investigation.correction import corrected
from perflib.investigation.evidence import Question
from perflib.lab.screen import screen
from perflib.model.finding import Finding
from perflib.stats.decide import Decision, Reason
from tests.experiments.correctness.test_opinion import HEALTHY, ONCE, PASSED, TWICE, judged
from tests.investigation import cases

RIGHT = {"operations": "10⁹", "most": "10⁸"}
IN_FMA = WRONG.found(Decision("supported"), about={"cpu": 8}, facts={"where": ["fma, 1 in 10⁶"]})

THIEF = cases.task("thief", 7.0, policy="fifo")
LOAD = {"tasks": [cases.task("python3", 40.0)]}


def both(claim: str, first: float, second: float, half: float = 0.3) -> list[Finding]:
    return [cases.share(claim, 0, first, half), cases.share(claim, 1, second, half)]


def taken(percent: float, half: float = 0.3, **evidence: Any) -> list[Finding]:
    """Healthy cores, of the second of which other tasks take this much."""
    others = [one for one in cases.healthy() if one.of.name != "taken"]
    return [
        *others,
        cases.share("taken", 0, 0.1, 0.1),
        cases.share("taken", 1, percent, half, **evidence),
    ]


NAMED: dict[str, tuple[dict[str, Sequence[Finding]], str, int | None]] = {
    "own speed": ({"symptom": cases.slow_core()}, "own_speed", 1),
    "function": (
        {"symptom": cases.slow_core(), "profile": [cases.function("propagate", 1)]},
        "function",
        1,
    ),
    "code size": (
        {"symptom": cases.slow_core(), "profile": [cases.footprint(1)]},
        "code_size",
        1,
    ),
    "itlb": (
        {"symptom": cases.slow_core(), "code_pages": [cases.explains("iTLB misses", 1)]},
        "itlb",
        1,
    ),
    "memory": ({"symptom": cases.slow_core(), "memory": [cases.slow_memory(1)]}, "memory", 1),
    "clock": (
        {"symptom": [*cases.healthy(), cases.share("clock", 1, 20.0)]},
        "clock",
        1,
    ),
    "thief": ({"symptom": taken(7.0, tasks=[THIEF])}, "other_task", 1),
    "small thief": ({"symptom": taken(1.5, 0.6, tasks=[cases.task("job", 1.4, nice=19)])},
                    "other_task", 1),
    "unnamed tasks": ({"symptom": taken(30.0, 2.0)}, "other_task", 1),
    "quota": (
        {"symptom": [*cases.healthy(), *both("quota", 10.0, 9.0), *both("shared", 0, 0)]},
        "quota",
        None,
    ),
    "softirq": (
        {
            "symptom": [
                *[one for one in taken(10.0, tasks=[cases.task("ksoftirqd/1", 9.0)])
                  if one.of.name != "softirq"],
                *both("softirq", 0.2, 15.0),
            ]
        },
        "softirq",
        1,
    ),
    "job only": (
        {"symptom": cases.healthy(), "job": [cases.slower(0, -10.7), cases.slower(1, 12.0)]},
        "unexplained",
        1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NAMED)
def test_the_cause_is_named_and_where(case: str) -> None:
    steps, word, cpu = NAMED[case]
    question = Question(job="job {events}") if "job" in steps else Question()
    found = conclude(cases.evidence(question, steps=steps))
    assert (found.headline.verdict, found.headline.cause) == ("cause", word)
    assert found.headline.about["cpu"] == cpu
    assert found.findings[0].mark == "bad"
    assert found.findings[0].do
    assert "{" not in found.headline.plain + found.findings[0].do


def test_every_word_has_a_meaning_and_templates_that_name_what_there_is() -> None:
    tried = {word for _, word, _ in NAMED.values()}
    assert set(CAUSES) - tried == {"sibling", "hypervisor", "aliasing", "wrong"}  # tried below


# --- wrong results -------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["symptom", "levels"])
@pytest.mark.parametrize("others", [cases.healthy(), cases.slow_core()])
@pytest.mark.parametrize("wrong", [cases.wrong(8), IN_FMA])
def test_a_core_that_computes_wrong_is_the_headline_whatever_else_is_found(
    step: str, others: list[Finding], wrong: Finding
) -> None:
    steps: dict[str, list[Finding]] = {"symptom": others, "levels": []}
    steps[step] = [*steps[step], wrong]
    evidence = cases.evidence(Question(core=1, against=0), steps=steps)
    found = conclude(evidence)
    assert (found.headline.verdict, found.headline.cause) == ("wrong", "wrong")
    assert found.headline.about == {"cpu": 8, "certain": True}
    for word in (wrong.plain, "Do not use this node; drain it"):
        assert word in found.headline.plain
    assert found.findings[0].mark == "bad"
    assert "State=DRAIN" in found.findings[0].do
    assert "own_speed" in {one.word for one in candidates(evidence)} or others[0].effect == 0
    assert next(screen(found)).startswith("WRONG: cpu8")
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("log", "verdict", "said"),
    [
        (TWICE, "wrong", "finds wrong results on cpu3 (zstd19). Do not use this node; drain it."),
        (ONCE, "undecided", "leaves open whether CPUs 2-3 compute right."),
        (HEALTHY + PASSED.format(test="t9", result="crash"), "healthy", ""),
        (HEALTHY, "healthy", ""),
    ],
)
def test_failures_that_a_second_opinion_alone_found_are_the_headline(
    log: str, verdict: str, said: str
) -> None:
    ours = WRONG.found(Decision("refuted", (Reason("clear"),)), about={"cpu": 3}, facts=RIGHT)
    steps = [cases.healthy(), [ours, judged(log)]]
    evidence = cases.evidence(steps=dict(zip(("symptom", "levels"), corrected(steps), strict=True)))
    found = conclude(evidence)
    assert (found.headline.verdict, bool(wrong_cores(evidence))) == (verdict, bool(said))
    assert found.headline.plain.startswith("OpenDCDiag (") == bool(said)
    assert found.headline.plain.endswith(said)
    assert ("State=DRAIN" in found.findings[0].do) == (verdict == "wrong")


def test_what_was_wrong_once_is_said_first_and_no_machine_is_healthy_then() -> None:
    found = conclude(cases.evidence(symptom=[*cases.healthy(), cases.wrong_once(1)]))
    assert found.headline.verdict == "undecided"
    assert found.headline.plain.startswith("cpu1 computed wrong once (event=5): expected 0x1")
    assert "DRAIN" not in found.findings[0].do
    slow = conclude(cases.evidence(symptom=[*cases.slow_core(), cases.wrong_once(1)]))
    assert (slow.headline.verdict, slow.headline.cause) == ("cause", "own_speed")
    assert slow.headline.plain.startswith("cpu1 computed wrong once")


def test_wrong_once_in_each_of_two_runs_is_wrong_twice() -> None:
    found = corrected([[cases.wrong_once(1)], [cases.wrong_once(1), cases.wrong_once(0)]])
    verdicts = [[one.verdict for one in findings] for findings in found]
    assert verdicts == [["supported"], ["supported", "inconclusive"]]
    assert "in 2 of 2 runs" in found[0][0].plain
    alone = corrected([[cases.wrong(3)], cases.healthy() * 40])
    kept = [(one.verdict, one.plain, one.reason) for one in (*alone[0], cases.wrong(3))]
    assert kept[0] == kept[1], "it is corrected with nothing"


def test_a_healthy_machine_is_called_healthy_with_its_bound() -> None:
    found = conclude(cases.evidence(symptom=cases.healthy()))
    assert (found.headline.verdict, found.headline.cause) == ("healthy", None)
    assert found.headline.about["within_percent"] == pytest.approx(0.3)
    assert "0.3 %" in found.headline.plain
    assert found.undecided == []


@pytest.mark.parametrize(
    "symptom",
    [
        # a load that wanders over both cores
        [*cases.healthy()[:1], cases.slower(1, 0.0), *both("taken", 44, 40, 6)],
        # the same program bound to each core
        [
            cases.slower(0, 0.0), cases.slower(1, 0.0),
            cases.share("taken", 0, 40.0, 6, **LOAD), cases.share("taken", 1, 45.0, 6, **LOAD),
        ],
        # a host whose neighbours use one core more than the other
        [cases.slower(0, 0.0), cases.slower(1, 0.0), *both("shared", 30, 8, 2)],
        [cases.slower(0, 0.0), cases.slower(1, 0.0), *both("stolen", 20, 2, 1)],
        # soft interrupts as on any machine
        [cases.slower(0, 0.0), cases.slower(1, 0.0), *both("softirq", 0.4, 0.9, 0.3)],
        # a disk whose interrupts come to one core
        [cases.slower(0, 0.0), cases.slower(1, 0.0), *both("softirq", 0.2, 3.2, 0.8)],
    ],
)  # fmt: skip
def test_a_busy_machine_is_healthy_and_interference_is_reported(symptom: list[Finding]) -> None:
    found = conclude(cases.evidence(symptom=symptom))
    assert (found.headline.verdict, found.headline.cause) == ("healthy", None)
    disturbs = [one for one in symptom if one.verdict == "supported"]
    assert bool(disturbs) == ("interference" in found.headline.plain)


def test_asked_about_a_core_what_is_elsewhere_comes_last() -> None:
    symptom = [
        cases.slower(0, 0.0), cases.slower(1, 0.0),
        cases.share("taken", 0, 9.0, tasks=[cases.task("big", 9.0)]),
        cases.share("taken", 1, 3.0, tasks=[cases.task("small", 3.0)]),
    ]  # fmt: skip
    asked = conclude(cases.evidence(Question(core=1, against=0), symptom=symptom))
    assert asked.headline.about["cpu"] == 1
    assert conclude(cases.evidence(symptom=symptom)).headline.about["cpu"] == 0


def test_siblings_that_linux_shows_are_a_cause_unasked() -> None:
    fit = {"machine": {"topology": {"threads_per_core": 2}}}
    symptom = [cases.slower(0, 0.0), cases.slower(1, 0.0), *both("shared", 2, 30, 1)]
    assert conclude(cases.evidence(fit=fit, symptom=symptom)).headline.cause == "sibling"


def test_the_costliest_cause_comes_first_and_the_others_are_named() -> None:
    symptom = [
        *cases.slow_core(1, 12.0),
        cases.share("taken", 0, 0.1, 0.1),
        cases.share("taken", 1, 3.0, tasks=[cases.task("thief", 3.0)]),
    ]
    found = conclude(cases.evidence(symptom=symptom))
    assert found.headline.cause == "own_speed"
    assert "thief" in " ".join(one.plain for one in found.findings)


def test_a_second_look_counts_where_the_first_decided_nothing() -> None:
    first = [cases.slower(0, 0.6, 0.6), cases.slower(1, -0.6, 0.6)]
    assert conclude(cases.evidence(symptom=first)).headline.verdict == "healthy"  # by 1.2 at most
    wide = [cases.slower(0, 3.0, 4.0), cases.slower(1, -3.0, 4.0)]
    undecided = conclude(cases.evidence(symptom=wide))
    assert undecided.headline.verdict == "undecided"
    assert undecided.undecided[0].command.startswith("perflib run kv_per_core")
    assert undecided.undecided[0].minutes > 0.5
    again = cases.evidence(symptom=wide, symptom_again=[cases.slower(0, 0.1), cases.slower(1, 0)])
    assert conclude(again).headline.verdict == "healthy"


def test_one_core_alone_can_be_compared_with_none() -> None:
    found = conclude(cases.evidence(cores=(0,), symptom=[cases.slower(0, float("nan"))]))
    assert found.headline.verdict == "undecided"


def test_a_job_that_cannot_be_timed_is_said_first() -> None:
    question = Question(job="job {events}")
    why = "the lines of 20 events were read at once, begin and end: the job holds its output back"
    found = conclude(cases.evidence(question, symptom=cases.healthy(), skipped={"job": why}))
    assert found.headline.verdict == "undecided"
    assert why in found.headline.plain


def test_healthy_cores_and_a_job_that_is_not_known_well_enough_decide_nothing() -> None:
    question = Question(job="job {events}")
    job = [cases.slower(0, -2.0, 9.0), cases.slower(1, 2.0, 9.0)]
    found = conclude(cases.evidence(question, symptom=cases.healthy(), job=job))
    assert found.headline.verdict == "undecided"
    (longer,) = [one for one in found.undecided if one.command.startswith("perflib run kv")]
    assert "budget_s" in longer.command
    job = [cases.slower(0, 0.1), cases.slower(1, -0.1)]
    found = conclude(cases.evidence(question, symptom=cases.healthy(), job=job))
    assert found.headline.verdict == "healthy"
    assert "your job" in found.headline.plain
    assert [one.command for one in found.undecided] == ["perflib sensitivity -- job {events}"]


def test_the_screen_has_seven_findings_at_most_and_json_holds_all() -> None:
    cores = range(8)
    symptom = [
        one
        for cpu in cores
        for one in (
            cases.slower(cpu, 10.0 if cpu > 3 else 0.0),
            *(cases.share(claim, cpu, 20.0, 9.0) for claim in ("taken", "shared", "stolen")),
        )
    ]
    found = conclude(cases.evidence(cores=cores, symptom=symptom)).to_dict()
    assert len(found["findings"]) == MOST_FINDINGS
    text = json.dumps(found, allow_nan=False)
    assert json.loads(text)["headline"]["verdict"] == "cause"
    assert {"claim", "subject", "verdict", "plain", "do"} <= set(found["findings"][0])


def test_steps_that_were_left_out_are_undecided_with_the_command_that_makes_them() -> None:
    found = conclude(cases.evidence(symptom=cases.slow_core(), skipped={"profile": "no perf"}))
    (left_out,) = [one for one in found.undecided if "profile" in one.plain]
    assert "no perf" in left_out.plain
    assert left_out.command.startswith("perflib run event_profile")


# --- the ledger ----------------------------------------------------------------------------------


def test_a_slow_cores_time_is_shared_out() -> None:
    symptom = [
        *cases.slow_core()[:2],
        cases.total(1, 20.0, own_speed=12.0, sibling=7.0, clock=0.0),
        cases.total(0, -16.0),
    ]
    ledger = {one.hypothesis: one for one in conclude(cases.evidence(symptom=symptom)).ledger}
    assert (ledger["sibling"].state, ledger["frequency"].state) == ("measured", "excluded")
    assert ledger["sibling"].share_percent.effect == pytest.approx(35)
    assert ledger["unexplained"].percent.effect == pytest.approx(12)
    assert ledger["hypervisor"].state == "not tested"


def test_what_the_itlb_explains_is_not_unexplained() -> None:
    steps = {"symptom": cases.slow_core(), "code_pages": [cases.explains("iTLB misses", 1)]}
    ledger = {one.hypothesis: one for one in conclude(cases.evidence(steps=steps)).ledger}
    assert ledger["iTLB"].state == "measured"
    assert ledger["iTLB"].run == "code pages-run"
    assert ledger["iTLB"].share_percent.effect == pytest.approx(82.5)
    assert ledger["unexplained"].percent.effect == pytest.approx(0.175 * 12)


@pytest.mark.parametrize("step", ["calls", "code_pages"])
def test_a_core_that_misses_as_often_and_is_as_fast_clears_the_instruction_cache(step: str) -> None:
    cases_of = cases.explains("instruction cache misses", 1, "inconclusive")
    steps = {"symptom": cases.slow_core(), step: [cases_of, cases.with_l1i_misses(1, "refuted")]}
    ledger = {one.hypothesis: one for one in conclude(cases.evidence(steps=steps)).ledger}
    cache = ledger["instruction cache"]
    assert cache.state == "excluded"
    assert "50 of 100 lines or more miss the cache" in cache.because
    assert cache.run == f"{step.replace('_', ' ')}-run"
    assert ledger["unexplained"].percent.effect == pytest.approx(12)


@pytest.mark.parametrize(
    ("explained", "counter_test", "state"),
    [
        ("supported", "refuted", "measured"),  # large code's own extra time speaks first
        ("inconclusive", "supported", "open"),
        ("refuted", "supported", "excluded"),
    ],
)
def test_the_counter_test_decides_nothing_else(
    explained: str, counter_test: str, state: str
) -> None:
    found = [
        cases.explains("instruction cache misses", 1, explained),
        cases.with_l1i_misses(1, counter_test),
        cases.with_l1i_misses(0, "refuted"),
    ]
    steps = {"symptom": cases.slow_core(), "calls": found}
    ledger = {one.hypothesis: one for one in conclude(cases.evidence(steps=steps)).ledger}
    assert ledger["instruction cache"].state == state


def test_a_function_explains_what_it_takes_and_the_rest_is_a_number() -> None:
    steps = {"symptom": cases.slow_core(), "profile": [cases.function("propagate", 1)]}
    ledger = {one.hypothesis: one for one in conclude(cases.evidence(steps=steps)).ledger}
    assert ledger["a function of the job"].percent.effect == 9
    assert ledger["unexplained"].percent.effect == pytest.approx(3)


def test_slow_memory_explains_an_amount_that_is_not_known() -> None:
    steps = {"symptom": cases.slow_core(), "memory": [cases.slow_memory(1)]}
    ledger = {one.hypothesis: one for one in conclude(cases.evidence(steps=steps)).ledger}
    assert ledger["memory distance"].state == "measured"
    assert ledger["unexplained"].percent.effect == pytest.approx(12)
