"""The figures of alias_environment, each drawn from the table of its name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perflib.experiments.aliasing.environment.analyse import table_of, tables
from perflib.framework.plots import intervals, panel, panels_above, ranked_counters
from perflib.model.run import Run

_MARK = "C3"
_STARTS = {
    ("fixed", True): ("ASLR off, predicted sizes", _MARK, "-"),
    ("fixed", False): ("ASLR off, other sizes", "C0", "-"),
    ("random", True): ("ASLR on, one predicted size", "C2", "--"),
}


def plots(run: Run) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn; none of what was not started."""
    made, table = tables(run), table_of(run)
    model = (run.provenance.get("simulated") or {}).get("model", "")
    drawn: dict[str, Callable[[], Figure]] = {
        "environment": lambda: _environment(made["environment"](), model),
        "counters": lambda: ranked_counters(made["counters"](), "sizes of the environment"),
    }
    if table.orders:
        size = int(table.linked["environment_bytes"].median())
        drawn["link_order"] = lambda: _link_order(made["link_order"](), size)
    if len(table.randomised):
        drawn["aslr"] = lambda: _aslr(made["aslr"]())
    return drawn


def _environment(curve: pd.DataFrame, model: str) -> Figure:
    """Time an iteration at each size, predicted ones marked; the simulated count below."""
    simulated = bool(curve["simulated_aliases"].notna().any())
    figure, panels = panels_above(2 if simulated else 1, 8, 6.2 if simulated else 4.0)
    above = panels[0]
    marked, others = curve[curve["predicted"]], curve[~curve["predicted"]]
    above.plot(
        others["environment_bytes"], others["iteration_ns"], ".", ms=3, color="C0",
        label="other sizes",
    )  # fmt: skip
    if others["iteration_ns"].notna().any():  # not where the core was never alone
        ends = np.nanquantile(others["iteration_ns"], [0.025, 0.975])
        above.axhspan(*ends, color="C0", alpha=0.15, lw=0, label="95 % of them")
    if "shared_iteration_ns" in curve:
        above.plot(
            others["environment_bytes"], others["shared_iteration_ns"], ".", ms=3, color="0.75",
            label="other sizes, sibling busy", zorder=0,
        )  # fmt: skip
        intervals(
            above, marked["environment_bytes"], marked["shared_iteration_ns"],
            marked["shared_iteration_ns_low"], marked["shared_iteration_ns_high"], fmt="d", ms=4,
            color="0.4", label="predicted, sibling busy",
        )  # fmt: skip
    if len(marked):
        intervals(
            above, marked["environment_bytes"], marked["iteration_ns"], marked["iteration_ns_low"],
            marked["iteration_ns_high"], fmt="D", ms=5, color=_MARK,
            label="predicted: low 12 bits agree, 95 % interval",
        )  # fmt: skip
    above.set_ylabel("time per iteration (ns)")
    # From zero, so that a little looks little; what is far beyond the rest leaves the panel.
    times = pd.concat([1.1 * marked["iteration_ns"], 1.35 * curve["iteration_ns"].agg(["median"])])
    if times.notna().any():
        above.set_ylim(0, times.max())
    above.set_title("Time against the size of the environment")
    above.legend(fontsize="small", loc="lower right", ncols=3)
    if simulated:
        _simulated(panels[1], curve, model)
    panels[-1].set_xlabel("size of the environment (B)")
    return figure


def _simulated(axes: Axes, curve: pd.DataFrame, model: str) -> None:
    for size in curve.loc[curve["predicted"], "environment_bytes"]:
        axes.axvline(size, color=_MARK, lw=5, alpha=0.25)
    counts = curve["simulated_aliases"]
    axes.plot(curve["environment_bytes"], counts, "-", color="0.25", lw=1.2, label="simulated")
    axes.plot([], [], color=_MARK, lw=5, alpha=0.25, label="predicted")
    axes.set_ylabel("simulated 4K aliases\nper iteration")
    axes.set_title(f"simulated: {model}", fontsize="small", fontweight="normal")
    axes.set_ylim(0, max(1.0, 1.25 * counts.max()))
    axes.legend(fontsize="small", loc="upper right")


def _link_order(times: pd.DataFrame, environment_bytes: int) -> Figure:
    """Time an iteration in each link order, in one environment."""
    figure = Figure(figsize=(8, 1.6 + 0.42 * len(times)))
    axes = figure.subplots()
    places = -np.arange(len(times))
    agree = (times["pairs"] != "").to_numpy()
    groups = (("low 12 bits agree", _MARK, agree), ("they do not", "C0", ~agree))
    for label, colour, chosen in groups:
        mine = times[chosen]
        intervals(
            axes, mine["iteration_ns"], places[chosen],
            mine["iteration_ns_low"], mine["iteration_ns_high"],
            horizontal=True, fmt="D", ms=6, color=colour, label=label,
        )  # fmt: skip
    names = [
        f"{order}\n({pairs or 'none agree'})"
        for order, pairs in zip(times["link_order"], times["pairs"], strict=True)
    ]
    axes.set_yticks(places, names, fontsize="small")
    axes.margins(y=0.15)
    axes.legend(
        fontsize="small", loc="upper left", bbox_to_anchor=(1, 1), title_fontsize="small",
        title="fastest of a start,\n95 % intervals",
    )  # fmt: skip
    axes.set_xlim(0, None)
    axes.set_xlabel("time per iteration (ns)")
    axes.set_title(
        f"The same objects, linked in another order ({environment_bytes} B of environment)"
    )
    return figure


def _aslr(times: pd.DataFrame) -> Figure:
    """How the times of single starts are distributed, with fixed and with random addresses."""
    figure, axes = panel(8, 4)
    for (addresses, predicted), (words, colour, style) in _STARTS.items():
        rows = times[(times["addresses"] == addresses) & (times["predicted"] == predicted)]
        if len(rows):
            sns.ecdfplot(
                rows, x="iteration_ns", stat="percent", color=colour, ls=style, ax=axes,
                label=f"{words} ({len(rows)} starts)",
            )  # fmt: skip
    every = times["iteration_ns"].to_numpy(np.float64)
    if len(every):  # not where the core was never alone
        axes.set_xlim(0.98 * every.min(), max(np.quantile(every, 0.98), 1.05 * np.median(every)))
    axes.set_xlabel("time per iteration, the fastest of a start (ns)")
    axes.set_ylabel("starts that are as fast or faster (%)")
    axes.set_title("Fixed and random addresses")
    if len(every):
        axes.legend(fontsize="small", loc="lower right")
    return figure
