"""Two labs, on threads and on lines and locks: their relations; and the notes of all labs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from perflib.course.items import Measured
from perflib.course.lesson import declared
from perflib.course.lessons import lines_and_locks as lines
from perflib.course.lessons import threads_waiting as threads
from perflib.stats.interval import Interval
from tests.course.test_labs import LABS

TOP = Path(__file__).parents[2]
DOCS, NOTEBOOKS = TOP / "docs" / "course", TOP / "notebooks" / "course"
HELD = {"formula_lock": {"held_s": 0.4}, "task_queue": {"held_s": 0.1}}


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


# --- relations -----------------------------------------------------------------------------------


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
    report = json.dumps(HELD)
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


@pytest.mark.parametrize(("high", "told"), [(7.0, True), (float("inf"), False)])
def test_mended_code_is_as_fast_as_its_interval_says(high: float, told: bool) -> None:
    bench = SimpleNamespace(times_as_fast=Interval(6.0, 5.0, high))
    found = lines._as_fast(bench)
    assert isinstance(found, Measured) == told
    item = declared("lines_and_locks").item("5")
    assert item.judge("open", bench).share == (not told)
    assert item.judge(6.0, bench).share == told


# --- functions to write --------------------------------------------------------------------------


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
