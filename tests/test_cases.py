"""The jobs of benchmarks/cases.py: they compile, and their logs are read."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

import pytest

from benchmarks.cases import CASES, JOBS, command_of, compiled, judge
from perflib.instruments.joblog.jobrun import JobResult, job_argv, run_job
from perflib.instruments.joblog.logformat import FORMATS

pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="its code is for x86-64"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jobs")


def result_of(template: str, log: str) -> JobResult:
    argv = job_argv(template, first=5, events=2, seed=1)
    return run_job(argv, FORMATS[log], timeout_s=60)


@pytest.mark.parametrize("work", JOBS)
def test_a_job_says_when_its_events_begin_and_end(work: str, folder: Path) -> None:
    result = result_of(command_of(compiled(work, folder), -1), "kv")
    assert [event.label for event in result.events] == [5, 6]
    assert all(event.reported_seconds for event in result.events)
    assert (result.problems, result.returncode) == ([], 0)


@pytest.mark.parametrize("work", ["functions", "code"])
def test_work_is_special_on_its_core_only(work: str, folder: Path) -> None:
    cpu = min(os.sched_getaffinity(0))

    def checksum(special_cpu: int) -> str:
        template = f"taskset -c {cpu} " + command_of(compiled(work, folder), special_cpu)
        return result_of(template, "kv").tail[-1]

    assert checksum(-1) == checksum(cpu + 1) != checksum(cpu)


def test_lines_of_a_buffered_log_arrive_together(folder: Path) -> None:
    result = result_of(command_of(compiled("functions", folder), -1, "buffered"), "athena")
    assert [(event.label, event.time_ns) for event in result.events] == [(5, 0), (6, 0)]


def answer(verdict: str, cause: str | None, cpu: int | None) -> dict[str, object]:
    about = {"cpu": cpu, "certain": True}
    headline = {"verdict": verdict, "plain": "", "about": about, "cause": cause}
    return {"headline": headline, "undecided": []}


@pytest.mark.parametrize(
    ("case", "verdict", "cause", "cpu", "right", "wrong_certain"),
    [
        ("nothing", "healthy", None, None, True, False),
        ("nothing", "cause", "own_speed", 1, False, True),
        ("nice_job", "cause", "other_task", 1, True, False),
        ("nice_job", "cause", "other_task", 0, False, True),
        ("nice_job", "undecided", None, None, False, False),
        ("quota", "cause", "quota", None, True, False),
        ("larger_code", "cause", "itlb", 1, True, False),
        ("aslr_aliasing", "undecided", "aliasing", None, True, False),
        ("buffered_log", "undecided", None, None, False, False),
    ],
)
def test_what_is_named_is_judged(
    case: str, verdict: str, cause: str | None, cpu: int | None, right: bool, wrong_certain: bool
) -> None:
    found = judge(CASES[case], answer(verdict, cause, cpu), 1, busy=False)
    assert (found["right"], found["wrong_certain"]) == (right, wrong_certain)


def test_beside_a_load_another_task_is_no_error() -> None:
    found = judge(CASES["nothing"], answer("cause", "other_task", 1), 1, busy=True)
    assert (found["right"], found["wrong_certain"]) == (False, False)
