"""Fixtures that tests of several experiments use."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own for its runs, which show no progress."""
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PERFLIB_PROGRESS", "none")
    return tmp_path / "home"
