"""Samples with named axes: what is where, and what their intervals cover."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from perflib.framework.sample_array import SampleArray, median_half_width
from perflib.stats.interval import widest
from perflib.stats.intervals import t_intervals

LOG_TIMES = {("4k", 16): 0.0, ("4k", 64): 0.2, ("thp", 16): 0.1, ("thp", 256): 0.4}


def samples(generator: np.random.Generator, rounds: int = 24, cores: int = 2) -> pd.DataFrame:
    """Two samples of each configuration, round and core: rounds and cores differ in speed."""
    speed = generator.normal(0, 0.3, (rounds, 1)) + np.arange(cores)
    rows = [
        (round_, 3 * core + 1, *label, log + speed[round_, core] + generator.normal(0, 0.01))
        for round_ in range(rounds)
        for core in range(cores)
        for label, log in LOG_TIMES.items()
        for _ in range(2)
    ]
    table = pd.DataFrame(rows, columns=["round", "cpu", "backing", "pages", "log_ns"])
    return table.assign(start_ns=table["round"] * 2_000_000_000)


def array(table: pd.DataFrame) -> SampleArray:
    return SampleArray.of(table, "log_ns", ["backing", "pages"])


def test_each_value_is_the_statistic_of_its_cell() -> None:
    table = samples(np.random.default_rng(1)).sample(frac=0.9, random_state=2)
    table["backing"] = table["backing"].astype("category")
    for statistic in ("median", "min"):
        found = SampleArray.of(table, "log_ns", ["backing", "pages"], statistic)
        assert found.labels == tuple(LOG_TIMES)
        assert (found.cores, found.rounds.tolist()) == ((1, 4), list(range(24)))
        for round_ in (0, 23):
            for core, cpu in enumerate(found.cores):
                for place, (backing, pages) in enumerate(found.labels):
                    cell = table[(table["round"] == round_) & (table["cpu"] == cpu)]
                    cell = cell[(cell["backing"] == backing) & (cell["pages"] == pages)]
                    value = found.values[round_, core, place]
                    wanted = cell["log_ns"].agg(statistic)
                    assert value == wanted or np.isnan([value, wanted]).all()
    assert found.start_s is not None
    assert found.start_s.tolist() == [2.0 * round_ for round_ in range(24)]
    assert np.bincount(found.batches).tolist() == [2] * 12


def test_selections_keep_labels_and_values_together() -> None:
    found = array(samples(np.random.default_rng(1)))
    assert found.distinct("pages") == [16, 64, 256]
    small = found.select(backing="4k")
    assert (small.keys, small.labels) == (("pages",), ((16,), (64,)))
    assert (small.values == found.values[:, :, :2]).all()
    both = found.select(pages=16)
    assert both.labels == (("4k",), ("thp",))
    assert (both.values == found.values[:, :, [0, 2]]).all()
    assert found.first(3).labels == found.labels[:3]
    assert (found.on(4).values == found.values[:, [1]]).all()
    assert found.on(4).cores == (4,)
    assert found.on(None) is found
    absent = found.select(backing="thp", pages=64)
    assert absent.values.shape == (24, 2, 1)
    assert np.isnan(absent.values).all()
    assert found.select(backing="1g").values.shape == (24, 2, 0)
    assert found.among({("thp", 256)}).labels == (("thp", 256),)


def test_only_configurations_that_both_have_are_compared() -> None:
    found = array(samples(np.random.default_rng(1)))
    small, huge = (found.select(backing=backing) for backing in ("4k", "thp"))
    assert (huge - small).labels == ((16,),)
    assert ((huge - small).values[..., 0] == found.values[..., 2] - found.values[..., 0]).all()
    assert (huge / small).values[0, 0, 0] == found.values[0, 0, 2] / found.values[0, 0, 0]
    base = small.first(1).mean_configuration()
    assert (small - base).labels == small.labels
    assert not (small - base).values[..., 0].any()


def test_means_skip_what_is_unknown_or_ask_for_all_cores() -> None:
    table = samples(np.random.default_rng(1))
    found = array(table[~((table["cpu"] == 4) & (table["round"] < 2))])
    assert (found.over_cores()[0] == found.values[0, 0]).all()
    assert np.isnan(found.over_all_cores()[0]).all()
    assert np.isfinite(found.over_all_cores()[1:]).all()
    assert found.by_core_and_batch().shape == (2 * 12, 4)
    assert (found.by_core_and_batch()[1] == found.by_batch()[1, 0]).all()
    assert (found.by_core_and_batch()[13] == found.by_batch()[1, 1]).all()
    assert found.mean_configuration().values[5, 1, 0] == pytest.approx(found.values[5, 1].mean())


def test_intervals_of_differences_cover_what_they_say() -> None:
    """The speed of rounds and cores cancels: intervals are narrow, and 95 % of them cover."""
    generator = np.random.default_rng(3)
    covered, widths = 0, []
    for _ in range(200):
        found = array(samples(generator, rounds=9, cores=2))
        (interval,) = (found.select(backing="thp") - found.select(backing="4k")).intervals()
        covered += interval.low < 0.1 < interval.high
        widths.append(interval.half_width)
    assert 0.9 <= covered / 200 <= 0.99
    assert np.median(widths) < 0.02


def test_half_widths_of_columns() -> None:
    batches = np.array([[1.0, 2.0], [1.5, 2.0], [2.0, 2.0]])
    first, second = t_intervals(batches)
    assert (first.effect, second.half_width) == (1.5, 0.0)
    assert median_half_width(batches) == first.half_width / 2
    assert np.isnan(median_half_width(np.zeros((3, 0))))
    assert widest([1.0, 2.0]) == 2.0
    assert widest([1.0, np.nan]) == np.inf
    assert widest([]) == 0.0
    assert widest([], default=np.inf) == np.inf
