"""What `perflib list` shows."""

from __future__ import annotations

import json
import re

import pytest

from perflib.cli.reference import experiment_page
from perflib.experiments import NAMES, get
from tests.cli.calling import call, too_wide


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert call("list", *words) == 0
    return capsys.readouterr().out


def test_the_list_has_a_line_an_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    shown = listed(capsys)
    assert not too_wide(shown)
    entries = re.split(r"\n(?=\S)", shown)  # further lines begin with blanks
    assert [entry.split()[0] for entry in entries] == list(NAMES)
    for entry, name in zip(entries, NAMES, strict=True):
        wanted = f"{name} {get(name).question} [{get(name).notebook}.ipynb]"
        assert " ".join(entry.split()) == wanted


def test_the_list_as_json_keeps_its_keys(capsys: pytest.CaptureFixture[str]) -> None:
    entries = {one["name"]: one for one in json.loads(listed(capsys, "--json"))["experiments"]}
    assert list(entries) == list(NAMES)
    kv = entries["kv_per_core"]
    assert {"name", "title", "question", "notebook", "parameters", "profiles", "columns"} < set(kv)
    assert kv["profiles"] == kv["presets"]
    by_name = {entry["name"]: entry for entry in kv["parameters"]}
    assert by_name["budget_s"]["unit"] == "s"
    assert by_name["events"]["bounds"] == {"ge": 1, "le": 100_000}
    assert all(entry["help"] for entry in kv["parameters"])
    needed = {column["name"] for column in kv["columns"] if column["required"]}
    assert needed == {"round", "cpu", "event", "time_ns"}


def test_one_experiment_as_json_is_its_declaration(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(listed(capsys, "numa", "--json")) == get("numa").documentation()


@pytest.mark.parametrize("name", NAMES)
def test_one_experiment_is_shown_whole(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = get(name).documentation()
    page, shown = experiment_page(document), listed(capsys, name)
    assert shown.split() == page.split()
    assert not too_wide(shown)
    assert document["question"] in page
    for part in ("parameters", "columns", "claims"):
        for entry in document[part]:
            assert page.count(f"`{entry['name']}`") >= 1, entry
    for part in ("presets", "tables", "plots"):
        for key in document[part]:
            assert f"- `{key}`: " in page
    for claim in document["claims"]:
        assert claim["quantity"] in page
        assert set(claim["plain"]) <= {"supported", "refuted", "inconclusive"}
