"""A run: the samples of one measurement, and where they come from."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SCHEMA", "UNFINISHED", "Run", "experiment_of", "new_id"]

SCHEMA = 2  # of the saved file; raised when an old reader could not understand a new file
UNFINISHED = "unfinished"  # the id of a run that is drawn while it is being measured


@dataclass
class Run:
    """Samples and provenance of one measurement.

    Parameters
    ----------
    id
        Its name in the store: experiment, UTC time, four random digits.
    experiment
        Which experiment made it, and can analyse it.
    params
        The experiment's parameters, as JSON holds them.
    samples
        One row a sample, units in the column names.
    provenance
        Machine, conditions asked for and got, kernel and compiler, versions, start and end, why
        it stopped, problems on the way.
    """

    id: str
    experiment: str
    params: dict[str, Any]
    samples: pd.DataFrame
    provenance: dict[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    def __repr__(self) -> str:
        stopped = self.provenance.get("stopped", "unknown")
        return f"<Run {self.id}: {len(self.samples)} samples, stopped: {stopped}>"


def new_id(experiment: str) -> str:
    """A name for a new run: unique, sorted by time, fit for a file name."""
    now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return f"{experiment}-{now}-{secrets.token_hex(2)}"


def experiment_of(run_id: str) -> str:
    """The experiment that an id of `new_id` names."""
    return run_id.rsplit("-", 3)[0]
