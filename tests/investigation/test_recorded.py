"""An investigation of a recorded machine: nothing is measured, and no run counts twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from perflib.framework.recordings import recordings
from perflib.investigation.conclusion import conclude
from perflib.investigation.evidence import Question
from perflib.investigation.investigation import Investigation
from perflib.model.errors import UserError
from perflib.store import run_files
from tests.cli.calling import call, call_json

MACHINE = "intel-guest"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path / "home"))


def test_recorded_runs_are_taken_and_the_rest_is_left_out(tmp_path: Path) -> None:
    made = Investigation.begin(Question(recorded=MACHINE), tmp_path / "report")
    made.go()
    assert run_files.runs() == []  # nothing was measured
    taken = [one.run.id for one in made.evidence.taken if one.run is not None]
    assert taken
    assert set(taken) <= {one.path.stem for one in recordings(MACHINE)}
    assert len(set(taken)) == len(taken)
    assert all("recorded" in one.skipped for one in made.evidence.taken if one.run is None)
    said = conclude(made.evidence).headline
    assert said.plain.startswith(f"Recorded on {MACHINE}: ")
    again = Investigation.replay(tmp_path / "report")
    again.go()
    assert conclude(again.evidence).headline == said


def test_its_cores_are_the_recorded_machine_s(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--core 4000: the cores that may be used here are 0, 1"):
        Investigation.begin(Question(core=4000, recorded=MACHINE), tmp_path / "report")


def test_at_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "report")
    found = call_json(capsys, "investigate", "--recorded", MACHINE, "--out", out, "--json")
    assert found.keys() >= {"headline", "findings", "undecided", "steps", "ledger", "report"}
    assert found["headline"]["plain"].startswith("Recorded on intel-")
    assert all(one["command"].startswith("perflib run ") for one in found["undecided"])
    assert run_files.runs() == []
    for words, why in (
        (["--recorded", "intel-gest"], "did you mean 'intel-guest'"),
        (["--recorded", MACHINE, "--replay", out], "take what was asked from the folder"),
    ):
        assert call("investigate", *words) == 2
        assert why in " ".join(capsys.readouterr().err.split())
