"""The farm's table, made of saved runs and of a plan's list of nodes."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perflib import experiments
from perflib.experiments.correctness.opinion import parsed
from perflib.fleet.analysis.table import attributes_of, farm_table, wrong_results
from perflib.lab.farm import farm
from perflib.lab.farm_report import write_farm_report
from perflib.model.errors import UserError
from perflib.model.run import Run
from perflib.store import run_files
from tests.experiments.correctness.test_opinion import ONCE, TWICE
from tests.framework.test_wrong import spoiled
from tests.hostile_names import NAMES, RUNS

pytestmark = pytest.mark.usefixtures("home")
MACHINE = run_files.load(RUNS / "kv_per_core.parquet").provenance["machine"]


def saved(host: str, day: int, cpus: Mapping[int, float], **machine: Any) -> str:
    """A run of a host, with these levels."""
    record = {**copy.deepcopy(MACHINE), "hostname": host, **machine}
    name = f"{host or 'nobody'}-{day}"
    provenance = {"machine": record, "start": f"2026-11-{day:02d}T12:00:00.000+00:00"}
    levels = [
        {"setting": "", "unit": "ns", "cpu": list(cpus), "value": list(cpus.values())},
    ]
    said = {"perflib_levels": json.dumps({"perflib": "1.0", "levels": levels})}
    run = Run(name, "kv_per_core", {}, pd.DataFrame({"cpu": [0]}), provenance)
    run_files.save(run, reported=said)
    return name


def plan(folder: Path, nodes: str, collected: str) -> Path:
    folder.mkdir()
    (folder / "nodes.csv").write_text(nodes)
    (folder / "collected.csv").write_text(
        "key,node,experiment,run,state,reason\n" + collected, encoding="utf-8"
    )
    return folder


def test_all_saved_runs_are_the_farm() -> None:
    saved("n1", 20, {0: 40.0, 1: 41.0})
    saved("n1", 21, {0: 40.5, 1: 41.0}, kernel="6.99")
    saved("n2", 20, {0: 42.0})
    levels, nodes = farm_table()
    assert sorted(levels["value"]) == [40.0, 40.5, 41.0, 41.0, 42.0]
    assert levels["start"].dtype == "datetime64[ns, UTC]"
    assert set(levels["socket"]) == {0}
    by_node = nodes.set_index("node")
    assert list(by_node.index) == ["n1", "n2"]
    assert by_node.at["n1", "kernel"] == "6.99"  # of the last run
    assert by_node.at["n2", "kernel"] == MACHINE["kernel"]
    assert by_node.at["n1", "thp"] == "madvise"
    assert set(levels["model"]) == set(nodes["model"])


def test_a_plan_names_the_nodes_and_its_attributes_win(tmp_path: Path) -> None:
    first, second = saved("host-a", 20, {0: 40.0}), saved("host-b", 20, {0: 41.0})
    saved("host-c", 20, {0: 99.0})
    folder = plan(
        tmp_path / "plan",
        "node,hostname,model,rack,kernel\nn1,host-a,blade,R1,mine\nn2,host-b,blade,,\n",
        f"k1,n1,kv_per_core,{first},imported,\nk2,n2,kv_per_core,{second},imported,\n"
        "k3,n3,kv_per_core,,refused,why\n",
    )
    levels, nodes = farm_table(folder)
    assert sorted(zip(levels["node"], levels["value"], strict=True)) == [("n1", 40.0), ("n2", 41.0)]
    by_node = nodes.set_index("node")
    assert list(by_node["model"]) == ["blade", "blade"]
    assert by_node.at["n1", "kernel"] == "mine"
    assert by_node.at["n2", "kernel"] == MACHINE["kernel"]  # an empty cell says nothing
    assert by_node["rack"].dropna().to_dict() == {"n1": "R1"}


def test_what_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no runs are saved"):
        farm_table()
    saved("n1", 20, {0: 40.0})
    with pytest.raises(UserError, match=r"nothing was collected of .*: 'perflib fleet collect"):
        farm_table(tmp_path)
    (tmp_path / "collected.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="cannot be read"):
        farm_table(tmp_path)
    empty = plan(tmp_path / "plan", "node\nn1\n", "")
    with pytest.raises(UserError, match="no run is of a known node"):
        farm_table(empty)


def computed_wrong(host: str, day: int, rounds: int) -> None:
    """A run of a host whose core 1 computed wrong in so many rounds."""
    run = run_files.load(RUNS / "kv_per_core.parquet")
    table = run.samples.reset_index(drop=True)
    chosen = sorted(set(table["round"]))[:rounds]
    rows = table.index[(table["cpu"] == 1) & table["round"].isin(chosen)]
    run = Run(
        f"kv_per_core-{host}-{day}",
        run.experiment,
        run.params,
        spoiled(table, rows, [f"{7 + row:#x}" for row in rows]),
        {"machine": {**MACHINE, "hostname": host}, "start": f"2026-11-{day:02d}T12:00:00+00:00"},
    )
    run_files.save(run, reported=experiments.get(run.experiment).reported(run))


def test_nodes_with_wrong_results_are_reported_first(tmp_path: Path) -> None:
    saved("n1", 20, {0: 40.0, 1: 41.0})
    assert wrong_results() == []
    computed_wrong("n3", 20, 1)
    computed_wrong("n2", 20, 5)
    computed_wrong("n4", 20, 1)
    computed_wrong("n4", 21, 1)
    found = {one.about["node"]: one for one in wrong_results()}
    assert {node: one.verdict for node, one in found.items()} == {
        "n2": "supported", "n3": "inconclusive", "n4": "supported",
    }  # fmt: skip
    assert "cpu1 computes wrongly" in found["n2"].plain
    out = tmp_path / "farm.html"
    said = write_farm_report(*farm_table(), out, wrong=wrong_results())
    assert [line[:7] for line in said[:3]] == ["Node n2", "Node n4", "Node n3"]
    assert "drain it" in out.read_text()
    assert [one.of.name for one in farm().found] == ["node_wrong"] * 2
    folder = plan(
        tmp_path / "plan",
        "node\nblade\n",
        "k1,blade,kv_per_core,kv_per_core-n2-20,imported,\n",
    )
    assert [one.about for one in wrong_results(folder)] == [{"node": "blade", "core": "cpu1 wrong"}]


@pytest.mark.parametrize(("log", "reported"), [(TWICE, True), (ONCE, False)])
def test_failures_that_a_second_opinion_found_are_reported(log: str, reported: bool) -> None:
    run = run_files.load(RUNS / "correctness.parquet")
    run.provenance["opendcdiag"] = {**parsed(log), "cores": [2, 3]}
    run_files.save(run, reported=experiments.get(run.experiment).reported(run))
    assert ("OpenDCDiag" in {one.about["core"] for one in wrong_results()}) == reported


def test_attributes_are_texts_and_what_is_odd_is_left_out() -> None:
    found = attributes_of(
        {
            "kernel": "6.1",
            "memory_bytes": 256 * 2**30,
            "settings": {"thp": "always", "governor": None},
            "firmware": {"bios_version": "2.1"},
            "mitigations": {"retbleed": "Vulnerable"},
            "hypervisor": ["odd"],
        }
    )
    assert found == {
        "kernel": "6.1",
        "memory": "256 GiB",
        "thp": "always",
        "bios_version": "2.1",
        "mitigation retbleed": "Vulnerable",
    }
    assert attributes_of({"settings": 3, "memory_bytes": "x"}) == {}


def test_hostile_hosts_and_attributes_are_data() -> None:
    names = [name for name in NAMES if name and len(name) < 200 and "/" not in name]
    for number, name in enumerate(names):
        run = saved(f"h{number}", 20, {0: 40.0 + number % 3, 1: 41.0}, kernel=name)
        assert run
    levels, nodes = farm_table()
    assert set(nodes["kernel"].dropna()) <= set(names)
    assert len(nodes) == len(names)
    view = farm((levels, nodes))
    assert view.findings
    assert repr(view.findings)
