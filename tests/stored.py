"""Recorded runs of tests/data; what is not about their analysis has it made once a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from perflib.framework.experiment import Experiment
from perflib.model.finding import Finding
from perflib.model.run import Run

RUNS = Path(__file__).parent / "data" / "runs"
NAMES = sorted(path.stem for path in RUNS.glob("*.parquet"))

_FINDINGS: dict[str, list[Finding]] = {}


def analyse_once(patch: pytest.MonkeyPatch) -> None:
    """Keep what an analysis finds, by the run's name: for tests that change no samples."""
    analyse = Experiment.analyse

    def kept(self: Experiment, run: Run) -> list[Finding]:
        key = f"{self.name} {run.id} {run.params}"
        if key not in _FINDINGS:
            _FINDINGS[key] = analyse(self, run)
        return list(_FINDINGS[key])

    patch.setattr(Experiment, "analyse", kept)
