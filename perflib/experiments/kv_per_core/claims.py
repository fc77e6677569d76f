"""What ``kv_per_core`` can claim."""

from __future__ import annotations

from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)

SLOWER = _CLAIMS["slower"]
CLOCK = _CLAIMS["clock"]
SHARED = _CLAIMS["shared"]
TAKEN = _CLAIMS["taken"]
QUOTA = _CLAIMS["quota"]
STOLEN = _CLAIMS["stolen"]
SOFTIRQ = _CLAIMS["softirq"]
TOTAL = _CLAIMS["total"]
INTERFERENCE = _CLAIMS["interference"]
TIME_PER_EVENT = _CLAIMS["time_per_event"]
PAIR_PART = _CLAIMS["pair_part"]
NESTED_PAGING = _CLAIMS["nested_paging"]

CLAIMS = (
    SLOWER, CLOCK, SHARED, QUOTA, TAKEN, STOLEN, SOFTIRQ, TOTAL, INTERFERENCE,
    TIME_PER_EVENT, PAIR_PART, NESTED_PAGING,
)  # fmt: skip
"""The claims, in the order in which they are made."""
