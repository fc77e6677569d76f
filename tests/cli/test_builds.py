"""``perflib compare-builds``: its exit status, what it prints, and what it refuses."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from perflib.framework.experiment import Experiment
from perflib.store import run_files
from tests.cli.calling import call
from tests.experiments.layout.functions import recorded, run_of

QUIET = {"noise": 0.001, "bursts": 0.0, "layout_effect": 0.0}
NOISY = {"noise": 0.06, "bursts": 0.5}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a measurement returns, and the parameters that it was given."""
    given: dict[str, Any] = {}

    def set_to(slower: float, facts: dict[str, Any] | None = None, **noise: Any) -> dict[str, Any]:
        samples = recorded(3, {"track": 1 + slower}, **noise)

        def measure(_self: Experiment, params: Any, *_: object, **__: object) -> Any:
            given.update(params.model_dump(mode="json"))
            return run_of(samples, facts, **given)

        monkeypatch.setattr(Experiment, "measure", measure)
        monkeypatch.setattr(run_files, "saved_path", lambda name: Path(f"{name}.parquet"))
        return given

    return set_to


@pytest.mark.parametrize(
    ("slower", "noise", "status"), [(0.15, QUIET, 3), (0.0, QUIET, 0), (0.1, NOISY, 4)]
)
def test_the_exit_status_is_the_gates_answer(
    measured: Any, slower: float, noise: dict[str, float], status: int
) -> None:
    given = measured(slower, **noise)
    assert call("compare-builds", "--functions", "--fail-above", "1%", "a", "b") == status
    assert given["fail_above_percent"] == 1.0
    assert given["precision_percent"] == 0.5
    assert given["functions"] is True


def test_without_a_gate_a_slower_build_is_no_failure(measured: Any) -> None:
    given = measured(0.15, **QUIET)
    assert call("compare-builds", "a", "b", "--", "--events", "3") == 0
    assert given["job_command"] == "a --events 3"
    assert given["other_command"] == "b --events 3"
    assert given["fail_above_percent"] is None


def test_at_most_seven_sentences_the_gate_first(
    measured: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    change = {"function": "field", "kind": "renamed", "first": "field", "second": "magnetic"}
    measured(0.15, {"changes": [change]}, **QUIET)
    call("compare-builds", "--functions", "--fail-above", "1", "a", "b")
    printed = capsys.readouterr().out.splitlines()
    sentences = [line for line in printed if line[:3] == "  " + line[2:3] and line[2] != " "]
    assert 4 <= len(sentences) <= 7
    assert "ANOMALY  B is slower than A by more than 1 %" in sentences[0]
    text = " ".join(" ".join(printed).split())
    assert "Functions that take another time in B: track" in text
    assert "field is named magnetic in B" in text


def test_json_has_the_tables(measured: Any, capsys: pytest.CaptureFixture[str]) -> None:
    measured(0.15, **QUIET)
    call("compare-builds", "--functions", "--json", "--fail-above", "1", "a", "b")
    record = json.loads(capsys.readouterr().out)
    lead = record["functions"][0]
    assert lead["function"] == "track"
    assert lead["stands_out"] is True
    assert lead["share_percent_low"] < lead["share_percent"] < lead["share_percent_high"]
    assert record["libraries"][0]["function"] == "the program"
    assert record["findings"][0]["about"]["claim"] == "gate"


def test_markdown_is_a_table_and_says_what_was_excluded(
    measured: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    change = {"function": "track", "kind": "moved", "first": "the program", "second": "a|b.so"}
    measured(0.15, {"changes": [change]}, **QUIET)
    call("compare-builds", "--functions", "--markdown", "--fail-above", "1", "a", "b")
    printed = capsys.readouterr().out.splitlines()
    assert "gate at 1 %: **fails**" in printed[0]
    rows = [line for line in printed if line.startswith("|")]
    assert rows[2].startswith("| `track` | the program | ")
    assert "a\\|b.so" in rows[2]
    assert len({line.replace("\\|", "").count("|") for line in rows}) == 1
    (excluded,) = (line for line in printed if line.startswith("Excluded: layout"))
    assert "node" in excluded
    assert "interference" in excluded


def test_builds_that_crash_or_differ_are_named_before_the_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def script(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    good = script("good", "echo 1")
    short = ["-p", "budget_s=0.5", "-p", "factors=environment", "-p", "simulated_s=0"]
    crashing = script("crashing", "kill -SEGV $$")
    assert call("compare-builds", *short, good, crashing) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert f"build B ({crashing}): the program died of SIGSEGV" in said
    assert call("compare-builds", *short, good, script("other", "echo 2")) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "B does not write what A writes" in said
    assert call("compare-builds", *short, script("silent", ":"), script("too", ":")) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "neither build writes to its standard output" in said


def test_where_perf_cannot_sample_it_is_said_before_measuring(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    which = shutil.which
    monkeypatch.setattr(
        shutil, "which", lambda name, *_, **__: None if name == "perf" else which(name)
    )
    assert call("compare-builds", "--functions", "/bin/true", "/bin/true") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "functions cannot be compared: perf is not installed" in said
    assert "as a whole" in said


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_two_revisions_are_built_and_compared(
    tmp_path: Path, measured: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = measured(0.0, **QUIET)

    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    for text in ("echo 1", "echo 2"):
        (tmp_path / "source").write_text(f"#!/bin/sh\n{text}\n")
        git("add", "source")
        git("commit", "-m", text)
    monkeypatch.chdir(tmp_path)
    build = "cp source job && chmod +x job"
    assert call("compare-builds", "--git", "HEAD~1..HEAD", "--build", build, "--", "x") == 0
    a, b = given["job_command"].split()[0], given["other_command"].split()[0]
    assert (Path(a).name, Path(b).name) == ("job", "job")
    assert len(a) == len(b)
    assert given["job_command"].endswith(" x")
    assert not Path(a).exists()
    git("worktree", "prune")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".git", "source"]
