"""Findings about profiles: their claims, their subjects, and their sentences for every verdict."""

from __future__ import annotations

import numpy as np
import pytest

from perflib.instruments.profile.entry_cost import entry_cost
from perflib.instruments.profile.findings import comparison_findings, entry_findings
from perflib.stats.decide import Decision
from tests.instruments.profile.test_comparison import compared
from tests.instruments.profile.test_entry_cost import Program, made
from tests.stats.two_profiles import Profiled


@pytest.mark.parametrize("verdict", ["supported", "refuted", "inconclusive"])
def test_every_verdict_has_its_sentence(verdict: str) -> None:
    found = comparison_findings(compared(Profiled(20, samples=2000, one=((1, 1.5),))))
    entries = made(Program(4, costly=1, times=4.0), np.random.default_rng(1))
    found += entry_findings(entry_cost(*entries))
    assert len({finding.of.name for finding in found}) == 6
    for finding in found:
        said = finding.of.found(
            Decision(verdict),  # type: ignore[arg-type]
            about=finding.about,
            facts=finding.facts,
            threshold=finding.threshold,
        )
        assert verdict in finding.of.plain
        assert said.plain[0].isupper() or said.plain.startswith("f01 takes")
        assert "{" not in said.plain + said.claim
