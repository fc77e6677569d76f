"""The command that copies runs: what it prints, and what it says of a mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perflib.store import run_files
from tests.cli.calling import call
from tests.stored import RUNS


def test_runs_are_exported_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = [str(RUNS / f"{name}.parquet") for name in ("machine", "kv_per_core")]
    out = tmp_path / "out"
    assert call("export", *stored, "--out", str(out), "--json") == 0
    files = [Path(file) for file in json.loads(capsys.readouterr().out)["files"]]
    assert [run_files.load(file).experiment for file in files] == ["machine", "kv_per_core"]
    assert call("export", *stored, "--out", str(out)) == 2
    assert "already: name another folder" in capsys.readouterr().err
    assert call("export", stored[0], "--out", str(tmp_path / "b"), "--anonymous") == 0
    (file,) = (tmp_path / "b").iterdir()
    assert capsys.readouterr().out == f"exported: {file}\n"
    assert run_files.load(file).provenance["machine"]["hostname"] == "host-1"
