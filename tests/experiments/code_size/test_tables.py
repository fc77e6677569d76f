"""Derived tables that no figure draws; the others are tested with the figures."""

from __future__ import annotations

import numpy as np
import pytest

from perflib.experiments import get
from perflib.experiments.code_size import tables
from tests.experiments.code_size.code_samples import run_of, samples


def test_backings_are_counted_and_what_is_not_available_has_its_reason() -> None:
    made = samples(cores=(0,), sizes_kib=(8,), rounds=4)
    made["ok"] = made["backing"].eq("4k") | made["round"].gt(0)
    provenance = {"plan": {"absent": {"hugetlb": "the pool is empty"}}}
    frame = get("code_segment").derived(run_of(made, provenance=provenance))["backings"]()
    frame = frame.set_index("backing")
    assert frame["samples"].to_dict() == pytest.approx(
        {"4k": 4, "thp": 4, "hugetlb": np.nan}, nan_ok=True
    )
    assert frame.loc["thp", "verified"] == 3
    assert frame.loc["hugetlb", "not_available"] == "the pool is empty"
    plain = made[["round", "cpu", "pattern", "backing", "n", "code_bytes", "steps", "time_ns"]]
    few = tables.backings(run_of(plain, provenance={}))
    assert list(few) == ["backing", "samples"]
