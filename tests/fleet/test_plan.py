"""Plans: what is in the folder, keys, and that nothing is written where something is wrong."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from perflib.fleet.manifest import key_of
from perflib.fleet.nodes import Node
from perflib.fleet.plan import Plan, create, open_plan, planned
from perflib.model.errors import UserError
from tests.cli.calling import call, call_json

FARM = [Node(f"n{number}", f"n{number}", {"rack": "A"}) for number in range(3)]


def test_every_experiment_on_every_node_with_the_parameters_that_it_has() -> None:
    rows = planned(
        FARM, ["kv_per_core", "memory_levels"], {"budget_s": "7", "events": "5"}, None, 0
    )
    assert len({row.key for row in rows}) == len(rows) == 6
    assert [(row.node, row.experiment) for row in rows[:2]] == [
        ("n0", "kv_per_core"),
        ("n0", "memory_levels"),
    ]
    assert rows[0].params["events"] == 5
    assert "events" not in rows[1].params
    assert {row.params["budget_s"] for row in rows} == {7.0}
    assert {row.limit_s for row in rows} == {321}
    quick = planned(FARM[:1], ["kv_per_core"], {}, "quick", 99)
    assert quick[0].params["budget_s"] < rows[0].params["budget_s"] * 10
    assert quick[0].limit_s == 99


def test_a_key_is_what_its_row_says() -> None:
    key = key_of("n1", "kv_per_core", {"a": 1, "b": [1, 2]})
    assert key == key_of("n1", "kv_per_core", {"b": [1, 2], "a": 1})
    others = [
        key_of("n2", "kv_per_core", {"a": 1, "b": [1, 2]}),
        key_of("n1", "coherence", {"a": 1, "b": [1, 2]}),
        key_of("n1", "kv_per_core", {"a": 1, "b": [2, 1]}),
    ]
    assert len({key, *others}) == 4


def test_a_plan_is_read_back(tmp_path: Path, kernels: Path) -> None:
    rows = planned(FARM, ["kv_per_core"], {}, None, None)
    made = create(tmp_path / "plan", FARM, rows, kernels)
    again = open_plan(tmp_path / "plan")
    assert again == made
    assert list(again.rows.values()) == rows
    assert again.nodes() == FARM
    assert Path(again.bundle_folder) == kernels
    with (tmp_path / "plan" / "manifest.csv").open(newline="") as file:
        first = next(csv.DictReader(file))
    assert json.loads(first["params"]) == rows[0].params
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]


def test_a_bundle_that_is_made_is_in_the_plan(tmp_path: Path) -> None:
    rows = planned(FARM[:1], ["kv_per_core"], {}, None, None)

    def make(folder: Path) -> None:
        from perflib.cli.build import bundled

        bundled(folder, names=("clock_gaps",))

    made = create(tmp_path / "plan", FARM[:1], rows, make)
    assert made.bundle_folder == "bundle"
    assert (tmp_path / "plan" / "bundle" / "bundle.json").is_file()
    assert len(made.bundle) == 64
    assert create(tmp_path / "other", FARM[:1], rows, None).bundle == ""


def test_nothing_is_left_of_a_plan_that_fails(tmp_path: Path) -> None:
    rows = planned(FARM, ["kv_per_core"], {}, None, None)

    def fail(folder: Path) -> None:
        folder.mkdir()
        msg = "no compiler"
        raise UserError(msg)

    for bundle in (fail, tmp_path / "nowhere"):
        with pytest.raises(UserError):
            create(tmp_path / "plan", FARM, rows, bundle)
        assert list(tmp_path.iterdir()) == []


def test_what_is_there_stays(plan: Plan) -> None:
    before = sorted(plan.folder.rglob("*"))
    with pytest.raises(UserError, match="there is a plan in"):
        create(plan.folder, FARM, [], None)
    assert sorted(plan.folder.rglob("*")) == before


def test_a_manifest_that_was_changed_is_refused(plan: Plan) -> None:
    path = plan.folder / "manifest.csv"
    text = path.read_text()
    path.write_text(text.replace(",n1,", ",n2,"))
    with pytest.raises(UserError, match="is not what its key says"):
        _ = open_plan(plan.folder).rows
    path.write_text(text[:-20])
    with pytest.raises(UserError, match="damaged"):
        _ = open_plan(plan.folder).rows
    path.write_text(text)
    assert open_plan(plan.folder).rows == plan.rows
    with pytest.raises(UserError, match="unknown key"):
        plan.row("0" * 16)


def test_a_folder_that_is_no_plan(tmp_path: Path, plan: Plan) -> None:
    with pytest.raises(UserError, match="make one with 'perflib fleet plan'"):
        open_plan(tmp_path)
    place = plan.folder / "plan.json"
    for text, says in (("{", "damaged"), ("[]", "damaged"), ('{"format": 99}', "format 99")):
        place.write_text(text)
        with pytest.raises(UserError, match=says):
            open_plan(plan.folder)


def test_the_command(
    tmp_path: Path,
    kernels: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nodes.csv").write_text("node,rack\nn1,A\nn2,B\n")
    words = ["plan", "nodes.csv", "-e", "kv_per_core", "--out", "plan", "--bundle", str(kernels)]
    said = call_json(capsys, "fleet", *words, "-p", "budget_s=60", "--json")
    assert (said["nodes"], said["rows"]) == (2, 2)
    said = call_json(capsys, "fleet", "status", "plan", "--json")
    assert said["states"] == {"waiting": 2}
    assert said["rows"][0]["reason"] == "'perflib fleet run plan' continues"
    assert call("fleet", "status", "plan") == 0
    assert "     2  waiting" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("plan nodes.csv --out x", "what is to be measured? Give -e NAME, or --acceptance"),
        ("plan -e kv_per_core --out x", "which nodes?"),
        ("plan nodes.csv --from-sinfo -e kv_per_core --out x", "which nodes?"),
        ("plan none.csv -e kv_per_core --out x", "No such file"),
        ("plan nodes.csv -e kv_per_cor --out x", "did you mean 'kv_per_core'"),
        ("plan nodes.csv -e kv_per_core -p budget=60 --out x", "did you mean 'budget_s'"),
        ("plan nodes.csv -e kv_per_core -p budget_s=soon --out x", "budget_s"),
        ("plan nodes.csv -e memory_levels -p events=5 --out x", "unknown parameter 'events'"),
        ("plan nodes.csv -e kv_per_core --preset quik --out x", "did you mean 'quick'"),
        ("plan nodes.csv --partition a -e numa --out x", "--from-sinfo"),
        ("plan nodes.csv -e numa --out x --bundle . --compile-on-nodes", "exclude each other"),
        ("plan nodes.csv -e numa --out x --bundle .", "no bundle"),
        ("plan nodes.csv -e numa --out nodes.csv", "something in nodes.csv"),
        ("stauts x", "did you mean 'status'"),
        ("status x", "there is no plan in x"),
        ("run x", "there is no plan in x"),
        ("run x --on slurn", "did you mean 'slurm'"),
        ("collect x", "there is no plan in x"),
        ("job x abc", "there is no plan in x"),
    ],
)
def test_a_mistake_is_a_sentence_and_nothing_is_written(
    words: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nodes.csv").write_text("n1\n")
    assert call("fleet", *words.split()) == 2
    assert says in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["nodes.csv"]
