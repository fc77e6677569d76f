"""Samples between probes as turns of pieces, and the pieces compared within turns."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.framework.brackets import classify
from perflib.framework.samples import usable
from perflib.stats.compare import CoreEffect, effects_of
from perflib.stats.interval import NO_INTERVAL, Interval, exp
from perflib.stats.intervals import (
    Floats,
    batch_means,
    share_interval,
    t_interval,
    time_batches,
)

_LONGEST_NS = 1e6  # of a sample that two probes can speak for
_BUSY = 0.95  # of the time that it was not kept waiting: the piece itself does not sleep
_MAX_WAITED = 0.02  # of a sample's time: whoever had the core then leaves other caches
_MIN_SHARE = 0.05  # of a piece's samples: what is left of fewer is not typical


class BracketedTable:
    """The samples of some processes.

    Turns that are not numbered end where another piece comes again: ``A A B B | A B``. A piece's
    time in a turn is the median of its samples that count, pieces are compared within turns, and
    intervals are those of processes, or of batches of one process.

    A sample counts if no other task had its core meanwhile and, where the probes can say so and the
    piece takes less than a millisecond, its core was alone; as far as enough are left. Its time is
    CPU time; of a piece that sleeps the wall time without that in which others had the core.

    Parameters
    ----------
    samples
        Rows as the experiment makes them; of a user's, the required columns are enough.
    against
        The piece that others are compared with; empty: the first.
    """

    def __init__(self, samples: pd.DataFrame, against: str = "") -> None:
        rows = usable(samples)
        if "process" not in rows:
            rows = rows.assign(process=0)
        by = ["process", *(one for one in ("start_ns",) if one in rows)]
        rows = rows.sort_values(by, kind="stable").reset_index(drop=True)
        self.rows = rows
        self.names = list(dict.fromkeys(rows["name"]))
        self.against = against or self.names[0]
        self.processes = rows["process"].nunique()
        self.batches = self._batches()
        states = classify(rows if "cpu" in rows else rows.assign(cpu=0))
        self.classified = states is not None and states.any_calibrated
        everything = np.ones(len(rows), dtype=np.bool_)
        self.alone = states.alone if states is not None and self.classified else everything
        own = self._own_ns()
        self.counts = self._counted(own)
        calls = rows["calls"].to_numpy(np.float64) if "calls" in rows else 1.0
        self.log_ns: Floats = np.log(own / calls)
        self._levels = self._by_turn()

    def _counted(self, own: Floats) -> NDArray[np.bool_]:
        """Which samples count: by the strictest rule that leaves enough of every piece.

        After an interruption caches are cold. If the interrupted sample alone were left out, the
        piece that begins a turn would be cold more often: where the first of a pair is left out,
        the second, which is cold, is not compared. So a sample's neighbours have to be clean, too.
        """
        uninterrupted = self._waited_ns() <= _MAX_WAITED * self.rows["time_ns"].to_numpy(np.float64)
        clean = self.alone & uninterrupted
        calm = clean & np.append(True, clean[:-1]) & np.append(clean[1:], True)
        counts = np.ones(len(self.rows), dtype=np.bool_)
        pieces = self.rows["name"].to_numpy()
        median_ns = pd.Series(own).groupby(pieces).transform("median").to_numpy()
        for mine, rules in (
            (median_ns <= _LONGEST_NS, (calm, clean, self.alone, uninterrupted)),
            (median_ns > _LONGEST_NS, (uninterrupted,)),
        ):
            for rule in rules:
                if (pd.Series(rule[mine]).groupby(pieces[mine]).mean() >= _MIN_SHARE).all():
                    counts[mine] = rule[mine]
                    break
        return counts

    def _batches(self) -> NDArray[np.int64]:
        """The batch of each sample: its process, or its time within the only one."""
        if self.processes > 1:
            return pd.factorize(self.rows["process"])[0].astype(np.int64)
        starts = None
        if "start_ns" in self.rows and self.rows["start_ns"].notna().all():
            starts = self.rows["start_ns"].to_numpy(np.float64) / 1e9
        return time_batches(starts, len(self.rows))

    def _waited_ns(self) -> Floats:
        """How long each sample's thread was ready and did not have its core."""
        waited = np.zeros(len(self.rows))
        for name in ("run_delay_ns", "throttled_ns"):
            if name in self.rows:
                known = self.rows[name].to_numpy(np.float64, na_value=0.0)
                waited += np.nan_to_num(known).clip(0)
        return waited

    def _own_ns(self) -> Floats:
        """What each sample's piece took itself: not what others took of its core."""
        rows = self.rows
        wall = rows["time_ns"].to_numpy(np.float64)
        waited = self._waited_ns()
        own = np.where(waited < wall, wall - waited, wall)
        if "cpu_time_ns" not in rows:
            return own
        cpu = rows["cpu_time_ns"].to_numpy(np.float64, na_value=np.nan)
        share = pd.Series(cpu / own).groupby(rows["name"]).transform("median").to_numpy()
        return np.where((share > _BUSY) & (cpu > 0), cpu, own)

    def _turns(self) -> NDArray[np.int64]:
        """The turn of each sample, from 0."""
        if "turn" in self.rows and self.rows["turn"].notna().all():
            numbered = self.rows.groupby(["process", "turn"], sort=False).ngroup()
            return np.asarray(numbered, dtype=np.int64)
        turns = np.empty(len(self.rows), dtype=np.int64)
        turn, seen, last, process = 0, set[str](), "", None
        for place, (name, mine) in enumerate(
            zip(self.rows["name"], self.rows["process"], strict=True)
        ):
            if mine != process or (name != last and name in seen):
                turn, seen, process = turn + (place > 0), set(), mine
            seen.add(name)
            turns[place], last = turn, name
        return turns

    def _by_turn(self) -> pd.DataFrame:
        """``[turn, piece]``: log of ns; the index has each turn's batch, too."""
        frame = pd.DataFrame({"turn": self._turns(), "name": self.rows["name"], "log": self.log_ns})
        frame["batch"] = self.batches
        frame["batch"] = frame.groupby("turn")["batch"].transform("first")
        medians = frame[self.counts].groupby(["batch", "turn", "name"])["log"].median()
        return medians.unstack("name").reindex(columns=self.names)

    # --- what is said of a piece --------------------------------------------------------------

    @property
    def others(self) -> list[str]:
        """The pieces that are compared with the reference."""
        return [name for name in self.names if name != self.against]

    def _ratios(self, name: str) -> Floats:
        """``[batch]``: log ratio to the reference, within turns."""
        both = (self._levels[name] - self._levels[self.against]).dropna()
        batches = pd.factorize(both.index.get_level_values("batch"))[0].astype(np.int64)
        return batch_means(both.to_numpy(np.float64)[:, None], batches)[:, 0]

    def slower(self, name: str) -> CoreEffect:
        """By how many percent the piece takes longer; intervals hold for all pieces together."""
        ratios = self._ratios(name)
        return effects_of(np.column_stack([np.zeros_like(ratios), ratios]), self.confidence)[1]

    @property
    def confidence(self) -> float:
        """Of each interval, so that all pieces together have 95 %."""
        return 1 - 0.05 / max(1, len(self.others))

    def time_ns(self, name: str) -> Interval:
        """What the piece takes."""
        mine = self.counts & (self.rows["name"] == name).to_numpy()
        if not mine.any():
            return NO_INTERVAL
        batches = pd.factorize(self.batches[mine])[0].astype(np.int64)
        return exp(t_interval(batch_means(self.log_ns[mine][:, None], batches)[:, 0]))

    def alone_percent(self) -> Interval:
        """The share of samples whose core was alone."""
        weight = np.ones(len(self.rows))
        found = share_interval(self.alone, weight, self.batches)
        return Interval(*(100 * end for end in found))

    def half_width(self) -> float:
        """The widest of all comparisons; of one piece alone, of its time, in percent."""
        if not self.others:
            found = self.time_ns(self.against)
            return 100 * found.half_width / found.effect
        widths = [self.slower(name).slowdown.half_width for name in self.others]
        return float(np.max(np.nan_to_num(widths, nan=np.inf)))
