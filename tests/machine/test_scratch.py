"""Temporary folders that no end of a process leaves behind."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from perflib.machine.scratch import scratch

KILLED = """
import os, signal
from perflib.machine.scratch import scratch
with scratch() as folder:
    (folder / "data").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_it_is_gone_afterwards(top: Path) -> None:
    with scratch() as folder:
        (folder / "data").write_text("whole")
        assert folder.parent == top
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list(top.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next(top: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED], check=False)
    (left,) = top.iterdir()
    assert (left / "data").read_text() == "half"
    with scratch() as folder:
        assert list(top.iterdir()) == [folder]


def test_what_is_in_use_stays(top: Path) -> None:
    with scratch() as first:
        (first / "data").write_text("mine")
        with scratch() as second:
            assert second != first
        assert (first / "data").read_text() == "mine"
    assert list(top.iterdir()) == []


def test_what_is_not_a_folder_of_ours_stays(top: Path) -> None:
    elsewhere = top / "elsewhere"
    elsewhere.mkdir()
    (top / "perflib-scratch-link").symlink_to(elsewhere)
    (top / "perflib-batch-x").mkdir()
    with scratch():
        pass
    names = {path.name for path in top.iterdir()}
    assert names == {"elsewhere", "perflib-batch-x", "perflib-scratch-link"}
