"""What was found, in a few sentences for people, from nothing but the findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from perflib.model import sentences
from perflib.model.claim import Kind
from perflib.model.claims import EXPLAINS
from perflib.model.finding import Finding
from perflib.stats.decide import Verdict

__all__ = ["Told", "summary", "told"]

_MOST_NAMED = 6
_ORDER: tuple[Verdict, ...] = ("supported", "inconclusive", "refuted")


class Told(NamedTuple):
    """A sentence about one finding or several, with the kind of their claim and their verdict."""

    kind: Kind
    verdict: Verdict
    sentence: str


def summary(findings: Iterable[Finding]) -> list[str]:
    """What is so, in sentences: see `told`."""
    return [one.sentence for one in told(findings)]


def told(findings: Iterable[Finding]) -> list[Told]:
    """Sentences that say what is so, with verdicts: anomalies first, then descriptions.

    Findings of one claim that share a verdict are told together where the claim has a sentence for
    that; of many the largest are named. What explains one amount of extra time is one sentence.
    """
    families: dict[int, list[Finding]] = {}
    explained: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.of is EXPLAINS:
            explained.setdefault(finding.about["explains"], []).append(finding)
        else:
            families.setdefault(id(finding.of), []).append(finding)
    by_kind = sorted(families.values(), key=lambda family: family[0].kind != "anomaly")
    found = [one for family in by_kind for one in _family(family)]
    return found + [_hypotheses(what, judged) for what, judged in explained.items()]


def _family(findings: Sequence[Finding]) -> Iterable[Told]:
    kind = findings[0].kind
    for verdict in _ORDER:
        mine = [finding for finding in findings if finding.verdict == verdict]
        if not mine:
            continue
        together = sentences.together(mine)
        if together is not None:
            yield Told(kind, verdict, _sentence(together))
            continue
        mine.sort(key=lambda finding: -abs(finding.effect))
        yield from (Told(kind, verdict, _sentence(finding.plain)) for finding in mine[:_MOST_NAMED])
        if len(mine) > _MOST_NAMED:
            rest = [finding.subject for finding in mine[_MOST_NAMED:]]
            yield Told(kind, verdict, _sentence(f"the same, less strongly: {', '.join(rest)}"))


def _sentence(text: str) -> str:
    return sentences.capital(text.removesuffix(".") + ".")


def _hypotheses(what: str, findings: Sequence[Finding]) -> Told:
    words: dict[Verdict, str] = {
        "supported": "comes mostly from",
        "refuted": "does not come mostly from",
        "inconclusive": "may or may not come from",
    }
    parts = []
    for verdict, said in words.items():
        causes = [one.about["cause"] for one in findings if one.verdict == verdict]
        if causes:
            parts.append(f"{said} {', '.join(causes)}")
    strongest = next(word for word in _ORDER if any(one.verdict == word for one in findings))
    sentence = _sentence(f"{what} {'; '.join(parts)} ('perflib ledger' has the shares)")
    return Told(findings[0].kind, strongest, sentence)
