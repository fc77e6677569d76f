"""Several runs judged as one: the anomaly claims of all of them are corrected together.

Each experiment corrects its own claims (for the number of cores, of functions). An investigation
makes a hundred and more: with 5 % for each experiment, most investigations of a healthy machine
would show something. So that at most one in twenty does, the claims must survive together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from perflib.framework.wrong import wrong_twice
from perflib.model.finding import Finding
from perflib.stats.decide import Reason
from perflib.stats.family import family_p, p_of_interval
from perflib.stats.interval import Interval

_ALPHA = 0.05


def corrected(found: Sequence[Sequence[Finding]]) -> list[list[Finding]]:
    """The findings of an investigation's runs, with its anomaly claims corrected together.

    Parameters
    ----------
    found
        What each run's ``analyse`` found.

    Returns
    -------
    The same in the same order. A supported anomaly that does not survive is ``inconclusive``, with
    the reason ``not_surviving``; its evidence has its ``own_verdict``, and of every anomaly with a
    p value ``p`` (its own) and ``p_investigation`` (corrected, see ``perflib.stats.family``).
    One run alone stays as it is: its experiment has corrected it. So does an anomaly that no
    interval and no p value decides, such as a wrong result; a core that computed wrong once in each
    of two runs did so twice.
    """
    if len(found) < 2:
        return [list(findings) for findings in found]
    found = wrong_twice(found)
    p = np.array([_p(finding) for findings in found for finding in findings])
    together = family_p(p)
    claims = int(np.isfinite(p).sum())
    values = zip(p.tolist(), together.tolist(), strict=True)
    return [[_judged(finding, *next(values), claims) for finding in findings] for findings in found]


def _p(finding: Finding) -> float:
    """NaN: no anomaly, or one that cannot be corrected.

    An experiment's evidence may hold of how many ``batches`` its interval is made; where a claim
    has no threshold, its own test's p value (``p_holm``) counts.
    """
    if finding.kind != "anomaly":
        return math.nan
    if finding.threshold is None:
        return float(finding.evidence.get("p_holm", math.nan))
    return p_of_interval(
        Interval(finding.effect, finding.low, finding.high),
        finding.threshold,
        finding.of.direction,
        confidence=finding.confidence,
        batches=finding.evidence.get("batches"),
    )


def _judged(finding: Finding, p: float, together: float, claims: int) -> Finding:
    if not math.isfinite(p):
        return finding
    evidence = {**finding.evidence, "p": p, "p_investigation": together}
    if finding.verdict != "supported" or together < _ALPHA:
        return replace(finding, evidence=evidence)
    numbers = {"claims": claims, "p": p, "together": together}
    return replace(
        finding,
        verdict="inconclusive",
        reasons=(Reason("not_surviving", numbers), *finding.reasons),
        evidence={**evidence, "own_verdict": finding.verdict},
    )
