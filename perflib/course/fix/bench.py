"""Original against changed code, timed in turns by fresh processes."""

from __future__ import annotations

import base64
import math
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from perflib.course.fix.building import CodeError, built, shipped
from perflib.course.fix.compare import LEAST_BATCHES, Compared, compare
from perflib.course.fix.examine import PATIENCE_S, examine
from perflib.course.fix.problem import Problem
from perflib.framework.brackets import bracket_columns
from perflib.kernels import Build, record
from perflib.machine.hardware.topology import topology
from perflib.machine.scratch import scratch
from perflib.measure.schedule import Progress, Status
from perflib.model.errors import UserError
from perflib.model.escape import lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from perflib.stats.interval import Interval

_BATCHES = 10  # of a budget
_LEAST_S, _MOST_S = 0.2, 3.0  # of a batch
_SLICE_NS = {1: 400_000, 2: 800_000}  # by threads: short next to what a neighbour does
_SLICES = 6  # of a trial


@dataclass(frozen=True)
class Bench:
    """How changed code compares with the original, with its samples.

    Parameters
    ----------
    problem
        Its name.
    compared
        The estimate with its interval, and the verdict.
    samples
        One row a sample: ``batch``, ``round``, ``position``, ``version`` (0: the original, 1: your
        code), ``cpu``, ``calls``, ``time_ns``, ``partner_cpu``, ``partner_delay_ns``, ``ok``
        and the columns of a sample between probes.
    stopped
        ``precise enough``, ``budget spent`` or ``interrupted``.
    problems
        What else a reader should know, in sentences.
    provenance
        When, on which cores, by which compiler and flags.
    """

    problem: str
    compared: Compared
    samples: pd.DataFrame
    stopped: str
    problems: list[str] = field(default_factory=list)
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """``faster``, ``slower``, ``no difference`` or ``not known``."""
        return self.compared.verdict

    @property
    def saved_percent(self) -> Interval:
        """The part of the original's time that is saved, and the ends of its 95 % interval."""
        return self.compared.saved_percent

    @property
    def times_as_fast(self) -> Interval:
        """The original's time over the changed code's, and the ends of its 95 % interval."""
        return self.compared.times_as_fast

    def times(self) -> pd.DataFrame:
        """Median time of a call in ns, of each version in each process: ``batch``, ``version``."""
        each = self.samples[self.samples["ok"]].assign(
            call_ns=lambda rows: rows["time_ns"] / rows["calls"],
            version=lambda rows: rows["version"].map({0: "original", 1: "yours"}),
        )
        medians = each.groupby(["batch", "version"], as_index=False)["call_ns"].median()
        return pd.DataFrame(medians)

    def figure(self) -> Figure:
        """Both versions' times in each process, and the ratio with its interval."""
        from perflib.course.fix.figures import bench_figure
        from perflib.framework.plots import drawn, recorded_mark

        return drawn(lambda: bench_figure(self), recorded_mark(self.provenance))

    @property
    def remarks(self) -> list[str]:
        """What the estimate rests on, and what else should be known, in sentences."""
        share, words = self.compared.samples
        rounds = self.provenance["rounds"]
        return [
            f"{self.compared.batches} processes, {rounds} rounds, {self.stopped}",
            f"{words} ({share:.0%})",
            *self.problems,
        ]

    def __repr__(self) -> str:
        return lines("\n  ".join([f"{self.problem}: {self.compared}", *self.remarks]))


