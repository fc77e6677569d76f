"""What each dose does to the job: log ratios within rounds, corrected by the control job."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import pandas as pd

from perflib.framework.samples import round_starts, usable
from perflib.stats.interval import NO_INTERVAL, Interval, percent
from perflib.stats.intervals import batch_means, t_interval, time_batches

AMOUNTS = {
    "traffic": ("traffic_gb_s", 1.0, "GB/s"),
    "occupied": ("occupied_bytes", 1 << 20, "MiB"),
}
"""The doses that come in several levels: the column with how much it was, and the unit shown."""
BASES = {"sibling": "alone", "small_pages": "huge_pages"}
"""What a dose is compared with, where it is not the control dose."""
WITNESSES = {"traffic": "triad", "occupied": "chase", "small_pages": "walk"}
"""Our own job that is bound by the dose, whatever the user's job is."""


class DoseTable:
    """Slow-downs of a job by dose.

    Parameters
    ----------
    samples
        One row a start of a program.
    response
        ``cpu``, ``wall`` or ``event``: which time; our own jobs log no events, and have the wall
        time for it.

    Raises
    ------
    UserError
        No row is usable.
    """

    def __init__(self, samples: pd.DataFrame, response: str = "cpu") -> None:
        if "symbol" in samples:  # a row for each function: the first has all of the start
            samples = samples.drop_duplicates(["round", "program", "dose", "level"])
        self.rows = usable(samples)
        self._rounds = np.sort(self.rows["round"].unique())
        self._starts = round_starts(self.rows, self._rounds)
        time_s = self.rows[f"{response}_s"]
        if response == "event":
            time_s = time_s.fillna(self.rows["wall_s"])
        log_time = np.log(time_s.to_numpy(np.float64))
        keys = [self.rows[name] for name in ("program", "dose", "level")]
        times = pd.Series(log_time, index=self.rows.index).groupby([self.rows["round"], *keys])
        self._log = times.mean().unstack(["program", "dose", "level"]).reindex(self._rounds)

    def levels(self, dose: str, program: str = "job") -> list[float]:
        """How much of a dose there was, ascending."""
        mine = self.rows[(self.rows["dose"] == dose) & (self.rows["program"] == program)]
        return sorted(mine["level"].unique().tolist())

    def amount(self, dose: str, level: float, of: str = "") -> float:
        """How much the dose was, as it was measured next to the job; NaN: not known.

        ``of``: how much it was of another dose.
        """
        column, size, _ = AMOUNTS.get(of or dose, ("", 1.0, ""))
        rows = self.rows
        mine = rows[(rows["dose"] == dose) & (rows["level"] == level) & (rows["program"] == "job")]
        return float(mine[column].mean()) / size if column in mine else math.nan

    def longer(self, dose: str, program: str = "job") -> Interval:
        """By how many percent a program takes longer at the dose's largest level.

        Of the job without what the dose does to the control job; of ``occupied`` without what its
        reads would do if all of them went to memory, where memory traffic slows the job down.
        """
        level = max(self.levels(dose, program), default=0.0)
        return percent(self._interval(self._longer(dose, level, program)))

    def at(self, dose: str, level: float, program: str = "job") -> Interval:
        """The same at one level, as it was measured: nothing is taken off for memory traffic."""
        return percent(self._interval(self._ratio(dose, level, program)))

    def slope(self, dose: str) -> Interval:
        """By how many percent the job takes longer for each unit of the dose."""
        return percent(self._interval(self._slope(dose)))

    def half_width(self) -> float:
        """The widest half-width of the job's responses; infinite where one is not known."""
        doses = [one for one in self.rows["dose"].unique() if one not in ("control", "huge_pages")]
        widths = [self.longer(one).half_width for one in doses]
        return max((one if math.isfinite(one) else math.inf for one in widths), default=math.inf)

    @cached_property
    def bound_by_traffic(self) -> bool:
        """Whether the job takes longer the more memory traffic there is."""
        return self.slope("traffic").low > 0

    # --- parts ------------------------------------------------------------------------------------

    def _of(self, program: str, dose: str, level: float) -> pd.Series[float]:
        if (program, dose, level) in self._log:
            return self._log[program, dose, level]
        return pd.Series(math.nan, index=self._log.index)

    def _raw(self, dose: str, level: float, program: str) -> pd.Series[float]:
        found = self._of(program, dose, level) - self._of(program, BASES.get(dose, "control"), 0.0)
        return -found if dose == "alone" else found  # the busy cores are what slows

    def _ratio(self, dose: str, level: float, program: str) -> pd.Series[float]:
        """Log ratio of each round; of the job, without what the dose does to the control job."""
        found = self._raw(dose, level, program)
        if program == "control" or dose == "small_pages":
            return found
        return found - self._raw(dose, level, "control")

    def _longer(self, dose: str, level: float, program: str) -> pd.Series[float]:
        found = self._ratio(dose, level, program)
        if dose == "occupied" and program == "job" and self.bound_by_traffic:
            found = found - self._slope("traffic") * self.amount(dose, level, "traffic")
        return found

    def _slope(self, dose: str) -> pd.Series[float]:
        """Of each round the slope of the line through no dose, no slow-down."""
        levels = self.levels(dose)
        amounts = {level: self.amount(dose, level) for level in levels}
        squares = sum(one**2 for one in amounts.values())
        nothing = pd.Series(math.nan, index=self._log.index)
        if not squares > 0:
            return nothing
        parts = [amounts[one] * self._ratio(dose, one, "job") for one in levels]
        return sum(parts, 0.0 * parts[0]) / squares

    def _interval(self, by_round: pd.Series[float]) -> Interval:
        values = np.asarray(by_round, dtype=np.float64)
        seen = np.isfinite(values)
        if seen.sum() < 2:
            return NO_INTERVAL
        starts = self._starts[seen] if self._starts is not None else None
        batches = time_batches(starts, int(seen.sum()))
        return t_interval(batch_means(values[seen][:, None], batches)[:, 0])
