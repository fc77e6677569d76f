"""What a knee says of a level whose size somebody reports: it ends there, elsewhere, or nowhere."""

from __future__ import annotations

import math
from collections.abc import Mapping

from perflib.stats.decide import Decision, Reason, decide
from perflib.stats.interval import Interval
from perflib.stats.knees import Knees


def no_knee(knees: Knees, visible: float) -> Decision:
    """What it means that no knee was found; one of ``visible`` percent would have been.

    Reasons: ``too_few``, ``no_knee`` (refuted), ``no_knee_seen``; the last two with ``bound``.
    """
    if not math.isfinite(knees.bound):
        return Decision("inconclusive", (Reason("too_few"),))
    bound = 100 * math.expm1(knees.bound)
    if bound < visible:
        return Decision("refuted", (Reason("no_knee", {"bound": bound}),))
    return Decision("inconclusive", (Reason("no_knee_seen", {"bound": bound}),))


def at_level(
    found: Interval, levels: Mapping[str, float], tolerance: float, begins: float = math.nan
) -> tuple[Decision, str]:
    """Does a level of a reported size end at a knee? The decision, and the level's name.

    Parameters
    ----------
    found
        Where the level ends, with its interval.
    levels
        The reported sizes by name, in the same unit.
    tolerance
        In percent: so near counts as the same.
    begins
        Where the rise begins, if ``found`` is where half of it has come: a size in between is
        near to both. NaN: there is only one place.

    Notes
    -----
    ``supported`` (reason ``at_reach``): a size is near, and the interval excludes half and twice
    of it (TLBs come in such steps). ``refuted`` (``elsewhere``): the whole interval is near none.
    ``inconclusive``: ``reach_unknown``, or ``open``.
    """

    def below(limit: float) -> bool:
        return decide(found, limit, "below").verdict == "supported"

    def above(limit: float) -> bool:
        return decide(found, limit, "above").verdict == "supported"

    if not levels:
        return Decision("inconclusive", (Reason("reach_unknown"),)), ""
    margin = 1 + tolerance / 100
    first = begins if math.isfinite(begins) else found.effect
    for name, size in levels.items():
        near = size / margin <= found.effect and first <= size * margin
        if near and above(size / 2) and below(size * 2):
            return Decision("supported", (Reason("at_reach"),)), name
    if all(below(size / margin) or above(size * margin) for size in levels.values()):
        return Decision("refuted", (Reason("elsewhere"),)), ""
    return Decision("inconclusive", (Reason("open"),)), ""
