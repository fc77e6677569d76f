"""A store of each test's own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it is, once something is saved."""
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path / "home"))
    return tmp_path / "home"
