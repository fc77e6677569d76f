"""What tests of several kernels need: huge pages of the pool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

POOL = Path("/proc/sys/vm/nr_hugepages")


@pytest.fixture
def pool() -> Iterator[None]:
    """Room for a few 2 MiB pages while a test runs, where this process may make it."""
    try:
        before = int(POOL.read_text())
        if before < 32:
            POOL.write_text("32")
    except OSError:
        yield
        return
    try:
        yield
    finally:
        POOL.write_text(str(before))
