"""What an analysis reports of a run, as its file carries it with the samples.

Two keys of the file's metadata hold JSON: the findings, and the levels that machines are compared
by, each with the version of perflib that made them. Readers take of it what has the right shape
(`perflib.store.index`); an analysis never reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from perflib.model.finding import Finding

FINDINGS, LEVELS = "perflib_findings", "perflib_levels"
_DIGITS = 9  # of a level: more than any clock has


def reported(findings: Iterable[Finding], levels: pd.DataFrame) -> dict[str, str]:
    """The metadata of findings and levels (`Experiment.levels`), for `store.save`.

    Raises
    ------
    ValueError, TypeError
        A finding holds what JSON cannot.
    """
    from importlib.metadata import version

    by = {"perflib": version("perflib-jupyter")}
    found = [finding.to_dict() for finding in findings]
    return {
        FINDINGS: json.dumps({**by, "findings": found}, allow_nan=False),
        LEVELS: json.dumps({**by, "levels": _by_setting(levels)}, allow_nan=False),
    }


def _by_setting(levels: pd.DataFrame) -> list[dict[str, Any]]:
    """A setting's cores and values together: its text may be long, and the cores many."""
    return [
        {
            "setting": setting,
            "unit": unit,
            "cpu": rows["cpu"].tolist(),
            "value": [float(f"{value:.{_DIGITS}g}") for value in rows["value"]],
        }
        for (setting, unit), rows in levels.groupby(["setting", "unit"], sort=False)
    ]
