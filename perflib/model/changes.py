"""What differs between the findings of two runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perflib.model.claims import CHANGED
from perflib.model.finding import Finding
from perflib.stats.interval import Interval


def changes(
    first: Sequence[Finding], second: Sequence[Finding], threshold: float = 0.0
) -> list[Finding]:
    """How the effects of two independent runs differ, claim by claim, second minus first.

    ``supported``: the change is larger than ``threshold`` (in the findings' unit) either way;
    ``refuted``: the whole interval is within it.
    """

    def same(finding: Finding) -> tuple[str, str, str]:
        return finding.of.name, finding.unit, repr(sorted(finding.about.items()))

    before = {same(finding): finding for finding in first}
    result = []
    for after in second:
        old = before.get(same(after))
        if old is None:
            continue
        centre = after.effect - old.effect
        half = math.hypot(after.high - after.low, old.high - old.low) / 2
        change = Interval(centre, centre - half, centre + half)
        finding = CHANGED.decided(
            change, threshold, about={"what": after.subject, "of": after.of.name, **after.about}
        )
        result.append(finding.in_unit(after.unit))
    return result
