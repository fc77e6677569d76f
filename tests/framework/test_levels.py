"""Levels: one positive number a core and setting, from what each experiment measures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from perflib.experiments import NAMES, get
from perflib.framework.levels import levels, levels_table
from perflib.framework.schema import Column
from perflib.model.errors import UserError
from perflib.store import run_files
from tests.stored import RUNS

OWN = {
    "layout": {"s", "percent"},
    "sensitivity": {"s"},
    "correctness": {"in 10⁹"},
    "memory_load": {"ns"},
    "contention": {"ns"},
    "bracketed": {"ns"},
    "simulate": {"per 1000 instructions"},
    "count": {"per s", "ns per s", "us per s", "ms per s"},
    "kv_per_core": {"ms"},
    "machine": {"times"},
    "sharing": {"times"},
}  # their analyses make levels of their own
COLUMNS = (
    Column("round", "integer", "", "round", role="key"),
    Column("cpu", "integer", "", "core", role="key"),
    Column("pattern", "text", "", "pattern", role="key"),
    Column("n", "integer", "", "size", role="key"),
    Column("repeat", "integer", "", "repeat", role="key"),
    Column("time_ns", "number", "ns", "time", role="measured"),
)


def test_a_level_is_the_median_of_each_core_and_setting() -> None:
    table = pd.DataFrame(
        {
            "round": [0, 1, 2, 0, 1, 0],
            "cpu": [8, 8, 8, 9, 9, 9],
            "pattern": "chase",
            "n": [2, 2, 2, 2, 2, 4],
            "repeat": 0,
            "time_ns": [5.0, 7.0, 600.0, 1.0, 2.0, 9.0],
        }
    )
    found = levels(table, COLUMNS)
    assert found.to_dict("split")["data"] == [
        [8, "pattern=chase n=2", 7.0, "ns"],
        [9, "pattern=chase n=2", 1.5, "ns"],
        [9, "pattern=chase n=4", 9.0, "ns"],
    ]
    assert found.dtypes.astype(str).to_dict() == {
        "cpu": "int64", "setting": "str", "value": "float64", "unit": "str"
    }  # fmt: skip


def test_without_a_core_or_a_setting_there_is_one_level_of_none() -> None:
    found = levels(pd.DataFrame({"round": [0, 1], "time_ns": [5.0, 7.0]}), COLUMNS)
    assert found.to_dict("split")["data"] == [[-1, "", 6.0, "ns"]]


def test_what_is_no_positive_number_is_no_level() -> None:
    found = levels_table([(0, "a", value, "ns") for value in (0.0, -1.0, np.nan, np.inf, 2.0)])
    assert found["value"].tolist() == [2.0]
    assert found.index.tolist() == [0]


@pytest.mark.parametrize("name", NAMES)
def test_levels_of_each_experiment(name: str) -> None:
    """Of the stored runs: as many as cores and settings, all in the unit of what was measured."""
    experiment, run = get(name), run_files.load(RUNS / f"{name}.parquet")
    found = experiment.levels(run)
    measured = [one for one in experiment.columns if one.role == "measured" and not one.set]
    assert list(found) == ["cpu", "setting", "value", "unit"]
    assert found.empty == (not measured)
    assert not found.duplicated(["cpu", "setting"]).any()
    assert (found["value"] > 0).all()
    units = OWN[name] if name in OWN else {column.unit for column in measured}
    assert set(found["unit"]) <= units
    slower = run.samples.assign(**{one.name: 2 * run.samples[one.name] for one in measured})
    doubled = experiment.levels(replace(run, samples=slower))
    if name not in OWN:
        assert doubled["value"].tolist() == pytest.approx((2 * found["value"]).tolist())


def test_levels_distrust_samples_as_an_analysis_does() -> None:
    run = run_files.load(RUNS / "memory_levels.parquet")
    broken = run.samples.assign(latency_ns=-1.0)
    with pytest.raises(UserError, match="latency_ns"):
        get("memory_levels").levels(replace(run, samples=broken))
