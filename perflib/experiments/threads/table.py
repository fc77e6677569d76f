"""What the trials of ``threads`` say, before any claim: times, concurrency, waits, gains.

All ratios are of trials of the same round. With n threads and a loop of t seconds, threads have n t
seconds to work or to wait. If the waits for one lock, w of them, went away and nothing else
changed, the loop would be shorter by w / n: the *bound*. Threads that no longer wait there meet at
the other locks more often, so that a part of it is lost again; how much, a queueing network says
(`removed`).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.threads.trials import ALONE, ONE, PROFILED, WITHOUT
from perflib.framework.samples import round_starts, usable
from perflib.stats.interval import NO_INTERVAL, Interval, percent
from perflib.stats.intervals import Floats, batch_means, t_interval, time_batches

_ALPHA = 0.05
_WHOLE = 0.999  # of the loop is recorded where its waits are compared with what the job reports
_MAX_STEPS, _CONVERGED, _MIN_POSITIVE = 500, 1e-7, 1e-12
_MAX_LOG = 700.0
_MAX_MODELLED = 512  # threads: the model goes through them one by one, in each of its steps
LONG_WAIT_S = 0.01  # what limits a job is rarely one lock held for longer
_OF_THE_PROFILE = (
    "locks", "limiting", "concurrency", "concurrency_s", "recorded_s", "whole_s", "cpus",
    "running_s", "ready_s", "free_ready_s", "waiting_s", "sleeping_s", "spinning_s", "unknown_s",
    "serial_begin_s", "serial_end_s",
)  # fmt: skip


@dataclass(frozen=True)
class WaitShare:
    """What one lock costs: percent of the threads' time.

    ``gain``: by how much the job would be shorter without, by who waits for whom, in percent; no
    number where no row has it.
    ``reported``: the same as the job reports it, in the same trials; ``apart``: how much more the
    profile says, in percent of that, with an interval that holds for all locks together.
    """

    lock: str
    kind: str
    share: Interval
    gain: Interval
    reported: Interval
    apart: Interval


@dataclass(frozen=True)
class Gain:
    """What switching one point off shortens the loop by, in percent of it.

    ``measured``, the ``bound`` and the queueing network's ``expected`` from the profile, and
    ``beyond``: measured less the bound, in percentage points, with an interval that holds for all
    points of all versions together.
    """

    point: str
    measured: Interval
    bound: Interval
    expected: Interval
    beyond: Interval


class ThreadTable:
    """The samples of a run, and what is computed from them.

    Parameters
    ----------
    samples
        One row a trial; of a job that ran already, one row a segment of its recording.
    versions
        The order of the versions; others follow.

    Raises
    ------
    UserError
        No row is usable, or a time is not positive.
    """

    def __init__(self, samples: pd.DataFrame, versions: Sequence[str] = ()) -> None:
        rows = usable(samples)
        again = rows.groupby(
            ["version", "configuration", "round"]
        ).cumcount()  # segments are rounds
        self.rows = rows.assign(round=rows["round"] * (again.max() + 1) + again)
        known = dict.fromkeys(rows["version"])
        self.versions = [*(one for one in versions if one in known)]
        self.versions += [one for one in known if one not in self.versions]
        profiled = self.rows[self.rows["configuration"] == PROFILED]
        unknown = [column for column in _OF_THE_PROFILE if column not in profiled]
        profiled = profiled.assign(**dict.fromkeys(unknown, math.nan))  # of a user without one
        profiled = profiled.dropna(subset=["locks", "concurrency_s", "cpus"])
        tables = {"lock_table": [json.loads(text) for text in profiled["locks"]]}
        self._profiled = {
            str(version): mine.set_index("round")
            for version, mine in profiled.assign(**tables).groupby("version")
        }
        begun = ["round", "start_ns"] if "start_ns" in rows else ["round"]
        self._rounds = self.rows[begun].groupby("round", as_index=False).min()
        self._waits: dict[str, list[WaitShare]] = {}

    def is_profiled(self, version: str) -> bool:
        """Whether it was recorded."""
        return version in self._profiled

    def sizes(self, version: str) -> tuple[int, int]:
        """How many threads, and how many CPUs they may use."""
        mine = self._profiled[version]
        return int(mine["threads"].max()), int(mine["cpus"].max())

    # --- times -----------------------------------------------------------------------------------

    @cached_property
    def _log_times(self) -> dict[str, pd.DataFrame]:
        """By version: ``[round, configuration]`` of log seconds."""
        rows = self.rows.assign(log_s=np.log(self.rows["job_time_s"].to_numpy(np.float64)))
        return {
            str(version): mine.pivot_table(index="round", columns="configuration", values="log_s")
            for version, mine in rows.groupby("version")
        }

    def configurations(self, version: str) -> list[str]:
        """How a version was run."""
        return [str(one) for one in self._log_times[version]]

    def points(self, version: str) -> list[str]:
        """The points that were switched off one at a time."""
        ways = self.configurations(version)
        return [way.removeprefix(WITHOUT) for way in ways if way.startswith(WITHOUT)]

    def _log_time(self, version: str, way: str) -> pd.Series[float]:
        times = self._log_times[version]
        return times[way] if way in times else pd.Series(math.nan, index=times.index)

    def _interval(self, by_round: pd.Series[float], confidence: float = 0.95) -> Interval:
        """The mean, with an interval from batch means."""
        by_round = by_round[np.isfinite(by_round)]
        if by_round.empty:
            return NO_INTERVAL
        starts = round_starts(self._rounds, by_round.index)
        blocks = time_batches(starts, len(by_round))
        values = np.array(by_round, dtype=np.float64)
        means = batch_means(values[:, None], blocks)[:, 0]
        return t_interval(means, confidence)

    def job_s(self, version: str, way: str) -> Interval:
        """How long the loop takes, in s."""
        return _exp(self._interval(self._log_time(version, way)))

    def speedup(self, version: str) -> Interval:
        """One thread's time over that of all threads, both alone."""
        return _exp(self._interval(self._log_speedup(version)))

    def _log_speedup(self, version: str) -> pd.Series[float]:
        return self._log_time(version, ONE) - self._log_time(version, ALONE)

    def overhead(self, version: str) -> Interval:
        """How much longer the loop takes under the profile, in percent."""
        longer = self._log_time(version, PROFILED) - self._log_time(version, ALONE)
        return percent(self._interval(longer))

    # --- concurrency -----------------------------------------------------------------------------

    def _profile(self, version: str, column: str) -> pd.Series[float]:
        """A column of the profiled trials, by round."""
        if version not in self._profiled:
            return pd.Series(dtype=np.float64)
        return self._profiled[version][column].astype(np.float64)

    def concurrency(self, version: str) -> Interval:
        """How many threads ran at once, on average over the loop."""
        return self._interval(self._profile(version, "concurrency"))

    def predicts(self, version: str) -> Interval:
        """Effective concurrency over speed-up: 1 where the one predicts the other."""
        log = self._log_concurrency(version) - self._log_speedup(version)
        return _exp(self._interval(log))

    def _log_concurrency(self, version: str) -> pd.Series[float]:
        concurrency = self._profile(version, "concurrency")
        return _on_values(np.log, concurrency.where(concurrency > 0))  # 0: all of it slept

    def differences(self, first: str, second: str, confidence: float) -> tuple[Interval, Interval]:
        """How much more, in percent, the second version has: of concurrency, of speed-up."""
        concurrency = [self._log_concurrency(one) for one in (first, second)]
        speedup = [self._log_speedup(one) for one in (first, second)]
        return (
            percent(self._interval(concurrency[1] - concurrency[0], confidence)),
            percent(self._interval(speedup[1] - speedup[0], confidence)),
        )

    def busy(self, version: str) -> Interval:
        """Effective concurrency in percent of what threads and CPUs allow."""
        most = np.minimum(self._profile(version, "threads"), self._profile(version, "cpus"))
        return self._interval(100 * self._profile(version, "concurrency") / most)

    def histogram(self, version: str) -> Floats:
        """The share of the time in which k threads ran at once, for k = 0, 1 ..."""
        texts = self._profiled[version]["concurrency_s"]
        trials = [np.array(json.loads(text), dtype=np.float64) for text in texts]
        total = np.zeros(max((len(trial) for trial in trials), default=0))
        for trial in trials:
            total[: len(trial)] += trial
        return np.asarray(total / total.sum()) if total.sum() else total

    def share(self, version: str, column: str) -> Interval:
        """Seconds of a column in percent of the time that threads were awake for work."""
        return self._interval(100 * self._profile(version, column) / self._awake_s(version))

    def states(self) -> pd.DataFrame:
        """``[version, state]``: mean shares of the threads' time in percent.

        ``locked_s``: waiting for locks, and run-queue delay before the lock was taken.
        """
        columns = ("running_s", "spinning_s", "free_ready_s", "sleeping_s", "unknown_s")
        rows = {}
        for version in self.versions:
            if not self.is_profiled(version):
                continue
            seconds = {one: float(self._profile(version, one).sum()) for one in columns}
            seconds["locked_s"] = float(self._waited(version, self._locks(version)).sum())
            total = max(sum(seconds.values()), 1e-9)
            rows[version] = {name: 100 * one / total for name, one in seconds.items()}
        return pd.DataFrame.from_dict(rows, orient="index")

    def serial(self, version: str) -> Interval:
        """Begin and end that one thread worked alone, in percent of what was recorded."""
        alone = self._profile(version, "serial_begin_s") + self._profile(version, "serial_end_s")
        return self._interval(100 * alone / self._profile(version, "whole_s"))

    def _awake_s(self, version: str) -> pd.Series[float]:
        """Time of all threads, but for sleep."""
        states = ("running_s", "ready_s", "waiting_s", "spinning_s", "unknown_s")
        each = (self._profile(version, one) for one in states[1:])
        return sum(each, self._profile(version, states[0])).clip(lower=1e-9)

    # --- waits -----------------------------------------------------------------------------------

    def _locks(self, version: str) -> dict[str, str]:
        """Locks and their kinds."""
        return {
            name: one["kind"]
            for locks in self._profiled[version]["lock_table"]
            for name, one in locks.items()
        }

    def _waited(self, version: str, names: Collection[str]) -> pd.Series[float]:
        """By round: seconds of all threads for some locks, being ready meanwhile included."""
        mine = self._profiled[version]
        seconds = [
            sum(one["waiting_s"] + one["ready_s"] for name, one in locks.items() if name in names)
            for locks in mine["lock_table"]
        ]
        return pd.Series(seconds, index=mine.index, dtype=np.float64)

    def _reports(self, version: str) -> pd.Series[Any]:
        """By round: the self-reported waits of the profiled trials that were recorded whole."""
        if version not in self._profiled or "self_report" not in self._profiled[version]:
            return pd.Series(dtype=object)
        mine = self._profiled[version]
        whole = mine["recorded_s"] >= _WHOLE * mine["job_time_s"]
        return mine.loc[whole & mine["self_report"].notna(), "self_report"].map(json.loads)

    def points_of(self, version: str) -> dict[str, str]:
        """The synchronisation point that each lock belongs to, as the job reports it."""
        return {
            name: one["point"] for report in self._reports(version) for name, one in report.items()
        }

    def waits(self, version: str) -> list[WaitShare]:
        """What locks cost, the costliest first."""
        if version not in self._profiled:
            return []
        if version not in self._waits:
            found = self._all_waits(version)
            self._waits[version] = sorted(found, key=lambda one: -one.share.effect)
        return self._waits[version]

    def _all_waits(self, version: str) -> Iterator[WaitShare]:
        kinds = self._locks(version)
        reports = self._reports(version)
        kinds |= {name: "" for report in reports for name in report if name not in kinds}
        awake = self._awake_s(version)
        for lock, kind in kinds.items():
            here = self._waited(version, [lock])
            reported = pd.Series(
                [report.get(lock, {}).get("waiting_s", 0.0) for report in reports],
                index=reports.index, dtype=np.float64,
            )  # fmt: skip
            apart = 100 * (here / reported.where(reported > 0) - 1)
            together = 1 - _ALPHA / len(kinds)
            yield WaitShare(
                lock, kind, self._interval(100 * here / awake), self._gain(version, lock),
                self._interval(100 * reported / awake), self._interval(apart, together),
            )  # fmt: skip

    def _gain(self, version: str, lock: str) -> Interval:
        """By how much the job would be shorter without a lock's waits, in percent.

        However little is waited for, the CPUs have the threads' work to do.
        """
        mine = self._profiled[version]
        nothing = {"gain_s": 0.0}
        seconds = [
            locks.get(lock, nothing)["gain_s"]
            if all("gain_s" in one for one in locks.values())
            else math.nan
            for locks in mine["lock_table"]
        ]
        gain_s = pd.Series(seconds, index=mine.index, dtype=np.float64)
        recorded_s = self._profile(version, "recorded_s")
        least_s = self._profile(version, "running_s") / self._profile(version, "cpus")
        return self._interval(
            100 * gain_s.clip(upper=(recorded_s - least_s).clip(lower=0)) / recorded_s
        )

    def first_of(self, version: str, names: Collection[str]) -> Counter[str]:
        """In how many profiles each of some locks was the costliest of them."""
        tables = self._profiled[version]["lock_table"]
        return Counter(next((one for one in locks if one in names), "") for locks in tables)

    def unseen_wait(self, version: str) -> Interval:
        """Where no wait was seen: the share of the threads' time that may be waiting all the same.

        In percent, with a 95 % bound; without ends after one round. Waits of ``LONG_WAIT_S`` at
        random would have shown, unless fewer than three were to be expected in all of the time
        that was seen (the rule of three). What is unknown may have been waiting.
        """
        awake, unknown_s = self._awake_s(version), self._profile(version, "unknown_s")
        unknown = self._interval(100 * unknown_s / awake)
        seen_s = max(float((awake - unknown_s).sum()), _MIN_POSITIVE)
        bound = unknown.high - 100 * math.log(_ALPHA) * LONG_WAIT_S / seen_s
        if not math.isfinite(bound):
            return Interval(0.0, math.nan, math.nan)
        return Interval(0.0, 0.0, min(bound, 100.0))

    def lost_events(self, version: str) -> bool:
        """Whether a recording missed events."""
        mine = self._profiled[version]
        return "lost_events" in mine and bool((mine["lost_events"] > 0).any())

    # --- what a synchronisation point costs -----------------------------------------------------

    @cached_property
    def _predictions(self) -> dict[str, pd.DataFrame]:
        """By version: ``[round, (bound, expected) x point]`` in percent of the loop."""
        return {version: self._predicted(version) for version in self._profiled}

    def _predicted(self, version: str) -> pd.DataFrame:
        point_of = self.points_of(version)
        points = list(dict.fromkeys(point_of.values()))
        mine = self._profiled[version]
        threads = int(mine["threads"].max())
        loop_s = self._profile(version, "recorded_s")
        waited = [
            self._waited(version, [lock for lock, its in point_of.items() if its == point])
            / (threads * loop_s)
            for point in points
        ]
        shares = np.array(waited).T.reshape(len(mine), len(points))
        spun = self._profile(version, "spinning_s") / (threads * loop_s)  # for which is not known
        # However little is waited for, the CPUs have the threads' work to do.
        least = self._profile(version, "running_s") / (self._profile(version, "cpus") * loop_s)
        most = (1 - least).clip(lower=0.0).to_numpy()[:, None]
        found = {
            "bound": np.minimum(shares + spun.to_numpy()[:, None], most),
            "expected": np.minimum(removed(shares, threads), most),
        }
        columns = {
            (kind, point): 100 * values[:, place]
            for kind, values in found.items()
            for place, point in enumerate(points)
        }
        return pd.DataFrame(columns, index=mine.index)

    def gain(self, version: str, point: str) -> Gain:
        """What switching a point off gains: measured, and predicted from the profile alone."""
        claims = max(1, sum(len(self.points(one)) for one in self.versions))
        shorter = self._log_time(version, WITHOUT + point) - self._log_time(version, ALONE)
        measured = -100 * _on_values(np.expm1, shorter)
        table = self._predictions.get(version, pd.DataFrame())
        nothing = pd.Series(math.nan, index=measured.index)
        bound, expected = (table.get((kind, point), nothing) for kind in ("bound", "expected"))
        return Gain(
            point, self._interval(measured), self._interval(bound), self._interval(expected),
            self._interval(measured - bound, 1 - _ALPHA / claims),
        )  # fmt: skip


