"""What was found, in a few sentences for people, from nothing but the findings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from perflib.model import sentences
from perflib.model.claim import Kind
from perflib.model.claims import EXPLAINS
from perflib.model.finding import Finding
from perflib.stats.decide import Verdict

_MOST_NAMED = 6
_ORDER: tuple[Verdict, ...] = ("supported", "inconclusive", "refuted")


class Statement(NamedTuple):
    """A sentence about one finding or several, with the kind of their claim and their verdict."""

    kind: Kind
    verdict: Verdict
    sentence: str


def summary(findings: Iterable[Finding]) -> list[str]:
    """What is so, in sentences: see `statements`. Of a recorded machine the first line says so."""
    head, texts = sentences.recorded_apart([one.sentence for one in statements(findings)])
    return [f"{head}:", *texts] if head else texts


def statements(findings: Iterable[Finding]) -> list[Statement]:
    """Sentences that say what is so, with verdicts: anomalies first, then descriptions.

    Findings of one claim that share a verdict are one sentence where the claim has one for
    that; of many the largest are named. What explains one amount of extra time is one sentence;
    so is all that has an estimate without an interval, and all that has no estimate.
    """
    families: dict[int, list[Finding]] = {}
    explained: dict[str, list[Finding]] = {}
    once: list[Finding] = []
    not_estimated: list[Finding] = []
    for finding in findings:
        if _shows_no_interval(finding):
            (once if math.isfinite(finding.effect) else not_estimated).append(finding)
        elif finding.of is EXPLAINS:
            explained.setdefault(finding.about["explains"], []).append(finding)
        else:
            families.setdefault(id(finding.of), []).append(finding)
    by_kind = sorted(families.values(), key=lambda family: family[0].kind != "anomaly")
    found = [one for family in by_kind for one in _family(family)]
    found += [_hypotheses(what, judged) for what, judged in explained.items()]
    if once:
        found.append(_named("No interval, so no verdict (it takes two rounds or more)", once))
    if not_estimated:
        found.append(_named("Nothing could be estimated", not_estimated))
    return found


def _shows_no_interval(finding: Finding) -> bool:
    """Whether its sentence would be one about an estimate, which has no interval."""
    template = finding.of.plain.get(finding.verdict, "{estimate}")
    is_open = finding.verdict == "inconclusive" and math.isnan(finding.low)
    return is_open and finding.of is not EXPLAINS and "{estimate}" in template


def _family(findings: Sequence[Finding]) -> Iterable[Statement]:
    kind = findings[0].kind
    for verdict in _ORDER:
        mine = [finding for finding in findings if finding.verdict == verdict]
        if not mine:
            continue
        together = sentences.together(mine)
        if together is not None:
            yield Statement(kind, verdict, _sentence(together))
            continue
        mine.sort(key=lambda finding: -abs(finding.effect))
        yield from (
            Statement(kind, verdict, _sentence(finding.plain)) for finding in mine[:_MOST_NAMED]
        )
        if len(mine) > _MOST_NAMED:
            rest = [finding.subject for finding in mine[_MOST_NAMED:]]
            yield Statement(kind, verdict, _sentence(f"The same, less strongly: {', '.join(rest)}"))


def _named(what: str, findings: Sequence[Finding]) -> Statement:
    """One sentence for all of which as little is known."""
    named = ", ".join(dict.fromkeys(finding.subject for finding in findings))
    return Statement(findings[0].kind, "inconclusive", _sentence(f"{what}: {named}"))


def _sentence(text: str) -> str:
    return text.removesuffix(".") + "."


def _hypotheses(what: str, findings: Sequence[Finding]) -> Statement:
    phrases: dict[Verdict, str] = {
        "supported": "comes mostly from",
        "refuted": "does not come mostly from",
        "inconclusive": "may or may not come from",
    }
    parts = []
    for verdict, phrase in phrases.items():
        causes = [one.about["cause"] for one in findings if one.verdict == verdict]
        if causes:
            parts.append(f"{phrase} {', '.join(causes)}")
    strongest = next(word for word in _ORDER if any(one.verdict == word for one in findings))
    sentence = _sentence(
        f"{sentences.capital(what)} {'; '.join(parts)} ('perflib ledger' has the shares)"
    )
    return Statement(findings[0].kind, strongest, sentence)
