"""A farm compared: by simulation, with noise that is not the model's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.fleet.analysis.comparisons import compare_farm
from perflib.fleet.analysis.simulated import simulated_farm
from perflib.stats.discoveries import centre, difference, discoveries
from tests.fleet.farms import ALPHA, NOISES, Healthy, drawn, report, reported, table
from tests.stats.simulated import at_most

HEALTHY = Healthy()
SMALL = Healthy(nodes=40, cores=8, models=("A",), rack_of=8)
REPORTS = 4  # of each noise; 300 nodes each


# --- what a report names -------------------------------------------------------------------------


def test_a_healthy_farm_is_reported_as_healthy() -> None:
    farms = [(noise, seed) for noise in NOISES for seed in range(REPORTS)]
    naming = [farm for farm in farms if len(report(HEALTHY, farm[1], noise=farm[0]))]
    assert len(naming) <= at_most(len(farms), ALPHA), naming


@pytest.mark.parametrize("noise", NOISES)
def test_core_8_of_one_of_two_models_is_found(noise: str) -> None:
    found = report(HEALTHY, 1, noise=noise, slow={"core": 0.05})
    (row,) = found[found["kind"] == "position"].to_dict("records")
    assert (row["name"], row["model"]) == ("cpu8", "A")
    assert abs(row["effect"] - 5.0) < 0.5
    assert not len(found[found["kind"] == "core"])  # of no node by itself


@pytest.mark.parametrize("noise", [name for name in NOISES if name != "unequal"])
def test_one_bad_node_is_found(noise: str) -> None:
    found = [report(HEALTHY, seed, noise=noise, days=10, slow={"node": 0.03}) for seed in range(3)]
    named = [list(one.loc[one["kind"] == "node", "effect"]) for one in found]
    assert sum(len(one) == 1 and abs(one[0] - 3) < 1.2 for one in named) >= 2, named


def test_a_rack_that_is_warm_in_the_afternoon_is_found() -> None:
    found = [
        report(HEALTHY, seed, noise="heavy", days=14, slow={"rack": 0.02}) for seed in range(3)
    ]
    hours = [list(one.loc[one["kind"] == "hours", "name"]) for one in found]
    assert sum(len(one) == 1 and one[0].endswith(", 12–18") for one in hours) >= 2, hours


def test_a_node_measured_in_the_warm_hours_of_its_rack_is_not_named() -> None:
    levels, nodes = table(replace(SMALL, days=12, noise="days"), 2)
    rack = levels["node"].map(nodes.set_index("node")["rack"])
    hour = levels["start"].dt.hour
    hot = (levels["node"] == "n0009") & (hour % 8 != 0)  # in rack 1
    levels.loc[hot, "start"] = levels.loc[hot, "start"].dt.floor("D") + pd.Timedelta(hours=15)
    warm = (rack == "1") & (levels["start"].dt.hour // 6 == 2)
    levels.loc[warm, "value"] *= 1.06
    assert list(reported(compare_farm(levels, nodes))["name"]) == ["rack 1, 12–18"]


def test_one_bad_day_is_no_bad_node_and_one_hot_afternoon_no_warm_rack() -> None:
    levels, nodes = table(SMALL, 0)
    day = levels["start"].dt.floor("D")
    bad = (levels["node"] == "n0011") & (day == day.min())
    levels.loc[bad, "value"] *= 1.2
    rack = levels["node"].map(nodes.set_index("node")["rack"])
    hot = (rack == "2") & (day == day.max()) & (levels["start"].dt.hour // 6 == 2)
    assert hot.any()
    levels.loc[hot, "value"] *= 1.3
    assert not len(reported(compare_farm(levels, nodes)))


def test_one_bad_day_is_no_bad_core() -> None:
    levels, nodes = table(replace(SMALL, cores=32, days=2), 0)
    day = levels["start"].dt.floor("D")
    bad = (levels["node"] == "n0011") & (levels["cpu"] == 2) & (day == day.max())
    assert bad.any()
    levels.loc[bad, "value"] *= 1.6
    assert not len(reported(compare_farm(levels, nodes)))


def test_one_bad_core_of_one_node_is_found() -> None:
    levels, nodes = table(replace(SMALL, days=8, noise="days"), 0)
    bad = (levels["node"] == "n0003") & (levels["cpu"] == 5)
    levels.loc[bad, "value"] *= 1.06
    found = reported(compare_farm(levels, nodes))
    assert list(found["name"]) == ["n0003 cpu5"]


def test_the_interval_of_a_node_holds_its_truth() -> None:
    held = []
    for seed in range(12):
        levels, nodes = table(replace(SMALL, days=8, noise=NOISES[seed % len(NOISES)]), seed)
        for name in nodes["node"][:3]:
            levels.loc[levels["node"] == name, "value"] *= 1.02
        effects = compare_farm(levels, nodes).effects
        mine = effects[effects["name"].isin(nodes["node"][:3])]
        held += list((mine["effect_low"] <= 2.0) & (mine["effect_high"] >= 2.0))
    assert len(held) - sum(held) <= at_most(len(held), 0.05)


def test_nodes_that_differ_for_good_widen_the_threshold() -> None:
    """Processors of one model differ; a node that differs no more than the others is not named."""
    levels, nodes = table(replace(SMALL, days=8), 0)
    rng = np.random.default_rng(1)
    part = dict(zip(nodes["node"], rng.normal(0, 0.015, len(nodes)), strict=True))
    levels["value"] *= np.exp(levels["node"].map(part))
    farm = compare_farm(levels, nodes)
    of_nodes = farm.effects[farm.effects["kind"] == "node"]
    assert (of_nodes["effect"] > 1.5).any()
    assert (of_nodes["threshold"] > 3).all()
    assert not len(reported(farm))


# --- what slow nodes have in common --------------------------------------------------------------


def test_what_slow_nodes_share_is_ranked_and_reported_once() -> None:
    levels, nodes = table(replace(SMALL, slow={"bios": 0.02}), 3)
    nodes["microcode"] = np.where(nodes["bios"] == "2.2", "0x49", "0x43")
    nodes["serial"] = nodes["node"] + "-s"
    farm = compare_farm(levels, nodes)
    groups = farm.effects[farm.effects["kind"] == "group"]
    best = groups.sort_values("separation").iloc[-1]
    assert (best["name"], best["same"]) == ("bios 2.2", ("microcode 0x49",))
    assert best["separation"] > 0.95
    assert list(reported(farm)["name"]) == ["bios 2.2"]  # and no single node
    assert not groups["name"].str.startswith("serial").any()


def test_a_node_is_not_named_for_what_its_group_explains() -> None:
    levels, nodes = table(replace(SMALL, days=8), 0)
    nodes["dimms"] = np.where(nodes.index % 8 == 3, "6", "8")
    few = set(nodes.loc[nodes["dimms"] == "6", "node"])
    levels["value"] *= np.where(levels["node"].isin(few), 1.05, 1.0)
    assert list(reported(compare_farm(levels, nodes))["name"]) == ["dimms 6"]
    without = reported(compare_farm(levels, nodes.drop(columns="dimms")))
    assert set(without["name"]) == few


def test_an_attribute_of_whole_racks_counts_racks_not_nodes() -> None:
    """Five racks of eight nodes differ a little each; three have another BIOS by chance."""
    levels, nodes = table(replace(SMALL, days=8), 0)
    of_racks = {"0": 0.0, "1": 0.03, "2": 0.06, "3": 0.0, "4": 0.02}
    rack = nodes.set_index("node")["rack"]
    levels["value"] *= np.exp(levels["node"].map(rack).map(of_racks))
    nodes["bios"] = np.where(nodes["rack"].isin(["1", "2", "4"]), "2.2", "2.0")
    nodes["rack"] = nodes["rack"].replace({"4": "5"})
    nodes.loc[nodes.index[-3:], ["rack", "bios"]] = ["6", "2.0"]
    farm = compare_farm(levels, nodes)
    assert "bios 2.2" not in set(reported(farm)["name"])


def test_a_number_with_many_values_is_cut_in_the_middle() -> None:
    levels, nodes = table(SMALL, 4)
    nodes["inlet"] = [str(20 + number / 10) for number in range(len(nodes))]
    hot = set(nodes["node"][len(nodes) // 2 :])
    levels.loc[levels["node"].isin(hot), "value"] *= 1.03
    farm = compare_farm(levels, nodes)
    assert "inlet above 21.95" in set(reported(farm)["name"])


# --- what cannot be said -------------------------------------------------------------------------


def why(farm: Any, kind: str) -> set[str]:
    effects = farm.effects
    return set(effects.loc[effects["kind"] == kind, "why"])


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_few_nodes_have_no_verdict(nodes: int) -> None:
    farm = compare_farm(*table(replace(SMALL, nodes=nodes, slow={"node": 0.5}), 0))
    assert why(farm, "node") == {"few_nodes"}
    assert why(farm, "position") == {"few_units"}
    named = reported(farm)
    assert not len(named[named["kind"] != "core"])


def test_one_occasion_is_not_enough_for_a_node_but_for_a_position() -> None:
    one_day = replace(SMALL, cores=16, days=1, slow={"core": 0.05, "node": 0.2})
    farm = compare_farm(*table(one_day, 0))
    assert why(farm, "node") == why(farm, "core") == {"once"}
    assert list(reported(farm)["name"]) == ["cpu8"]


def test_a_node_with_nearly_all_runs_does_not_speak_for_the_others() -> None:
    levels, nodes = table(replace(SMALL, days=12), 0)
    first_day = levels["start"] < levels["start"].min().floor("D") + pd.Timedelta(days=1)
    levels = levels[first_day | (levels["node"] == "n0000")]
    farm = compare_farm(levels, nodes)
    of_nodes = farm.effects[farm.effects["kind"] == "node"].set_index("name")
    assert of_nodes.at["n0000", "why"] == ""
    assert set(of_nodes["why"].drop("n0000")) == {"once"}
    assert not len(reported(farm))


def test_what_is_missing_costs_only_what_it_was_for() -> None:
    levels, nodes = table(replace(SMALL, days=6), 0)
    bare = compare_farm(levels, nodes[["node", "model"]])
    assert set(bare.effects["kind"]) == {"node", "core", "position"}
    unknown = compare_farm(
        levels.assign(start=pd.Series(pd.NaT, levels.index, "datetime64[ns, UTC]")), nodes.iloc[:0]
    )
    assert set(unknown.effects["kind"]) == {"node", "core", "position"}
    whole = compare_farm(levels.assign(cpu=-1), nodes)
    assert set(whole.effects["kind"]) == {"node", "group", "hours"}
    assert not len(compare_farm(levels.iloc[:0], nodes).effects)
    wrong = levels.assign(value=levels["value"].where(levels["cpu"] != 3, 0.0))
    assert 3 not in set(compare_farm(wrong, nodes).cores["cpu"])


def test_missing_cores_do_not_make_a_node_slow() -> None:
    """A few nodes lack the fast cores."""
    levels, nodes = table(replace(SMALL, days=6), 0)
    fast = levels["cpu"] < 3
    levels.loc[fast, "value"] *= 0.9
    few = levels["node"].isin(nodes["node"][:4])
    farm = compare_farm(levels[~(fast & few)], nodes)
    named = reported(farm)
    assert set(named["kind"]) <= {"position"}


def test_sockets_are_compared_where_they_are_known() -> None:
    levels, nodes = table(replace(SMALL, days=6), 0)
    levels["socket"] = levels["cpu"] // 4
    levels.loc[levels["socket"] == 1, "value"] *= 1.04
    named = reported(compare_farm(levels, nodes))
    assert "socket1" in set(named["name"])


def test_experiments_stay_apart() -> None:
    levels, nodes = table(replace(SMALL, days=8), 0)
    other = levels.assign(experiment="code_segment", run=levels["run"] + 10**6)
    other.loc[other["node"] == "n0007", "value"] *= 1.05
    named = reported(compare_farm(pd.concat([levels, other]), nodes))
    assert [tuple(row) for row in named[["experiment", "name"]].to_numpy()] == [
        ("code_segment", "n0007")
    ]


def test_the_simulated_farm_shows_what_it_says() -> None:
    farm = simulated_farm(
        60, 8, 10, slow_core={"model A": (5, 0.12)}, slow_nodes={7: 0.04}, slow_bios=("2.2", 0.02)
    )
    assert len(farm.truth) == 3
    named = reported(compare_farm(farm.levels, farm.nodes))
    assert set(named["name"]) == {"cpu5", "bios 2.2", "simulated0008"}
    assert not len(reported(compare_farm(*simulated_farm(60, 8, 10, seed=2)[:2])))


# --- the parts -----------------------------------------------------------------------------------


def test_false_discoveries_among_many_true_ones_are_few() -> None:
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(200):
        p = rng.random(1000)
        p[:50] = rng.random(50) * 1e-6
        named = discoveries(p, np.repeat(["node", "core"], 500)) < ALPHA
        shares.append(named[50:].sum() / max(1, named.sum()))
        assert named[:50].all()
    assert 0.0 < np.mean(shares) < 1.15 * ALPHA


def test_a_large_family_does_not_drown_a_small_one() -> None:
    p = np.concatenate([[0.002], np.full(9, 0.7), np.linspace(0.01, 1, 50_000), [np.nan]])
    families = np.array(["rack"] * 10 + ["core"] * 50_000 + ["rack"], dtype=object)
    found = discoveries(p, families)
    assert found[0] == pytest.approx(0.04)
    assert np.isnan(found[-1])
    assert discoveries(np.full(2, np.nan), ["a", "b"]).tolist() == pytest.approx(
        [np.nan, np.nan], nan_ok=True
    )


@pytest.mark.parametrize("noise", ["heavy", "skewed", "laplace"])
def test_a_difference_of_centres_is_as_certain_as_it_says(noise: str) -> None:
    rng = np.random.default_rng(3)
    beyond = 0
    for _ in range(400):
        first, second = (centre(drawn(rng, noise, (size,))) for size in (12, 40))
        found = difference(first, second)
        beyond += abs(found.value / found.error) > 2.06 + 3 / found.freedom
    assert beyond <= at_most(400, 0.06)
