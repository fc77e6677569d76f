"""OpenDCDiag as a second opinion: a command that writes such a log stands for it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from perflib.experiments import get
from perflib.experiments.correctness.opinion import ask, findings, parsed
from perflib.model.finding import Finding
from perflib.store.run_files import load
from tests.experiments.judged import codes

EXPERIMENT = get("correctness")
HEAD = """command-line: 'opendcdiag -Y -o log.yaml'
version: opendcdiag-0a1b2c3d4e5f
os: Linux 6.1
tests:
"""
PASSED = """- test: {test}
  details: {{ quality: production, description: "A \\"test\\": of state: failed" }}
  state: {{ seed: 'AES:1234', iteration: 0, retry: false }}
  time-at-start: {{ elapsed: 12.000, now: !!timestamp '2026-01-02T03:04:05Z' }}
  result: {result}
  time-at-end: {{ elapsed: 1012.000, now: !!timestamp '2026-01-02T03:04:06Z' }}
  test-runtime: 1000.123
"""
FAILED = """- test: {test}
  state: {{ seed: 'AES:1234', iteration: 0, retry: {retry} }}
  result: fail
  fail: {{ cpu-mask: '.X', time-to-fail: 9.706, seed: 'AES:1234'}}
  threads:
  - thread: main
    messages:
    - {{ level: info, text: 'I> note' }}
  - thread: 1
    id: {{ logical:  3, package: 0, numa_node: 0, module: 1, core: 1, thread: 0, ppin: null }}
    state: failed
    time-to-fail: 9.706
    loop-count: 17
    messages:
    - data-miscompare:
       type:        uint32_t
       offset:      [ 40, 0 ]
       actual:      '0xffffffff'
       expected:    '0x1058c590'
"""
HEALTHY = HEAD + "".join(PASSED.format(test=f"t{n}", result="pass") for n in range(3))
ONCE = HEALTHY + FAILED.format(test="zstd19", retry="false")
TWICE = ONCE + FAILED.format(test="zstd19", retry="true")


def judged(text: str) -> Finding:
    (found,) = findings({**parsed(text), "cores": [2, 3]})
    return found


def test_null_a_healthy_log_is_refuted() -> None:
    found = judged(HEALTHY + PASSED.format(test="t9", result="skip"))
    assert (found.verdict, found.effect) == ("refuted", 0.0)
    assert found.plain == (
        "OpenDCDiag (opendcdiag-0a1b2c3d4e5f) finds nothing wrong on CPUs 2-3: 3 tests passed"
    )
    assert "skipped 1" in found.reason


def test_a_core_that_fails_again_is_named_and_one_failure_decides_nothing() -> None:
    found = judged(TWICE)
    assert (found.verdict, found.effect) == ("supported", 40.0)
    assert found.plain.endswith("finds wrong results on cpu3 (zstd19)")
    once = judged(ONCE)
    assert (once.verdict, codes(once)) == ("inconclusive", ["failed_once"])
    assert "cpu3 (zstd19)" in once.reason


def test_what_ends_otherwise_is_no_wrong_result() -> None:
    for more in ("crash", "timed out", "odd"):
        found = judged(HEALTHY + PASSED.format(test="t9", result=more))
        assert (found.verdict, codes(found)) == ("inconclusive", ["unfinished"])
        assert f"{more} 1" in found.reason


def test_a_log_that_ends_anywhere_has_what_stands_before() -> None:
    for cut in range(0, len(TWICE), 41):
        early = [one.verdict for one in findings({**parsed(TWICE[:cut]), "cores": [3]})]
        assert early in ([], ["refuted"], ["inconclusive"], ["supported"])
        assert early != ["supported"] or cut > len(ONCE)
        findings(parsed(TWICE[cut:]))


@pytest.mark.parametrize(
    "text", ["", "\0\xff{]}", "result: fail\nstate: failed\n", HEAD, "- test: x"]
)
def test_what_is_no_log_says_nothing(text: str) -> None:
    assert findings(parsed(text)) == []


def test_a_failure_without_a_cpu_stays_open() -> None:
    lines = [line for line in TWICE.splitlines() if " id: " not in line]
    found = judged("\n".join(lines))
    assert (found.verdict, codes(found)) == ("inconclusive", ["failed_once"])
    assert "a core (zstd19)" in found.reason


# --- its command ---------------------------------------------------------------------------------


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ``opendcdiag`` on PATH, so far without content."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "opendcdiag"


def writes(command: Path, text: str, status: int = 0) -> None:
    log = command.with_name("recorded.yaml")
    log.write_text(text)
    command.write_text(
        f'#!/bin/sh\necho "$@" > {shlex.quote(str(command.parent))}/given\n'
        f'while [ "$1" != -o ]; do shift; done\ncp {shlex.quote(str(log))} "$2"\nexit {status}\n'
    )
    command.chmod(0o755)


def test_it_is_asked_of_these_cores_for_so_long(command: Path) -> None:
    writes(command, TWICE, status=1)
    said, problem = ask([2, 3], 1.5)
    assert (said["cores"], said["status"], problem) == ([2, 3], 1, "")
    assert said["failed"] == [{"test": "zstd19", "cpu": 3, "times": 2}]
    given = (command.parent / "given").read_text().split()
    assert {"-Y", "-T", "1500", "--strict-runtime", "--cpuset=2,3"} <= {*given}


def test_where_it_cannot_be_asked_the_run_says_so(
    command: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command.write_text("#!/bin/sh\necho 'no such option' >&2\nexit 64\n")
    command.chmod(0o755)
    assert ask([0], 1.0)[1].startswith("no second opinion: opendcdiag failed")
    writes(command, "nothing")
    assert "tested nothing" in ask([0], 1.0)[1]
    monkeypatch.setenv("PATH", str(command.parent / "empty"))
    assert ask([0], 1.0) == ({}, "no second opinion: opendcdiag is not on PATH")


def test_a_run_keeps_what_it_said(command: Path) -> None:
    writes(command, HEALTHY)
    given = {"cores": [min(os.sched_getaffinity(0))], "states": ["warm"], "classes": ["integer"]}
    run = EXPERIMENT.measure(EXPERIMENT.params({**given, "budget_s": 1.0, "opinion_s": 1.0}))
    assert load(run.id).provenance["opendcdiag"]["results"] == {"pass": 3}
    said = {one.of.name: one.verdict for one in EXPERIMENT.analyse(run)}
    assert said["second_opinion"] == "refuted"
