"""What ``what_if`` can claim of each target."""

from __future__ import annotations

from perflib.model.claim import Claim

__all__ = ["CLAIMS", "CONTROL", "GAIN", "MISLEADS", "TRUE"]

GAIN = Claim(
    name="gain",
    kind="description",
    subject="{target} {speedup:g} % faster",
    quantity="by how much less time the job takes",
    unit="percent",
    exact="with {target} {speedup:g} % faster the job takes over {threshold:g} % less time",
    plain={
        "supported": "with {target} {speedup:g} % faster the job takes less time: {estimate}",
        "refuted": "{target} {speedup:g} % faster gains nothing that counts: {estimate}",
        "inconclusive": "cannot say what {target} {speedup:g} % faster gains: {estimate}",
    },
    together={
        "supported": "Faster, {count} targets shorten the job (widest interval: {widest})",
        "refuted": "Faster, {count} targets gain nothing that counts (widest interval: {widest})",
        "inconclusive": "Cannot say what {count} targets gain (widest interval: {widest})",
    },
    reasons={
        "control": "The job differs from itself with nothing faster: see 'control'.",
        "single": "The job has one thread: its profile says the same, share times speed-up.",
        "never": "No thread was ever in it.",
        "more_threads": "It has {threads} threads on {cpus} cores: delayed threads leave their "
        "core to others, so the gain may be off.",
        "others": "Others took the cores in {share:.0%} of the trials.",
        "ticks": "Samples came at the kernel's ticks only, some ms apart.",
        "throughput": "In throughput: {throughput:+.1f} %.",
    },
)

MISLEADS = Claim(
    name="misleads",
    kind="description",
    subject="{target} by its profile",
    quantity="the gain above the share of CPU time times the speed-up",
    unit="percentage points",
    exact="the gain of {target} is over {threshold:g} points from what its share of CPU time says",
    plain={
        "supported": "the share of CPU time misleads about {target}: the gain is off by {estimate}",
        "refuted": "the share of CPU time says what {target} gains: it is off by {estimate}",
        "inconclusive": "whether the share of CPU time misleads about {target} stays open: the "
        "gain is off by {estimate}",
    },
    direction="beyond",
)

TRUE = Claim(
    name="true",
    kind="description",
    subject="{target} really faster",
    quantity="the predicted gain less the real one",
    unit="percentage points",
    exact="the predicted gain of {target} is within {threshold:g} points of the real one",
    plain={
        "supported": "what {target} really gains is as predicted: off by {estimate}",
        "refuted": "what {target} really gains is not as predicted: off by {estimate}",
        "inconclusive": "whether {target} really gains as predicted stays open: off by {estimate}",
    },
    direction="within",
    reasons={"real": "Really gained: {real:.1f} %."},
)

CONTROL = Claim(
    name="control",
    kind="description",
    subject="control",
    quantity="the job against itself, nothing faster in both",
    unit="percent",
    exact="two trials with nothing faster take the same time, within {threshold:g} %",
    plain={
        "supported": "with nothing faster the job takes the same time twice: {estimate}",
        "refuted": "with nothing faster the job takes another time: {estimate}",
        "inconclusive": "whether the job takes the same time twice stays open: {estimate}",
    },
    direction="within",
)

CLAIMS = (GAIN, MISLEADS, TRUE, CONTROL)
"""The claims, in the order in which they are made."""
