"""Figures of a farm: nodes by cores, one node among all, racks by the hour."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from perflib.framework.plots import ABOVE, drawn
from perflib.lab.theme import themed
from perflib.model.escape import in_legend, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

_MOST_MODELS = 4  # panels
_MOST_NAMED = 40  # rows with all their names
_MOST_MARKED = 12  # names next to very many rows
_LEAST_RANGE = 3.0  # percent: colours do not make mountains of noise
_COLOURS = "vlag"
_MISSING = "0.8"
_BANDS = (0.05, 0.25, 0.5, 0.75, 0.95)  # of the nodes


def heatmap_figure(
    cores: pd.DataFrame,
    nodes: pd.DataFrame,
    title: str,
    *,
    marked: Sequence[str] = (),
    positions: Sequence[tuple[str, int]] = (),
    rows: tuple[int, int] | None = None,
) -> Figure:
    """Each core of each node compared with its model, the slowest nodes on top.

    Parameters
    ----------
    cores, nodes
        The tables of `perflib.fleet.analysis.comparisons.Farm`, of one experiment.
    title
        What was measured.
    marked
        Nodes whose names stand next to their rows.
    positions
        Pairs of a model and a cpu that are marked above their column.
    rows
        Of each model, only the rows from one rank to another: a closer look.
    """
    import seaborn as sns

    models = list(nodes["model"].unique())
    shown = models[:_MOST_MODELS]

    def draw() -> Figure:
        with themed():
            figure = Figure(figsize=(5.0 * max(2, len(shown)), 7.5), layout="constrained")
            panels = figure.subplots(1, len(shown), squeeze=False)[0]
            tables = [_table(cores, nodes, model, rows) for model in shown]
            reach = _reach(tables)
            image = None
            for axes, model, table in zip(panels, shown, tables, strict=True):
                image = axes.imshow(
                    table, aspect="auto", vmin=-reach, vmax=reach, interpolation="auto",
                    cmap=sns.color_palette(_COLOURS, as_cmap=True).with_extremes(bad=_MISSING),
                )  # fmt: skip
                _name_rows(axes, list(table.index), set(marked))
                _mark_positions(
                    axes, [*table.columns], [cpu for of, cpu in positions if of == model]
                )
                axes.set_title(f"{visible(model)}: {nodes['model'].eq(model).sum()} nodes", pad=22)
                axes.set_xlabel("core")
                axes.grid(visible=False)
            panels[0].set_ylabel("nodes, the slowest on top")
            _bar(figure, image, list(panels), "slower than the model's median (%)")
            left_out = len(models) - len(shown)
            more = f" ({left_out} more models are left out)" if left_out else ""
            figure.suptitle(f"{visible(title)}{more}")
            return figure

    return drawn(draw)


def _table(
    cores: pd.DataFrame, nodes: pd.DataFrame, model: str, rows: tuple[int, int] | None
) -> pd.DataFrame:
    """Nodes by cores in percent, ordered; a node without cores has one column."""
    mine = (
        nodes[nodes["model"] == model]
        .set_index("node")["percent"]
        .sort_values(ascending=False, kind="stable")
    )
    table = cores[cores["model"] == model].pivot_table(
        index="node", columns="cpu", values="percent"
    )
    if table.empty:
        table = pd.DataFrame({"all": np.zeros(len(mine))}, index=mine.index)
    table = table.reindex(mine.index).add(mine, axis=0)
    return table if rows is None else table.iloc[rows[0] : max(rows[1], rows[0] + 1)]


def _reach(tables: Sequence[pd.DataFrame]) -> float:
    """Of the colours: all but two values in a hundred are within."""
    sizes = np.abs(np.concatenate([table.to_numpy(float).ravel() for table in tables]))
    sizes = sizes[np.isfinite(sizes)]
    return max(_LEAST_RANGE, float(np.quantile(sizes, 0.98))) if sizes.size else _LEAST_RANGE


def _name_rows(axes: Axes, names: list[str], marked: set[str]) -> None:
    if len(names) <= _MOST_NAMED:
        places = list(range(len(names)))
    else:
        places = [place for place, name in enumerate(names) if name in marked][:_MOST_MARKED]
        least = len(names) / 45  # so that names do not overlap
        places = [p for k, p in enumerate(places) if not k or p - places[k - 1] >= least]
    axes.set_yticks(places, [visible(names[place]) for place in places], fontsize="x-small")


def _mark_positions(axes: Axes, cpus: list[Hashable], found: Sequence[int]) -> None:
    for cpu in found:
        if cpu in cpus:
            axes.annotate(
                f"cpu{cpu}", (cpus.index(cpu), -0.5), (0, 9), textcoords="offset points",
                ha="center", fontsize="x-small", annotation_clip=False,
                arrowprops={"arrowstyle": "-|>", "color": "0.2"},
            )  # fmt: skip
    step = max(1, -(-len(cpus) // 8))
    axes.set_xticks(range(0, len(cpus), step), [str(cpu) for cpu in cpus[::step]])


def _bar(figure: Figure, image: AxesImage | None, panels: list[Axes], label: str) -> None:
    if image is not None:
        figure.colorbar(image, ax=panels, label=label, shrink=0.7, extend="both")


def node_figure(cores: pd.DataFrame, nodes: pd.DataFrame, node: str, title: str) -> Figure:
    """One node among the nodes of its model: as a whole, and core by core.

    Parameters
    ----------
    cores, nodes
        The tables of `perflib.fleet.analysis.comparisons.Farm`, of one experiment.
    node
        Which one.
    title
        What was measured.
    """
    model = nodes.loc[nodes["node"] == node, "model"].iloc[0]
    mine = nodes[nodes["model"] == model].sort_values("percent", kind="stable")
    by_core = cores[cores["model"] == model]

    def draw() -> Figure:
        with themed():
            figure = Figure(figsize=(10, 4.2), layout="constrained")
            left, right = figure.subplots(1, 2, width_ratios=[1, 1.6])
            share = 100 * (np.arange(len(mine)) + 0.5) / len(mine)
            left.plot(share, mine["percent"], ".", color="0.6", ms=4)
            here = mine["node"].to_numpy() == node
            left.plot(
                share[here], mine["percent"][here], "D", color="C3", label=in_legend(visible(node))
            )
            left.set_xlabel(f"share of the {len(mine)} nodes of {visible(model)} (%)")
            left.set_ylabel("slower than the model's median (%)")
            left.legend(**ABOVE)
            _bands(right, by_core, node)
            figure.suptitle(visible(title))
            return figure

    return drawn(draw)


def _bands(axes: Axes, cores: pd.DataFrame, node: str) -> None:
    """Quantiles over the nodes at each core, and the node's own cores."""
    if cores.empty:
        axes.set_axis_off()
        return
    by_cpu = cores.groupby("cpu")["percent"].quantile(np.array(_BANDS)).unstack()
    axes.fill_between(by_cpu.index, by_cpu[0.05], by_cpu[0.95], color="C0", alpha=0.2, lw=0,
                      label="90 % of the nodes")  # fmt: skip
    axes.fill_between(by_cpu.index, by_cpu[0.25], by_cpu[0.75], color="C0", alpha=0.35, lw=0,
                      label="half of the nodes")  # fmt: skip
    axes.plot(by_cpu.index, by_cpu[0.5], color="C0", lw=1)
    mine = cores[cores["node"] == node]
    axes.plot(
        mine["cpu"], mine["percent"], "o-", color="C3", ms=3, lw=0.8, label=in_legend(visible(node))
    )
    axes.set_xlabel("core")
    axes.set_ylabel("slower than the node's\nother cores (%)")
    axes.legend(**{**ABOVE, "ncols": 3})


