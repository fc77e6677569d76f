from __future__ import annotations

import base64
import hashlib
import html
import re
from pathlib import Path

import pytest

from perflib import experiments
from perflib.lab import report as module
from perflib.lab.report import template, write_report
from perflib.lab.theme import figures as figures_of
from perflib.model.run import Run
from perflib.store.run_files import load
from tests.model.made import slower
from tests.pages import Page
from tests.stored import RUNS


def stored(*names: str) -> list[Run]:
    return [load(RUNS / f"{name}.parquet") for name in names]


@pytest.fixture
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that do not look at figures."""
    monkeypatch.setattr(module, "figures", lambda _run: {})


def test_the_report_is_one_file_with_everything_in_it(tmp_path: Path) -> None:
    runs = stored("kv_per_core", "machine", "random_calls")
    runs[0].provenance["problems"] = ["cpu1: FIFO priority <denied>"]
    path = tmp_path / "reports" / "report.html"
    said = write_report(runs, path)
    text = path.read_text()
    page = Page(text)
    assert page.all("href") == []
    figures = sum(len(figures_of(run)) for run in runs)
    images = page.all("src")
    assert len(images) == figures
    assert all(image.startswith("data:image/png;base64,") for image in images)
    assert not re.search("https?:", re.sub(r"base64,[^\"]*", "", text))
    assert len(said.splitlines()) >= 3
    for run in runs:
        assert experiments.get(run.experiment).question in text.replace("&#39;", "'")
        assert run.id in text
    assert "FIFO priority &lt;denied&gt;" in text
    assert "core 8 against the other cores" in text  # what others published
    assert runs[0].provenance["machine"]["fingerprint"] in text


@pytest.mark.usefixtures("_no_figures")
def test_anomalies_of_several_runs_are_corrected_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just beyond its threshold, a core is called slow by a run alone, and by none of many."""
    runs = stored("machine", "kv_per_core", "layout", "count", "simulate", "what_if")
    marginal = [slower(7, "supported", 1.41)]
    for run in runs:
        monkeypatch.setattr(experiments.get(run.experiment), "analyse", lambda _run: marginal)
    path = tmp_path / "report.html"
    assert "Cpu7 is slower" in write_report(runs[:1], path).replace("cpu7", "Cpu7")
    said = write_report(runs, path)
    assert "It is not decided whether cpu7" in said
    assert "does not survive the correction over all 6 anomaly claims" in path.read_text()


def test_a_report_of_nothing_says_so(tmp_path: Path) -> None:
    assert write_report([], tmp_path / "report.html") == ""
    assert "Nothing was measured." in (tmp_path / "report.html").read_text()


@pytest.mark.usefixtures("_no_figures")
def test_the_doctor_is_silent_about_another_machine(tmp_path: Path) -> None:
    kv = stored("kv_per_core")
    kv[0].provenance["machine"]["hostname"] = "elsewhere"
    write_report(kv, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "elsewhere: what slows it down" in text
    assert "another machine than this report" in text


def test_a_page_may_use_its_own_style_and_nothing_else() -> None:
    page = template("base.html.j2").render(title="<script>\x1b\ud800", style="p > a { x: '<' }")
    (style,) = re.findall("<style>(.*)</style>", page, re.DOTALL)
    assert style.endswith("p > a { x: '<' }\n")
    (policy,) = re.findall('Content-Security-Policy" content="([^"]*)"', page)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert html.unescape(policy).split("; ") == [
        "default-src 'none'", f"style-src 'sha256-{digest}'", "img-src data:",
        "base-uri 'none'", "form-action 'none'",
    ]  # fmt: skip
    assert page.index(policy) < page.index("<title>&lt;script&gt;\\x1b\\ud800</title>")
