"""The job of an experiment: its parameters, its command line, and what its processes really got."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perflib.framework import jobs as jobs_module
from perflib.framework.jobs import Jobs, copies_for, job_template, log_format
from perflib.instruments.joblog.jobrun import job_argv
from perflib.kernels import Build, load
from perflib.measure.conditions import Conditions
from perflib.model.errors import UserError

CPU = min(os.sched_getaffinity(0))


@pytest.fixture
def process() -> Iterator[int]:
    """A process that may run on one CPU only."""
    script = f"import os, sys; os.sched_setaffinity(0, {{{CPU}}}); print(flush=True); input()"
    argv = [sys.executable, "-c", script]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        yield started.pid


def test_wrong_expressions_are_what_pydantic_can_report() -> None:
    says = "job_begin, job_end: .*begin is no regular expression"
    with pytest.raises(ValueError, match=says):
        log_format("(unclosed", "x")


def test_copies_make_about_the_size_asked_for() -> None:
    one = int(load("kv").lib.kv_code_bytes())
    assert copies_for(1) == 1
    for code_kib in (100, 256, 2048):
        assert abs(copies_for(code_kib) * one - 1024 * code_kib) <= one / 2


def test_command_lines_hold_paths_with_blanks_and_open_placeholders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built = Build("kv", Path("/a folder/kv's"), None, {})
    monkeypatch.setattr(jobs_module, "build", lambda *_, **__: built)
    argv = job_argv(job_template("program"), first=73, events=2, seed=5)
    assert argv == ["/a folder/kv's", "--events", "2", "--first", "73", "--seed", "5"]
    argv = job_argv(job_template("pythia"), first=0, events=1, seed=1)
    assert argv[:3] == [sys.executable, "-m", "perflib.measure.jobs.pythia"]
    assert shlex.split(job_template("pythia"))[-1] == "{seed}"
    assert job_template("command", "job {first}") == "job {first}"


def test_conditions_that_cannot_be_had_are_refused_at_once() -> None:
    with pytest.raises(UserError, match="cpu=99999"):
        Jobs("job", [Conditions(cpu=CPU), Conditions(cpu=99999)])


def test_what_a_process_got_is_read_once_and_beside_what_was_asked(process: int) -> None:
    with Jobs("job --first {first}", [Conditions(cpu=CPU), Conditions(fifo_priority=9)]) as jobs:
        assert jobs.violated == []
        jobs.read_back(0, process)
        jobs.read_back(0, 2**22 + 1)  # known already: not looked at
        jobs.read_back(1, process)
        said = jobs.provenance()
    assert said["job"] == "job --first {first}"
    pinned, real_time = said["conditions"]
    assert (pinned["requested"]["cpu"], pinned["obtained"]["cpus"], pinned["violated"]) == (
        CPU,
        [CPU],
        [],
    )
    assert real_time["requested"]["fifo_priority"] == 9
    assert len(real_time["violated"]) == 1
    assert jobs.violated == real_time["violated"]


def test_a_process_that_has_ended_shows_nothing_and_the_next_one_is_asked(process: int) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with Jobs("job", [Conditions(cpu=CPU)]) as jobs:
        jobs.read_back(0, gone.pid)
        assert jobs.provenance()["conditions"][0]["obtained"] == {}
        assert jobs.violated == []
        jobs.read_back(0, process)
        assert jobs.provenance()["conditions"][0]["obtained"]["cpus"] == [CPU]
