"""One machine over days: its series, the step in it, and a calendar."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from perflib.fleet.analysis.trend import ALL, over_time, series, what_changed
from perflib.lab.interface import Findings
from perflib.model.errors import MeasurementError, UserError, choose
from perflib.model.extras import installed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = ("run", "experiment", "node", "start", "cpu", "setting", "value")
_HOURS = 24
_MOST_DAYS = 120  # of a calendar, the last ones


@dataclass(frozen=True)
class Trend:
    """The saved runs of an experiment on one machine, as a series.

    Parameters
    ----------
    experiment, node
        What was measured, and the host.
    levels
        ``run, start, cpu, setting, value``.
    threshold_percent
        Smaller steps are none.
    """

    experiment: str
    node: str
    levels: pd.DataFrame
    threshold_percent: float = 1.0

    def __repr__(self) -> str:
        return f"<Trend of {self.experiment} on {self.node}: {self.runs} runs>"

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return int(self.levels["run"].nunique())

    @cached_property
    def series(self) -> pd.DataFrame:
        """How each run compares with the others: see `perflib.fleet.analysis.trend.series`."""
        return series(self.levels)

    @cached_property
    def findings(self) -> Findings:
        """The largest step of all cores together, and of each core."""
        return Findings(over_time(self.levels, self.node, self.experiment, self.threshold_percent))

    def changed(self) -> dict[str, dict[str, tuple[Any, Any]]]:
        """For each step that was found, what the runs before and after it record differently."""
        return {
            one.about["what"]: what_changed(one)
            for one in self.findings
            if one.verdict == "supported"
        }

    def to_dict(self) -> dict[str, Any]:
        """What ``perflib trend --json`` prints."""
        return {
            "experiment": self.experiment,
            "node": self.node,
            "runs": self.runs,
            "findings": [one.to_dict() for one in self.findings],
            "changed": {
                what: {name: list(both) for name, both in differing.items()}
                for what, differing in self.changed().items()
            },
        }

    def figure(self) -> Figure:
        """The series with its step, and below it a calendar: a row a day, a column an hour."""
        with installed():
            from perflib.framework.plots import drawn
        return drawn(self._draw)

    def save(self, path: Path) -> None:
        """Write the figure to a file whose ending says which kind it is.

        Raises
        ------
        UserError
            matplotlib writes no such kind.
        MeasurementError
            It cannot be written there.
        """
        figure = self.figure()
        kinds = figure.canvas.get_supported_filetypes()
        if path.suffix[1:] not in kinds:
            raise UserError(choose("kind of figure", path.suffix[1:], kinds))
        try:
            figure.savefig(path, bbox_inches="tight")
        except OSError as error:
            msg = f"the figure cannot be written to {path}: {error.strerror or error}"
            raise MeasurementError(msg) from error

    def _draw(self) -> Figure:
        from matplotlib.figure import Figure

        calendar = _calendar(self.series)
        tall = min(6.0, 1.2 + 0.17 * len(calendar))
        figure = Figure(figsize=(9, 3.2 + tall), layout="constrained")
        above, below = figure.subplots(2, 1, height_ratios=[3.2, tall])
        self._draw_series(above)
        _draw_calendar(below, calendar)
        figure.suptitle(f"{self.experiment} on {self.node}: {self.runs} runs", fontsize="medium")
        return figure

    def _draw_series(self, axes: Axes) -> None:
        start, value = self.series["start"], 100 * self.series[ALL]
        axes.plot(start, value, ".", color="C0", label="a run")
        found = next(one for one in self.findings if one.about["what"] == ALL)
        if found.verdict == "supported":
            at = pd.Timestamp(found.evidence["at"])
            before, after = value[start < at], value[start >= at]
            axes.plot([start.iloc[0], at], [before.median()] * 2, color="C1")
            label = "median before and after the step"
            axes.plot([at, start.iloc[-1]], [after.median()] * 2, color="C1", label=label)
            rows = [found.evidence["last_before"], found.evidence["first_after"]]
            ends = self.series.loc[rows, "start"]
            axes.axvspan(*ends, color="C1", alpha=0.2, lw=0, label="when (95 %)")
        axes.axhline(0, color="0.7", lw=0.8, zorder=0)
        axes.set_ylabel("slower than the median (%)")
        axes.set_xlabel("start (UTC)")
        axes.legend(fontsize="small", frameon=False)


def _calendar(table: pd.DataFrame) -> pd.DataFrame:
    """Mean slowdown in percent: a row a day, the last ones, a column an hour; NaN: no run."""
    day = table["start"].dt.strftime("%Y-%m-%d")
    by_hour = (100 * table[ALL]).groupby([day, table["start"].dt.hour]).mean().unstack()
    days = pd.date_range(day.iloc[0], day.iloc[-1]).strftime("%Y-%m-%d")[-_MOST_DAYS:]
    return by_hour.reindex(index=days, columns=range(_HOURS))


def _draw_calendar(axes: Axes, calendar: pd.DataFrame) -> None:
    import numpy as np

    values = calendar.to_numpy(float)
    known = np.abs(values[np.isfinite(values)])
    reach = float(np.quantile(known, 0.98)) if known.size else 1.0
    axes.set_facecolor("0.93")
    image = axes.pcolormesh(
        np.arange(_HOURS + 1),
        np.arange(len(values) + 1),
        np.ma.masked_invalid(values),
        cmap="RdBu_r",
        vmin=-(reach or 1.0),
        vmax=reach or 1.0,
    )
    every = max(1, round(len(values) / 20))
    days = [f"{pd.Timestamp(str(day)):%a %Y-%m-%d}" for day in calendar.index]
    axes.set_yticks(np.arange(0, len(values), every) + 0.5, days[::every], fontsize="small")
    axes.set_xticks(range(0, _HOURS + 1, 3))
    axes.invert_yaxis()
    axes.set_xlabel("hour of the day (UTC); grey: no run")
    axes.figure.colorbar(image, ax=axes, label="slower than\nthe median (%)", extend="both")


def trend(
    experiment: str,
    node: str | None = None,
    threshold_percent: float = 1.0,
    levels: pd.DataFrame | None = None,
) -> Trend:
    """All saved runs of an experiment on one machine, as a series; but those of exercises.

    Parameters
    ----------
    experiment
        Its name.
    node
        The host; this one if it is not given.
    threshold_percent
        Smaller steps are none.
    levels
        A table to take in place of the saved runs: ``run, experiment, node, start, cpu, setting,
        value``, as `perflib.lab.farm.FarmView` has it.

    Raises
    ------
    UserError
        There are no such runs (says of which machines there are), or a column is missing.
    """
    from perflib.experiments import get
    from perflib.machine.describe import describe
    from perflib.store.query import query

    get(experiment)  # a wrong name is reported here
    if levels is None:
        columns = ", ".join(_COLUMNS)
        levels = query(
            f"SELECT {columns} FROM levels WHERE experiment = '{experiment}' "
            "AND run IN (SELECT run FROM runs "
            "WHERE split_part(tag, ' ', 1) IS DISTINCT FROM 'exercise')"
        )
    if missing := [name for name in _COLUMNS if name not in levels]:
        msg = f"the table of levels lacks {', '.join(missing)}"
        raise UserError(msg)
    levels = levels[levels["experiment"] == experiment]
    node = str(describe()["hostname"]) if node is None else node
    here = levels[levels["node"] == node]
    if here.empty:
        known = sorted({str(name) for name in levels["node"].dropna()})
        msg = f"there is no saved run of {experiment} on {node}"
        if known:
            msg += "; " + choose("machine", node, known)
        raise UserError(msg)
    return Trend(experiment, node, here, threshold_percent)
