"""What ``random_calls`` and ``code_segment`` can claim."""

from __future__ import annotations

from perflib.framework.page_claims import HUGE_PAGES, NOT_BACKED
from perflib.model.claim import read_claims

HYPOTHESES = ("iTLB misses", "instruction cache misses", "softirq activity", "frequency")

_CLAIMS = read_claims(__file__, NOT_BACKED)

SLOWER = _CLAIMS["slower"]
SLOWER_HUGE_PAGES = _CLAIMS["slower_huge_pages"]
SLOWER_SMALL_CODE = _CLAIMS["slower_small_code"]
SLOWER_L1I_MISSES = _CLAIMS["slower_l1i_misses"]
STEP = _CLAIMS["step"]
STEP_SHARED = _CLAIMS["step_shared"]
PAGES = _CLAIMS["pages"]
KNEE = _CLAIMS["knee"]
RING_KNEE = _CLAIMS["ring_knee"]
KNEE_SHARED = _CLAIMS["knee_shared"]
RING_KNEE_SHARED = _CLAIMS["ring_knee_shared"]
KNEE_OF_PATTERN = _CLAIMS["knee_of_pattern"]
SAME_KNEE = _CLAIMS["same_knee"]
SAME_KNEE_SIMULATED = _CLAIMS["same_knee_simulated"]
SPLIT = _CLAIMS["split"]

SHARED = (
    HUGE_PAGES, SLOWER, SLOWER_HUGE_PAGES, SLOWER_SMALL_CODE, SLOWER_L1I_MISSES, PAGES,
)  # fmt: skip

OF_THE_SEGMENT = (
    *SHARED, KNEE, RING_KNEE, KNEE_OF_PATTERN, KNEE_SHARED, RING_KNEE_SHARED, SPLIT, SAME_KNEE,
    SAME_KNEE_SIMULATED,
)  # fmt: skip
"""The claims, in the order in which they are made."""
