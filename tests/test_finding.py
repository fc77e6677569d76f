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

from perflib.finding import Finding

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
