"""What clock_gaps.c is to compute: the gaps in a series of clock readings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def clock_gaps_in(
    stamps_ns: Sequence[int], threshold_ns: int
) -> tuple[list[tuple[int, int]], dict[str, int]]:
    """The gaps, start and length in ns, and what ``clock_gaps_result`` has."""
    first = stamps_ns[0] if stamps_ns else 0
    steps = [(before - first, after - before) for before, after in pairwise(stamps_ns)]
    lengths = [length for _, length in steps]
    gaps = [(start, length) for start, length in steps if length > threshold_ns]
    return gaps, {
        "steps": len(steps),
        "gaps": len(gaps),
        "gap_ns": sum(length for _, length in gaps),
        "longest_ns": max(lengths, default=0),
        "shortest_ns": min(lengths, default=0),
        "duration_ns": sum(lengths),
        "first_ns": first,
    }


def checksum(lengths_ns: Sequence[int]) -> int:
    return sum(rank * length for rank, length in enumerate(lengths_ns, start=1)) % (1 << 62)
