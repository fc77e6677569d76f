"""What was found, in a few sentences for people, from nothing but the findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perflib.model import sentences
from perflib.model.claims import EXPLAINS
from perflib.model.finding import Finding

__all__ = ["summary"]

_MOST_NAMED = 6
_ORDER = ("supported", "inconclusive", "refuted")


def summary(findings: Iterable[Finding]) -> list[str]:
    """Sentences that say what is so: anomalies first, then descriptions.

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
    told = [sentence for family in by_kind for sentence in _family(family)]
    return told + [_hypotheses(what, judged) for what, judged in explained.items()]


def _family(findings: Sequence[Finding]) -> Iterable[str]:
    for verdict in _ORDER:
        mine = [finding for finding in findings if finding.verdict == verdict]
        if not mine:
            continue
        together = sentences.together(mine)
        if together is not None:
            yield _sentence(together)
            continue
        mine.sort(key=lambda finding: -abs(finding.effect))
        yield from (_sentence(finding.plain) for finding in mine[:_MOST_NAMED])
        if len(mine) > _MOST_NAMED:
            rest = [finding.subject for finding in mine[_MOST_NAMED:]]
            yield _sentence(f"the same, less strongly: {', '.join(rest)}")


def _sentence(text: str) -> str:
    return sentences.capital(text.removesuffix(".") + ".")


def _hypotheses(what: str, findings: Sequence[Finding]) -> str:
    words = {
        "supported": "comes mostly from",
        "refuted": "does not come mostly from",
        "inconclusive": "may or may not come from",
    }
    parts = []
    for verdict in ("supported", "refuted", "inconclusive"):
        causes = [one.about["cause"] for one in findings if one.verdict == verdict]
        if causes:
            parts.append(f"{words[verdict]} {', '.join(causes)}")
    return _sentence(f"{what} {'; '.join(parts)} ('perflib ledger' has the shares)")
