from __future__ import annotations

import contextlib
import csv
import datetime as dt
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest

from perflib import batch as batches
from perflib.batch import (
    Outcome,
    ParameterSet,
    batch,
    load_sets,
    parse_assignments,
)
from perflib.framework.params import Params
from perflib.machine.processes import is_gone
from perflib.model.errors import UserError
from perflib.store.paths import notebooks_dir
from tests.cli.calling import call


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
        ("sets.csv", "\ufeffbudget_s;cores;aslr\n3.5;0-1;\n;;false\n"),
        ("sets.yml", "\ufeff- {budget_s: 3.5, cores: '0-1'}\n- {aslr: false}\n"),
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


# --- in processes of their own -------------------------------------------------------------------


def test_a_failure_or_a_dead_kernel_stops_no_other(tmp_path: Path) -> None:
    before = dict(os.environ)
    path = notebook(
        tmp_path / "one.ipynb",
        "import os, sys; print('x is', x, sys.executable)",
        "x == 4 and os.kill(os.getpid(), 9)",
        "assert x != 3, 'three is\\nno number'",
    )
    out = tmp_path / "out"
    outcomes = batch([path], [{"x": 4}, {"x": 3}, {"x": 2}], out)
    assert [(outcome.output.name, outcome.state) for outcome in outcomes] == [
        ("one-001.unfinished.ipynb", "failed"),
        ("one-002.unfinished.ipynb", "failed"),
        ("one-003.ipynb", "succeeded"),
    ]
    dead, wrong, right = outcomes
    assert dead.message.startswith("the kernel died in code cell 4")
    assert "x is 4" in streams(dead.output)
    assert wrong.message == "AssertionError: no number"
    assert "x is 3" in streams(wrong.output)
    assert right.message == ""
    assert f"x is 2 {sys.executable}" in streams(right.output)
    assert sorted(path.suffix for path in out.iterdir()) == [".ipynb"] * 3
    assert dict(os.environ) == before


def test_a_time_out_is_reported_and_earlier_output_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_STILL_S", 0.05)
    slow = notebook(
        tmp_path / "slow.ipynb",
        "import os; print('pid', os.getpid())",
        "import time; time.sleep(600)",
    )
    lines: list[str] = []
    for seconds in (12, 48, 192):  # a busy machine takes long to start a kernel
        (outcome,) = batch([slow], [], tmp_path / "out", timeout_s=seconds, progress=lines.append)
        assert outcome.message == f"took longer than {seconds} s and was ended"
        text = streams(outcome.output) if outcome.output.exists() else ""
        if text:
            break
    assert "pid" in text
    assert not Path(f"/proc/{int(text.split()[1])}").exists()
    assert lines[0] == "slow.ipynb (1 of 1) begins"
    assert lines[1].startswith("slow.ipynb (1 of 1) still runs, ")


