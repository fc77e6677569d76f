"""From an interval to a verdict: the one rule by which every claim is decided.

A claim says on which side of a threshold a quantity is. It is supported where the whole interval
is on that side, refuted where the whole interval is on the other, and else inconclusive. What
an interval cannot know (a permutation test, segments of the run that disagree, a control that
failed) comes as witnesses: they can keep a verdict from being given, never give one.

A decision carries its reasons as codes with numbers. ``perflib.model.sentences`` makes words of
them; nothing reads the words back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from perflib.stats.interval import Interval

Verdict = Literal["supported", "refuted", "inconclusive"]
# On which side of the threshold the claim says that the quantity is: beyond and within count
# either sign (within: |quantity| < threshold).
Direction = Literal["above", "below", "within", "beyond"]

_ALL = (-math.inf, math.inf)
_FOR_POWER = 2.0  # ((1.96 + 0.84) / 1.96)²: four runs of five decide, not every second
_LONGEST_S = 3600.0  # nobody waits longer for one verdict


@dataclass(frozen=True)
class Reason:
    """Why a verdict is what it is: a code, and the numbers that belong to it."""

    code: str
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Witness:
    """Something besides the interval that a verdict needs.

    Parameters
    ----------
    holds
        Whether it agrees.
    otherwise
        The reason of the inconclusive verdict where it does not.
    shown
        What is added to the verdict's reasons where it does.
    """

    holds: bool
    otherwise: Reason
    shown: Reason | None = None


@dataclass(frozen=True)
class Decision:
    """A verdict with its reasons, the first one decisive."""

    verdict: Verdict
    reasons: tuple[Reason, ...] = ()


def decide(
    found: Interval,
    threshold: float,
    direction: Direction = "above",
    *,
    prevented: Reason | None = None,
    to_support: Iterable[Witness] = (),
    to_refute: Iterable[Witness] = (),
    remarks: Iterable[Reason] = (),
) -> Decision:
    """Is the quantity on the claimed side of the threshold?

    Parameters
    ----------
    found
        The quantity, in the threshold's unit; NaN ends: there is no interval.
    threshold, direction
        The claim: ``above`` (more than the threshold), ``below`` (less), ``within`` (less either
        way), ``beyond`` (more, one way or the other).
    prevented
        Why nothing can be decided from this interval, whatever it is.
    to_support, to_refute
        Witnesses without which the claim is not supported (refuted).
    remarks
        Added to the reasons of any verdict.

    Returns
    -------
    The verdict and its reasons: ``no_interval``, ``prevented``'s own, ``open`` (the threshold is
    within the interval), ``clear`` (supported: all of the interval is on the claimed side),
    ``excluded`` (refuted: the interval excludes the claim), or a witness's.

    Example
    -------
    >>> decide(Interval(4.0, 3.1, 4.9), 1.0).verdict, decide(Interval(0.1, -0.3, 0.5), 1.0).verdict
    ('supported', 'refuted')
    """
    after = tuple(remarks)
    if prevented is not None:
        return Decision("inconclusive", (prevented, *after))
    if not (math.isfinite(found.low) and math.isfinite(found.high)):
        return Decision("inconclusive", (Reason("no_interval"), *after))
    side = _side(found, threshold, direction)
    if side is None:
        return Decision("inconclusive", (Reason("open"), *after))
    witnesses = tuple(to_support if side else to_refute)
    against = next((one.otherwise for one in witnesses if not one.holds), None)
    if against is not None:
        return Decision("inconclusive", (against, *after))
    shown = tuple(one.shown for one in witnesses if one.shown is not None)
    reasons = shown or (Reason("clear" if side else "excluded"),)
    return Decision("supported" if side else "refuted", (*reasons, *after))


def more_time(found: Interval, threshold: float, lasted_s: float) -> Reason:
    """How long a run would decide what is open: an interval narrows with the root of its time.

    Returns
    -------
    ``wanted``, with ``lasted_s`` and ``wanted_s``; ``too_close`` where an hour would not decide it.
    """
    side = found.high - found.effect if found.effect < threshold else found.effect - found.low
    distance = abs(threshold - found.effect)
    wanted_s = _FOR_POWER * lasted_s * (side / distance) ** 2 if distance else math.inf
    if not wanted_s <= _LONGEST_S:
        return Reason("too_close")
    return Reason("wanted", {"lasted_s": lasted_s, "wanted_s": wanted_s})


def _side(found: Interval, threshold: float, direction: Direction) -> bool | None:
    """Whether all of the interval is where the claim says, or none of it; ``None``: neither."""
    if direction == "beyond":
        inside = _side(found, threshold, "within")
        return None if inside is None else not inside
    low, high = {
        "above": (threshold, _ALL[1]),
        "below": (_ALL[0], threshold),
        "within": (-threshold, threshold),
    }[direction]
    if low < found.low and found.high < high:
        return True
    if found.high < low or found.low > high:
        return False
    return None
