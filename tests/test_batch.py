from __future__ import annotations

import csv
import json
import os
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from perflib import batch as batches
from perflib import experiments
from perflib.batch import Outcome, as_html, batch, every_notebook, load_sets, parse_assignments
from perflib.framework.params import Params
from perflib.model.errors import MeasurementError, UserError


def notebook(path: Path, *cells: str, parameters: str = "x = 1") -> Path:
    """A notebook with a cell of parameters and other cells."""
    v4: Any = nbformat.v4
    first = v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})
    made = v4.new_notebook(cells=[first, *(v4.new_code_cell(cell) for cell in cells)])
    made.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(made, path)  # type: ignore[no-untyped-call]
    return path


def streams(output: Path) -> str:
    cells = json.loads(output.read_text())["cells"]
    return "".join(
        "".join(part.get("text", "")) for cell in cells for part in cell.get("outputs", [])
    )


# --- parameter sets ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sets.yaml", "- {budget_s: 3.5, cores: '0-1'}\n- {aslr: false}\n"),
        ("sets.json", '[{"budget_s": 3.5, "cores": "0-1"}, {"aslr": false}]'),
        ("sets.csv", "budget_s,cores,aslr\n3.5,0-1,\n,,false\n"),
    ],
)
def test_sets_from_each_kind_of_file(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert load_sets(path) == [{"budget_s": 3.5, "cores": "0-1"}, {"aslr": False}]


def test_one_mapping_is_one_set(tmp_path: Path) -> None:
    path = tmp_path / "set.yml"
    path.write_text("budget_s: 3\n")
    assert load_sets(path) == [{"budget_s": 3}]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("sets.yaml", "- 3\n", "set 1 is no mapping"),
        ("sets.yaml", "- {a: 1}\n- {1: 2}\n", "set 2 is no mapping"),
        ("sets.yaml", "", "holds no parameter sets"),
        ("sets.json", "[", "cannot be read"),
        ("sets.csv", "", "holds no parameter sets"),
        ("sets.csv", "a,b\n1,2,3\n", "row 1 has 3 values for 2 parameters"),
        ("sets.csv", "a,b,a\n1,2,3\n", "parameter 'a' is given twice"),
        ("sets.yaml", "- {a: 1, b: 2, a: 3}\n", "parameter 'a' is given twice"),
        ("sets.json", '[{"a": 1, "a": 1}]', "parameter 'a' is given twice"),
        ("sets.toml", "", "are read from"),
        (None, "", "cannot be read"),
    ],
)
def test_wrong_files_are_sentences(tmp_path: Path, name: str | None, text: str, words: str) -> None:
    path = tmp_path / (name or "missing.yaml")
    if name:
        path.write_text(text)
    with pytest.raises(UserError, match=words) as caught:
        load_sets(path)
    assert "\n" not in str(caught.value)


def test_assignments_become_what_a_cell_would_hold() -> None:
    words = ["a=1", "b=1.5", "c=physical", "d=null", "e=0-3", "f=x=y", "g=True", "h=[64, 512]"]
    assert parse_assignments(words) == {
        "a": 1,
        "b": 1.5,
        "c": "physical",
        "d": None,
        "e": "0-3",
        "f": "x=y",
        "g": True,
        "h": [64, 512],
    }


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["a"], "'a' is no parameter: write KEY=VALUE"),
        (["=1"], "'=1' is no parameter"),
        (["a b=1"], "'a b=1' is no parameter"),
        (["seed=1", "seed=1"], "parameter 'seed' is given twice"),
    ],
)
def test_run_and_batch_refuse_the_same_words(words: list[str], says: str) -> None:
    for parse in (Params.parse, parse_assignments):
        with pytest.raises(UserError, match=says):
            parse(words)


@pytest.mark.parametrize(
    "word",
    [
        "fifo_priority=none",
        "fifo_priority=None",
        "memory_node=null",
        "budget_s=1e3",
        "cores=0,1",
        "cores=3",
        "aslr=False",
        "environment=A=1,B=x: y",
        "preload=*.so",
        "settings=thp=always",
    ],
)
def test_run_and_batch_mean_the_same(word: str, tmp_path: Path) -> None:
    by_run = Params.parse([word])
    assert Params.make(parse_assignments([word])) == by_run
    name, _, value = word.partition("=")
    sheet = tmp_path / "sets.csv"
    with sheet.open("w", newline="") as file:
        csv.writer(file).writerows([[name], [value]])
    (one,) = load_sets(sheet)
    assert Params.make(one) == by_run
    text = tmp_path / "sets.yaml"
    text.write_text(f"- {{{name}: {json.dumps(value)}}}\n")
    (one,) = load_sets(text)
    assert Params.make(one) == by_run


# --- executing -----------------------------------------------------------------------------------


