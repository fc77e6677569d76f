"""alias_map as its user meets it: maps of machines with and without false dependencies."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Mapping
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from perflib.experiments.aliasing.map import AliasMapParams, experiment, measure
from perflib.experiments.aliasing.map.claims import CONTROL_BYTES
from perflib.experiments.aliasing.map.table import REGIONS, AliasMapTable
from perflib.measure.process import WorkerError
from perflib.model.finding import Finding
from perflib.model.run import Run
from tests.experiments.aliasing.siblings import never_alone, with_sibling
from tests.experiments.judged import by_subject, made_run

OFFSETS = range(-32, 33, 8)
needs_this_processor = pytest.mark.skipif(
    bool(experiment.unavailable()), reason=experiment.unavailable()
)


def samples(
    costs: Mapping[int, float], *, rounds: int = 40, cores: int = 2, noise: float = 0.02
) -> pd.DataFrame:
    """A machine on which pairs that agree cost so much more, by region; a burst slows a core."""
    generator = np.random.default_rng(3)
    rows = []
    for round_, cpu in itertools.product(range(rounds), range(cores)):
        burst = 2.0 if cpu == 0 and 10 <= round_ < 14 else 1.0
        for region, store, place in itertools.product(REGIONS, OFFSETS, OFFSETS):
            extra = 1 + costs.get(region, 0.0) * (store == place)
            rows.append((round_, cpu, region, store, place, 0.18 * burst * extra))
    names = ["round", "cpu", "region_bytes", "store_bytes", "load_bytes", "pair_ns"]
    table = pd.DataFrame(rows, columns=names)
    table["pair_ns"] *= np.exp(generator.normal(0, noise, len(table)))
    return table.assign(
        core_mhz=3000.0, start_ns=(table["round"] * 200_000_000 + table["cpu"] * 10**8), ok=True
    )


def findings(table: pd.DataFrame) -> dict[str, Finding]:
    return by_subject(experiment.analyse(made_run(experiment, table)))


# --- analysis ------------------------------------------------------------------------------------


def test_a_false_dependency_is_found_with_its_size() -> None:
    named = findings(samples({0: 0.5, 4096: 0.7, 8192: 0.7}))
    assert {name: f.verdict for name, f in named.items()} == {
        "0": "supported", "3072": "refuted", "4096": "supported", "8192": "supported",
    }  # fmt: skip
    found = named["4096"]
    assert found.low < 70 < found.high
    extra = found.evidence["extra_ns"]
    assert extra[1] < 0.126 < extra[2]
    assert "0.126 ns more" in found.reason
    assert "cycles" in found.reason


def test_where_there_is_none_it_is_refuted_with_a_bound() -> None:
    named = findings(samples({0: 0.5}))
    assert [named[name].verdict for name in ("3072", "4096", "8192")] == ["refuted"] * 3
    assert named["4096"].low < 0 < named["4096"].high < 5
    assert "at most" in named["4096"].reason
    assert named["4096"].evidence["extra_ns"][2] < 0.01


def test_without_the_positive_control_nothing_is_refuted() -> None:
    named = findings(samples({}))
    assert named["0"].verdict == "refuted"
    assert named["4096"].verdict == "inconclusive"
    assert named["4096"].reasons[0].code == "unproven"


def test_a_run_without_the_control_claims_nothing() -> None:
    table = samples({}, rounds=2)
    assert findings(table[table["region_bytes"] != CONTROL_BYTES]) == {}


# --- the sibling ---------------------------------------------------------------------------------


def beside(table: pd.DataFrame, share: float, cost: float = 0.0, seed: int = 1) -> pd.DataFrame:
    """A sibling that works for a share of the time; then 4 KiB costs so much more."""
    aligned = (table["region_bytes"] == 4096) & (table["store_bytes"] == table["load_bytes"])
    table = with_sibling(table, share, seed=seed, extra=1 + cost * aligned, columns=["pair_ns"])
    # The fastest burst of several never loses the core; the CPU time is that of a slice of cells.
    return table.assign(pair_ns=table["cpu_time_ns"], cpu_time_ns=250_000.0)


def test_what_costs_beside_a_sibling_only_is_not_the_cores() -> None:
    named = findings(beside(samples({0: 0.5}), 0.5, cost=0.3))
    assert list(named) == [
        "0", "3072", "4096", "8192", "0 shared", "3072 shared", "4096 shared", "8192 shared",
    ]  # fmt: skip
    assert [named[name].verdict for name in ("0", "3072", "4096")] == [
        "supported", "refuted", "refuted",
    ]  # fmt: skip
    shared = named["4096 shared"]
    assert (shared.verdict, shared.of.kind) == ("supported", "description")
    assert shared.low < 30 < shared.high
    assert shared.plain.startswith("While a sibling of the core works, a load waits")
    assert named["8192 shared"].verdict != "supported"


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_null_beside_a_sibling(share: float) -> None:
    for seed in range(3):
        table = beside(samples({0: 0.5}, rounds=12), share, seed=seed)
        assert "supported" not in {
            found.verdict for name, found in findings(table).items() if not name.startswith("0")
        }


def test_where_the_core_is_never_alone_nothing_is_conditioned() -> None:
    table = beside(samples({0: 0.5, 4096: 0.7}), 1.0)
    named = findings(table)
    assert list(named) == ["0", "3072", "4096", "8192"]
    assert named["4096"].low < 70 < named["4096"].high
    assert AliasMapTable(table).used.all()


def test_where_no_sample_had_the_core_alone_that_is_said_and_drawn() -> None:
    table = never_alone(samples({0: 0.5, 4096: 0.7}, rounds=4))
    named = findings(table)
    for name in ("0", "3072", "4096", "8192"):
        assert named[name].verdict == "inconclusive"
        assert "never alone" in named[name].reason
        assert f"{name} shared" in named
    figures = experiment.figures(Run("alias_map-1", "alias_map", {}, table))
    assert set(figures) == {"map", "distance"}


# --- figures -------------------------------------------------------------------------------------


def test_one_cell_that_something_hit_does_not_take_the_colours() -> None:
    table = samples({4096: 0.3}, rounds=3)
    hit = (table["region_bytes"] == 2048) & (table["store_bytes"] == 0) & (table["load_bytes"] == 8)
    table.loc[hit, "pair_ns"] = 9.0
    figure = experiment.figures(Run("alias_map-1", "alias_map", {}, table))["map"]
    drawn = figure.axes[1].collections[0]
    assert np.nanmax(np.asarray(drawn.get_array())) > 5
    low, high = drawn.get_clim()
    assert low is not None
    assert high is not None
    assert low < 0.19 < high < 1


# --- for real ------------------------------------------------------------------------------------


@needs_this_processor
def test_a_short_run_visits_every_cell_in_another_order_each_round() -> None:
    given = {
        "budget_s": 0.2, "reach_bytes": 16, "pairs": 1024, "bursts": 1,
        "cores": [min(os.sched_getaffinity(0))],
    }  # fmt: skip
    run = experiment.measure(experiment.params(given))
    table = run.samples
    assert table["ok"].all()
    assert (table["pair_ns"] > 0).all()
    cells = len(REGIONS) * 25
    assert len(table) % cells == 0
    orders = [part["store_bytes"].tolist() for _, part in table.groupby("round")]
    assert len(orders) >= 1
    if len(orders) > 1:
        assert orders[0] != orders[1]
        assert sorted(orders[0]) == sorted(orders[1])
    assert {finding.subject for finding in experiment.analyse(run)} >= {"0", "3072", "4096", "8192"}
    assert (table["probe_before_ns"].dropna() > 0).all()
    assert (table["time_ns"] > 0).all()
    assert set(experiment.figures(run)) == {"map", "distance"}


@needs_this_processor
def test_a_worker_that_refuses_costs_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "cells_of", lambda _: [(0, 0, 99_999_992)])
    refusing = Mock(call=Mock(return_value=(errno.EINVAL, [np.zeros(1), np.zeros(1)])))
    with pytest.raises(WorkerError, match="refuses its arguments"):
        measure.take_map(refusing, AliasMapParams.make({}), 0, 0)
