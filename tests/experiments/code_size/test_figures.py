"""Which figures a sweep over the size of the code has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.experiments import get
from perflib.experiments.code_size import figures, tables
from perflib.experiments.code_size.reaches import Reaches
from perflib.experiments.code_size.table import CodeTable
from perflib.lab.theme import figures as figures_of
from tests.experiments.code_size.code_samples import KIB, machine, misses, run_of, samples

PATTERNS = ("random", "page", "chase")


def simulated(patterns: tuple[str, ...] = PATTERNS) -> dict[str, Any]:
    rows = []
    for pattern in patterns:
        for size in (8, 512, 3072):
            missed = float(misses(pattern, np.array([float(size)]))[0])
            n = size * KIB // (128 if pattern == "random" else 4096)
            row = {"misses_per_step": missed, "walks_per_step": missed / 4}
            rows.append({"pattern": pattern, "n": n, **row})
    return {"model": "TLB of 128 entries; second level 1024 entries, 8 ways", "rows": rows}


def test_the_page_ratio_has_marks_at_its_knees() -> None:
    table = CodeTable(samples(cores=(0, 1), rounds=24, patterns=("chase",), walk_ns=1.0))
    found, reaches = tables.knees(table), Reaches.of(machine())
    (axes,) = figures.page_ratio(tables.page_ratio(table), found, reaches).axes
    drawn = [np.asarray(line.get_xdata(), float) for line in axes.lines]
    marks = [x[0] for x in drawn if len(x) == 2]
    (knee,) = table.knees("chase", "thp").knees
    assert any(x == pytest.approx(knee.size.effect / KIB) for x in marks)


def names(table: pd.DataFrame, experiment: str = "code_segment", **more: Any) -> list[str]:
    run = run_of(table, experiment, provenance={"machine": machine(), **more})
    drawn = figures_of(run)
    assert drawn.keys() <= get(experiment).derived(run).keys()
    return list(drawn)


def test_each_run_has_the_figures_that_it_can_have() -> None:
    few: dict[str, Any] = {"sizes_kib": (8, 512, 3072), "rounds": 6}
    assert names(samples(cores=(0, 1), patterns=PATTERNS, **few), simulated=simulated()) == [
        "time_random", "time_page", "time_chase", "page_ratio", "core_difference", "misses",
    ]  # fmt: skip
    assert names(samples(cores=(0,), patterns=("chase", "line"), **few)) == [
        "time_chase", "page_ratio", "ring_ratio",
    ]  # fmt: skip
    assert names(samples(cores=(0,), backings=["4k"], **few)) == ["time_random"]
    assert names(samples(cores=(0,), **few), "random_calls") == ["time_per_call", "page_ratio"]
    assert names(samples(cores=(0, 1), backings=["thp"], **few), "random_calls") == [
        "time_per_call", "core_difference",
    ]  # fmt: skip
