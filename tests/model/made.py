"""Claims and findings for tests."""

from __future__ import annotations

from perflib.model.claim import Claim
from perflib.model.finding import Finding
from perflib.stats.decide import Decision, Verdict
from perflib.stats.interval import NO_INTERVAL, Interval

SLOWER = Claim(
    name="slower",
    kind="anomaly",
    subject="cpu{cpu}",
    quantity="slowdown",
    exact="cpu{cpu} is more than {threshold:g} % slower than the others",
    plain={
        "supported": "cpu{cpu} is slower than the others: {estimate}",
        "refuted": "cpu{cpu} is as fast as the others: {estimate}",
    },
    together={"refuted": "All {count} cores are equally fast (widest interval {widest})"},
    reasons={"because": "Because of {what:list}."},
)
LEVEL = Claim(
    name="level",
    subject="level",
    quantity="size",
    unit="KiB",
    exact="a level of memory ends at {claimed_bytes:size}",
    plain={"supported": "a level of memory ends at {claimed_bytes:size}"},
)


def slower(cpu: int, verdict: Verdict, effect: float, half: float = 0.4) -> Finding:
    """A core with a verdict."""
    found = Interval(effect, effect - half, effect + half)
    return SLOWER.found(Decision(verdict), found, about={"cpu": cpu}, threshold=1.0)


def level(claimed_bytes: int = 32768) -> Finding:
    """A description without an estimate."""
    facts = {"claimed_bytes": claimed_bytes}
    return LEVEL.found(Decision("supported"), NO_INTERVAL, facts=facts)
