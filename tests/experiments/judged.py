"""Runs of made samples, and what an experiment says of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from perflib.framework.experiment import Experiment
from perflib.model.finding import Finding
from perflib.model.run import Run


def made_run(
    experiment: Experiment,
    table: pd.DataFrame,
    provenance: Mapping[str, Any] | None = None,
    **params: Any,
) -> Run:
    """A run with these samples and parameters."""
    given = experiment.params(params).model_dump(mode="json")
    return Run("made", experiment.name, given, table, dict(provenance or {}))


def by_subject(found: Iterable[Finding]) -> dict[str, Finding]:
    """Findings by subject, of which no two have the same."""
    every = list(found)
    named = {finding.subject: finding for finding in every}
    assert len(named) == len(every)
    return named


def by_claim(found: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Findings by the name of what they claim."""
    named: dict[str, list[Finding]] = {}
    for finding in found:
        named.setdefault(finding.of.name, []).append(finding)
    return named


def supported(found: Iterable[Finding]) -> list[str]:
    """The subjects of which the claim holds."""
    return [finding.subject for finding in found if finding.verdict == "supported"]


def codes(finding: Finding) -> list[str]:
    """Of the reasons of a finding."""
    return [reason.code for reason in finding.reasons]
