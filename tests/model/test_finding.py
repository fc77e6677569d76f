"""Findings: as sentences, as JSON, and as changes between two runs."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib.model.changes import changes
from perflib.stats.decide import Decision, Reason, Witness
from perflib.stats.interval import Interval
from tests.model.made import LEVEL, SLOWER, level, slower

FOUND = SLOWER.decided(
    Interval(12.3, 11.5, 13.1),
    1.0,
    about={"cpu": 8},
    to_support=[Witness(True, Reason("open"), Reason("because", {"what": ["a", "b", "c"]}))],
)


def test_a_finding_is_its_claim_with_verdict_numbers_and_reasons() -> None:
    assert (FOUND.subject, FOUND.verdict, FOUND.kind) == ("cpu8", "supported", "anomaly")
    assert FOUND.claim == "cpu8 is more than 1 % slower than the others"
    assert FOUND.reason == "Because of a, b and c."
    assert FOUND.plain == "cpu8 is slower than the others: 12.30 % ± 0.80"
    assert str(FOUND) == f"supported: {FOUND.claim}: 12.30 % ± 0.80. Because of a, b and c."


@pytest.mark.parametrize("ends", [(2.0, 4.0), (-4.0, 0.5), (1.1, math.inf)])
def test_an_interval_that_does_not_contain_its_estimate_is_a_defect(
    ends: tuple[float, float],
) -> None:
    with pytest.raises(AssertionError, match=r"internal error: the estimate of 'slower' \(1\)"):
        SLOWER.found(Decision("inconclusive"), Interval(1.0, *ends), about={"cpu": 1})
    for fine in [(1.0, 1.0), (1.0 + 1e-12, 2.0), (math.nan, math.nan), (-math.inf, math.inf)]:
        SLOWER.found(Decision("inconclusive"), Interval(1.0, *fine), about={"cpu": 1})


def test_json_has_every_field_of_the_contract() -> None:
    record = json.loads(json.dumps(FOUND.to_dict(), allow_nan=False))
    assert record == {
        "claim": FOUND.claim,
        "subject": "cpu8",
        "verdict": "supported",
        "effect": 12.3,
        "low": 11.5,
        "high": 13.1,
        "unit": "percent",
        "confidence": 0.95,
        "reason": "Because of a, b and c.",
        "evidence": {},
        "kind": "anomaly",
        "about": {"claim": "slower", "cpu": 8},
        "quantity": "slowdown",
        "threshold": 1.0,
        "plain": FOUND.plain,
    }


def test_what_json_lacks_becomes_plain() -> None:
    finding = dataclasses.replace(
        FOUND,
        effect=np.float64(1.5),
        low=math.nan,
        high=math.inf,
        evidence={
            "counts": np.arange(3),
            "levels": np.array([[1.5, math.nan]]),
            "one": np.array([2]),
            "series": pd.Series([1, 2]),
            "thirds": (np.float32(0.5), -math.inf),
            "flag": np.bool_(True),
            "nested": {8: {"p": np.float64("nan")}, "set": {4}},
            "text": "x",
            "nothing": None,
        },
    )
    record = finding.to_dict()
    assert (record["effect"], record["low"], record["high"]) == (1.5, None, None)
    assert record["evidence"] == {
        "counts": [0, 1, 2],
        "levels": [[1.5, None]],
        "one": [2],
        "series": [1, 2],
        "thirds": [0.5, None],
        "flag": True,
        "nested": {"8": {"p": None}, "set": [4]},
        "text": "x",
        "nothing": None,
    }
    json.dumps(record, allow_nan=False)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=10,
)


@given(evidence=st.dictionaries(st.text(), VALUES))
def test_any_evidence_can_be_written_as_strict_json(evidence: dict[str, Any]) -> None:
    record = dataclasses.replace(FOUND, evidence=evidence).to_dict()
    assert json.loads(json.dumps(record, allow_nan=False)) == record


# --- sentences ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends", "estimate"),
    [
        ((12.3, 11.5, 13.1), "12.30 % ± 0.80"),
        ((-0.1, -0.3, 0.1), "−0.10 % ± 0.20"),
        ((10.0, 9.0, 14.0), "10.0 % [9.0, 14.0]"),
        ((150.0, 100.0, 200.0), "150 % ± 50"),
        ((3.0, math.nan, math.nan), "3.00 %"),
        ((math.nan, math.nan, math.nan), "nothing could be estimated"),
    ],
)
def test_an_estimate_has_as_many_digits_as_it_is_worth(
    ends: tuple[float, float, float], estimate: str
) -> None:
    finding = SLOWER.decided(Interval(*ends), 1.0, about={"cpu": 0})
    assert estimate in str(finding)
    assert estimate in finding.plain


def test_what_has_no_plain_sentence_of_its_own_stays_open() -> None:
    assert slower(3, "inconclusive", 1.0).plain == (
        "It is not decided whether cpu3 is more than 1 % slower than the others: 1.00 % ± 0.40."
    )


@pytest.mark.parametrize("name", ["c", "memcpy", "ümlaut", "cpu8", "x y", "L1"])
def test_a_name_at_the_begin_of_a_sentence_stays_as_it_is(name: str) -> None:
    """The variable 'c' became 'C'; a template's own word, and prose, begin with a capital."""
    claim = dataclasses.replace(
        SLOWER,
        plain={"supported": "{cpu} limits", "refuted": "no {cpu} limits"},
        reasons={"name": "{cpu} is first.", "prose": "{doing:first} it.", "own": "it is {cpu}."},
    )
    reasons = [Reason(code, {"doing": "reading"}) for code in ("name", "prose", "own")]
    one = claim.decided(Interval(3, 2, 4), 1.0, about={"cpu": name}, remarks=reasons)
    assert one.plain == f"{name} limits"
    assert one.reason.endswith(f"{name} is first. Reading it. It is {name}.")
    assert (
        claim.decided(Interval(0, -1, 0.5), 1.0, about={"cpu": name}).plain == f"No {name} limits"
    )


def test_sizes_are_for_readers() -> None:
    assert level(32768).claim == "a level of memory ends at 32 KiB"
    assert level(3 << 19).plain == "A level of memory ends at 1.5 MiB"


def test_a_template_that_names_what_is_not_there_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        _ = LEVEL.decided(Interval(1, 1, 1), 1.0).claim


# --- two runs ----------------------------------------------------------------------------------


def test_changes_compare_what_is_about_the_same() -> None:
    first = [slower(1, "supported", 10.0, 1.0), slower(2, "supported", 40.0, 1.0)]
    second = [slower(cpu, "supported", effect, 1.0) for cpu, effect in ((2, 41), (1, 15), (3, 1))]
    found = changes(first, second)
    assert [(change.subject, change.effect) for change in found] == [("cpu2", 1.0), ("cpu1", 5.0)]
    assert [change.verdict for change in found] == ["inconclusive", "supported"]
    assert changes(first, second, 20.0)[0].verdict == "refuted"
    other = [finding.in_unit("KiB") for finding in second]
    assert changes(first, other) == []
