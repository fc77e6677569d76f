"""What was found, in a few sentences and in a table."""

from __future__ import annotations

import math

from perflib.lab.summary import statements, summary
from perflib.lab.tables import verdicts
from perflib.model.claims import EXPLAINS
from perflib.model.finding import Finding
from perflib.stats.decide import Decision, Verdict
from perflib.stats.interval import Interval
from tests.model.made import level, slower


def test_nothing_wrong_is_one_sentence() -> None:
    assert summary([slower(cpu, "refuted", 0.1 * cpu) for cpu in range(4)]) == [
        "All 4 cores are equally fast (widest interval ± 0.40 points)."
    ]


def test_a_slow_core_is_named_with_its_estimate_first() -> None:
    found = [slower(cpu, "refuted", 0.0) for cpu in range(8)]
    found.append(slower(8, "supported", 12.0, 0.9))
    first, rest = summary(found)
    assert first == "cpu8 is slower than the others: 12.00 % ± 0.90."
    assert rest.startswith("All 8 cores are equally fast")


def test_each_sentence_stands_beside_the_kind_of_its_claim_and_its_verdict() -> None:
    found = [level(), slower(1, "supported", 12.0), slower(2, "refuted", 0.1)]
    assert [(one.kind, one.verdict) for one in statements(found)] == [
        ("anomaly", "supported"),
        ("anomaly", "refuted"),
        ("description", "supported"),
    ]
    assert [one.sentence for one in statements(found)] == summary(found)


def test_estimates_without_any_interval_are_one_sentence() -> None:
    once = [
        one.of.decided(Interval(one.effect, math.nan, math.nan), 1.0, about=one.about)
        for one in (slower(1, "supported", 49.9), slower(2, "refuted", 24.4))
    ]
    assert summary([*once, level()]) == [
        *summary([level()]),
        "No interval, so no verdict (it takes two rounds or more): cpu1, cpu2.",
    ]
    assert statements(once)[0].verdict == "inconclusive"


def test_the_undecided_are_reported_with_their_estimates() -> None:
    assert summary([slower(0, "inconclusive", 0.8)]) == [
        "It is not decided whether cpu0 is more than 1 % slower than the others: 0.80 % ± 0.40."
    ]
    unknown = [slower(cpu, "inconclusive", math.nan) for cpu in (0, 3)]
    assert summary([*unknown, level()]) == [
        *summary([level()]),
        "Nothing could be estimated: cpu0, cpu3.",
    ]


def test_a_hundred_cores_stay_a_few_sentences() -> None:
    found = [slower(cpu, "supported", 5.0 + cpu) for cpu in range(50)]
    found += [slower(cpu, "inconclusive", 1.0) for cpu in range(50, 100)]
    sentences = summary(found)
    assert sentences[0].startswith("cpu49 is slower than the others: 54")
    assert len(sentences) == 14
    assert sentences[6].startswith("The same, less strongly: cpu43, cpu42")


def test_hypotheses_about_one_thing_are_one_sentence() -> None:
    def judged(name: str, what: str, verdict: Verdict) -> Finding:
        about = {"cause": name, "explains": what}
        return EXPLAINS.found(Decision(verdict), Interval(1, 0, 2), about=about, threshold=50.0)

    assert summary(
        [
            judged("iTLB misses", "the extra time of cpu8", "supported"),
            judged("frequency", "the extra time of cpu8", "refuted"),
            judged("frequency", "the extra time of large code", "inconclusive"),
            judged("softirq activity", "the extra time of cpu8", "refuted"),
        ]
    ) == [
        (
            "The extra time of cpu8 comes mostly from iTLB misses; does not come mostly from "
            "frequency, softirq activity ('perflib ledger' has the shares)."
        ),
        (
            "The extra time of large code may or may not come from frequency ('perflib ledger' "
            "has the shares)."
        ),
    ]


def test_verdicts_as_html_and_as_text() -> None:
    odd = slower(1, "inconclusive", math.nan)
    shown = verdicts([slower(0, "supported", 5.0), odd])
    html = shown._repr_html_()
    assert '<td class="anomaly supported">● supported</td>' in html
    assert '<td class="number">5.00 % ± 0.40</td>' in html
    lines = repr(shown).splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("cpu1     It is not decided")
