"""The report of an investigation: small, whole, first what is so, then how it is known."""

from __future__ import annotations

import base64
import dataclasses
import itertools
import json
import re
import shutil
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from perflib import experiments
from perflib.investigation.conclusion import Conclusion, conclude
from perflib.investigation.evidence import Evidence, Question, Step, Taken
from perflib.investigation.folder import runs_in, write_plan
from perflib.lab import investigation_report as module
from perflib.lab.investigation_report import MOST_BYTES, write_investigation
from perflib.lab.pictures import Picture, picture
from perflib.lab.theme import themed
from perflib.model.errors import MeasurementError
from perflib.store.run_files import load
from tests.cli.calling import call
from tests.investigation.cases import EXPERIMENT, PART, evidence, slow_core
from tests.pages import Page
from tests.stored import RUNS, analyse_once

HOSTILE = "<script>alert('$x_1$')</script>&\"'"
CHECKS = [
    {"name": name, "state": state, "now": HOSTILE, "cost": "much", "command": "", "values": []}
    for name, state in (("load", "warn"), ("steal", "warn"), ("governor", "good"))
]
CHECKS[0]["command"] = "ps | <head>"
STEPS = ("symptom", "store and load")


def step(name: str) -> Step:
    return Step(name, PART[name], f"why {HOSTILE}", EXPERIMENT[name], {"budget_s": 30.0}, 30.0)


def measured(*names: str, skipped: str = "code pages") -> Evidence:
    """An investigation of stored runs, on a machine whose names are hostile."""
    machine = load(RUNS / "kv_per_core.parquet").provenance["machine"]
    fit = {"machine": machine | {"hostname": HOSTILE, "processor": HOSTILE}, "checks": CHECKS}
    found = Evidence(Question(), [0, 1], fit)
    for name in names:
        run = load(RUNS / f"{EXPERIMENT[name]}.parquet")
        run.provenance["problems"] = [HOSTILE]
        found.add(Taken(step(name), run, 30.0))
    if skipped:
        found.add(Taken(step(skipped), skipped="there was no time left"))
    return found


