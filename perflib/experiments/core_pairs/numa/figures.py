"""The figures of the NUMA heatmap, each drawn from the table of its name."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.figure import Figure

from perflib.experiments.core_pairs import figures
from perflib.experiments.core_pairs.numa.analyse import COLUMNS, tables
from perflib.model.run import UNFINISHED, Run

_LABELS = "CPU that touched the memory first", "CPU that loads"


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    made = tables(run)
    drawn = {
        "heatmap": lambda: figures.heatmap(
            made["heatmap"](),
            COLUMNS,
            "Latency of memory",
            _LABELS,
            places={"node": "NUMA nodes"},
            regions=True,
        )
    }
    if run.id != UNFINISHED:  # finding groups can take longer than the form may wait
        drawn["groups"] = lambda: figures.in_groups(
            made["groups"](), COLUMNS, "Groups of cores, by the latency of memory", _LABELS
        )
        drawn["classes"] = lambda: figures.by_class(
            made["classes"](), COLUMNS, "Latency of memory by class of distance"
        )
    return drawn
