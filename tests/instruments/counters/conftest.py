"""A machine that lacks the library of events."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perflib.instruments.counters import pfm
from tests.instruments.counters.libpfm import forget


@pytest.fixture
def _without_libpfm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(pfm, "LIBRARY", "libpfm-that-is-not-there.so.4")
    forget()
    yield
    forget()
