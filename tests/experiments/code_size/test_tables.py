"""Derived tables that no figure draws; the others are tested with the figures."""

from __future__ import annotations

import numpy as np
import pytest

from perflib.experiments import get
from perflib.experiments.code_size import tables
from perflib.experiments.code_size.reaches import Reaches
from perflib.experiments.code_size.table import CodeTable
from tests.experiments.code_size.code_samples import machine, run_of, samples

REACHES = Reaches.of(machine())


def test_of_many_cores_the_times_are_those_of_their_mean() -> None:
    table = CodeTable(samples(cores=range(12), sizes_kib=(8, 3072), rounds=4))
    frame = tables.times(table, "random", REACHES)
    assert frame["cpu"].isna().all()
    assert len(frame) == 2 * 2
    few = CodeTable(samples(cores=(3, 5), sizes_kib=(8, 3072), rounds=4))
    assert set(tables.times(few, "random", REACHES)["cpu"]) == {3, 5}


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
