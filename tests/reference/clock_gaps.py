"""What clock_gaps.c is to compute: the gaps in a series of clock readings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Found:
    gaps: list[tuple[int, int]]  # start and length, ns, up to the capacity
    steps: int
    count: int
    gap_ns: int
    longest_ns: int
    shortest_ns: int
    duration_ns: int
    first_ns: int
    checksum: int


def clock_gaps_in(stamps_ns: Sequence[int], threshold_ns: int, capacity: int) -> Found:
    first = stamps_ns[0] if stamps_ns else 0
    steps = [(before - first, after - before) for before, after in pairwise(stamps_ns)]
    lengths = [length for _, length in steps]
    gaps = [(start, length) for start, length in steps if length > threshold_ns]
    return Found(
        gaps=gaps[:capacity],
        steps=len(steps),
        count=len(gaps),
        gap_ns=sum(length for _, length in gaps),
        longest_ns=max(lengths, default=0),
        shortest_ns=min(lengths, default=0),
        duration_ns=sum(lengths),
        first_ns=first,
        checksum=checksum([length for _, length in gaps]),
    )


def checksum(lengths_ns: Sequence[int]) -> int:
    return sum(rank * length for rank, length in enumerate(lengths_ns, start=1)) % (1 << 62)