def bench(
    problem: Problem,
    code: str,
    *,
    against: str | None = None,
    budget_s: float = 20.0,
    precision_percent: float = 0.5,
    threshold_percent: float = 1.0,
    cpus: Sequence[int] | None = None,
    seed: int = 1,
    progress: Progress | None = None,
    patience_s: float = PATIENCE_S,
) -> Bench:
    """Time changed code compared with the original.

    Parameters
    ----------
    code
        The changed C source; its results have been validated.
    against
        Another source in the original's place.
    budget_s
        The most time; eight processes are started in any case.
    precision_percent
        It ends earlier when the half-width of the interval of ``saved_percent`` is below that.
    threshold_percent
        From where on a difference counts.
    cpus
        The cores: one, or two where two threads call the code. By default the first that may be
        used, of different physical cores where the system distinguishes them.
    seed
        Of the order of the versions, and of the input.
    progress
        Called after each process.

    Raises
    ------
    UserError
        A number is out of range, or the cores are not there.
    CodeError
        The code does not compile, crashes, or does not end.
    """
    for name, value in (
        ("budget_s", budget_s), ("precision_percent", precision_percent),
        ("threshold_percent", threshold_percent),
    ):  # fmt: skip
        if isinstance(value, bool) or not 0 < value < math.inf:
            msg = f"{name} must be more than 0, and finite, not {value!r}"
            raise UserError(msg)
    if threshold_percent >= 100:
        msg = (
            f"threshold_percent={threshold_percent:g}: no code saves all of its time; less than 100"
        )
        raise UserError(msg)
    places, problems = _cores(problem, cpus)
    original, changed = built(problem, against or shipped(problem)), built(problem, code)
    begun = time.monotonic()
    stopped = "budget spent"
    tables: list[pd.DataFrame] = []
    width: float | None = None
    started = datetime.now(UTC).isoformat()
    with scratch() as folder:
        pair = [original, _apart(original, changed, folder)]
        try:
            while (elapsed := time.monotonic() - begun) < budget_s or len(tables) < LEAST_BATCHES:
                batch_s = min(max(budget_s / _BATCHES - 0.3, _LEAST_S), _MOST_S)
                request = {
                    "cpus": places, "seed": seed + len(tables), "seconds": batch_s,
                    "slice_ns": _SLICE_NS[problem.threads], "slices": _SLICES,
                }  # fmt: skip
                tables.append(_batch(problem, pair, request, len(tables), patience_s))
                if len(tables) >= LEAST_BATCHES:
                    width = compare(pd.concat(tables), threshold_percent).saved_percent.half_width
                elapsed = time.monotonic() - begun
                if progress is not None:
                    progress(_status(elapsed, budget_s, tables, width))
                if len(tables) >= _BATCHES and width is not None and width <= precision_percent:
                    stopped = "precise enough"
                    break
        except KeyboardInterrupt:
            if len(tables) < LEAST_BATCHES:
                raise
            stopped = "interrupted"
    samples = pd.concat(tables, ignore_index=True)
    if not samples["ok"].all():
        share = 1 - samples["ok"].mean()
        problems.append(f"in {share:.0%} of the samples a thread left its core: they do not count")
    provenance = {
        "start": started, "cpus": places, "seed": seed, "budget_s": budget_s,
        "load_average": os.getloadavg()[0],
        "rounds": samples.groupby(["batch", "round"]).ngroups,
        "original": original.provenance, "yours": changed.provenance,
    }  # fmt: skip
    compared = compare(samples, threshold_percent)
    return Bench(problem.name, compared, samples, stopped, problems, provenance)


def _status(
    elapsed_s: float, budget_s: float, tables: list[pd.DataFrame], width: float | None
) -> Status:
    left = max(0.0, budget_s - elapsed_s)
    known = width if width is not None and math.isfinite(width) else None
    return Status(elapsed_s, left, len(tables), known, lambda: pd.concat(tables))


def _cores(problem: Problem, cpus: Sequence[int] | None) -> tuple[list[int], list[str]]:
    """The cores of the two threads (-1: there is no second), and what should be known of them."""
    where = topology()
    allowed, cores = where.allowed_cpus(), where.one_per_core()
    if cpus is None:
        cpus = (cores if len(cores) >= problem.threads else allowed)[: problem.threads]
    if len(cpus) < problem.threads:
        msg = (
            f"{problem.name} is called by {problem.threads} threads, and this process may use "
            f"{len(allowed)} core: it can be validated here, and timed where there are two"
        )
        raise UserError(msg)
    if len(set(cpus)) != problem.threads or not set(cpus) <= set(allowed):
        msg = f"cpus={list(cpus)}: it takes {problem.threads} of {allowed}, each once"
        raise UserError(msg)
    notes = []
    if problem.threads == 2:
        first, second = cpus
        if second in where.cpu(first).siblings:
            notes.append("both threads share one physical core, so the effect is another")
        return [first, second], notes
    return [cpus[0], -1], notes


def _apart(original: Build, changed: Build, folder: Path) -> Build:
    """The same code against itself is two libraries, too, each with its own memory."""
    if original.library != changed.library:
        return changed
    twin = folder / f"twin-{changed.library.name}"
    shutil.copy(changed.library, twin)
    os.chmod(twin, 0o700)  # noqa: PTH101
    return replace(changed, library=twin)


def _batch(
    problem: Problem, pair: Sequence[Build], request: dict[str, Any], number: int, patience_s: float
) -> pd.DataFrame:
    """The samples of one process."""
    examined = examine(pair, request, patience_s=patience_s)
    if fault := examined.fault or examined.left:
        msg = f"{problem.name}, while it is timed: it {fault}"
        raise CodeError(msg)
    trials = [answer for answer in examined.answers if "samples" in answer]
    kind = record(pair[0], "fix_sample")
    parts = [np.frombuffer(base64.b64decode(trial["samples"]), dtype=kind) for trial in trials]
    counts = [len(part) for part in parts]
    taken = np.concatenate(parts)
    columns: dict[str, Any] = {"batch": number}
    for name in ("round", "position", "version"):
        columns[name] = np.repeat([trial[name] for trial in trials], counts)
    for name in ("calls", "cpu", "partner_cpu", "partner_delay_ns"):
        columns[name] = taken[name]
    for name in ("start_ns", "time_ns"):
        columns[name] = taken["sample"][name]
    table = pd.DataFrame(columns | bracket_columns(taken["sample"]))
    cpu, partner = request["cpus"]
    table["ok"] = (table["cpu"] == cpu) & table["partner_cpu"].isin([partner, -2])
    return table
