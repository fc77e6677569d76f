"""The labs: their relations, their instructor's notes, the environment check."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import perflib as pl
from perflib.course.fix import fix
from perflib.course.items import Measured, Relation
from perflib.course.lesson import declared, names
from perflib.course.lessons import lines_and_locks as lines
from perflib.course.lessons import threads_waiting as threads
from perflib.course.needs import NEEDS, need
from perflib.course.relations import found, reads, verdict
from perflib.course.worksheet import Lab
from perflib.model.errors import UserError
from perflib.stats.interval import Interval

TOP = Path(__file__).parents[2]
DOCS, NOTEBOOKS = TOP / "docs" / "course", TOP / "notebooks" / "course"
MACHINE = "intel-guest"
LABS = [
    "tlbs_and_huge_pages", "aliasing_4k", "noise_and_statistics", "slow_core_to_function",
    "caches_and_numa", "threads_waiting", "lines_and_locks",
]  # fmt: skip

# What else a relation's check is given: a recorded run, of an experiment with these parameters;
# or the recorded comparison of changed code.
_NULL = {"together": True, "functions": ["memcpy"], "elements": [2048], "simulated_offsets": []}
_COSTLIER = {"costlier_core": 1, "frequency_hz": 10_000}
_FIX = "false_sharing"
EVIDENCE: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {
    ("tlbs_and_huge_pages", "3"): ("code_segment", {}),
    ("tlbs_and_huge_pages", "5"): ("code_segment", {}),
    ("aliasing_4k", "3"): ("alias_map", {}),
    ("aliasing_4k", "5"): ("alias_offsets", {}),
    ("aliasing_4k", "6"): ("alias_offsets", {}),
    ("aliasing_4k", "9"): ("alias_offsets", _NULL | {"tag": "exercise"}),
    ("aliasing_4k", "13"): ("alias_offsets", {}),
    ("noise_and_statistics", "4"): ("kv_per_core", {}),
    ("slow_core_to_function", "1"): ("kv_per_core", {}),
    ("slow_core_to_function", "4"): ("event_profile", {}),
    ("slow_core_to_function", "6"): ("event_profile", _COSTLIER | {"tag": "exercise"}),
    ("caches_and_numa", "3"): ("memory_levels", {}),
    **{("threads_waiting", name): ("threads", {}) for name in ("3", "4", "5", "8")},
    ("threads_waiting", "10"): ("threads", {"versions": ["none"], "tag": "exercise"}),
    ("lines_and_locks", "2"): ("coherence", {}),
    ("lines_and_locks", "5"): (_FIX, {}),
    ("lines_and_locks", "6"): ("coherence", {}),
    ("lines_and_locks", "8"): ("threads", {}),
}


def evidence(of: str, **more: Any) -> Any:
    if of == _FIX:
        return fix(of).possible(recorded=MACHINE)
    return pl.experiment(of).run(preset="quick", recorded=MACHINE, **more)


@pytest.mark.parametrize("lesson", LABS)
def test_a_wrong_relation_earns_nothing_and_says_why(lesson: str) -> None:
    lab = Lab(declared(lesson))
    for item in lab.lesson.items:
        if not isinstance(item, Relation):
            continue
        known = EVIDENCE.get((lesson, item.name))
        given = [evidence(known[0], **known[1])] if known else []
        assert item.wrong, item.name
        for answer, why in item.wrong:
            checked = lab.check(item.name, answer, *given)
            assert checked.points == 0, (item.name, why)
            assert checked.says
            assert checked.hint or checked.says.startswith("unknown")  # which is no try


# --- relations -----------------------------------------------------------------------------------


def test_a_verdict_is_that_of_the_run() -> None:
    run = pl.experiment("code_segment").run(preset="quick", recorded=MACHINE)
    holds = verdict("huge_pages")
    assert holds("refuted", run).share == 1
    assert holds("supported", run).share == 0
    assert verdict("no_such_claim")("inconclusive", run).share == 1
    with pytest.raises(UserError, match="refuted"):
        holds("refutd", run)


def test_what_cannot_be_read_off_is_open() -> None:
    run = pl.experiment("code_segment").run(preset="quick", recorded=MACHINE)
    knee = reads(found("ring_knee", what="the knee"), "KiB")
    assert knee(run.findings.where(claim="ring_knee")[0].effect, run).share == 1
    assert knee("open", run).share == 0
    none = reads(found("no_such_claim", what="nothing"), "KiB")
    assert none("open", run).share == 1
    assert none(7, run).share == 0


# --- the environment check -----------------------------------------------------------------------


def test_every_need_of_every_lesson_is_known_and_looked_for() -> None:
    machine = pl.describe(MACHINE)
    for name in names():
        for wanted in declared(name).needs:
            met, words = need(wanted).look(machine)
            assert met in (True, False, None)
            assert words
    assert all(one.without for one in NEEDS.values())


def test_the_environment_says_what_is_inconclusive() -> None:
    lab = Lab(declared("caches_and_numa"))
    table = lab.environment().set_index("need")
    assert list(table.index) == list(lab.lesson.needs)
    for row in table.to_dict(orient="records"):
        assert (row["here"] == "yes") == (row["inconclusive"] == "–")
    assert lab.environment(MACHINE)["need"].tolist() == ["nothing"]
    with pytest.raises(UserError, match="intel-guest"):
        lab.environment("intel-gest")


# --- threads, and lines and locks ----------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    """As much of a finding as they look at."""

    verdict: str
    plain: str = "what is so"
    recorded: str = ""


def run_of(tables: dict[str, Any], samples: Any = None, verdict: str = "") -> Any:
    """As much of a run as the relations look at."""
    return SimpleNamespace(
        table=lambda name: pd.DataFrame(tables.get(name, [])),
        samples=pd.DataFrame(samples or []),
        findings=SimpleNamespace(where=lambda **_: [Said(verdict)]),
    )


def test_the_speedup_is_that_of_the_first_version() -> None:
    row = {"version": "Initial", "speedup_low": 1.5, "speedup": 1.6, "speedup_high": 1.8}
    run = run_of({"calibration": [row, row | {"version": "Final", "speedup": 1.9}]})
    found = threads._speedup(run)
    assert isinstance(found, Measured)
    assert (found.low, found.value, found.high) == (1.5, 1.6, 1.8)


@pytest.mark.parametrize(
    "table",
    [
        [],
        [{"version": "Final", "speedup_low": 1.0}],
        [{"version": "Initial", "speedup_low": float("nan")}],
    ],
)
def test_no_interval_of_the_speedup_is_said(table: list[dict[str, Any]]) -> None:
    assert "no interval" in str(threads._speedup(run_of({"calibration": table})))


def test_the_longest_held_lock_is_of_trials_with_one_thread() -> None:
    report = json.dumps({"formula_lock": {"held_s": 0.4}, "task_queue": {"held_s": 0.1}})
    one: dict[str, Any] = {
        "configuration": "one_thread",
        "version": "Initial",
        "self_report": report,
    }
    samples = [one | {"job_time_s": loop_s} for loop_s in (1.0, 0.8, 0.5)]
    samples.append(one | {"configuration": "alone", "job_time_s": 0.1})
    found = threads._held(run_of({}, samples))
    assert isinstance(found, Measured)
    assert (found.low, found.value, found.high) == pytest.approx((40, 50, 80))
    other = run_of({}, [samples[-1]])
    assert "with one thread" in str(threads._held(other))


@pytest.mark.parametrize(
    ("verdict", "right"),
    [("supported", "task_queue"), ("refuted", "none"), ("inconclusive", "open")],
)
def test_the_limiting_lock_follows_from_the_verdict(verdict: str, right: str) -> None:
    waits = [
        {"version": "Initial", "lock": "formula_lock", "share_percent": 1.0},
        {"version": "Initial", "lock": "task_queue", "share_percent": 9.0},
        {"version": "Final", "lock": "output_module", "share_percent": 50.0},
    ]
    run = run_of({"waits": waits}, verdict=verdict)
    judged = {answer: threads._limiting(answer, run) for answer in ("task_queue", "none", "open")}
    assert {answer for answer, one in judged.items() if one.share == 1} == {right}
    assert all(verdict in one.says for answer, one in judged.items() if answer != right)


def test_a_handover_is_a_share_of_a_second() -> None:
    row = {
        "what": "modified write",
        "median_ns_low": 50.0,
        "median_ns": 100.0,
        "median_ns_high": 200.0,
    }
    found = lines._handovers(run_of({"latencies": [row]}))
    assert isinstance(found, Measured)
    assert (found.low, found.value, found.high) == pytest.approx((0.5, 1.0, 2.0))
    other = run_of({"latencies": [row | {"what": "local write"}]})
    assert "has not measured" in str(lines._handovers(other))


@pytest.mark.parametrize(("high", "is_measured"), [(7.0, True), (float("inf"), False)])
def test_mended_code_is_as_fast_as_its_interval_says(high: float, is_measured: bool) -> None:
    bench = SimpleNamespace(times_as_fast=Interval(6.0, 5.0, high))
    found = lines._as_fast(bench)
    assert isinstance(found, Measured) == is_measured
    item = declared("lines_and_locks").item("5")
    assert item.judge("open", bench).share == (not is_measured)
    assert item.judge(6.0, bench).share == is_measured


def test_a_lock_bounds_the_speedup_by_what_passes_it() -> None:
    """By a simulation: events pass one lock, one after the other."""

    def simulated(share: float, threads: int) -> float:
        events, free_s, ready_s = 400, 0.0, [0.0] * threads
        for _ in range(events):
            first = min(range(threads), key=ready_s.__getitem__)
            begins = max(ready_s[first], free_s)
            free_s = begins + share
            ready_s[first] = begins + 1.0
        return events / max(ready_s)

    for share in (0.05, 0.3, 0.5, 0.9, 1.0):
        for count in (1, 2, 3, 8):
            assert simulated(share, count) == pytest.approx(threads._most(share, count), rel=0.03)


# --- the instructor's notes ----------------------------------------------------------------------


def rows(text: str, heading: str) -> list[list[str]]:
    section = text.split(f"## {heading}\n")[1].split("\n## ", maxsplit=1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("name", LABS)
def test_the_minutes_of_the_headings_are_those_of_the_plan(name: str) -> None:
    notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))
    texts = "\n".join("".join(cell["source"]) + "\n" for cell in notebook["cells"])
    headings = re.findall(r"^## ([^?:(]+).* \((\d+) minutes\)$", texts, re.MULTILINE)
    begin, plan = 0, []
    for heading, minutes in headings:
        plan.append((f"{begin} to {begin + int(minutes)}", heading.strip()))
        begin += int(minutes)
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert [(row[0], re.split("[?:]", row[1])[0]) for row in rows(text, "Plan")] == plan
    assert begin == declared(name).minutes
    assert f"{begin} minutes" in texts
