"""What was found, in a few sentences, from nothing but the findings."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from perflib.lab.tables import short_unit
from perflib.model.finding import Finding
from perflib.model.hypotheses import HYPOTHESIS

__all__ = ["summary"]

_MOST_NAMED = 6
_THRESHOLD = re.compile(r"more than [\d.]+ %")


def summary(findings: Iterable[Finding]) -> list[str]:
    """One sentence for each supported claim, one for the undecided, one for all refuted.

    Claims that differ only in whom they are about ("cpu0 is more than 1 % slower ...", "cpu1 is
    ...") are told together: "No core is more than 1 % slower ... (2 cores, widest interval ±0.4
    points)." A claim that does not begin with its subject is told alone, and all hypotheses about
    one amount of extra time in one sentence.
    """
    families: dict[str, list[Finding]] = {}
    explained: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.subject.startswith(HYPOTHESIS):
            explained.setdefault(str(finding.evidence["explains"]), []).append(finding)
        else:
            families.setdefault(_predicate(finding), []).append(finding)
    told = [sentence for family in families.items() for sentence in _family(*family)]
    return told + [_hypotheses(*judged) for judged in explained.items()]


def _hypotheses(what: str, findings: Sequence[Finding]) -> str:
    parts = []
    for verdict, words in (
        ("supported", "is mostly due to"),
        ("refuted", "is not mostly due to"),
        ("inconclusive", "may or may not be due to"),
    ):
        mine = [finding.subject for finding in findings if finding.verdict == verdict]
        if mine:
            parts.append(f"{words} {', '.join(name.removeprefix(HYPOTHESIS) for name in mine)}")
    return f"{what[:1].upper()}{what[1:]} {'; '.join(parts)} ('perflib ledger' has the shares)."


def _who(finding: Finding) -> str:
    return finding.subject.split()[0]


def _predicate(finding: Finding) -> str:
    """The claim without the one it is about."""
    who = _who(finding) + " "
    return finding.claim.removeprefix(who) if finding.claim.startswith(who) else finding.claim


def _family(predicate: str, findings: Sequence[Finding]) -> Iterable[str]:
    if predicate == findings[0].claim:
        yield from (_alone(finding) for finding in findings)
        return
    supported = [finding for finding in findings if finding.verdict == "supported"]
    refuted = [finding for finding in findings if finding.verdict == "refuted"]
    undecided = [finding for finding in findings if finding.verdict == "inconclusive"]
    by_size = sorted(supported, key=lambda finding: -abs(finding.effect))
    yield from (_supported(finding) for finding in by_size[:_MOST_NAMED])
    if len(by_size) > _MOST_NAMED:
        rest = by_size[_MOST_NAMED:]
        yield f"The same holds, less strongly, for {_named([_who(finding) for finding in rest])}."
    if undecided:
        yield _undecided(predicate, undecided)
    if refuted:
        yield _refuted(predicate, refuted, alone=len(refuted) == len(findings))


def _alone(finding: Finding) -> str:
    told = f"{finding.verdict.capitalize()}: {finding.claim}: {_estimate(finding)}."
    return f"{told} {finding.reason}".rstrip()


def _undecided(predicate: str, findings: Sequence[Finding]) -> str:
    if len(findings) == 1:
        (alone,) = findings
        return f"Undecided whether {_who(alone)} {predicate}: {_estimate(alone)}."
    ranges = [f"{_who(finding)} {_estimate(finding)}" for finding in findings[:_MOST_NAMED]]
    if len(findings) > _MOST_NAMED:
        ranges.append(f"and {len(findings) - _MOST_NAMED} more")
    return f"Undecided whether a {_noun(findings)} {predicate}: {'; '.join(ranges)}."


def _noun(findings: Sequence[Finding]) -> str:
    cores = all(re.fullmatch(r"cpu\d+", _who(finding)) for finding in findings)
    return "core" if cores else "subject"


def _estimate(finding: Finding) -> str:
    unit = short_unit(finding.unit)
    if not math.isfinite(finding.effect):
        return "nothing could be estimated"
    if not math.isfinite(finding.low) or not math.isfinite(finding.high):
        return f"{finding.effect:.1f} {unit}, no interval"
    return f"{finding.effect:.1f} {unit} [{finding.low:.1f}, {finding.high:.1f}]"


def _supported(finding: Finding) -> str:
    sentence = _THRESHOLD.sub(lambda _: _estimate(finding), finding.claim, count=1)
    if sentence == finding.claim:
        sentence += f": {_estimate(finding)}"
    return f"{sentence}. {finding.reason}".rstrip()


def _refuted(predicate: str, findings: Sequence[Finding], *, alone: bool) -> str:
    noun = _noun(findings)
    widths = [(finding.high - finding.low) / 2 for finding in findings]
    widest = max((width for width in widths if math.isfinite(width)), default=math.nan)
    unit = "points" if findings[0].unit == "percent" else findings[0].unit
    said = f"widest interval ±{widest:.2g} {unit}" if math.isfinite(widest) else "no interval"
    count = f"{len(findings)} {noun}s" if len(findings) > 1 else _who(findings[0])
    return f"No {'' if alone else 'other '}{noun} {predicate} ({count}, {said})."


def _named(names: Sequence[str]) -> str:
    if len(names) > _MOST_NAMED:
        return f"{', '.join(names[:_MOST_NAMED])} and {len(names) - _MOST_NAMED} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
