"""What ``sharing`` can claim of CPUs."""

from __future__ import annotations

from perflib.model.claim import read_claims

RESOURCES = ("ports", "l1", "l2", "l3", "memory")
"""What two CPUs may share: a core's execution ports, caches by level, the bandwidth of memory."""
CACHES = {"l1": ("data", 1), "l2": ("unified", 2), "l3": ("unified", 3)}
"""Kind and level, as the kernel names them."""

_CLAIMS = read_claims(__file__)

SHARED = _CLAIMS["shared"]
ALONE = _CLAIMS["alone"]
MOVED = _CLAIMS["moved"]
NAMED = _CLAIMS["named"]

CLAIMS = (SHARED, ALONE, MOVED, NAMED)
"""The claims, in the order in which they are made."""
