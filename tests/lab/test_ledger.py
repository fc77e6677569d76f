from __future__ import annotations

import pandas as pd
import pytest

from perflib import experiments
from perflib.lab.ledger import ledger
from perflib.model.claims import EXPLAINS
from perflib.model.hypotheses import unseen
from perflib.model.run import Run
from perflib.stats.decide import Decision, Reason
from perflib.stats.interval import Interval

WHAT = "the extra time of core 8 with large code"
HIDDEN = unseen("frequency", WHAT, "No <cycle> counter here.")
MISSES = EXPLAINS.found(
    Decision("supported", (Reason("unseen", {"why": "Because."}),)),
    Interval(90.0, 88.0, 92.0),
    about={"cause": "iTLB misses", "explains": WHAT},
    threshold=50.0,
)


def test_verdicts_have_a_colour_a_sign_and_a_word() -> None:
    html = ledger([MISSES, HIDDEN])._repr_html_()
    assert '<td class="supported">● supported</td>' in html
    assert '<td class="inconclusive">◐ inconclusive</td>' in html
    assert "No &lt;cycle&gt; counter" in html
    assert "td.supported { font-weight" in html


def test_runs_are_analysed_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments.get("machine"), "analyse", lambda _: [MISSES])
    machine = {"hostname": "vm", "fingerprint": "f00d"}
    provenance = {"start": "2026-11-03T07:45:07+00:00", "machine": machine}
    run = Run("machine-20261103-074507-1a2b", "machine", {}, pd.DataFrame(), provenance)
    shown = ledger([run])
    assert shown.columns[-2:] == ["because", "run"]
    assert shown.rows[0][-2:] == ["Because.", run.id]
    elsewhere = {**provenance, "machine": {**machine, "hostname": "node7"}}
    both = ledger([run, Run("machine-2", "machine", {}, pd.DataFrame(), elsewhere)])
    assert [row[-1] for row in both.rows] == ["node7", "vm"]
