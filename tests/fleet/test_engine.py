"""Plans run on this host, by Snakemake: one after the other, killed, interrupted, gone on with."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perflib.fleet.nodes import Node
from perflib.fleet.outcomes import outcomes
from perflib.fleet.plan import Plan, create, planned
from perflib.store import run_files
from tests.fleet.slurm import wait_until

pytest.importorskip("snakemake", reason="pip install 'perflib-jupyter[fleet]'")
pytestmark = pytest.mark.xdist_group("fleet")

FLEET = [sys.executable, "-m", "perflib", "fleet"]


def call(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*FLEET, *words], capture_output=True, text=True, check=False, timeout=280
    )


def mine(home: Path, kernels: Path, seeds: int, **params: str) -> Plan:
    """A plan of rows that this host measures, one a seed, and of one that it does not."""
    here = Node("here", os.uname().nodename)
    given = {"budget_s": "0.3", "cores": "first", **params}
    rows = [
        row
        for seed in range(seeds)
        for row in planned([here], ["kv_per_core"], {**given, "seed": str(seed)}, None, 200)
    ]
    rows += planned([Node("n2", "n2")], ["kv_per_core"], given, None, 200)
    return create(home / "plan", [here, Node("n2", "n2")], rows, kernels)


def test_here_one_after_the_other_and_nothing_of_the_engine_beside(
    home: Path, kernels: Path
) -> None:
    plan = mine(home, kernels, 3, budget_s="2", precision_percent="0.001")
    answer = call("run", str(plan.folder))
    assert answer.returncode == 0, answer.stderr
    assert "1 rows are of other hosts" in answer.stderr
    found = outcomes(plan)
    assert [one.state for one in found] == ["done"] * 3 + ["waiting"]
    assert [one.attempts for one in found] == [1, 1, 1, 0]
    spans = sorted(_span(path) for path in (plan.folder / "attempts").iterdir())
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))
    for one in found[:3]:  # Snakemake, the shell and perflib's driver sleep; the job too
        assert one.engine_cpu_s is not None
        assert one.seconds is not None
        assert one.engine_cpu_s < 0.02 * one.seconds, one
    again = call("run", str(plan.folder))
    assert again.returncode == 0
    assert [one.attempts for one in outcomes(plan)] == [1, 1, 1, 0]
    collected = json.loads(call("collect", str(plan.folder), "--json").stdout)
    assert (collected["states"], collected["missing"]) == ({"imported": 3}, 1)
    assert {one.run for one in found[:3]} == {one.id for one in run_files.runs()}
    left = {path.name for path in home.iterdir()}
    assert left == {"plan", "data", "node"}
    assert list((home / "node").iterdir()) == []


def _span(path: Path) -> tuple[str, str]:
    start, end = map(json.loads, path.read_text().splitlines())
    return start["start"], end["end"]


def test_a_row_that_fails_does_not_stop_the_others(home: Path, kernels: Path) -> None:
    here = Node("here", os.uname().nodename)
    rows = [
        row
        for cores in ("4000", "first")
        for row in planned([here], ["kv_per_core"], {"budget_s": "0.3", "cores": cores}, None, 99)
    ]
    plan = create(home / "plan", [here], rows, kernels)
    answer = call("run", str(plan.folder))
    assert answer.returncode == 1
    assert "1 of 2 rows are not done" in answer.stderr
    assert [one.state for one in outcomes(plan)] == ["failed", "done"]
    assert "no CPU 4000" in call("status", str(plan.folder)).stdout


def of_plan(plan: Plan) -> list[str]:
    """The command lines of processes that work on a plan: they name it, or are in its folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if str(plan.folder) in words or (process / "cwd").readlink() == plan.folder:
                found.append(words)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_driver_that_ends_is_started_again_and_goes_on(
    number: int, home: Path, kernels: Path
) -> None:
    plan = mine(home, kernels, 2, budget_s="6", precision_percent="0.001")
    words = [*FLEET, "run", str(plan.folder)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as driver:
        wait_until("a job measures", lambda: any(one.state == "running" for one in outcomes(plan)))
        assert call("run", str(plan.folder)).stderr.startswith("perflib: another 'perflib fleet")
        driver.send_signal(number)
        _, said = driver.communicate(timeout=90)
    wait_until("all of it has ended", lambda: of_plan(plan) == [])
    if number != signal.SIGKILL:
        assert f"'perflib fleet run {plan.folder}' continues" in said
        states = [one.state for one in outcomes(plan)]
        assert states[2] == "waiting"
        assert "cancelled" in states
    answer = call("run", str(plan.folder))
    assert answer.returncode == 0, answer.stderr
    found = outcomes(plan)
    assert [one.state for one in found] == ["done", "done", "waiting"]
    assert not any(one.second for one in found)  # nothing was measured twice
    made = [path for path in (plan.folder / "attempts").iterdir() if '"done"' in path.read_text()]
    assert len(made) == 2
    assert list((home / "node").iterdir()) == []


def test_what_is_missing_is_a_sentence(
    home: Path, kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = planned([Node("n2", "n2")], ["kv_per_core"], {}, None, None)
    plan = create(home / "plan", [Node("n2", "n2")], rows, kernels)
    answer = call("run", str(plan.folder))
    assert answer.returncode == 2
    assert "none of the plan's nodes (n2 ...) is this host" in answer.stderr
    monkeypatch.setenv("PATH", str(home))
    answer = call("run", str(plan.folder), "--on", "slurm")
    assert answer.returncode == 2
    assert "there is no sbatch here" in answer.stderr
    monkeypatch.setenv("PATH", os.defpath)
    here = mine(home / "other", kernels, 1)
    (here.folder / "Snakefile").write_text("rule all: input: nonsense\n")
    answer = call("run", str(here.folder))
    assert answer.returncode == 1
    assert "Snakemake did not start any job" in answer.stderr
