"""Tests that count what the kernel does for a job: not for everyone."""

from __future__ import annotations

import pytest

from perflib.instruments.counters.events import event
from perflib.instruments.counters.groups import CounterGroup


def skip_unless_allowed() -> None:
    """Skip the test where events of the kernel may not be counted (perf_event_paranoid is 2)."""
    with CounterGroup([event("page-faults")]) as group:
        for reason in group.refused.values():
            pytest.skip(reason)
