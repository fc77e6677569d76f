"""What is found and shown of one stored run of each experiment stays what it was.

``findings.json`` has what is found, ``shown.json`` what its tables and figures hold.

Verdicts, effects and intervals of most were written before the house was rebuilt; the history of
that file has each that was wrong and was mended, and each that is called otherwise now.
"""

from __future__ import annotations

import functools
import json
import math
from typing import Any

import pytest

from perflib import experiments
from perflib.lab.theme import png, themed
from perflib.model import sentences
from perflib.model.claims import CHANGED, EXPLAINS
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.store.run_files import load
from tests.experiments.shown import EXPECTED, differences, shown
from tests.stored import RUNS

SHOWN = json.loads(EXPECTED.read_text(encoding="utf-8"))
GOLDEN: dict[str, list[dict[str, Any]]] = json.loads((RUNS / "findings.json").read_text())


@functools.cache
def run_of(name: str) -> Run:
    return load(RUNS / f"{name}.parquet")


@functools.cache
def findings_of(name: str) -> list[Finding]:
    """Found while every sentence reads ``Other words``: no number depends on a wording."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sentences, "render", lambda *_: "Other words")
        found = experiments.get(name).analyse(run_of(name))
        assert {finding.claim for finding in found} == {"Other words"}
    return found


def same(now: float, then: float | None) -> bool:
    return math.isnan(now) if then is None else math.isclose(now, then, rel_tol=1e-9, abs_tol=1e-12)


def test_every_experiment_has_a_golden_run() -> None:
    assert GOLDEN.keys() == set(experiments.NAMES)


@pytest.mark.parametrize("name", experiments.NAMES)
def test_findings_are_what_they_were(name: str) -> None:
    now, then = findings_of(name), GOLDEN[name]
    assert [finding.subject for finding in now] == [entry["subject"] for entry in then]
    for finding, entry in zip(now, then, strict=True):
        assert finding.verdict == entry["verdict"], entry["subject"]
        assert (finding.unit, finding.confidence) == (entry["unit"], entry["confidence"])
        for end in ("effect", "low", "high"):
            assert same(getattr(finding, end), entry[end]), (entry["subject"], end)


@pytest.mark.parametrize("name", experiments.NAMES)
def test_every_claim_is_declared_and_every_sentence_is_made(name: str) -> None:
    declared = (*experiments.get(name).claims, EXPLAINS, CHANGED)
    for finding in findings_of(name):
        assert finding.of in declared
        for text in (finding.claim, finding.plain, finding.reason, finding.subject):
            assert "{" not in text
        assert finding.plain[-1] not in " ,:"
        json.dumps(finding.to_dict(), allow_nan=False)


@pytest.mark.parametrize("name", experiments.NAMES)
def test_tables_and_figures_show_what_they_did(name: str) -> None:
    """``python -m tests.experiments.shown`` renews it."""
    assert differences(shown(name), SHOWN[name]) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", experiments.NAMES)
def test_every_plot_is_whole_with_a_title_and_has_the_table_of_its_name(name: str) -> None:
    experiment, run = experiments.get(name), run_of(name)
    plots = experiment.drawings(run)
    assert plots
    assert set(plots) <= set(experiment.derived(run))
    for plot, draw in plots.items():
        with themed():
            figure = draw()
            assert png(figure).startswith(b"\x89PNG"), plot
            seen = figure.get_tightbbox()  # of all that is visible, in inches
        assert any(one.get_title(loc="left") or one.get_title() for one in figure.axes), plot
        width, height = figure.get_size_inches()
        assert min(seen.x0, seen.y0, width - seen.x1, height - seen.y1) >= -0.02, plot