def hours_figure(hours: pd.DataFrame, title: str) -> Figure:
    """Racks by the hour of the day (UTC), each node against its median.

    Parameters
    ----------
    hours
        The table of `perflib.fleet.analysis.comparisons.Farm`, of one experiment.
    title
        What was measured.
    """
    import seaborn as sns

    table = hours.pivot_table(index="rack", columns="hour", values="percent")
    table = table.reindex(columns=range(24))

    def draw() -> Figure:
        with themed():
            tall = min(9.0, 1.6 + 0.2 * len(table))
            figure = Figure(figsize=(9, tall), layout="constrained")
            axes = figure.subplots()
            reach = _reach([table])
            image = axes.imshow(
                table, aspect="auto", vmin=-reach, vmax=reach, interpolation="nearest",
                cmap=sns.color_palette(_COLOURS, as_cmap=True).with_extremes(bad=_MISSING),
            )  # fmt: skip
            step = max(1, len(table) // _MOST_NAMED)
            names = [visible(str(name)) for name in table.index]
            axes.set_yticks(range(0, len(names), step), names[::step], fontsize="x-small")
            axes.set_xticks(range(0, 24, 3))
            axes.set_xlabel("hour (UTC)")
            axes.set_ylabel("rack")
            axes.grid(visible=False)
            _bar(figure, image, [axes], "slower than\nat other hours (%)")
            figure.suptitle(visible(title))
            return figure

    return drawn(draw)
