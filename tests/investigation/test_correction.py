"""An investigation's anomaly claims, corrected together: by simulation, and as sentences."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats as distributions

from perflib import experiments
from perflib.investigation.correction import corrected
from perflib.model.finding import Finding
from perflib.stats.decide import Reason
from perflib.stats.interval import Interval
from perflib.stats.intervals import t_interval
from perflib.store.run_files import load
from tests.model.made import SLOWER, level, slower
from tests.stored import RUNS

EXPERIMENTS = 20


def investigation(rng: np.random.Generator, lowest: float) -> list[list[Finding]]:
    """What twenty experiments find: 1 to 12 claims each, from batches that are not even normal.

    ``lowest``: the true effects are spread between this and the threshold, 1 %.
    """
    found = []
    for _ in range(EXPERIMENTS):
        one = []
        for cpu in range(int(rng.integers(1, 13))):
            truth = rng.uniform(min(lowest, 1.0), 1.0)
            noise = rng.standard_t(5, int(rng.integers(8, 25))) * rng.lognormal(0, 1)
            one.append(SLOWER.decided(t_interval(truth + noise), 1.0, about={"cpu": cpu}))
        found.append([*one, level(32)])
    return found


def anomalies(found: list[list[Finding]]) -> list[Finding]:
    return [
        finding
        for findings in found
        for finding in findings
        if finding.kind == "anomaly" and finding.verdict == "supported"
    ]


@pytest.mark.parametrize("lowest", [1.0, 0.0])
def test_a_healthy_machine_shows_an_anomaly_in_one_investigation_of_twenty(lowest: float) -> None:
    """At worst: with 1.0, every truth is at its threshold."""
    rng = np.random.default_rng(5)
    times = 60
    alone, together = 0, 0
    for _ in range(times):
        found = investigation(rng, lowest)
        alone += bool(anomalies(found))
        together += bool(anomalies(corrected(found)))
    assert together <= distributions.binom.ppf(0.99, times, 0.05)
    assert alone > 0.3 * times if lowest == 1.0 else alone >= together  # why it is needed


def test_a_clear_effect_survives() -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        found = investigation(rng, 0.0)
        clear = SLOWER.decided(t_interval(rng.normal(12, 1.5, 8)), 1.0, about={"cpu": 99})
        found[3].insert(1, clear)
        kept = corrected(found)[3][1]
        assert kept.verdict == "supported"
        assert kept.subject == "cpu99"
        assert kept.evidence["p_investigation"] < 0.05
        assert "own_verdict" not in kept.evidence


def marginal(count: int) -> list[list[Finding]]:
    """Claims just beyond their threshold, one a run: no one of many is to be believed."""
    return [[slower(cpu, "supported", 1.41), level(32)] for cpu in range(count)]


def test_what_does_not_survive_is_inconclusive_and_says_why() -> None:
    found = marginal(20)
    after = corrected(found)
    assert [len(findings) for findings in after] == [2] * 20
    one = after[7][0]
    assert (one.verdict, one.subject) == ("inconclusive", "cpu7")
    assert [one.effect, one.low, one.high] == pytest.approx([1.41, 1.01, 1.81])
    assert one.reason.startswith(
        "Alone it is supported, but it does not survive the correction over all 20 anomaly "
        "claims of this investigation (p = 0.02"
    )
    assert one.evidence["own_verdict"] == "supported"
    assert one.evidence["p"] < 0.05 < one.evidence["p_investigation"]
    assert json.loads(json.dumps(one.to_dict()))["evidence"]["own_verdict"] == "supported"
    assert [findings[1].to_dict() for findings in after] == [level(32).to_dict()] * 20


def test_one_run_and_none_stay_as_they_are() -> None:
    assert corrected([]) == []
    assert repr(corrected(marginal(1))) == repr(marginal(1))  # NaN is not equal to NaN


def test_an_anomaly_without_an_interval_has_its_own_p_or_is_left_alone() -> None:
    odd = replace(slower(0, "supported", 5.0), threshold=None, low=math.nan, high=math.nan)
    weak = replace(odd, evidence={"p_holm": 0.04})
    strong = replace(odd, evidence={"p_holm": 1e-6})
    after = corrected([[odd], [weak], [strong], *marginal(5)])
    assert after[0] == [odd]
    assert [findings[0].verdict for findings in after[1:3]] == ["inconclusive", "supported"]
    assert "all 7 anomaly claims" in after[1][0].reason


def test_batches_in_the_evidence_count() -> None:
    few = replace(slower(0, "supported", 3.0), evidence={"batches": 3})
    many = replace(few, evidence={"batches": 24})
    kept = corrected([[few], [many]])
    assert kept[0][0].evidence["p"] > kept[1][0].evidence["p"]


def test_refuted_and_inconclusive_claims_keep_their_verdicts() -> None:
    wide = SLOWER.decided(Interval(9, 0, 18), 1.0, about={"cpu": 1})
    found = [[slower(0, "refuted", 0.0)], [wide]]
    after = corrected(found)
    assert [findings[0].verdict for findings in after] == ["refuted", "inconclusive"]
    assert [findings[0].reasons for findings in after] == [one[0].reasons for one in found]


@functools.cache
def recorded() -> list[list[Finding]]:
    names = experiments.NAMES
    return [experiments.get(name).analyse(load(RUNS / f"{name}.parquet")) for name in names]


def test_every_recorded_anomaly_has_words_for_not_surviving() -> None:
    seen = 0
    for finding in anomalies(recorded()):
        numbers = {"claims": 137, "p": 0.01, "together": 0.3}
        reasons = (Reason("not_surviving", numbers), *finding.reasons)
        open_ = replace(finding, verdict="inconclusive", reasons=reasons)
        assert open_.plain
        assert "137 anomaly claims" in open_.reason
        seen += 1
    assert seen > 3


def test_what_the_recorded_runs_show_together() -> None:
    """Effects that were made on purpose, and locks, survive among more than a hundred claims."""
    after = corrected(recorded())
    kept = {finding.subject for finding in anomalies(after)}
    assert {"rotated×2", "memcpy-2048 predicted", "ROOT limiting lock"} <= kept
    assert len(anomalies(after)) <= len(anomalies(recorded()))
