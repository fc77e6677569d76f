"""What is printed for people: at most 80 columns, more with -v, less with -q."""

from __future__ import annotations

import math

import click
import pytest

from perflib.cli.measure import problems
from perflib.cli.output import print_findings, reporter, say
from perflib.measure.schedule import Status
from perflib.store.run_files import load, runs_dir, save
from tests.cli.calling import call, too_wide
from tests.model.made import level, slower
from tests.stored import NAMES, RUNS, analyse_once

WORDS = {"ANOMALY", "fine", "open", "found", "no"}


@pytest.fixture(autouse=True)
def _runs(monkeypatch: pytest.MonkeyPatch) -> None:
    analyse_once(monkeypatch)
    runs_dir().mkdir(parents=True)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    status = call(*words)
    out, err = capsys.readouterr()
    assert status == 0, err
    assert "-q" in words or not too_wide(out)  # a line each, however long
    assert not too_wide(err)
    return out


OFTEN = (
    "code_segment",
    "contention",
    "count",
    "kv_per_core",
    "layout",
    "machine",
    "numa",
    "threads",
)


@pytest.mark.parametrize(
    "name",
    [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in NAMES],
)
def test_a_run_is_shown_in_80_columns(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = RUNS / f"{name}.parquet"
    brief = printed(capsys, "show", str(path))
    details = printed(capsys, "-v", "show", str(path))
    verdicts = printed(capsys, "show", str(path), "-q")
    listed = [
        line[2:11].strip() for line in brief.splitlines() if line[:2] == "  " and line[2] != " "
    ]
    assert listed[0] in WORDS
    assert details.count("\n           claim   ") == len(verdicts.splitlines())
    assert details.count("\n           effect  ") == details.count("\n           claim   ")
    for line in verdicts.splitlines():
        assert line.split()[0] in {"supported", "refuted", "inconclusive"}


def test_runs_are_listed_and_found_by_a_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    ids = ["machine-20261101-074507-1a2b", "machine-20261102-074507-node17-7k2m9qx4tb"]
    for number, run_id in enumerate(ids):
        run = load(RUNS / "machine.parquet")
        run.id = run_id
        run.provenance["start"] = f"2026-11-0{number + 1}T07:45:07.123+00:00"
        run.provenance["machine"] |= {"kernel": f"6.{number}", "nodes": [{"node": number}]}
        save(run)
    assert printed(capsys, "runs", "-q").split() == ids
    listed = printed(capsys, "runs")
    assert all(word in listed for word in ("saved", *ids))
    assert "    on " in printed(capsys, "runs", "-v")
    names = "machine-20261101", "machine-20261102"
    for name, run_id in zip(names, ids, strict=True):
        assert printed(capsys, "show", name).startswith(f"{run_id}: ")
    compared = printed(capsys, "compare", *names)
    assert "machine.kernel: 6.0 -> 6.1" in compared
    assert "machine.nodes" not in compared
    assert "machine.nodes: " in printed(capsys, "compare", *names, "-v")
    assert "what differs:" not in printed(capsys, "compare", *names, "-q")
    printed(capsys, "ledger", *names)
    printed(capsys, "ledger", *names, "-q")


def test_what_was_found_comes_first_and_what_is_open_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = [slower(0, "inconclusive", 0.8), slower(1, "refuted", 0.1), level()]
    print_findings([*found, slower(2, "inconclusive", math.nan)])
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if line[2] != " "] == [
        *("found", "fine", "open", "open")
    ]
    assert out.endswith("open     Nothing could be estimated: cpu2.\n")


def test_a_problem_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = load(RUNS / "machine.parquet")
    run.provenance["problems"] = ["no clock is known", "cpu1 went offline", "no lock is known"]
    monkeypatch.setenv("PERFLIB_PROGRESS", "log")
    with click.Context(click.Command("run")), reporter("machine") as shown:
        say("no lock is known; nor is a queue")
        shown(Status(0.0, 1.0, 0, None, lambda: run.samples, "no clock is known. It lasts 3 s"))
        problems(run)
    err = capsys.readouterr().err
    assert [err.count(problem) for problem in run.provenance["problems"]] == [1, 1, 1]


def test_a_measurement_says_what_it_does_and_quietly_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PERFLIB_PROGRESS", "log")
    monkeypatch.setenv("PERFLIB_TAG", "from a test")
    words = ("run", "machine", "-p", "budget_s=0.2", "-p", "spin_ms=5", "-p", "cores=first")
    call(*words)
    out, err = capsys.readouterr()
    assert out.startswith("machine-")
    tagged = out.partition(":")[0]
    assert "machine: round 1" in err
    assert not too_wide(out + err)
    call(*words, "-q")
    out, err = capsys.readouterr()
    assert err == ""
    assert {line.split()[0] for line in out.splitlines()} <= {
        "supported",
        "refuted",
        "inconclusive",
    }
    assert out
    assert "tag: from a test" in printed(capsys, "show", tagged)
