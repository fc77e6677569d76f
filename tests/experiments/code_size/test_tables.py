"""Derived tables that no figure draws; the others are tested with the figures."""

from __future__ import annotations

import numpy as np
import pytest

from perflib.experiments import get
from perflib.experiments.code_size import tables
from perflib.experiments.code_size.reaches import Reaches
from perflib.experiments.code_size.table import CodeTable
from tests.experiments.code_size.code_samples import KIB, machine, run_of, samples

REACHES = Reaches.of(machine())


def test_of_many_cores_the_times_are_those_of_their_mean() -> None:
    table = CodeTable(samples(cores=range(12), sizes_kib=(8, 3072), rounds=4))
    frame = tables.times(table, "random", REACHES)
    assert frame["cpu"].isna().all()
    assert len(frame) == 2 * 2
    few = CodeTable(samples(cores=(3, 5), sizes_kib=(8, 3072), rounds=4))
    assert set(tables.times(few, "random", REACHES)["cpu"]) == {3, 5}


def test_the_prediction_is_the_same_for_all_cores_of_the_last_backing() -> None:
    table = CodeTable(samples(cores=(0, 1), sizes_kib=(8, 512, 3072), rounds=4))
    frame = tables.times(table, "random", REACHES)
    assert frame.loc[frame["backing"] == "4k", "predicted_ns"].isna().all()
    of_thp = frame[frame["backing"] == "thp"].pivot_table(
        index="code_bytes", columns="cpu", values="predicted_ns"
    )
    assert of_thp[0].tolist() == of_thp[1].tolist()
    costs = tables.miss_costs(table, "random", REACHES).set_index("level")["cost_ns"]
    assert list(costs.index) == ["no miss", "L1i", "L2"]
    assert of_thp[0].iloc[0] == pytest.approx(costs["no miss"])


def test_knees_say_what_they_are_compared_with() -> None:
    made = samples(
        cores=(0, 1), patterns=("chase", "line"), rounds=24, walk_ns=3.0,
        sizes_kib=(8, 128, 384, 512, 640, 1024, 3072),
    )  # fmt: skip
    frame = tables.knees(CodeTable(made))
    assert frame["pattern"].tolist() == ["chase", "chase"]
    assert frame["compared_with"].tolist() == ["thp", "line"]
    assert (frame["size_bytes_low"] <= 512 * KIB).all()
    assert (frame["size_bytes_high"] >= 512 * KIB).all()
    flat = CodeTable(samples(cores=(0,), rounds=12, walk_ns=0.0, backings=["4k"]))
    assert tables.knees(flat).empty


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
