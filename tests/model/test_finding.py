"""Findings: as a sentence, and as JSON."""

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

from perflib.model.finding import Finding, changes

FOUND = Finding(
    claim="cpu8 is more than 1 % slower than the median of the other cores",
    subject="cpu8",
    verdict="supported",
    effect=12.345,
    low=11.5,
    high=13.0,
    unit="percent",
    reason="Every third of the run shows it.",
)


def test_sentence_has_verdict_effect_interval_and_reason() -> None:
    assert str(FOUND) == (
        "supported: cpu8 is more than 1 % slower than the median of the other cores: "
        "+12.35 percent [+11.50, +13.00]. Every third of the run shows it."
    )
    unexplained = dataclasses.replace(FOUND, reason="", effect=-1.0)
    assert str(unexplained).endswith("-1.00 percent [+11.50, +13.00].")


def test_it_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        FOUND.verdict = "refuted"  # type: ignore[misc]


def test_json_has_every_field_of_the_contract() -> None:
    record = json.loads(json.dumps(FOUND.to_dict(), allow_nan=False))
    assert record == {
        "claim": FOUND.claim,
        "subject": "cpu8",
        "verdict": "supported",
        "effect": 12.345,
        "low": 11.5,
        "high": 13.0,
        "unit": "percent",
        "confidence": 0.95,
        "reason": "Every third of the run shows it.",
        "evidence": {},
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


def test_an_estimate_or_an_interval_that_there_is_not_is_not_printed() -> None:
    bare = dataclasses.replace(FOUND, effect=math.nan, low=math.nan, high=math.nan, reason="None.")
    assert str(bare) == f"supported: {FOUND.claim}. None."
    single = dataclasses.replace(FOUND, low=math.nan, high=math.nan, reason="")
    assert str(single).endswith(": +12.35 percent.")


def test_changes_compare_what_is_about_the_same() -> None:
    def explained(what: str, effect: float, unit: str = "percent") -> Finding:
        return dataclasses.replace(
            FOUND, effect=effect, low=effect - 1, high=effect + 1, unit=unit,
            evidence={"explains": what},
        )  # fmt: skip

    first = [explained("core 1", 10.0), explained("large code", 40.0)]
    second = [explained("large code", 41.0), explained("core 1", 15.0), explained("core 2", 1.0)]
    found = changes(first, second)
    assert [change.effect for change in found] == [1.0, 5.0]
    assert changes(first, [explained("core 1", 3.0, "KiB")]) == []
