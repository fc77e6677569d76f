"""`perflib investigate` as a user runs it: measured, shown, killed, resumed, replayed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from perflib.framework.results import WRONG
from perflib.investigation.folder import PLAN, write_plan
from perflib.store.run_files import load, save
from tests.framework.test_wrong import spoiled
from tests.stored import RUNS

PERFLIB = [sys.executable, "-m", "perflib", "investigate"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.parametrize("all_of_it", [False, True])
def test_wrong_results_are_the_headline_and_an_exit_status(all_of_it: bool, tmp_path: Path) -> None:
    run = load(RUNS / "kv_per_core.parquet")
    table = run.samples.reset_index(drop=True)
    rows = table.index[(table["cpu"] == table["cpu"].max()) | all_of_it]
    table = spoiled(table, rows, [f"{7 + row:#x}" for row in rows])
    save(replace(run, samples=table), tmp_path / "runs" / f"{run.id}.parquet")
    step = dict.fromkeys(("name", "part", "why"), "symptom") | {
        "experiment": run.experiment, "params": run.params, "budget_s": 9.0, "run": run.id,
        "seconds": 9.0, "skipped": "",
    }  # fmt: skip
    asked = {"question": {}, "cores": [0, 1], "tag": "", "spent_s": 9.0, "fit": {}}
    write_plan(tmp_path, {**asked, "steps": [step]})
    words = [*PERFLIB, "--replay", str(tmp_path), "--json"]
    made = subprocess.run(words, capture_output=True, text=True, check=False)
    assert made.returncode == 3, made.stderr
    found = json.loads(made.stdout)
    assert found["headline"]["verdict"] == found["headline"]["cause"] == "wrong"
    assert found["findings"][0]["about"]["claim"] in WRONG
    assert "drain it" in Path(found["report"]).read_text()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_one_that_was_ended_goes_on_with_the_run_that_it_had_begun(
    how: signal.Signals, tmp_path: Path, home: Path
) -> None:
    out = tmp_path / "out"
    words = [*PERFLIB, "--minutes", "0.8", "--out", str(out)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        journal = _begun(home, process)
        time.sleep(3)
        os.kill(process.pid, how)
        process.communicate()
        assert process.returncode != 0
    argv = [*PERFLIB, "--resume", str(out), "--json"]
    made = subprocess.run(argv, capture_output=True, text=True, check=True)
    found = json.loads(made.stdout)  # one object, nothing else
    symptom = next(step for step in found["steps"] if step["name"] == "symptom")
    assert symptom["run"] == journal.stem
    assert json.loads((out / PLAN).read_text())["finished"]


def _begun(home: Path, process: subprocess.Popen[bytes]) -> Path:
    """The journal of the first run, once it has trials."""
    while process.poll() is None:
        for path in home.glob("runs/kv_per_core-*.journal"):
            if len(path.read_bytes().splitlines()) > 5:
                return path
        time.sleep(0.1)
    pytest.fail(f"it ended: {process.stderr.read() if process.stderr else b''!r}")
