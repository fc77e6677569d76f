"""What ``memory_levels`` can claim: of caches, memory, orders, pages and cores."""

from __future__ import annotations

from dataclasses import replace

from perflib.framework.page_claims import HUGE_PAGES, NOT_BACKED
from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__, NOT_BACKED)

CACHE = _CLAIMS["cache"]
CACHE_SHARED = _CLAIMS["cache_shared"]
CAPACITY = _CLAIMS["capacity"]
UNCLAIMED = _CLAIMS["unclaimed_level"]
UNCLAIMED_NEXT = replace(UNCLAIMED, name="unclaimed_level_next", subject="unclaimed level {number}")

MEMORY = _CLAIMS["memory"]
PREFETCHER = _CLAIMS["prefetcher"]
TLB_MISSES = _CLAIMS["tlb_misses"]
PAGES = _CLAIMS["pages"]
SLOWER_MEMORY = _CLAIMS["slower_memory"]
SLOWER_FIRST_LEVEL = _CLAIMS["slower_first_level"]

CLAIMS = (
    CACHE, CACHE_SHARED, CAPACITY, UNCLAIMED, UNCLAIMED_NEXT, MEMORY, PREFETCHER, TLB_MISSES,
    HUGE_PAGES, PAGES, SLOWER_MEMORY, SLOWER_FIRST_LEVEL,
)  # fmt: skip
"""The claims, in the order in which they are made."""
