"""The functions that an experiment's modules define, and their types.

`Experiment` calls them, and nothing else of these modules. Each experiment names its own in
``_steps`` and ``_figures``, which import the modules when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from perflib.framework.params import Params

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from perflib.framework.experiment import Session
    from perflib.model.finding import Finding
    from perflib.model.run import Run

Tables: TypeAlias = "dict[str, Callable[[], pd.DataFrame]]"
Plots: TypeAlias = "dict[str, Callable[[], Figure]]"

P = TypeVar("P", bound=Params)
P_contra = TypeVar("P_contra", bound=Params, contravariant=True)


class Measuring(Protocol[P_contra]):
    """The module ``measure``, for parameters of the class ``P``."""

    @property
    def plan(self) -> Callable[[P_contra], dict[str, Any]]:
        """Decides what stays the same when the run is resumed; nothing is measured."""

    @property
    def take(self) -> Callable[[P_contra, Session], str]:
        """Measures into ``session.journal``; returns why it ended."""


class Analysing(Protocol):
    """The module ``analyse``."""

    @property
    def findings(self) -> Callable[[Run], list[Finding]]:
        """What the samples say."""

    @property
    def tables(self) -> Callable[[Run], Tables]:
        """How each table is made, by name."""


class Drawing(Protocol):
    """The module ``figures``; it imports optional packages."""

    @property
    def plots(self) -> Callable[[Run], Plots]:
        """How each figure is drawn, by name."""


@dataclass(frozen=True)
class Steps(Generic[P]):
    """How an experiment is measured and analysed.

    Parameters
    ----------
    measure, analyse
        Its modules.
    pilot
        Measures what the plan still lacks, with the journal open and all settings in force.
    levels
        Numbers that machines are compared by; without it, each core's times by configuration.
    compare
        How the second run's findings differ from the first's; without it, claim by claim.
    """

    measure: Measuring[P]
    analyse: Analysing
    pilot: Callable[[P, Mapping[str, Any]], dict[str, Any]] | None = None
    levels: Callable[[Run], pd.DataFrame] | None = None
    compare: Callable[[Run, Run], list[Finding]] | None = None
