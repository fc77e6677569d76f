"""Findings of a farm: verdicts, reasons and sentences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from perflib.fleet.analysis.comparisons import compare_farm
from perflib.fleet.analysis.outliers import CLAIMS, findings, overview
from perflib.lab.summary import summary
from tests.fleet.farms import Healthy, table
from tests.hostile_names import NAMES

SMALL = Healthy(nodes=40, cores=16, days=8, models=("A",), rack_of=8, noise="days")


def test_both_threads_of_a_core_are_reported_together() -> None:
    levels, nodes = table(SMALL, 0)
    levels.loc[levels["cpu"].isin([3, 11]), "value"] *= 1.05
    found = findings(compare_farm(levels, nodes))
    reasons = {one.subject: one.reason for one in found if one.verdict == "supported"}
    assert "cpu11 shows it too" in reasons["cpu3 of every A (kv_per_core)"]
    assert "cpu3 shows it too" in reasons["cpu11 of every A (kv_per_core)"]


def test_an_association_is_called_one_and_confounded_attributes_are_one() -> None:
    levels, nodes = table(replace(SMALL, slow={"bios": 0.03}), 0)
    nodes["microcode"] = np.where(nodes["bios"] == "2.2", "0x49", "0x43")
    found = [one for one in findings(compare_farm(levels, nodes)) if one.verdict == "supported"]
    assert [one.about["name"] for one in found] == ["bios 2.2"]
    assert "The same nodes share microcode 0x49 as well" in found[0].reason
    assert "it need not be the cause" in found[0].reason


def test_what_does_not_survive_among_all_is_open() -> None:
    farm = compare_farm(*table(replace(SMALL, slow={"node": 0.03}), 0))
    assert [one for one in findings(farm) if one.verdict == "supported"]
    doubtful = replace(farm, effects=farm.effects.assign(q=0.2))
    found = findings(doubtful)
    assert not [one for one in found if one.verdict == "supported"]
    assert [one for one in found if "does not survive among the" in one.reason]


@pytest.mark.parametrize(
    ("farm", "kind", "sentence"),
    [
        (replace(SMALL, nodes=2), "node", "no one can say which is the odd one"),
        (replace(SMALL, days=1), "node", "on one occasion only"),
        (replace(SMALL, nodes=2), "position", "Too few nodes"),
        (replace(SMALL, days=3), "hours", "It takes four days"),
    ],
)
def test_what_cannot_be_said_has_a_reason(farm: Healthy, kind: str, sentence: str) -> None:
    found = [one for one in findings(compare_farm(*table(farm, 0))) if one.of is CLAIMS[kind]]
    assert found
    assert {one.verdict for one in found} == {"inconclusive"}
    assert sentence in found[0].reason


def test_a_wider_threshold_is_reported() -> None:
    levels, nodes = table(SMALL, 0)
    part = dict(zip(nodes["node"], np.random.default_rng(1).normal(0, 0.02, 40), strict=True))
    levels["value"] *= np.exp(levels["node"].map(part))
    found = [one for one in findings(compare_farm(levels, nodes)) if one.of is CLAIMS["node"]]
    assert all("so much the others differ without a fault" in one.reason for one in found)


def test_every_sentence_of_a_simulated_farm_says_so() -> None:
    found = findings(compare_farm(*table(replace(SMALL, slow={"core": 0.05}), 0)), "simulated: ")
    assert all(one.plain.startswith("simulated: ") for one in found)
    assert all(sentence.startswith("simulated: ") for sentence in summary(found))


def test_few_of_very_many_cores_are_named() -> None:
    levels, nodes = table(SMALL, 0)
    farm = compare_farm(levels, nodes)
    cores = [one for one in findings(farm) if one.of is CLAIMS["core"]]
    assert len(cores) <= 20
    counted = overview(farm).set_index("kind")
    assert counted.at["core", "compared"] == 40 * 16
    assert counted["slower"].sum() == 0
    assert list(counted.index) == list(CLAIMS)


def test_hostile_names_are_data() -> None:
    levels, nodes = table(replace(SMALL, slow={"core": 0.05}), 0)
    names = dict(zip(nodes["node"], [*NAMES, *NAMES][:40], strict=True))
    names = {node: f"{name}{number}" for number, (node, name) in enumerate(names.items())}
    levels["node"] = levels["node"].map(names)
    levels["model"], levels["experiment"] = NAMES[12], NAMES[18]
    nodes["node"], nodes["model"] = nodes["node"].map(names), NAMES[12]
    nodes["rack"] = [NAMES[number % 5] for number in range(40)]
    found = findings(compare_farm(levels, nodes))
    assert [one.about["name"] for one in found if one.verdict == "supported"] == ["cpu8"]
    for one in found:
        assert "\x1b" not in one.plain + one.reason + one.subject
        assert one.to_dict()


def test_an_empty_farm_has_no_findings() -> None:
    levels, nodes = table(SMALL, 0)
    farm = compare_farm(levels.iloc[:0], nodes.iloc[:0])
    assert findings(farm) == []
    assert isinstance(overview(farm), pd.DataFrame)
