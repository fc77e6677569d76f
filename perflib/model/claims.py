"""Claims that several experiments make: what explains extra time, and what changed between runs."""

from __future__ import annotations

from perflib.model.claim import Claim

__all__ = ["CHANGED", "EXPLAINS"]

EXPLAINS = Claim(
    name="explains",
    kind="description",
    subject="hypothesis: {cause}",
    quantity="share of the extra time that the cause accounts for",
    unit="percent of the extra time",
    exact="more than {threshold:g} % of {explains} comes from {cause}",
    plain={
        "supported": "{explains} comes mostly from {cause}: {estimate}",
        "refuted": "{explains} does not come mostly from {cause}",
        "inconclusive": "whether {explains} comes from {cause} stays open",
    },
    reasons={
        "unseen": "{why}",
        "no_block": "No block of the measurement has both the extra time and its part. {how}",
        "one_block": "One batch has no interval (the extra time is {extra:interval %} of the run "
        "time): measure longer. {how}",
        "nothing_to_explain": "Nothing to explain here: the extra time is {extra:interval %} "
        "of the run time, below {least:g} %. {how}",
        "not_established": "It is not established that there is extra time of {least:g} %: it is "
        "{extra:interval %} of the run time. More batches would narrow it. {how}",
        "share": "The extra time is {extra:interval %} of the run time; this explains "
        "{share:interval %} of it. {how}",
        "more_than_all": "More than all: something else saves time, or the part is overrated.",
        "only_bound": "What was measured is only the {bound} bound of its part. {how}",
    },
)

CHANGED = Claim(
    name="changed",
    kind="description",
    subject="{what}",
    quantity="second run minus first run",
    unit="percent",
    exact="{what} changed by more than {threshold_unit}",
    direction="beyond",
    plain={
        "supported": "{what} changed: {estimate}",
        "refuted": "{what} is as it was: {estimate}",
        "inconclusive": "whether {what} changed stays open: {estimate}",
    },
)