def test_each_notebook_with_each_set_and_a_failure_stops_no_other(tmp_path: Path) -> None:
    before = dict(os.environ)
    good = notebook(
        tmp_path / "good.ipynb",
        "import os, sys; print('x is', x, sys.executable)",
        "assert x != 3, 'three is\\nno number'",
    )
    dies = notebook(
        tmp_path / "dies.ipynb",
        "print('still here')",
        "import os; x == 3 and os.kill(os.getpid(), 9)",
    )
    seen: list[Outcome] = []
    out = tmp_path / "out"
    outcomes = batch([dies, good], [{"x": 3}, {"x": 2}], out, done=seen.append)
    assert outcomes == seen
    assert [(outcome.output.name, outcome.ok) for outcome in outcomes] == [
        ("dies-001.ipynb", False),
        ("dies-002.ipynb", True),
        ("good-001.ipynb", False),
        ("good-002.ipynb", True),
    ]
    dead, _, wrong, right = outcomes
    assert dead.message.startswith("the kernel died in code cell 4")
    assert "still here" in streams(dead.output)
    assert wrong.message == "AssertionError: no number"
    assert "x is 3" in streams(wrong.output)
    assert right.message == ""
    assert f"x is 2 {sys.executable}" in streams(right.output)
    assert sorted(path.suffix for path in out.iterdir()) == [".ipynb"] * 4
    assert dict(os.environ) == before


def test_one_set_needs_no_number_and_equal_names_do_not_collide(tmp_path: Path) -> None:
    paths = [notebook(tmp_path / folder / "same.ipynb", "x") for folder in ("a", "b")]
    outcomes = batch(paths, [], tmp_path / "out")
    assert [outcome.output.name for outcome in outcomes] == ["same.ipynb", "same_2.ipynb"]
    assert all(outcome.ok for outcome in outcomes)


def test_a_time_out_is_told_and_what_there_was_is_kept(tmp_path: Path) -> None:
    slow = notebook(
        tmp_path / "slow.ipynb",
        "import os; print('pid', os.getpid())",
        "import time; time.sleep(600)",
    )
    (outcome,) = batch([slow], [], tmp_path / "out", timeout_s=12)
    assert outcome.message == "took longer than 12 s and was ended"
    text = streams(outcome.output)
    assert "pid" in text
    assert not Path(f"/proc/{int(text.split()[1])}").exists()


def test_a_damaged_notebook_is_one_failure(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.ipynb"
    damaged.write_text("{")
    (outcome,) = batch([damaged], [], tmp_path / "out")
    assert not outcome.ok
    assert outcome.message
    assert "\n" not in outcome.message


def test_a_missing_notebook_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no notebook .*missing\.ipynb"):
        batch([tmp_path / "missing.ipynb"], [], tmp_path / "out")


# --- the whole machine ---------------------------------------------------------------------------


def test_every_notebook_is_run_and_a_failed_one_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebooks = tmp_path / "notebooks"
    notebook(notebooks / "00_good.ipynb", "print('preset is', preset)", parameters="preset = 1")
    notebook(notebooks / "01_bad.ipynb", "1 / 0", parameters='preset = "full"')
    notebook(notebooks / "draft.ipynb", "raise SystemExit")
    monkeypatch.setattr(batches, "notebooks_dir", lambda: notebooks)
    outcomes = every_notebook(tmp_path / "out")
    assert [(outcome.notebook.stem, outcome.ok) for outcome in outcomes] == [
        ("00_good", True),
        ("01_bad", False),
    ]
    assert "preset is quick" in streams(outcomes[0].output)
    page = as_html(outcomes[0].output)
    assert page == tmp_path / "out" / "00_good.html"
    assert "preset is quick" in page.read_text()


def test_every_notebook_but_what_cannot_run_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebooks = tmp_path / "notebooks"
    notebook(notebooks / "00_machine.ipynb", "1", parameters='preset = "full"')
    notebook(notebooks / "02_event_profile.ipynb", "1 / 0", parameters='preset = "full"')
    monkeypatch.setattr(batches, "notebooks_dir", lambda: notebooks)
    event_profile = type(experiments.get("event_profile"))
    monkeypatch.setattr(event_profile, "unavailable", lambda _self: "perf is not installed")
    outcomes = every_notebook(tmp_path / "out")
    assert [(outcome.ok, outcome.message) for outcome in outcomes] == [
        (True, ""),
        (True, "perf is not installed"),
    ]


def test_without_notebooks_there_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "notebooks_dir", lambda: tmp_path)
    with pytest.raises(UserError, match="there are no notebooks"):
        every_notebook(tmp_path / "out")


def test_what_cannot_be_exported_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "broken.ipynb").write_text("{")
    with pytest.raises(MeasurementError, match="broken"):
        as_html(tmp_path / "broken.ipynb")


def test_an_investigation_has_every_notebook_as_a_page_and_tells_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from perflib.cli import investigate

    notebooks = tmp_path / "notebooks"
    notebook(notebooks / "00_good.ipynb", "print('preset is', preset)", parameters="preset = 1")
    notebook(notebooks / "01_bad.ipynb", "1 / 0", parameters="preset = 1")
    monkeypatch.setattr(batches, "notebooks_dir", lambda: notebooks)
    pages, failures = investigate._notebooks(tmp_path / "out")
    assert [page.name for page in pages] == ["00_good.html", "01_bad.html"]
    assert failures == ["notebook 01_bad: ZeroDivisionError: division by zero"]
    told = capsys.readouterr()
    assert told.out == ""  # with --json it is JSON's
    assert "notebook 00_good: done" in told.err
