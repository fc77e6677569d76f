"""Names are data: no figure, table, report or terminal obeys one, and each shows it as it is."""

from __future__ import annotations

import ast
import csv
import io
import json
import signal
import warnings
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Text

import perflib.cli
from perflib import experiments
from perflib.cli import main, output
from perflib.framework.plots import drawn, intervals
from perflib.lab.markup import seen as escaped
from perflib.lab.report import write_report
from perflib.lab.tables import Table
from perflib.lab.theme import figures, png, themed
from perflib.model.errors import UserError
from perflib.model.escape import csv_cell, file_name, from_csv_cell, lines, visible
from perflib.model.run import Run
from perflib.store import run_files
from perflib.store.export import export
from tests.hostile_names import LONG, NAMES, OPEN, hostile, texts
from tests.pages import Page
from tests.slow import mostly_slow

_NO_WIDTH = "\u200b"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # pytest's own handlers stay
    return tmp_path


def harmless(text: str) -> bool:
    """Whether a terminal shows a text and does nothing else."""
    return all(line.isprintable() for line in text.split("\n"))


def texts_of(figure: Figure) -> str:
    """All texts of a figure that is drawn; none of them may be mathematics."""
    found = figure.findobj(Text)
    assert found
    assert not [one for one in found if one.get_parse_math() and one.get_text()]
    return "\n".join(one.get_text() for one in found).replace(_NO_WIDTH, "")


# --- every experiment ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    mostly_slow(experiments.NAMES, ("kv_per_core", "threads", "event_profile", "allocators")),
)
def test_a_run_full_of_odd_names_is_drawn_reported_and_shown(
    name: str, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, names = hostile(name, experiments.NAMES.index(name))
    made: list[Figure] = []

    def kept(of: Run) -> dict[str, Figure]:
        found = figures(of)
        made.extend(found.values())
        return found

    monkeypatch.setattr("perflib.lab.report.figures", kept)
    assert harmless(write_report([run], home / "report.html"))
    page = Page((home / "report.html").read_text(encoding="utf-8"))
    assert page.of("script") == []
    host = run.provenance["machine"]["hostname"]
    assert escaped(host) in page.text
    seen = "\n".join(map(texts_of, made))
    assert harmless(seen)
    if name in OPEN:
        assert {one for one in names if one and one in seen}, seen
    path = run_files.save(run, home / "odd.parquet")
    with pytest.raises(SystemExit) as end:
        main(["-v", "show", str(path)])
    captured = capsys.readouterr()
    assert end.value.code == 0
    assert harmless(captured.out)
    assert harmless(captured.err)
    assert {*visible(host).split()} <= {*captured.out.split()}


# --- figures -------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(name=texts)
@example("$\\frac{")
@example(LONG)
@example("_")
def test_any_name_is_drawn_as_it_is(name: str) -> None:
    name = visible(name)

    def draw() -> Figure:
        figure = Figure(figsize=(8, 4))
        axes = figure.subplots()
        intervals(axes, [1, 2], [1, 2], [0, 1], [2, 3], label=name)
        axes.set_yticks([1, 2], [name, f"{name}2"])
        axes.set_title(name)
        axes.legend(*([one] for one in (axes.containers[0], name)))
        return figure

    with themed():
        figure = drawn(draw)
    axes = figure.axes[0]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        png(figure)
        figure.savefig(io.BytesIO())  # by someone else, later, without perflib's theme
    seen = texts_of(figure)
    legend = axes.get_legend()
    assert legend is not None
    if len(name) <= 30:
        assert axes.get_title(loc="left") == name
        assert [one.get_text() for one in axes.get_yticklabels()] == [name, f"{name}2"]
        if name:
            assert [one.get_text().strip(_NO_WIDTH) for one in legend.get_texts()] == [name]
    assert max(map(len, seen.split("\n"))) <= 200


def test_ticks_that_are_made_later_have_no_mathematics() -> None:
    def draw() -> Figure:
        figure = Figure()
        figure.subplots().plot(["$a$", "$b_"], [1, 2])
        return figure

    figure = drawn(draw)
    figure.savefig(io.BytesIO())
    axis = figure.axes[0].xaxis
    assert [one.get_text() for one in axis.get_ticklabels()] == ["$a$", "$b_"]
    assert not any(one.get_parse_math() for one in axis.get_ticklabels())


# --- terminals -----------------------------------------------------------------------------------


@given(name=texts)
@example("\x1b]0;\x07")
@example("\ud800")
def test_whatever_a_command_writes_is_harmless(name: str) -> None:
    with pytest.MonkeyPatch.context() as patch, io.StringIO() as written:
        patch.setattr("click.echo", lambda text, **_: written.write(f"{text}\n"))
        output.put(f"before {name} after")
        assert written.getvalue().count("\n") == 1
        output.show(f"before {name} after")
        output.say(f"  {name}")
        output.complain(f"perflib: {name}")
        output.print_json({name: name})
        assert harmless(written.getvalue())
    assert harmless(str(UserError(name)))
    table = repr(Table((name, "b"), [(name, "c"), ("d", name)], {}))
    assert harmless(table)
    assert table.count("\n") == 2


def test_commands_write_in_no_other_way() -> None:
    folder = Path(perflib.cli.__file__).parent
    direct = {
        path.name
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"click.echo", "click.secho", "print", "sys.stdout.write"}
    }
    assert direct == {"output.py"}


