"""The instructions of a run's functions: of one core, of two side by side, or of two runs.

What `perflib annotate`, the notebook's widget and the figure show is made here, by one function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.event_profile import experiment
from perflib.experiments.event_profile.classes import classes_of
from perflib.experiments.event_profile.profiles import CoreProfiles, compare_runs, profiled
from perflib.instruments.perf.script import Profile
from perflib.instruments.profile.annotate import Annotation, annotate
from perflib.instruments.profile.comparison import Comparison, compare_samples
from perflib.instruments.profile.side_by_side import SideBySide, side_by_side
from perflib.model.errors import UserError, choose
from perflib.model.run import Run

MOST_FUNCTIONS = 8  # that stand out and are annotated, where none is named


@dataclass(frozen=True)
class Sides:
    """Two sides whose functions can be put side by side: cores of a run, or runs.

    Parameters
    ----------
    samples
        Of both, with a ``configuration``.
    first, second
        The configurations.
    comparison
        Of the functions of both.
    builds
        For each side the build ids of its objects.
    """

    samples: pd.DataFrame
    first: str
    second: str
    comparison: Comparison
    builds: tuple[Mapping[str, str], Mapping[str, str]]

    @property
    def standing(self) -> list[str]:
        """The functions that stand out, the clearest first, not more than ``MOST_FUNCTIONS``."""
        table = self.comparison.table
        names = table.loc[table["stands_out"], "function"].tolist()
        return [name for name in names if name in self._on_both][:MOST_FUNCTIONS]

    @property
    def costliest(self) -> str:
        """The function with most samples of its own, of those that both sides met.

        Raises
        ------
        UserError
            There is none.
        """
        if not self._on_both:
            msg = f"{self.first} and {self.second} have no function in common"
            raise UserError(msg)
        return self._on_both[0]

    @cached_property
    def _on_both(self) -> list[str]:
        """The functions with samples on both sides, most first."""
        sides = self.samples["configuration"].astype(str)
        here, there = (
            set(self.samples.loc[(sides == side).to_numpy(), "symbol"].astype(str))
            for side in (self.first, self.second)
        )
        names = map(str, self.samples["symbol"].value_counts().index)
        return [name for name in names if name in here & there]

    def beside(self, function: str, object_name: str | None = None, claims: int = 1) -> SideBySide:
        """The function's instructions; ``claims``: of how many functions they are looked at.

        Raises
        ------
        UserError
            There is no such function, or one side never met it.
        """
        return side_by_side(
            self.samples,
            self.first,
            self.second,
            function,
            object_name,
            builds=self.builds,
            claims=claims,
            alone_percent=self.comparison.alone_percent,
        )

    def all_beside(self) -> list[SideBySide]:
        """Of each function that stands out; where none does, of the costliest."""
        names = self.standing or [self.costliest]
        return [self.beside(name, claims=len(names)) for name in names]


def sides_of(
    run: Run, against: Run | None = None, cores: Sequence[int] = (), event: str | None = None
) -> Sides | None:
    """What of a run is compared with what; ``None``: it has samples of one core alone.

    Parameters
    ----------
    run
        Of ``event_profile``, measured or brought as a table.
    against
        The run that ``run`` is compared with; it is the first side.
    event
        Which class of events, where a run has several.
    cores
        Of one run two, first and second (default: the reference core, and the one on which the
        event takes longest); one: its profile alone. Of two runs one core of both, or the core of
        ``run`` and that of ``against``.

    Raises
    ------
    UserError
        A run is of another experiment, or has no such core.
    """
    run, against = current(run, event), against and current(against, event)
    if len(cores) > 2:
        msg = f"two cores can be put side by side, not {len(cores)}"
        raise UserError(msg)
    if against is not None:
        chosen = [_of_core(run, cores[0])] if cores else [run]
        chosen.append(_of_core(against, cores[-1]) if cores else against)
        compared = compare_runs(chosen[1], chosen[0])
        return Sides(
            _placed(compared.samples),
            against.id,
            run.id,
            compared.comparison,
            (_builds(against), _builds(run)),
        )
    profiles = CoreProfiles(run)
    names = [_known(core, profiles) for core in cores]
    if len(names) == 1 or not profiles.others:
        return None
    if not names:
        slowest = max(profiles.others, key=lambda core: profiles.comparisons[core].total.effect)
        names = [profiles.reference, slowest]
    return sides_of_cores(profiles, names[0], names[1])


def sides_of_cores(profiles: CoreProfiles, first: str, second: str) -> Sides:
    """Two cores of a run.

    Raises
    ------
    UserError
        It is not known where in its function a sample was taken.
    """
    if first == profiles.reference and second in profiles.comparisons:
        comparison = profiles.comparisons[second]
    else:
        comparison = compare_samples(profiles.samples, first, second, profiles.alone_percent, 2)
    samples = _placed(profiles.samples)
    return Sides(samples, first, second, comparison, (profiles.builds, profiles.builds))


def current(run: Run, event: str | None = None) -> Run:
    """A run of this experiment as its analysis takes it; of several classes of events, one.

    Raises
    ------
    UserError
        It is a run of another experiment, or has several classes and ``event`` names none of them.
    """
    if run.experiment != experiment.name:
        msg = f"{run.id} is a run of {run.experiment}: it has no profile of functions"
        raise UserError(msg)
    run = experiment.current(run)
    classes = classes_of(run)
    if event is None and len(classes) > 1:
        msg = f"{run.id} has several classes of events: say which ({', '.join(classes)})"
        raise UserError(msg)
    if event is None or "event_name" not in run.samples:
        return next(iter(classes.values()))
    if len(classes) == 1:
        classes = {str(run.samples["event_name"].iloc[0]): run}
    if event not in classes:
        raise UserError(choose(f"event in {run.id}", event, classes))
    return classes[event]


_PLAIN: Mapping[str, Any] = {"comm": "", "cpu": -1, "pid": -1, "tid": -1, "time_ns": -1}


def profile_of(run: Run) -> Profile:
    """A run's samples as the table that perf's text gives, for views and exports of it.

    What a table that a user brought lacks is -1, or empty.
    """
    samples = profiled(run.samples, run.params["sampled_event"])
    lacking = {name: value for name, value in _PLAIN.items() if name not in samples}
    samples = _placed(samples.assign(offset=samples.get("offset", -1)).assign(**lacking))
    for name in ("cpu", "pid", "tid", "time_ns", "period"):
        samples[name] = samples[name].fillna(-1).astype(np.int64)
    samples["comm"] = samples["comm"].astype("category")
    return Profile(samples, [], 0, {}, len(samples), 0)


def _known(core: int, profiles: CoreProfiles) -> str:
    name = f"cpu{core}"
    if name not in profiles.cores:
        raise UserError(choose("core", name, profiles.cores))
    return name


def _placed(samples: pd.DataFrame) -> pd.DataFrame:
    """The samples with all that an annotation needs."""
    if "offset" not in samples:
        msg = "the samples have no column 'offset': where in its function each was taken"
        raise UserError(msg)
    return samples if "ip" in samples else samples.assign(ip=np.uint64(0))


def annotated(
    run: Run, function: str | None = None, core: int | None = None, event: str | None = None
) -> Annotation:
    """The function's instructions with the samples of one core, or of the whole run.

    Without a name it is the costliest function.

    Raises
    ------
    UserError
        There is no such function, or no such core.
    """
    profiles = CoreProfiles(current(run, event))
    samples = _placed(profiles.samples)
    if core is not None:
        _known(core, profiles)
        samples = samples[(samples["core"] == core).to_numpy()]
    chosen = function or str(samples["symbol"].value_counts().index[0])
    return annotate(samples, chosen, builds=_builds(run))


def _builds(run: Run) -> Mapping[str, str]:
    builds: Mapping[str, str] = run.provenance.get("objects") or {}
    return builds


def _of_core(run: Run, core: int) -> Run:
    """The run as if it had that core alone."""
    kept = run.samples.get("core", pd.Series(-1, run.samples.index)) == core
    if not kept.any():
        known = sorted(run.samples["core"].unique()) if "core" in run.samples else [-1]
        raise UserError(choose(f"core in {run.id}", str(core), map(str, known)))
    plan = {**run.provenance.get("plan", {}), "reference": core}
    return Run(run.id, run.experiment, run.params, run.samples[kept], {"plan": plan})
