"""The ways of a TLB, from how many pages fit if their numbers are far apart.

A set holds as many pages as the TLB has ways. Where the low bits of the page number choose one of
``S`` sets, pages whose numbers are ``s`` apart use every ``s``-th set only, so ``E / min(s, S)`` of
the ``E`` entries are left; from ``s = S`` on that is one set. A TLB without sets holds ``E`` pages
at any distance. Where a hash of the number chooses the set, no ``S`` explains all distances, or as
many pages fit at any distance as if there were no sets: these two cannot be distinguished.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perflib.stats.decide import Decision, Reason
from perflib.stats.interval import NO_INTERVAL, Interval


@dataclass(frozen=True)
class Ways:
    """``fit``: the most pages that surely fit in one set, to the fewest that do not.

    The median over the distances at which pages are of one set; ``widest``: from the least of them
    to the most. ``sets``: 1 where no distance shows any, 0 where it is not known; ``why``: the
    reason.
    """

    fit: Interval
    widest: Interval
    sets: int
    why: Reason

    def decide(self, ways: int | None) -> Decision:
        """Are they the ways that are reported?

        ``supported``: so many fit, and neither half nor twice as many. ``refuted``: at no distance
        do so many fit. Where no distance shows sets a hash may hide them: never refuted.
        """
        if not self.sets:
            return Decision("inconclusive", (self.why,))
        if ways is None:
            return Decision("inconclusive", (self.why, Reason("reach_unknown")))
        if self.fit.low <= ways < self.fit.high <= 2 * ways < 4 * self.fit.low:
            return Decision("supported", (self.why,))
        if self.sets > 1 and not self.widest.low <= ways < self.widest.high:
            ends = {"least": self.widest.low, "most": self.widest.high - 1}
            return Decision("refuted", (Reason("elsewhere", ends), self.why))
        return Decision("inconclusive", (Reason("open_ways"), self.why))


def find_ways(
    entries: Interval | None, fit: Mapping[int, Interval | None], *, blurred: bool = False
) -> Ways:
    """The ways and sets that explain how many pages fit at each distance.

    Parameters
    ----------
    entries
        How many fit side by side: the most that surely do, to the fewest that do not. ``None``:
        not seen.
    fit
        The same by distance, powers of two that ascend.
    blurred
        Side by side, too, some pages miss long before others: the low bits of the number would
        fill the sets in turn.

    Examples
    --------
    >>> side_by_side = Interval(96, 91, 102)
    >>> apart = {4: Interval(24, 23, 25), 16: Interval(6, 6, 7), 32: Interval(6, 6, 7)}
    >>> found = find_ways(side_by_side, apart)
    >>> found.sets, found.fit.low, found.decide(6).verdict
    (16, 6, 'supported')
    """
    if entries is None:
        return _unknown(Reason("no_entries"))
    known = {stride: one for stride, one in fit.items() if one is not None}
    if lost := [stride for stride in fit if stride not in known]:
        return _unknown(Reason("no_knee_apart", {"stride": lost[0]}))
    farthest = max(known)
    explained = [sets for sets in _powers(2 * farthest) if _explains(sets, entries, known)]
    if blurred or not explained:
        return _unknown(Reason("hashed"))
    sets = explained[0]
    if sets >= farthest:  # whether it continues falling beyond is not seen
        return _unknown(Reason("farther"))
    inside = [one for stride, one in known.items() if stride >= sets]
    lows, highs = sorted(one.low for one in inside), sorted(one.high for one in inside)
    low, high = lows[len(lows) // 2], highs[len(highs) // 2]
    why = Reason("sets", {"sets": sets}) if sets > 1 else Reason("no_sets")
    return Ways(Interval(low, low, high), Interval(low, lows[0], highs[-1]), sets, why)


def _unknown(why: Reason) -> Ways:
    return Ways(NO_INTERVAL, NO_INTERVAL, 0, why)


def _powers(most: int) -> list[int]:
    return [1 << bit for bit in range(most.bit_length()) if 1 << bit <= most]


def _explains(sets: int, entries: Interval, fit: Mapping[int, Interval]) -> bool:
    """Do the intervals of what fits overlap with what that number of sets predicts?"""
    return all(
        entries.low / min(stride, sets) < found.high
        and found.low < entries.high / min(stride, sets)
        for stride, found in fit.items()
    )