def test_a_batch_that_is_killed_leaves_nothing_running_and_the_earlier_output(
    tmp_path: Path,
) -> None:
    begun = "import os, pathlib, time; pathlib.Path(f'begun.{os.getpid()}').touch()"
    path = notebook(tmp_path / "one.ipynb", begun, "time.sleep(600)")
    out = tmp_path / "out"
    earlier = notebook(out / "one.ipynb", "'an earlier good output'").read_bytes()
    argv = [sys.executable, "-m", "perflib", "batch", str(path), "--out", str(out), "--skip-done"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as killed:
        while not (found := list(out.glob("begun.*"))):
            assert killed.poll() is None
            time.sleep(0.05)
        killed.kill()
    while not is_gone(int(found[0].suffix[1:])):  # the test's time-out ends it
        time.sleep(0.05)
    assert (out / "one.ipynb").read_bytes() == earlier
    assert (out / "one.unfinished.ipynb").is_file()


# --- one after the other -------------------------------------------------------------------------


@pytest.fixture
def _in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells are executed here: a papermill and a kernel take seconds, and have tests above."""

    def execute(
        path: Path, parameters: ParameterSet, output: Path, _environment: Any, *_: Any
    ) -> Outcome:
        unfinished, begin_s = output.with_suffix(".unfinished.ipynb"), time.time()
        try:
            content = json.loads(path.read_text())
        except ValueError as error:
            return Outcome(path, parameters, unfinished, "failed", str(error), 0.1)
        names: dict[str, Any] = {}
        for number, cell in enumerate(content["cells"]):
            written = io.StringIO()
            try:
                with contextlib.redirect_stdout(written):
                    exec("".join(cell["source"]), names)
            except Exception as error:  # noqa: BLE001 whatever a cell raises
                part = {"output_type": "error", "ename": type(error).__name__}
                cell["outputs"] = [part | {"evalue": str(error), "traceback": []}]
                break
            cell["outputs"] = [
                {"output_type": "stream", "name": "stdout", "text": written.getvalue()}
            ]
            names |= {} if number else dict(parameters)
        unfinished.write_text(json.dumps(content))
        message = batches._error_in(unfinished)
        runs = batches._runs_named(unfinished, begin_s)
        state: Any = "failed" if message else "succeeded"
        return Outcome(path, parameters, unfinished, state, message, 0.1, runs)

    monkeypatch.setattr(batches, "_execute", execute)


@pytest.mark.usefixtures("_in_process")
def test_one_set_needs_no_number_and_equal_names_do_not_collide(tmp_path: Path) -> None:
    paths = [notebook(tmp_path / folder / "same.ipynb", "x") for folder in ("a", "b")]
    seen: list[Outcome] = []
    outcomes = batch(paths, [], tmp_path / "out", done=seen.append)
    assert outcomes == seen
    assert [outcome.output.name for outcome in outcomes] == ["same.ipynb", "same_2.ipynb"]
    assert all(outcome.state == "succeeded" for outcome in outcomes)
    names = [path.name for path in batches._outputs(paths, 2, tmp_path)]
    assert names == ["same-001.ipynb", "same-002.ipynb", "same_2-001.ipynb", "same_2-002.ipynb"]


@pytest.mark.parametrize(
    ("status", "complaints", "message"),
    [
        (0, "a warning", ""),
        (1, "Traceback\n  ValueError: no notebook\n\n", "ValueError: no notebook"),
        (3, " \n", "papermill ended with status 3"),
        (-9, "", "papermill was killed by SIGKILL"),
        (138, "", "the kernel died: killed or crashed; what it had put out is kept"),
    ],
)
def test_why_papermill_failed_is_a_sentence(
    status: int, complaints: str, message: str, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged.ipynb"
    damaged.write_text("{")
    for output in (damaged, tmp_path / "absent.ipynb"):
        assert batches._why(status, output, complaints) == message


def test_a_missing_notebook_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no notebook .*missing\.ipynb"):
        batch([tmp_path / "missing.ipynb"], [], tmp_path / "out")
    path = notebook(tmp_path / "one.ipynb", "x", parameters="events: int = 1\ncores = (0,\n 1)")
    with pytest.raises(UserError, match=r"one\.ipynb: unknown parameter 'evnts': did you mean"):
        batch([path], [{"events": 2}, {"cores": 1, "evnts": 2}], tmp_path / "out")
    bare = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x = 1")])  # type: ignore[no-untyped-call]
    nbformat.write(bare, tmp_path / "bare.ipynb")  # type: ignore[no-untyped-call]
    with pytest.raises(UserError, match="no cell tagged 'parameters': 'events' would change"):
        batch([path, tmp_path / "bare.ipynb"], [{"events": 2}], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_all_experiments_share_is_given_by_name_to_each_of_their_notebooks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        batches,
        "_execute",
        lambda path, given, output, *_: Outcome(path, given, output, "failed", "", 0.0),
    )
    paths = sorted(notebooks_dir().glob("[0-9]*.ipynb"))
    outcomes = batch(paths, [{"budget_s": 2.0, "cores": "all"}], tmp_path)
    assert [outcome.notebook for outcome in outcomes] == paths != []


def states(outcomes: list[Outcome]) -> list[str]:
    return [outcome.state for outcome in outcomes]


@pytest.mark.usefixtures("_in_process")
def test_what_fails_leaves_the_earlier_good_output(tmp_path: Path) -> None:
    path = notebook(tmp_path / "one.ipynb", "print('x is', x)", "assert x < 3")
    out = tmp_path / "out"
    batch([path], [{"x": 2}], out)
    good = (out / "one.ipynb").read_bytes()
    (failed,) = batch([path], [{"x": 3}], out)
    assert (failed.state, failed.output.name) == ("failed", "one.unfinished.ipynb")
    assert "x is 3" in streams(failed.output)
    assert (out / "one.ipynb").read_bytes() == good
    batch([path], [{"x": 1}], out)  # the next good one takes both places
    assert [file.name for file in out.iterdir()] == ["one.ipynb"]
    assert "x is 1" in streams(out / "one.ipynb")


@pytest.mark.usefixtures("_in_process")
def test_done_is_the_same_notebook_with_the_same_parameters(tmp_path: Path) -> None:
    both = "x = 1\ny = 2"
    paths = [
        notebook(tmp_path / f"{name}.ipynb", f"x, '{name}'", parameters=both) for name in ("a", "b")
    ]
    out = tmp_path / "out"
    lines: list[str] = []

    def again(parameters: dict[str, Any]) -> list[str]:
        lines.clear()
        return states(batch(paths, [parameters], out, skip_done=True, progress=lines.append))

    given = {"x": dt.date(2026, 1, 2), "y": float("nan")}  # YAML has them, JSON has not
    assert again(given) == ["succeeded", "succeeded"]
    assert lines[0] == "a.ipynb (1 of 2) begins: there is no good output yet"
    assert again(given) == ["skipped", "skipped"]
    assert lines == []
    notebook(paths[0], "x, 'changed'", parameters=both)
    assert again(given) == ["succeeded", "skipped"]
    assert lines == [
        "a.ipynb (1 of 2) begins: its output was made from another version of the notebook"
    ]
    assert again({"x": 2}) == ["succeeded", "succeeded"]
    assert lines[1] == "b.ipynb (2 of 2) begins: its output was made with other parameters"
    (out / "a.ipynb").write_text("{")  # damaged
    assert again({"x": 2}) == ["succeeded", "skipped"]


@pytest.mark.usefixtures("_in_process")
def test_one_json_object_of_what_became_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "home"
    monkeypatch.setenv("PERFLIB_HOME", str(store))
    (store / "runs").mkdir(parents=True)
    (store / "runs" / "machine-of-another.parquet").touch()
    save = f"import pathlib; pathlib.Path({str(store / 'runs')!r}, 'machine-1.parquet').touch()"
    path = notebook(tmp_path / "one.ipynb", save, "assert x != 3", "print('saved: machine-1')")
    sets = tmp_path / "sets.json"
    sets.write_text('[{"x": 2}, {"x": 3}]')
    argv = ["batch", str(path), "--sets", str(sets), "--out", str(tmp_path / "out"), "--json"]
    assert call(*argv) == 1
    reported = capsys.readouterr()
    good, bad = json.loads(reported.out)["outcomes"]
    assert good.pop("seconds") > 0
    assert good == {
        "notebook": str(path),
        "parameters": {"x": 2},
        "output": str(tmp_path / "out" / "one-001.ipynb"),
        "state": "succeeded",
        "message": "",
        "runs": ["machine-1"],
    }
    assert (bad["state"], bad["message"], bad["runs"]) == ("failed", "AssertionError", [])
    assert bad["output"].endswith("one-002.unfinished.ipynb")
    assert "one-002.ipynb (2 of 2) begins\n" in reported.err
    assert "1 of 2 notebooks failed" in reported.err
