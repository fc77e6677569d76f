"""What ``kv_per_core`` can claim."""

from __future__ import annotations

from perflib.model.claim import Claim

__all__ = ["INTERFERENCE", "SLOWER", "TIME_PER_EVENT"]

SLOWER = Claim(
    name="slower",
    kind="anomaly",
    subject="cpu{cpu}",
    quantity="slowdown compared with the median of the other cores, without interference",
    unit="percent",
    exact="cpu{cpu} is more than {threshold:g} % slower than the median of the other cores",
    plain={
        "supported": "cpu{cpu} is slower than the others: {estimate}",
        "refuted": "cpu{cpu} is as fast as the others: {estimate}",
        "inconclusive": "whether cpu{cpu} is slower than the others stays open: {estimate}",
    },
    together={"refuted": "All {count} cores are equally fast (widest interval {widest})"},
    reasons={
        "all_events": "All events slowed down, not a few.",
        "few_events": "Only {share:.0%} of the events slowed down, events {events:list} most.",
        "some_events": "{share:.0%} of the events slowed down.",
        "shared": "For {off_cpu:.1f} % of the time another task of this system had the core "
        "({switches:.0f} switches a second): the core is shared, not slow.",
        "not_shared": "Other tasks of this system had the core for {off_cpu:.1f} % of the time "
        "only: the core itself, or what the hypervisor or its sibling takes of it, is slower.",
        "where": "It is {where}.",
    },
)

INTERFERENCE = Claim(
    name="interference",
    kind="anomaly",
    subject="cpu{cpu} interference",
    quantity="share of the time with interference",
    unit="percent",
    exact="something interferes with cpu{cpu} for more than {threshold:g} % of the time",
    plain={
        "supported": "something interferes with cpu{cpu}: {estimate} of the time",
        "refuted": "nothing interferes with cpu{cpu} for long: {estimate} of the time",
        "inconclusive": "how much interferes with cpu{cpu} stays open: {estimate} of the time",
    },
    together={"refuted": "Nothing interferes for long with any of the {count} cores"},
    reasons={"above_baseline": "Bursts in which it lies above its own baseline."},
)

TIME_PER_EVENT = Claim(
    name="time_per_event",
    kind="description",
    subject="time per event",
    quantity="change of the time of the same events, on the median core, without interference",
    unit="percent",
    exact="the same {events} events take more than {threshold:g} % longer, or shorter",
    direction="beyond",
    plain={
        "supported": "the same events take another time in the second run: {estimate}",
        "refuted": "the same events take as long in both runs: {estimate}",
        "inconclusive": "whether the same events take another time stays open: {estimate}",
    },
)
