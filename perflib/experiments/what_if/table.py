"""What trials with a target faster say of the job's time: gains with intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perflib.framework.samples import round_starts, usable
from perflib.stats.interval import NO_INTERVAL, Interval, widest
from perflib.stats.intervals import batch_means, t_interval, time_batches

OTHERS_SHARE = 0.05
"""A trial whose threads were ready without a core for a larger share of their time is left out."""

_MIN_ROUNDS = 4  # of trials that had their cores: else all are used


@dataclass(frozen=True, order=True)
class Key:
    """A target: its kind and its name."""

    kind: str
    name: str


class GainTable:
    """Gains, in percent of the job's time without anything faster.

    The time of a trial is that from load to end less the delays inserted. It is compared with the
    mean of the round's controls of the same kind of target; what targets share, a round shares.

    Parameters
    ----------
    samples
        One row a trial.

    Raises
    ------
    UserError
        No row is usable.
    """

    def __init__(self, samples: pd.DataFrame) -> None:
        rows = usable(samples).copy()
        time_s = (rows["job_s"] - rows["delay_s"]).clip(lower=1e-3 * rows["job_s"])
        rows["log_time"] = np.log(time_s)
        rows["base"] = np.where(rows["kind"] == "function", "function", "lock")
        rows["own_cores"] = _own_cores(rows)
        self.rows = rows
        kinds = rows[["kind", "target"]].drop_duplicates().itertuples(index=False)
        self.targets = [Key(str(one.kind), str(one.target)) for one in kinds]
        self.conditioned = self._enough_own_cores()
        self._used = rows[rows["own_cores"]] if self.conditioned else rows
        self._rounds = np.sort(rows["round"].unique())
        self._starts = round_starts(rows, self._rounds)
        controls = self._used[self._used["way"].isin(["control", "again"])]
        self._base = {
            str(base): mine.groupby("round")["log_time"].mean()
            for base, mine in controls.groupby("base")
        }

    # --- the job ----------------------------------------------------------------------------------

    def others_share(self) -> float:
        """In which share of the trials threads were long ready and waiting for a core."""
        return float(1 - self.rows["own_cores"].mean())

    def threads(self) -> tuple[int, int]:
        """How many threads worked at once (without the first one, which waits), and the cores."""
        if "threads" not in self.rows or self.rows["threads"].isna().all():
            return 0, 0
        cpus = self.rows["cpus"].max() if "cpus" in self.rows else math.nan
        most = int(self.rows["threads"].max())
        return max(1, most - 1), int(cpus) if math.isfinite(cpus) else 0

    def single(self) -> bool:
        """Whether the job has one thread only."""
        return "threads" in self.rows and bool(self.rows["threads"].max() == 1)

    def speedups(self, target: Key, way: str = "virtual") -> list[float]:
        """By how much it was made faster, ascending."""
        return sorted(self._of(target, way)["speedup_percent"].unique().tolist())

    # --- gains ------------------------------------------------------------------------------------

    def gain(self, target: Key, percent: float, way: str = "virtual") -> Interval:
        """By how many percent the job takes less time."""
        return self._interval(self._gains(target, percent, way))

    def share(self, target: Key) -> Interval:
        """Its share of the CPU time of all threads, in percent, with nothing faster."""
        controls = self._of(target, "control", conditioned=False)
        if not {"target_s", "cpu_s"} <= set(controls):
            return NO_INTERVAL
        share = 100 * controls["target_s"] / controls["cpu_s"].where(controls["cpu_s"] > 0)
        return self._interval(share.groupby(controls["round"]).mean())

    def off_profile(self, target: Key, percent: float) -> Interval:
        """The gain less the share of CPU time times the speed-up, in percentage points."""
        share = self.share(target).effect
        return self._interval(self._gains(target, percent, "virtual") - share * percent / 100)

    def off_real(self, target: Key, percent: float) -> Interval:
        """The predicted gain less the real one, in percentage points, round by round."""
        return self._interval(
            self._gains(target, percent, "virtual") - self._gains(target, percent, "real")
        )

    def control(self) -> Interval:
        """By how many percent the job takes less time than itself."""
        again = self._used[self._used["way"] == "again"]
        first = self._used[
            (self._used["way"] == "control") & self._used["target"].isin(again["target"])
        ]
        first = first[first["kind"].isin(again["kind"])]
        both = [one.groupby("round")["log_time"].mean() for one in (again, first)]
        return self._interval(_less(both[0] - both[1]))

    def ever(self, target: Key) -> bool:
        """Whether a thread was ever in it."""
        mine = self.rows[(self.rows["kind"] == target.kind) & (self.rows["target"] == target.name)]
        seen = "target_samples" if target.kind == "function" else "sections"
        return seen not in mine or bool(mine[seen].fillna(1).sum() > 0)

    def half_width(self) -> float:
        """The widest of all targets at their largest speed-ups; infinite where there is none."""
        widths = [
            self.gain(one, speedups[-1]).half_width
            for one in self.targets
            if (speedups := self.speedups(one))
        ]
        return widest(widths, default=math.inf)

    # --- parts ------------------------------------------------------------------------------------

    def _of(self, target: Key, way: str, *, conditioned: bool = True) -> pd.DataFrame:
        rows = self._used if conditioned else self.rows
        return rows[
            (rows["kind"] == target.kind) & (rows["target"] == target.name) & (rows["way"] == way)
        ]

    def _gains(self, target: Key, percent: float, way: str) -> pd.Series[float]:
        rows = self._of(target, way)
        rows = rows[rows["speedup_percent"] == percent]
        base = self._base.get("function" if target.kind == "function" else "lock")
        if base is None or rows.empty:
            return pd.Series(dtype=np.float64)
        return _less(rows.groupby("round")["log_time"].mean() - base)

    def _interval(self, by_round: pd.Series[float]) -> Interval:
        values = np.asarray(by_round.reindex(self._rounds), dtype=np.float64)
        seen = np.isfinite(values)
        if not seen.any():
            return NO_INTERVAL
        starts = self._starts[seen] if self._starts is not None else None
        blocks = time_batches(starts, int(seen.sum()))
        return t_interval(batch_means(values[seen][:, None], blocks)[:, 0])

    def _enough_own_cores(self) -> bool:
        """Whether every configuration keeps enough rounds without the trials that others slowed."""
        keys = ["kind", "target", "way", "speedup_percent"]
        kept = self.rows[self.rows["own_cores"]].groupby(keys)["round"].nunique()
        wanted = self.rows.groupby(keys)["round"].nunique()
        return bool((kept.reindex(wanted.index, fill_value=0) >= _MIN_ROUNDS).all())


def _less(log_ratio: pd.Series[float]) -> pd.Series[float]:
    """By how many percent a time is less, of the logarithm of its ratio."""
    return pd.Series(-100 * np.expm1(log_ratio.to_numpy(np.float64)), index=log_ratio.index)


def _own_cores(rows: pd.DataFrame) -> pd.Series[bool]:
    """Trials whose threads hardly waited for a core; all where that is not known or usual."""
    everything = pd.Series(data=True, index=rows.index)
    if not {"run_queue_s", "cpu_s", "threads", "cpus"} <= set(rows):
        return everything
    waited = rows["run_queue_s"] / (rows["run_queue_s"] + rows["cpu_s"])
    more_threads = rows["threads"] - 1 > rows["cpus"]
    found: pd.Series[bool] = ~(waited > OTHERS_SHARE) | more_threads
    return found
