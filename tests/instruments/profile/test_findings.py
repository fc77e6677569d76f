"""Findings about profiles: their claims, their subjects, and their sentences for every verdict."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from perflib.instruments.profile.comparison import Comparison, compare
from perflib.instruments.profile.entry_cost import entry_cost
from perflib.instruments.profile.findings import comparison_findings, entry_findings
from perflib.stats.decide import Decision


def comparison() -> Comparison:
    """Of six functions on two cores the first grew by half."""
    generator = np.random.default_rng(1)
    parts = []
    for core, growth in (("cpu0", 1.0), ("cpu8", 1.5)):
        mean = 1000 * np.array([growth, 1, 1, 1, 1, 1])
        counts = generator.poisson(np.broadcast_to(mean, (10, 6))).ravel()
        table = pd.DataFrame({"function": list("abcdef") * 10, "samples": counts, "cost": counts})
        parts.append(table.assign(round=np.repeat(np.arange(10), 6), configuration=core))
    return compare(pd.concat(parts), "cpu0", "cpu8")


def entries() -> pd.DataFrame:
    """Samples of four functions of 100 instructions; of the first the entry is costly."""
    even = pd.DataFrame({"symbol": np.repeat(list("abcd"), 400), "offset": [*range(400)] * 4})
    return pd.concat([even, pd.DataFrame({"symbol": "a", "offset": [0] * 400})])


@pytest.mark.parametrize("verdict", ["supported", "refuted", "inconclusive"])
def test_every_verdict_has_its_sentence(verdict: str) -> None:
    found = comparison_findings(comparison())
    found += entry_findings(entry_cost(entries()))
    for finding in found:
        said = finding.of.found(
            Decision(verdict),  # type: ignore[arg-type]
            about=finding.about,
            facts=finding.facts,
            threshold=finding.threshold,
        )
        assert verdict in finding.of.plain
        assert said.plain[0].isupper() or said.plain.startswith("a takes")
        assert "{" not in said.plain + said.claim
