"""What every command is given here: a store of its own, and no hand on pytest's signals."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the store would be."""
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # pytest's own handlers stay
    return tmp_path
