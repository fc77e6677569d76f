from __future__ import annotations

import math

import pytest

from perflib.lab.summary import summary
from perflib.lab.tables import table, verdicts
from perflib.model.finding import Finding, Verdict


def slowness(cpu: int, verdict: Verdict, effect: float, half: float = 0.4) -> Finding:
    return Finding(
        claim=f"cpu{cpu} is more than 1 % slower than the median of the other cores",
        subject=f"cpu{cpu}",
        verdict=verdict,
        effect=effect,
        low=effect - half,
        high=effect + half,
        unit="percent",
        reason="Because.",
    )


def test_nothing_wrong_is_one_sentence() -> None:
    found = [slowness(cpu, "refuted", 0.1 * cpu) for cpu in range(4)]
    assert summary(found) == [
        (
            "No core is more than 1 % slower than the median of the other cores "
            "(4 cores, widest interval ±0.4 points)."
        )
    ]


def test_a_slow_core_is_named_with_its_interval_first() -> None:
    found = [slowness(cpu, "refuted", 0.0) for cpu in range(8)]
    found.append(slowness(8, "supported", 12.0, 0.9))
    first, rest = summary(found)
    assert first == (
        "cpu8 is 12.0 % [11.1, 12.9] slower than the median of the other cores. Because."
    )
    assert rest.startswith("No other core is more than 1 % slower")


def test_the_undecided_are_told_with_their_intervals() -> None:
    assert summary([slowness(0, "inconclusive", 0.8), slowness(1, "inconclusive", -0.8)]) == [
        (
            "Undecided whether a core is more than 1 % slower than the median of the other cores: "
            "cpu0 0.8 % [0.4, 1.2]; cpu1 -0.8 % [-1.2, -0.4]."
        )
    ]
    (alone,) = summary([slowness(0, "inconclusive", math.nan)])
    assert alone.endswith("nothing could be estimated.")


def test_a_hundred_cores_stay_a_few_sentences() -> None:
    found = [slowness(cpu, "supported", 5.0 + cpu) for cpu in range(50)]
    found += [slowness(cpu, "inconclusive", 1.0) for cpu in range(50, 100)]
    told = summary(found)
    assert told[0].startswith("cpu49 is 54.0 %")  # the slowest first
    assert len(told) == 8
    assert "and 38 more" in told[6]
    assert "and 44 more" in told[7]


def test_other_subjects_and_claims_without_a_threshold() -> None:
    found = Finding("time per event differs", "time per event", "supported", 3.0, 2.0, 4.0, "ns")
    assert summary([found]) == ["time per event differs: 3.0 ns [2.0, 4.0]."]
    assert summary([]) == []


def test_hypotheses_about_one_thing_are_one_sentence() -> None:
    def judged(name: str, what: str, verdict: Verdict) -> Finding:
        evidence = {"explains": what}
        return Finding(
            f"{name} explains most of {what}", f"hypothesis: {name}", verdict, 1.0, 0.0, 2.0,
            "percent of the extra time", evidence=evidence,
        )  # fmt: skip

    found = [
        judged("iTLB misses", "the extra time of cpu8", "supported"),
        judged("frequency", "the extra time of cpu8", "refuted"),
        judged("frequency", "the extra time of large code", "inconclusive"),
        judged("softirq activity", "the extra time of cpu8", "refuted"),
    ]
    assert summary(found) == [
        (
            "The extra time of cpu8 is mostly due to iTLB misses; is not mostly due to frequency, "
            "softirq activity ('perflib ledger' has the shares)."
        ),
        (
            "The extra time of large code may or may not be due to frequency ('perflib ledger' has "
            "the shares)."
        ),
    ]


def test_verdicts_as_html_and_as_text() -> None:
    found = Finding("cpu1 <b>", "cpu1", "inconclusive", math.nan, math.nan, math.nan, "percent")
    shown = verdicts([slowness(0, "supported", 5.0), found])
    html = shown._repr_html_()
    assert "cpu1 &lt;b&gt;" in html
    assert '<td class="supported">● supported</td>' in html
    assert '<td class="number">[4.60, 5.40]</td>' in html
    lines = repr(shown).splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("cpu1     ◐ inconclusive  –")


@pytest.mark.parametrize("rows", [[], [{"a": 1.5, "b": None}, {"a": math.nan, "b": "x"}]])
def test_any_records_make_a_table(rows: list[dict[str, object]]) -> None:
    shown = table(rows)
    assert shown.html().count("<tr>") == len(rows) + 1
    assert "nan" not in repr(shown).lower()
