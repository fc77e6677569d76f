"""Fixtures that tests of several experiments use."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

MAX_GROWTH_BYTES = 40 << 20


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own for its runs, which show no progress."""
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PERFLIB_PROGRESS", "none")
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def _memory_is_freed() -> Iterator[None]:
    """Figures hold buffers of up to 100 MB in cycles, which Python collects late."""
    before = _resident_bytes()
    yield
    if _resident_bytes() > before + MAX_GROWTH_BYTES:
        gc.collect()


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
