"""The library of events: for tests that need it."""

from __future__ import annotations

import pytest

from perflib.instruments.counters import pfm

needs_libpfm = pytest.mark.skipif(
    bool(pfm.missing()), reason="libpfm4 is not installed (apt-get install libpfm4)"
)


def forget() -> None:
    """What was loaded is loaded again."""
    for cached in (pfm._library, pfm._pmu_indices, pfm.pmu_events):
        cached.cache_clear()
