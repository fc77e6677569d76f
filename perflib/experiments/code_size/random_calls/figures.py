"""The figures of random calls, each drawn from the table of its name."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.figure import Figure

from perflib.experiments.code_size.figures import drawn, reaches_of, times
from perflib.experiments.code_size.random_calls.analyse import tables
from perflib.model.run import Run


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    made, reaches = tables(run), reaches_of(run)
    return {
        "time_per_call": lambda: times(made["time_per_call"](), reaches, "call"),
        **drawn(run, made),
    }
