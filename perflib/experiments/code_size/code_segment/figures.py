"""The figures of the code segment, each drawn from the table of its name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from matplotlib.figure import Figure

from perflib.experiments.code_size.code_segment.analyse import tables
from perflib.experiments.code_size.figures import (
    compiled,
    drawn,
    misses,
    reaches_of,
    ring_ratio,
    times,
)
from perflib.experiments.code_size.table import CodeTable
from perflib.model.run import Run


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    made, reaches = tables(run), reaches_of(run)

    def time(name: str) -> Figure:
        return times(made[name](), reaches, "step")

    names = [f"time_{pattern}" for pattern in CodeTable(run.samples).sweeps]
    found: dict[str, Callable[[], Figure]] = {name: partial(time, name) for name in names}
    found |= drawn(run, made)
    if "ring_ratio" in made:
        found["ring_ratio"] = lambda: ring_ratio(made["ring_ratio"](), made["knees"](), reaches)
    if "compiled" in made:
        found["compiled"] = lambda: compiled(made["compiled"](), made["knees"](), reaches)
    if "misses" in made:
        model = str(run.provenance["simulated"]["model"])
        found["misses"] = lambda: misses(made["misses"](), model, reaches)
    return found
