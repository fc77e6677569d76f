"""The command and the function, from a farm's saved runs to a verdict; nothing is measured."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import perflib as pl
from perflib.experiments import get
from perflib.fleet import acceptance
from perflib.fleet.acceptance import BATTERY, accept
from perflib.fleet.plan import open_plan
from perflib.fleet.reference import Reference, open_reference
from perflib.model.errors import UserError
from perflib.store.export import export
from perflib.store.run_files import load, runs
from tests.cli.calling import call
from tests.fleet.accepting import Node, measuring, save_farm

PROCESSOR = "Intel(R) Xeon(R) Processor"


Given = Callable[..., None]


@pytest.fixture
def new(monkeypatch: pytest.MonkeyPatch) -> Given:
    """Sets what this node will measure."""

    def set_(**shown: Any) -> None:
        machine = {"hostname": "new", "processor": PROCESSOR, "architecture": "x86_64"}
        monkeypatch.setattr("perflib.machine.describe.describe", lambda: machine)
        measuring(monkeypatch, Node(**shown))

    set_()
    return set_


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the runs of six nodes."""
    store = tmp_path_factory.mktemp("farm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFLIB_HOME", str(store))
        save_farm(names=("kv_per_core", "memory_levels"))
    return store


@pytest.fixture
def farm(home: Path, saved: Path) -> Path:
    shutil.copytree(saved, home / "data", dirs_exist_ok=True)
    return home


@pytest.mark.usefixtures("farm", "new")
def test_a_node_like_the_others_is_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("accept", "--against", "store") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"Accepted: new is like 6 nodes of {PROCESSOR}." in out
    assert "memory_load, coherence, sharing (the farm has no nodes of this model with it)" in out
    assert "perflib: " not in out  # no reason to drain it


def test_a_slow_node_is_refused_with_a_reason(
    farm: Path, new: Given, capsys: pytest.CaptureFixture[str]
) -> None:
    new(slower=0.08)
    metrics = farm / "accept.prom"
    assert call("accept", "--against", "store", "--openmetrics", str(metrics)) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Refused: new is 8.")
    assert re.fullmatch(r"perflib: new is 8\.\d% slower than 6 nodes \(\w+\)", lines[-1])
    assert len(lines[-1]) <= 80
    text = metrics.read_text()
    assert 'verdict="refused"} 1' in text
    assert text.endswith("# EOF\n")
    assert [one.name for one in farm.iterdir() if one.name.startswith(".")] == []
    assert call("accept", "--against", "store", "--json") == 3
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "refused"
    assert found["drain_reason"].startswith("perflib: new is 8.")
    assert len(found["sentences"]) <= 7
    assert [one.split("-")[0] for one in found["runs"]].count("kv_per_core") == 2


@pytest.mark.usefixtures("farm")
def test_a_slow_core_is_named(new: Given) -> None:
    new(core=0.2)
    found = accept("store")
    assert found.verdict == "refused"
    assert "cpu1" in found.drain_reason
    shown = {one.about.get("cpu") for one in found.findings if one.verdict == "supported"}
    assert 1 in shown
    assert 0 not in shown


# --- in which setting it differs -----------------------------------------------------------------


