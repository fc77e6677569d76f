"""What one run of each experiment said before the house was rebuilt, it says now.

Verdicts, effects and intervals were written by the version of that day (``findings.json``). What
was wrong then and is right now stands in ``MENDED``; what is called otherwise now in ``RENAMED``.
"""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perflib import experiments
from perflib.model import sentences
from perflib.model.claims import CHANGED, EXPLAINS
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.model.store import load

RUNS = Path(__file__).parents[1] / "data" / "runs"
GOLDEN: dict[str, list[dict[str, Any]]] = json.loads((RUNS / "findings.json").read_text())
RENAMED = {
    "cpu0 disturbed": "cpu0 interference",
    "cpu1 disturbed": "cpu1 interference",
    "entry sham": "entry control",
}
RENAMED |= {
    entry["subject"]: entry["subject"].replace(" moved", " shifted")
    for entry in GOLDEN["erasure_coding"]
}
RENAMED |= {
    entry["subject"]: entry["subject"]
    .replace(" without a core", " run-queue delay")
    .replace(" waits beside the account", " waits beside the self-report")
    for entry in GOLDEN["threads"]
}
RENAMED["moved"] = "migrated"
# By experiment and subject: the verdict that is right now.
MENDED: dict[tuple[str, str], str] = {
    # Huge pages were not backed by the host, so nothing follows from comparing page sizes.
    ("code_segment", "pages page"): "inconclusive",
    # Point 1: nothing is said of the kernel's groups where the data could not have shown any, and
    # two cores of which only the cells between them are known cannot show any.
    ("numa", "kernel"): "inconclusive",
    ("coherence", "groups"): "inconclusive",
    ("coherence", "kernel"): "inconclusive",
    # Point 14: the run makes 22 claims about counting, and its p values are corrected for them.
    ("counters", "rotated×1"): "inconclusive",
    ("counters", "rotated×3"): "inconclusive",
}
# Findings whose numbers come from another estimate now.
ESTIMATED_ANEW = {
    # Point 14: how functions follow what slows a core for a while is learnt from the recordings.
    ("event_profile", "standing out"): (
        0.16156773082040446,
        0.01649221237600183,
        0.47271699356636104,
    ),
}
# Findings that a later version added, by experiment and claim.
ADDED = {("event_profile", "footprint")}
DATA = ("verdict", "effect", "low", "high", "unit", "threshold", "confidence", "kind", "about")


@functools.cache
def run_of(name: str) -> Run:
    return load(RUNS / f"{name}.parquet")


@functools.cache
def findings_of(name: str) -> list[Finding]:
    return experiments.get(name).analyse(run_of(name))


def same(now: float, then: float | None) -> bool:
    return math.isnan(now) if then is None else math.isclose(now, then, rel_tol=1e-9, abs_tol=1e-12)


def test_every_experiment_has_a_golden_run() -> None:
    assert GOLDEN.keys() == set(experiments.NAMES)


@pytest.mark.parametrize("name", experiments.NAMES)
def test_findings_are_what_they_were(name: str) -> None:
    now = [finding for finding in findings_of(name) if (name, finding.of.name) not in ADDED]
    then = GOLDEN[name]
    assert [finding.subject for finding in now] == [
        RENAMED.get(entry["subject"], entry["subject"]) for entry in then
    ]
    for finding, entry in zip(now, then, strict=True):
        verdict = MENDED.get((name, entry["subject"]), entry["verdict"])
        assert finding.verdict == verdict, entry["subject"]
        assert (finding.unit, finding.confidence) == (entry["unit"], entry["confidence"])
        then_was = [entry[end] for end in ("effect", "low", "high")]
        expected = ESTIMATED_ANEW.get((name, entry["subject"]), then_was)
        for end, value in zip(("effect", "low", "high"), expected, strict=True):
            assert same(getattr(finding, end), value), (entry["subject"], end)


@pytest.mark.parametrize("name", experiments.NAMES)
def test_every_claim_is_declared_and_every_sentence_is_made(name: str) -> None:
    declared = (*experiments.get(name).claims, EXPLAINS, CHANGED)
    for finding in findings_of(name):
        assert finding.of in declared
        for text in (finding.claim, finding.plain, finding.reason, finding.subject):
            assert "{" not in text
        assert finding.plain[-1] not in " ,:"


@pytest.mark.parametrize("name", experiments.NAMES)
def test_rewording_every_sentence_changes_nothing_else(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [finding.to_dict() for finding in findings_of(name)]
    monkeypatch.setattr(sentences, "render", lambda *_: "Other words")
    after = [finding.to_dict() for finding in experiments.get(name).analyse(run_of(name))]
    assert {entry["claim"] for entry in after} == {"Other words"}
    assert [{key: entry[key] for key in DATA} for entry in after] == [
        {key: entry[key] for key in DATA} for entry in before
    ]


@pytest.mark.parametrize("name", experiments.NAMES)
def test_every_plot_has_the_table_of_its_name(name: str) -> None:
    experiment, run = experiments.get(name), run_of(name)
    tables = experiment.derived(run)
    plots = experiment.drawings(run)
    assert plots
    assert set(plots) <= set(tables)
    for table, make in tables.items():
        assert isinstance(make(), pd.DataFrame), table
    for plot, draw in plots.items():
        axes = draw().axes
        assert axes, plot
        assert any(one.get_title(loc="left") or one.get_title() for one in axes), plot


@pytest.mark.parametrize("name", experiments.NAMES)
def test_json_has_its_keys(name: str) -> None:
    keys = {"claim", "subject", "verdict", "effect", "low", "high", "unit", "confidence", "reason"}
    keys |= {"evidence", "kind", "about", "quantity", "threshold", "plain"}
    for finding in findings_of(name):
        record = finding.to_dict()
        assert record.keys() == keys
        json.dumps(record, allow_nan=False)
