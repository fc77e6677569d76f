"""Which guest this is. These tests switch CPUs off and fill memory: they run nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.numa.layouts import LAYOUTS, MARK, Layout


@pytest.fixture(scope="session", autouse=True)
def layout() -> Layout:
    """What this guest should be; on any other machine no test begins."""
    words = Path("/proc/cmdline").read_text().split()
    name = next((word.removeprefix(MARK) for word in words if word.startswith(MARK)), "")
    if name not in LAYOUTS:
        pytest.fail(
            "these tests change the machine: they run only in a guest that 'make test-numa' boots",
            pytrace=False,
        )
    return LAYOUTS[name]
