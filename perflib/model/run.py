"""A run: the samples of one measurement, and where they come from."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perflib.model.escape import visible

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 2  # of the saved file; raised when an old reader could not understand a new file
UNFINISHED = "unfinished"  # the id of a run that is drawn while it is being measured

_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"  # 32, none that is easily read as another
_RANDOM = 10  # of them: 50 bits
_MOST_HOST = 12  # a farm numbers its hosts at the end of the name: that is what stays


@dataclass
class Run:
    """Samples and provenance of one measurement.

    Parameters
    ----------
    id
        Its name in the store, see `new_id`.
    experiment
        Which experiment made it, and can analyse it.
    params
        The experiment's parameters, as JSON holds them.
    samples
        One row a sample, units in the column names.
    provenance
        Machine, conditions requested and obtained, kernel, compiler, versions, start and end, why
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
        return visible(f"<Run {self.id}: {len(self.samples)} samples, stopped: {stopped}>")


def new_id(experiment: str) -> str:
    """A name for a new run: experiment, UTC time, host, 50 random bits; fit for a file name.

    The names of one experiment sort by time. Three hundred starts in one second on one host share a
    name with a probability of 4e-11; then the second to begin its journal is refused.

    >>> new_id("kv_per_core")  # doctest: +SKIP
    'kv_per_core-20260102-030405-node17-7k2m9qx4tb'
    """
    now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    end = "".join(secrets.choice(_LETTERS) for _ in range(_RANDOM))
    return f"{experiment}-{now}-{_host()}-{end}"


def _host() -> str:
    name = re.sub("[^a-z0-9]", "", os.uname().nodename.partition(".")[0].lower())
    return name[-_MOST_HOST:] or "host"


def experiment_of(run_id: str) -> str:
    """The experiment that an id of `new_id`, or of an earlier perflib, names."""
    return run_id.partition("-")[0]


def host_of(run_id: str) -> str:
    """The host in an id of `new_id`; empty: an earlier perflib made it, without."""
    parts = run_id.split("-")
    return parts[3] if len(parts) == 5 else ""


def is_exercise(run_tag: object) -> bool:
    """Whether a tag is an exercise's, which causes interference on purpose: its first word."""
    return str(run_tag).partition(" ")[0] == "exercise"


def recording_of(run: Run) -> str:
    """Machine and day of a run that was given in place of measuring; empty: it was measured."""
    return recording_in(run.provenance)


def recording_in(provenance: Mapping[str, Any]) -> str:
    """The same of a provenance."""
    note = provenance.get("recording")
    return "{machine}, {day}".format(**note) if note else ""


def recordings_of(runs: Iterable[Run]) -> str:
    """The same of several runs."""
    return ", ".join(dict.fromkeys(filter(None, map(recording_of, runs))))
