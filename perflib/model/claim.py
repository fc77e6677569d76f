"""A claim, declared once: what it claims, of what, in which unit, and in which words.

An experiment declares its claims as data (``claims.toml`` of its folder). ``Claim.decided`` makes a
finding of a measured interval by the one rule of `perflib.stats.decide`; ``Claim.found`` makes one
of a decision that no interval makes. All sentences come from the templates here, by
`perflib.model.sentences`; they are for people, and nothing in the project reads them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from perflib.model.finding import Finding
from perflib.stats.decide import Decision, Direction, Reason, Verdict, Witness, decide
from perflib.stats.interval import NO_INTERVAL, Interval

# anomaly: something is wrong here. description: where a level ends, what a line costs.
Kind = Literal["anomaly", "description"]


_MIN_RELATIVE_WIDTH = 1e-12  # of an interval, in parts of the effect: rounding alone makes it


def _has_no_width(found: Interval) -> bool:
    return found.high - found.low <= _MIN_RELATIVE_WIDTH * max(1.0, abs(found.effect))


@dataclass(frozen=True, eq=False)
class Claim:
    """What can be claimed of a subject, whatever the subject's name and the numbers are.

    Every text is a template. It may name whatever the claim is about (``{cpu}``), ``{threshold}``
    (or, with its unit, ``{threshold_unit}``), the facts of the finding, and what
    `perflib.model.sentences` makes of the numbers: ``{estimate}`` (effect, unit and uncertainty),
    ``{effect}``, ``{low}``, ``{high}``, ``{half_width}``.

    Parameters
    ----------
    name
        Its identifier within the experiment: ``core_slower``.
    kind
        ``anomaly``: if it holds, something is wrong here; ``description``: it says what is so.
    subject
        The short name that a machine reads: ``cpu{cpu}``.
    quantity, unit
        What the effect is, in words, and its unit.
    exact
        The claim as a sentence that is true or false, with its threshold, for the record.
    plain
        For each verdict, a sentence for people that begins with the result. Without one for
        ``inconclusive`` the sentence is "It is not decided whether ...".
    together
        For each verdict, one sentence for several findings that share it: ``{count}`` of them,
        ``{named}``, what they are about ``{each[cpu]:list}``, the widest half-width
        ``{widest}``.
    direction
        On which side of the threshold the claimed quantity is.
    reasons
        Templates of the reasons that only this claim has, by code.
    counted
        The quantity is counted, not timed: an interval without width is as good as any, and times
        that do not vary say nothing against it.
    """

    name: str
    subject: str
    quantity: str
    exact: str
    plain: Mapping[Verdict, str]
    kind: Kind = "description"
    unit: str = "percent"
    together: Mapping[Verdict, str] = field(default_factory=dict)
    direction: Direction = "above"
    reasons: Mapping[str, str] = field(default_factory=dict)
    counted: bool = False

    def decided(
        self,
        found: Interval,
        threshold: float,
        *,
        about: Mapping[str, Any] | None = None,
        facts: Mapping[str, Any] | None = None,
        evidence: Mapping[str, Any] | None = None,
        confidence: float = 0.95,
        prevented: Reason | None = None,
        to_support: Iterable[Witness] = (),
        to_refute: Iterable[Witness] = (),
        remarks: Iterable[Reason] = (),
    ) -> Finding:
        """The finding that an interval makes; parameters as of ``found`` and of ``decide``."""
        remarks = tuple(remarks)
        decision = decide(
            found,
            threshold,
            self.direction,
            prevented=prevented,
            to_support=to_support,
            to_refute=to_refute,
            remarks=remarks,
        )
        if decision.verdict != "inconclusive" and not self.counted and _has_no_width(found):
            decision = Decision("inconclusive", (Reason("ties"), *remarks))
        return self.found(
            decision,
            found,
            about=about,
            threshold=threshold,
            facts=facts,
            evidence=evidence,
            confidence=confidence,
        )

    def found(
        self,
        decision: Decision,
        effect: Interval = NO_INTERVAL,
        *,
        about: Mapping[str, Any] | None = None,
        threshold: float | None = None,
        unit: str = "",
        facts: Mapping[str, Any] | None = None,
        evidence: Mapping[str, Any] | None = None,
        confidence: float = 0.95,
    ) -> Finding:
        """The finding that a decision makes.

        Parameters
        ----------
        decision
            The verdict and its reasons.
        effect
            The estimate with its interval; NaN where there is none.
        about
            The structured subject: ``{"cpu": 8, "backing": "thp"}``.
        threshold
            In the claim's unit.
        unit
            Where it is another than the claim's.
        facts
            Further values that the templates name.
        evidence
            Whatever supports the verdict: p values, estimates of segments of the run.
        """
        return Finding(
            of=self,
            about=dict(about or {}),
            verdict=decision.verdict,
            effect=effect.effect,
            low=effect.low,
            high=effect.high,
            unit=unit or self.unit,
            threshold=threshold,
            reasons=decision.reasons,
            confidence=confidence,
            facts=dict(facts or {}),
            evidence=dict(evidence or {}),
        )

    def documentation(self) -> dict[str, Any]:
        """The declaration as JSON can hold it, for the reference."""
        return {
            "name": self.name,
            "kind": self.kind,
            "subject": self.subject,
            "quantity": self.quantity,
            "unit": self.unit,
            "direction": self.direction,
            "exact": self.exact,
            "plain": dict(self.plain),
        }


def read_claims(module: str, reasons: Mapping[str, str] | None = None) -> dict[str, Claim]:
    """The claims that a module's TOML file declares, by name.

    Parameters
    ----------
    module
        The path of the Python file next to it: ``__file__``.
    reasons
        Templates that all of them have, besides those of the file's table ``reasons``.
    """
    declared = tomllib.loads(Path(module).with_suffix(".toml").read_text(encoding="utf-8"))
    shared = {**(reasons or {}), **declared.pop("reasons", {})}
    return {
        name: Claim(**{**row, "name": name, "reasons": shared | row.get("reasons", {})})
        for name, row in declared.items()
    }
