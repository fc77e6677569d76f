"""What a bench shows: the times of both versions in each process, and their ratio."""

from __future__ import annotations

from typing import TYPE_CHECKING

import seaborn as sns
from matplotlib.figure import Figure

from perflib.framework.plots import intervals
from perflib.lab.theme import themed

if TYPE_CHECKING:
    from perflib.course.fix.bench import Bench


def bench_figure(bench: Bench) -> Figure:
    """Left a point for each process and version; right the part of the time that is saved."""
    saved, limit = bench.compared.saved_percent, bench.compared.threshold_percent
    with themed():
        figure = Figure(figsize=(8.5, 3.0))
        left, right = figure.subplots(1, 2, width_ratios=[3, 2])
        sns.stripplot(
            bench.times(), x="call_ns", y="version", order=["original", "yours"], hue="version",
            hue_order=["original", "yours"], legend=False, ax=left,
        )  # fmt: skip
        left.set(title=bench.problem, xlabel="median time of a call in each process, ns", ylabel="")
        left.set_xlim(left=0)
        left.locator_params(axis="x", nbins=5)
        if "recording" in bench.provenance:
            left.set_yticks([0, 1], ["original", "solution"])
        right.axvspan(-limit, limit, color="0.85", label="counts as no difference")
        intervals(
            right, [saved.effect], [0], [saved.low], [saved.high], horizontal=True, color="C2",
            label="95 % interval",
        )  # fmt: skip
        right.axvline(0, color="0.3", lw=0.8)
        right.set(xlabel="time saved, % of the original's", yticks=[], title=bench.verdict)
        figure.legend(fontsize="small", loc="outside lower right", ncols=2)
        return figure