@pytest.mark.usefixtures("farm")
def test_a_refused_node_s_one_odd_setting_is_named(
    new: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    new(slower=0.08)
    known = load(next(one.id for one in runs())).provenance["machine"]
    named = {"hostname": "new", "processor": PROCESSOR, "architecture": "x86_64"}
    alike = {**known, **named}
    assert open_reference("store").unlike("new", PROCESSOR, alike) == []
    odd = {**alike, "kernel": "5.14.0-503"}
    monkeypatch.setattr("perflib.machine.describe.describe", lambda: odd)
    found = accept("store")
    assert found.sentences[2] == (
        "Unlike most others of its model: its kernel is 5.14.0-503, 6 of 6 others have "
        f"{known['kernel']}."
    )
    assert found.to_dict()["unlike"][0]["mine"] == "5.14.0-503"


def made_farm(others: int, **columns: list[str | None]) -> Reference:
    """A new node ``x`` and so many others; a column's first value is that of ``x``."""
    nodes = {"node": ["x", *(f"n{one}" for one in range(others))], "model": "A", **columns}
    return Reference("farm", pd.DataFrame(), pd.DataFrame(nodes))


def test_settings_that_most_others_have_otherwise() -> None:
    kernels: list[str | None] = ["503", *["570"] * 39, "488"]
    farm = made_farm(40, kernel=kernels, bios=["1.2", *["1.3"] * 40], smt=["on"] * 41)
    assert [(one["name"], one["many"], one["of"]) for one in farm.unlike("x", "A")] == [
        ("bios", 40, 40), ("kernel", 39, 40),
    ]  # fmt: skip
    (reason,) = acceptance._settings(farm.unlike("x", "A"))
    assert reason.numbers["listed"] == (
        "its bios is 1.2, 40 of 40 others have 1.3; its kernel is 503, 39 of 40 others have 570"
    )
    assert farm.unlike("n39", "A") == [
        {"name": "kernel", "mine": "488", "theirs": "570", "many": 39, "of": 40}
    ]
    named = farm.unlike("x", "A", {"kernel": "570", "settings": {"smt": "off"}})
    assert [(one["name"], one["mine"]) for one in named] == [("smt", "off")]


@pytest.mark.parametrize("values", [
    ["1", *["2"] * 4],  # too few others
    ["1", *["2", "3"] * 4],  # the others differ among themselves
    ["1", *[None] * 8],  # not known of them
    [None, *["2"] * 8],  # nor of this node
    ["2", *["2"] * 8],
])  # fmt: skip
def test_null_no_setting_is_named_without_a_usual_one(values: list[str | None]) -> None:
    farm = made_farm(len(values) - 1, kernel=values)
    assert farm.unlike("x", "A") == []
    assert farm.unlike("unknown", "A") == []
    assert farm.unlike("x", "B") == []
    assert acceptance._settings([]) == []


@pytest.mark.usefixtures("farm")
def test_what_is_not_shown_again_does_not_refuse(new: Given) -> None:
    new(slower=0.08, once=True)
    found = accept("store")
    assert (found.verdict, found.drain_reason, found.unlike) == ("accepted", "", [])
    assert any("Slower once, and not again" in one for one in found.sentences)


@pytest.mark.usefixtures("farm")
def test_a_busy_neighbour_decides_nothing(new: Given) -> None:
    new(slower=0.08, taken=0.4)
    found = accept("store")
    assert (found.verdict, found.exit_status) == ("cannot tell", 4)
    assert found.sentences[0].startswith("Cannot tell: neighbour busy, it took ")
    measured = [one.split("-")[0] for one in found.runs]
    assert measured == ["kv_per_core", "correctness"]  # it is not kept busy for long


@pytest.mark.usefixtures("farm")
@pytest.mark.parametrize("once", [False, True])
def test_a_wrong_result_refuses_at_once(new: Given, once: bool) -> None:
    new(wrong=True, once=once)  # in seven rounds: sure by itself
    found = accept("store")
    assert found.verdict == "refused"
    assert found.drain_reason == "perflib: cpu1 computes wrong results"
    assert "computes wrong" in found.sentences[0]


@pytest.mark.usefixtures("home")
def test_three_nodes_cannot_tell(new: Given) -> None:
    save_farm(nodes=3)
    new(slower=0.5)
    found = accept("store")
    assert found.exit_status == 4
    assert "it takes 5 nodes; this model has 3" in found.sentences[0]


@pytest.mark.usefixtures("farm", "new")
def test_the_runs_of_the_node_itself_do_not_count(monkeypatch: Any) -> None:
    machine = {"hostname": "n3", "processor": PROCESSOR, "architecture": "x86_64"}
    monkeypatch.setattr("perflib.machine.describe.describe", lambda: machine)
    found = accept("store")
    assert (found.node, found.nodes) == ("n3", 5)


@pytest.mark.usefixtures("farm")
def test_a_saved_node_is_judged_without_a_measurement() -> None:
    found = accept("store", node="n2")
    assert (found.verdict, found.nodes) == ("accepted", 5)
    assert all("n2" in one for one in found.runs)
    with pytest.raises(UserError, match="unknown node 'n22': did you mean"):
        accept("store", node="n22")


@pytest.mark.usefixtures("new")
def test_anonymous_runs_from_elsewhere_are_weaker(farm: Path) -> None:
    folder = farm / "exported"
    names = [one.id for one in runs()]
    export(names, folder, anonymous=True, report=lambda run: get(run.experiment).reported(run))
    shutil.rmtree(farm / "data")
    (farm / "data").mkdir(mode=0o700)
    found = accept(folder)
    assert (found.verdict, found.nodes) == ("accepted", 6)
    assert any(one.startswith("Weaker: the runs are anonymous") for one in found.sentences)


@pytest.mark.usefixtures("new")
def test_what_cannot_be_done_is_one_sentence(
    farm: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*words: str) -> str:
        assert call("accept", *words) == 2
        return capsys.readouterr().err

    assert "unknown model 'Intel Xeon'" in refused("--against", "store", "--model", "Intel Xeon")
    assert "cannot be read (No such file" in refused("--against", str(farm / "none"))
    (farm / "empty").mkdir()
    assert "there are no runs in" in refused("--against", str(farm / "empty"))
    machine = {"hostname": "new", "processor": PROCESSOR, "architecture": "aarch64"}
    monkeypatch.setattr("perflib.machine.describe.describe", lambda: machine)
    assert "is x86_64, and this node is aarch64" in refused("--against", "store")
    machine["processor"] = "another"
    assert "has no node with this processor (another)" in refused("--against", "store")


@pytest.mark.usefixtures("home", "new")
def test_a_farm_without_runs_to_compare() -> None:
    with pytest.raises(UserError, match="no runs are saved"):
        accept("store")
    save_farm(nodes=2, days=1, names=("code_segment",))
    with pytest.raises(UserError, match=r"has runs of code_segment alone.*fleet plan --acceptance"):
        accept("store")


def test_a_simulated_farm() -> None:
    farm = pl.simulated_farm(slow_nodes={6: 0.05}, slow_core={"model A": (8, 0.12)})
    assert pl.accept(farm, node="simulated0007").verdict == "refused"
    assert pl.accept(farm, node="simulated0001").verdict == "accepted"  # cpu8 is of its model


def test_the_farm_is_planned_with_the_same_rows(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "nodes.csv").write_text("n1\nn2\n")
    words = ["fleet", "plan", str(home / "nodes.csv"), "--out", str(home / "plan")]
    assert call(*words) == 2
    assert "Give -e NAME, or --acceptance" in capsys.readouterr().err
    assert call(*words, "--acceptance", "-p", "budget_s=1") == 2
    assert call(*words, "--acceptance", "--compile-on-nodes") == 0
    rows = list(open_plan(home / "plan").rows.values())
    assert {(row.node, row.experiment) for row in rows} == {
        (node, name) for node in ("n1", "n2") for name in BATTERY
    }
    for row in rows:
        given = BATTERY[row.experiment]
        assert {name: row.params[name] for name in given} == dict(given)
    assert sum(given["budget_s"] for given in BATTERY.values()) <= 60
