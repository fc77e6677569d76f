"""The figures of a sweep over the size of the code: what they show is what their tables hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from perflib.experiments import get
from perflib.experiments.code_size import figures, tables
from perflib.experiments.code_size.reaches import Reaches
from perflib.experiments.code_size.table import CodeTable
from perflib.lab.theme import figures as figures_of
from perflib.lab.theme import png, themed
from perflib.stats.interval import percent
from perflib.stats.intervals import t_interval
from tests.experiments.code_size.code_samples import KIB, machine, misses, run_of, samples
from tests.experiments.plotted import bars, points

REACHES = Reaches.of(machine())
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


def ends(bar: ErrorbarContainer) -> np.ndarray[Any, Any]:
    """``[point, (low, high)]``"""
    (segments,) = bar.lines[2]
    return np.array([segment[:, 1] for segment in segments.get_segments() if len(segment)])


def texts(axes: Axes) -> str:
    legend = axes.get_legend()
    named = [text.get_text() for text in legend.get_texts()] if legend else []
    lines = [text.get_text() for text in axes.texts]
    titles = [axes.get_title(), axes.get_title(loc="left")]
    return "\n".join([*titles, axes.get_xlabel(), axes.get_ylabel(), *named, *lines])


def assert_all_is_seen(figure: Figure) -> None:
    """Nothing is cut off at the figure's border, no value at its axes'."""
    with themed():
        assert png(figure).startswith(b"\x89PNG")
        seen = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert min(seen.x0, seen.y0) >= -0.01
    assert seen.x1 <= width + 0.01
    assert seen.y1 <= height + 0.01
    for axes in figure.axes:
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        for bar in bars(axes).values():
            x, y = points(bar)
            x, y = (
                x[np.isfinite(y)],
                np.append(y[np.isfinite(y)], ends(bar)[np.isfinite(ends(bar))]),
            )
            assert (left <= x).all()
            assert (x <= right).all()
            assert (bottom <= y).all()
            assert (y <= top).all()


# --- pages ---------------------------------------------------------------------------------------


def test_the_page_ratio_and_its_knees() -> None:
    made = samples(
        cores=(0, 1), sizes_kib=(8, 128, 256, 384, 512, 640, 768, 1024, 2048, 3072), rounds=24,
        patterns=("random", "chase"), backings=("4k", "thp", "hugetlb"), walk_ns=1.0,
    )  # fmt: skip
    table = CodeTable(made)
    knees = {name: table.knees(name, "thp") for name in table.patterns}
    assert all(found.knees for found in knees.values())
    with themed():
        figure = figures.page_ratio(tables.page_ratio(table), tables.knees(table), REACHES)
    assert len(figure.axes) == 2
    for axes, pattern in zip(figure.axes, table.patterns, strict=True):
        found = bars(axes)
        assert list(found) == [f"4 KiB over 2 MiB pages ({name})" for name in ("thp", "hugetlb")]
        blocks = table.page_ratio(pattern, "thp")
        expected = [percent(t_interval(column)) for column in blocks.T]
        _, y = points(found["4 KiB over 2 MiB pages (thp)"])
        assert y == pytest.approx([one.effect for one in expected])
        assert ends(found["4 KiB over 2 MiB pages (thp)"]) == pytest.approx(
            np.array([[one.low, one.high] for one in expected])
        )
        marks = [line.get_xdata() for line in axes.lines if len(np.asarray(line.get_xdata())) == 2]
        at = [float(np.asarray(mark, float)[0]) for mark in marks]
        for knee in knees[pattern].knees:
            assert any(x == pytest.approx(knee.size.effect / KIB) for x in at)
        assert any(x == pytest.approx(512) for x in at), "the reach"
        shown = texts(axes)
        assert "knee, 95 % interval" in shown
        assert "(%)" in shown
    assert "extent of the code that runs (KiB)" in texts(figure.axes[-1])
    assert_all_is_seen(figure)


# --- all of an experiment's ----------------------------------------------------------------------


def names(table: pd.DataFrame, experiment: str = "code_segment", **more: Any) -> list[str]:
    run = run_of(table, experiment, provenance={"machine": machine(), **more})
    known = get(experiment)
    drawn = figures_of(run)
    for figure in drawn.values():
        assert_all_is_seen(figure)
    made = known.derived(run)
    assert drawn.keys() <= made.keys()
    for name, make in made.items():
        assert isinstance(make(), pd.DataFrame), name
    declared = {name.replace("{pattern}", one) for name in known.tables for one in PATTERNS}
    assert {name for name in made if not name.startswith("time_")} <= declared
    assert {name for name in drawn if not name.startswith("time_")} <= known.plots.keys()
    return list(drawn)


def test_each_run_has_the_figures_that_it_can_have() -> None:
    few = {"sizes_kib": (8, 512, 3072), "rounds": 6}
    assert names(samples(cores=(0, 1), patterns=PATTERNS, **few), simulated=simulated()) == [  # type: ignore[arg-type]
        "time_random", "time_page", "time_chase", "page_ratio", "core_difference", "misses",
    ]  # fmt: skip
    assert names(samples(cores=(0,), patterns=("chase", "line"), **few)) == [  # type: ignore[arg-type]
        "time_chase", "page_ratio", "ring_ratio",
    ]  # fmt: skip
    assert names(samples(cores=(0,), backings=["4k"], **few)) == ["time_random"]  # type: ignore[arg-type]
    assert names(samples(cores=(0,), **few), "random_calls") == ["time_per_call", "page_ratio"]  # type: ignore[arg-type]
    assert names(samples(cores=(0, 1), backings=["thp"], **few), "random_calls") == [  # type: ignore[arg-type]
        "time_per_call", "core_difference",
    ]  # fmt: skip
