"""The ways of a TLB, from how many pages fit if their numbers are far apart.

A set holds as many pages as the TLB has ways. Where the low bits of the page number choose one of
``S`` sets, pages whose numbers are ``s`` apart use every ``s``-th set only, so ``E / min(s, S)`` of
the ``E`` entries are left; from ``s = S`` on that is one set. A TLB without sets holds ``E`` pages
at any distance. Where a hash of the number chooses the set, no ``S`` explains all distances.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perflib.stats.decide import Reason
from perflib.stats.interval import NO_INTERVAL, Interval

__all__ = ["Ways", "find_ways"]


@dataclass(frozen=True)
class Ways:
    """``fit``: the most pages that surely fit in one set, to the fewest that do not.

    ``sets``: 1 where there are none, 0 where it is not known; ``why``: the reason.
    """

    fit: Interval
    sets: int
    why: Reason


def find_ways(entries: Interval | None, fit: Mapping[int, Interval | None]) -> Ways:
    """The ways and sets that explain how many pages fit at each distance.

    Parameters
    ----------
    entries
        How many fit side by side: the most that surely do, to the fewest that do not. ``None``:
        not seen.
    fit
        The same by distance, powers of two that ascend.

    Examples
    --------
    >>> side_by_side = Interval(96, 91, 102)
    >>> apart = {4: Interval(24, 23, 25), 16: Interval(6, 6, 7), 32: Interval(6, 6, 7)}
    >>> found = find_ways(side_by_side, apart)
    >>> found.sets, found.fit.low
    (16, 6)
    """
    if entries is None:
        return Ways(NO_INTERVAL, 0, Reason("no_entries"))
    lost = [stride for stride, found in fit.items() if found is None]
    if lost or not fit:
        return Ways(NO_INTERVAL, 0, Reason("no_knee_apart", {"stride": lost[0] if lost else 1}))
    farthest = max(fit)
    last = fit[farthest]
    assert last is not None
    explained = [sets for sets in _powers(2 * farthest) if _explains(sets, entries, fit)]
    if not explained:
        return Ways(last, 0, Reason("hashed"))
    if explained[0] >= farthest:  # whether it goes on falling beyond is not seen
        return Ways(last, 0, Reason("farther"))
    sets = explained[0]
    inside = [one for stride, one in fit.items() if stride >= sets and one is not None]
    least, most = max(one.low for one in inside), min(one.high for one in inside)
    return Ways(
        Interval(least, least, most),
        sets,
        Reason("sets", {"sets": sets}) if sets > 1 else Reason("no_sets"),
    )


def _powers(most: int) -> list[int]:
    return [1 << bit for bit in range(most.bit_length()) if 1 << bit <= most]


def _explains(sets: int, entries: Interval, fit: Mapping[int, Interval | None]) -> bool:
    """Do the intervals of what fits overlap with what that number of sets predicts?"""
    return all(
        found is not None
        and entries.low / min(stride, sets) < found.high
        and found.low < entries.high / min(stride, sets)
        for stride, found in fit.items()
    )
