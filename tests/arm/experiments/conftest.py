"""What these tests have in common with those of counters."""

from __future__ import annotations

from tests.arm.inside.conftest import only_in_the_guest, perflib

__all__ = ["only_in_the_guest", "perflib"]