@pytest.fixture(autouse=True)
def _analysed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    analyse_once(monkeypatch)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Evidence, Conclusion]:
    """A report with everything in it, written once for all tests that read it."""
    folder = tmp_path_factory.mktemp("investigation") / "first"
    known = measured(*STEPS)
    entries = conclude(evidence(symptom=slow_core())).ledger  # stored runs are of before it
    conclusion = dataclasses.replace(conclude(known), ledger=entries)
    write_investigation(known, conclusion, folder / "report.html")
    return folder / "report.html", known, conclusion


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that do not look at the figures of steps."""
    monkeypatch.setattr(module, "_MOST_S", -1.0)


def text_of(found: tuple[Path, Evidence, Conclusion]) -> str:
    return found[0].read_text(encoding="utf-8")


# --- the file ------------------------------------------------------------------------------------


def test_it_is_small_and_needs_nothing_from_elsewhere(whole: Any) -> None:
    assert whole[0].stat().st_size <= MOST_BYTES
    page = Page(text_of(whole))
    assert not page.of("script", "link", "iframe", "object", "style")[1:]
    sources = [one["src"] for one in page.of("img")]
    assert len(sources) > len(STEPS)
    assert all(
        one.startswith(("data:image/png;base64,", "data:image/svg+xml;base64,")) for one in sources
    )
    assert "url(" not in text_of(whole)
    assert list(whole[0].parent.glob(".report*")) == []  # the temporary file is gone


def test_links_lead_to_places_within_it(whole: Any) -> None:
    page = Page(text_of(whole))
    assert {one["href"] for one in page.of("a")} <= {f"#{name}" for name in page.all("id")}


def test_it_is_html_by_the_standard(whole: Any) -> None:
    justhtml = pytest.importorskip(
        "justhtml", reason="needs justhtml: pip install 'perflib-jupyter[dev]'"
    )
    justhtml.JustHTML(text_of(whole), strict=True)  # raises at the first parse error


def test_it_is_said_in_an_accessible_way(whole: Any) -> None:
    page = Page(text_of(whole))
    assert page.of("html")[0]["lang"] == "en"
    assert [len(page.of(name)) for name in ("header", "main", "footer", "h1")] == [1, 1, 1, 1]
    levels = [level for level, _ in page.headings]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert all(len(one["alt"]) > 20 for one in page.of("img"))
    assert all(one.get("scope") for one in page.of("th"))
    identifiers = page.all("id")
    assert len(identifiers) == len(set(identifiers))


# --- what it says --------------------------------------------------------------------------------


def test_the_headline_comes_first(whole: Any) -> None:
    _, _, conclusion = whole
    page = Page(text_of(whole))
    level, text = page.headings[0]
    assert level == 1
    assert conclusion.headline.plain in text
    words = [" ".join(text.split()) for _, text in page.headings]
    assert words[1:5] == [
        "What spoils measurements here",
        "Found",
        "Not decided, and the run that would decide it",
        "The machine's portrait",
    ]
    assert "Ledger" in words[5]


@pytest.mark.usefixtures("quick")
def test_a_cause_is_named_with_its_mark_and_what_to_do(tmp_path: Path) -> None:
    known = measured("symptom")
    known._analysed["symptom"] = known._findings[0] = slow_core(1, 12.0)
    conclusion = conclude(known)
    write_investigation(known, conclusion, tmp_path / "report.html")
    text = unescape((tmp_path / "report.html").read_text())
    assert "▲</span> cause found" in text
    assert conclusion.findings[0].plain in text
    assert f"To do: {conclusion.findings[0].do}" in text


def test_each_step_is_folded_once_and_says_why_and_how(whole: Any) -> None:
    text = text_of(whole)
    parts = re.findall(r"<details>\n<summary><h3>.*?</details>", text, re.DOTALL)
    assert len(parts) == len(STEPS) + 1
    for name, part in zip(STEPS, parts, strict=False):
        assert f". {name}</h3>" in part
        for heading in ("What it found", "Verdicts", "Figures", "How it was measured"):
            assert f"<h4>{heading}</h4>" in part, (name, heading)
        assert "Why:" in part
        assert f"perflib run {EXPERIMENT[name]}" in part
        assert "<img" in part
    assert "<strong>Left out:</strong> there was no time left" in parts[-1]
    assert "perflib run code_segment" in parts[-1]


def test_what_spoils_stands_with_the_command_that_changes_it(whole: Any) -> None:
    text = text_of(whole)
    first, _, rest = text.partition('<h2 id="found">')
    assert "<code>ps | &lt;head&gt;</code>" in first
    assert "governor" not in first
    assert "governor" in rest  # the doctor's table


def test_the_ledger_names_every_hypothesis(whole: Any) -> None:
    _, _, conclusion = whole
    text = text_of(whole)
    ledger = text[text.index('<h2 id="ledger">') : text.index('<h2 id="steps">')]
    assert ledger.count("<tr>") == 1 + len(conclusion.ledger)
    for entry in conclusion.ledger:
        assert f">{entry.hypothesis}</td>" in ledger
        assert f" {entry.state}</td>" in ledger


@pytest.mark.usefixtures("quick")
def test_nothing_measured_is_a_report_too(tmp_path: Path) -> None:
    known = Evidence(Question(), [0])
    write_investigation(known, conclude(known), tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text())
    assert "undecided" in page.headings[0][1]
    assert "Nothing was measured." in (tmp_path / "report.html").read_text()


# --- within its size -----------------------------------------------------------------------------


def test_figures_that_do_not_fit_are_named_with_the_command_that_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = measured("levels", "symptom", skipped="")
    size = 100_000
    monkeypatch.setattr(module, "picture", lambda *_: Picture("data:" + "A" * (size - 5), 9, 9))
    for experiment in map(experiments.get, ("kv_per_core", "memory_levels")):
        monkeypatch.setattr(experiment, "drawings", lambda _run: {"one": Figure})
    monkeypatch.setattr(module, "MOST_BYTES", 0)  # but for the portrait, which is always there
    write_investigation(known, conclude(known), tmp_path / "report.html")
    most = (tmp_path / "report.html").stat().st_size + size + size // 2
    monkeypatch.setattr(module, "MOST_BYTES", most)
    write_investigation(known, conclude(known), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert most - size < len(text.encode()) <= most + 1000  # and sentences about what is left out
    assert "Left out to keep this file small" in text
    run = known.run("levels")
    assert run is not None
    assert f"<code>perflib report {run.id}</code>" in text
    # The symptom's figures matter more, though its step came later.
    symptom = text[text.index(". symptom</h3>") :]
    assert "<img" in symptom


def test_a_figure_that_cannot_be_drawn_costs_that_figure_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = measured("symptom", skipped="")
    kv = experiments.get("kv_per_core")

    def broken() -> Any:
        msg = "nothing is <positive>"
        raise ValueError(msg)

    drawn = kv.drawings(load(RUNS / "kv_per_core.parquet"))["drift"]
    monkeypatch.setattr(kv, "drawings", lambda _: {"parts": broken, "drift": drawn})
    write_investigation(known, conclude(known), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "parts (it could not be drawn: nothing is &lt;positive&gt;)" in text
    assert "<img" in text[text.index(". symptom</h3>") :]


@pytest.mark.usefixtures("quick")
def test_of_very_many_verdicts_those_that_say_something_are_shown(tmp_path: Path) -> None:
    known = measured("symptom")
    found = [one for cpu in range(1, 90) for one in slow_core(cpu)[2:]] + slow_core(91)[:1]
    known._analysed["symptom"] = known._findings[0] = found
    write_investigation(known, conclude(known), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert f"And {len(found) - module._MOST_VERDICTS} more" in text
    assert "cpu91 is more than 1 % slower" in text


def test_a_figure_takes_the_smaller_format_and_carries_no_metadata() -> None:
    with themed():
        lines, cloud = Figure(figsize=(4, 3)), Figure(figsize=(4, 3))
        cloud.subplots().plot(range(30_000), [i * 7919 % 30_011 for i in range(30_000)], ",")
        small, large = picture(lines), picture(cloud)
    assert small.source.startswith("data:image/")
    assert large.source.startswith("data:image/png;base64,")
    assert (small.width, small.height) == (384, 288)
    for one in (small, large):
        content = base64.b64decode(one.source.partition(",")[2])
        assert b"matplotlib" not in content.lower()


# --- what goes wrong -----------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    known = Evidence(Question(), [0])
    (tmp_path / "report.html").mkdir()
    with pytest.raises(MeasurementError, match=r"the report cannot be written to .*report\.html: "):
        write_investigation(known, conclude(known), tmp_path / "report.html")
    (tmp_path / "file").write_text("")
    with pytest.raises(MeasurementError, match="the report cannot be written"):
        write_investigation(known, conclude(known), tmp_path / "file" / "report.html")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "report.html"]


@pytest.mark.usefixtures("quick")
def test_the_command_concludes_although_the_report_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = load(RUNS / "kv_per_core.parquet")
    runs_in(tmp_path).mkdir()
    shutil.copy(RUNS / "kv_per_core.parquet", runs_in(tmp_path) / f"{run.id}.parquet")
    taken = {**dataclasses.asdict(step("symptom")), "run": run.id, "seconds": 3.0, "skipped": ""}
    asked = {"question": {}, "cores": [0, 1], "tag": "", "spent_s": 3.0, "fit": {}}
    write_plan(tmp_path, {**asked, "steps": [taken]})
    (tmp_path / "report.html").mkdir()
    assert call("investigate", "--replay", str(tmp_path), "--json") == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["report"] is None
    assert json.loads(said.out)["headline"]["plain"]
    assert "perflib: the report cannot be written to" in said.err