def test_lists_errors_and_exports_are_harmless(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place in range(0, len(NAMES), 9):
        run, _ = hostile("machine", place)
        run.id = f"machine-20261101-0745{place:02}-host-{place:010}"
        run_files.save(run)
    odd = home / "\x1b[2J=1\n.parquet"
    run_files.save(run, odd)
    commands: list[list[str]] = [
        ["runs"],
        ["runs", "-v"],
        ["show", str(odd)],
        ["compare", "-v", "machine-20261101-074500", "machine-20261101-074509"],
        ["report", str(odd), "--out", str(home / "\x1b[2J.html")],
        ["export", str(odd), "--out", str(home / "\x1b[2J")],
        ["analyse", "machine", "--samples", str(odd)],
        ["show", "\x1b[2J"],
        ["\x1b[2J"],
        ["show", "--\x1b[2J"],
        ["run", "machine", "-p", "\x1b[2J=\x1b[2J"],
        ["profile", str(home / "\x1b[2J")],
    ]
    for words in commands:
        with pytest.raises(SystemExit):
            main(words)
        captured = capsys.readouterr()
        assert captured.out + captured.err
        assert harmless(captured.out), words
        assert harmless(captured.err), words


# --- files ---------------------------------------------------------------------------------------


@given(text=st.text())
def test_a_file_name_is_in_no_other_folder(text: str) -> None:
    name = file_name(text)
    assert Path(name).name == name
    assert len(name.encode()) <= 180
    assert name.isprintable()
    assert not name.startswith(("-", "."))
    assert file_name(name) == name


def test_a_strangers_run_is_exported_into_no_other_folder(home: Path) -> None:
    run, _ = hostile("machine")
    run.id = "../../elsewhere"
    assert run_files.save(run).parent == run_files.runs_dir()
    path = run_files.save(run, home / "given.parquet")
    with pytest.raises(UserError, match="elsewhere"):
        export([str(path)], home / "in" / "out")
    assert not list(home.rglob("elsewhere*"))


@given(text=texts)
def test_a_csv_cell_is_no_formula_and_comes_back(text: str) -> None:
    cell = csv_cell(text)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert from_csv_cell(cell) == text


def test_a_table_of_odd_names_is_the_same_read_from_csv(home: Path) -> None:
    names = [name for name in NAMES if name.strip() and name not in {"nan", "None", "inf"}]
    table = pd.DataFrame({"=name": names, "time_ns": [-float(i) for i in range(len(names))]})
    run_files.write_csv(table, home / "odd.csv")
    with (home / "odd.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["'=name", "time_ns"]
    assert not any(row[0][:1] in "=+-@\t\r" for row in rows)
    assert rows[3][1] == "-3.0"  # a number stays one
    again = run_files.read_table(home / "odd.csv")
    assert list(again.columns) == list(table.columns)
    assert list(again["=name"]) == names


@given(name=texts)
def test_lines_keeps_lines(name: str) -> None:
    assert lines(f"a\n{name}").split("\n")[0] == "a"
    assert visible(visible(name)) == visible(name)
    assert json.loads(json.dumps(visible(name))) == visible(name)