def removed(waiting: Floats, threads: int) -> Floats:
    """What share of the loop would be gained, for each lock, if it were not taken any more.

    A closed queueing network: threads go round and work, or ask for locks one after the other. From
    how long they wait at each lock follows, by mean value analysis (Reiser and Lavenberg 1980,
    doi:10.1145/322186.322195), how long each is held; from that, how long they wait at the others
    when one is gone. It takes locks to be held for irregular times (exponentially distributed);
    where these are regular the gain is smaller still.

    Parameters
    ----------
    waiting
        ``[..., lock]``: the share of the threads' time that they wait there.
    threads
        How many threads there are.

    Examples
    --------
    >>> removed(np.array([0.31, 0.31]), 8).round(2)  # each alone helps little
    array([0.13, 0.13])
    """
    waits = np.maximum(waiting, 0.0)
    worked = 1 - waits.sum(axis=-1)
    if not 2 <= threads <= _MAX_MODELLED or not waits.size or (worked <= 0).any():
        return waits
    held = np.sqrt(waits * worked[..., None] / (threads - 1))
    for _ in range(_MAX_STEPS):
        held = (
            held * np.minimum(1.0, worked / np.maximum(held.sum(axis=-1), _MIN_POSITIVE))[..., None]
        )
        found = _network(threads, worked, held)
        better = held * np.sqrt(np.divide(waits, found, out=np.zeros_like(waits), where=found > 0))
        settled = float(np.abs(better - held).max()) < _CONVERGED
        held = better
        if settled:
            break
    gains = []
    for lock in range(waits.shape[-1]):
        left = np.where(np.arange(waits.shape[-1]) == lock, 0.0, held)
        gains.append(1 - worked - _network(threads, worked, left).sum(axis=-1))
    return np.asarray(np.clip(np.stack(gains, axis=-1), 0.0, waits))


def _network(threads: int, worked: Floats, held: Floats) -> Floats:
    """How long a thread waits at each lock in one round, by mean value analysis.

    ``worked``: how long it works in one round, also while it has the locks.
    """
    without_locks = np.maximum(worked - held.sum(axis=-1), 0.0)
    waiting, there = np.zeros_like(held), np.zeros_like(held)
    for others in range(1, threads + 1):
        waiting = held * there
        stays = held + waiting
        there = stays * (others / (without_locks + stays.sum(axis=-1)))[..., None]
    return waiting


def _on_values(function: Callable[[Floats], Floats], values: pd.Series[float]) -> pd.Series[float]:
    return pd.Series(function(np.array(values, dtype=np.float64)), index=values.index)


def _exp(log: Interval) -> Interval:
    return Interval(*(math.exp(min(end, _MAX_LOG)) for end in log))
