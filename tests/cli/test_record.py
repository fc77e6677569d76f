"""``perflib record``: its options as parameters of event_profile, and a run like all others."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from perflib.experiments import get
from perflib.store.run_files import load, runs
from tests.cli.calling import call, would_measure
from tests.instruments.perf.test_recorder import needs_perf

EVENT = get("event_profile")
BURN = "import time; t = time.process_time()\nwhile time.process_time() < t + {}: pass"


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What would be measured."""
    return would_measure("event_profile", monkeypatch)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--", "x", "a b", "{print}"], {"job_command": "x 'a b' '{{print}}'", "pinned": False}),
        (["--core", "0", "--", "x"], {"cores": "0", "once": True, "event": ""}),
        (["--core", "0,1", "--", "x"], {"cores": "0,1", "job": "command"}),
        (["--pid", "1", "--for", "500ms"], {"job": "running", "job_pid": 1, "duration_s": 0.5}),
        (["--cpus", "0", "--for", "2min"], {"job": "cpus", "cores": "0", "duration_s": 120.0}),
        (
            ["--event", "Zee|ttbar", "--slowest", "1", "--", "x"],
            {"event": "Zee|ttbar", "slowest_percent": 1.0},
        ),
        (["--pid", "1", "--log", "l", "--event", "7"], {"job_log": "l", "event": "7"}),
    ],
)
def test_options_are_parameters(
    given: dict[str, Any], words: list[str], expected: dict[str, Any]
) -> None:
    assert call("record", "-q", *words) == 0
    assert given.items() >= expected.items()
    assert ("once" in given) == (words[:2] != ["--core", "0,1"])


def test_p_says_otherwise(given: dict[str, Any]) -> None:
    assert call("record", "-q", "-p", "once=false", "-p", "job_timeout_s=5", "--", "x") == 0
    assert given.keys().isdisjoint({"once", "job_timeout_s"})
    assert given["words"] == ("once=false", "job_timeout_s=5")


@needs_perf
def test_a_job_is_a_saved_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("record", "-v", "--json", "--", sys.executable, "-c", BURN.format(0.4)) == 0
    output = capsys.readouterr()
    errors = " ".join(output.err.split())
    assert "A sample's instruction is where the interrupt was taken" in errors
    assert "Time in which the job waits has no samples" in errors
    (saved,) = runs()
    assert json.loads(output.out)["run"] == saved.id
    run = load(saved.id)
    assert run.provenance["stopped"] == "recorded once"
    assert set(run.samples["core"]) == {-1}
    assert "event_name" not in run.samples
    builds = run.provenance["objects"]
    assert builds
    assert all(path.startswith("/") and int(build, 16) for path, build in builds.items())
    assert {"flat", "modules", "cost"} <= EVENT.derived(run).keys()
    assert "cost" in EVENT.figures(run)


@needs_perf
def test_each_name_is_a_profile_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    job = BURN.format(0.2)
    lines = "\n".join(f"print('begin {name}')\n{job}\nprint('end {name}')" for name in "aba")
    named = [r"job_begin=begin (?P<event>\w)", r"job_end=end (?P<event>\w)"]
    words = [word for pair in named for word in ("-p", pair)]
    assert call("record", "--event", "a|b", *words, "--", sys.executable, "-c", lines) == 0
    assert "a: the samples are of one core" in " ".join(capsys.readouterr().out.split())
    (saved,) = runs()
    run = load(saved.id)
    assert set(run.samples["event_name"]) == {"a", "b"}
    tables = EVENT.derived(run)
    assert {"flat_a", "flat_b", "trials_a", "cost_b"} <= tables.keys()
    assert len(tables["trials_a"]()) == 2  # it came twice
    assert len(tables["trials_b"]()) == 1
    assert {"cost_a", "cost_b"} <= EVENT.drawings(run).keys()
    subjects = {finding.subject for finding in EVENT.analyse(run)}
    assert {"a standing out", "b standing out"} <= subjects


@needs_perf
def test_a_process_is_recorded_in_segments() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as job:
        try:
            assert call("record", "-q", "--pid", str(job.pid), "--for", "1s") == 0
            assert job.poll() is None
        finally:
            job.kill()
    (saved,) = runs()
    run = load(saved.id)
    assert set(run.samples["round"]) <= set(range(10))
    assert set(run.samples["pid"]) == {job.pid}
