"""What the turns of ``threads`` say, before anything is claimed: times, concurrency, waits, gains.

All ratios are of turns of the same round. With n threads and a loop of t seconds, threads have n t
seconds to work or to wait. If the waits for one lock, w of them, went away and nothing else
changed, the loop would be shorter by w / n: the *bound*. Threads that no longer wait there meet at
the other locks more often, so that a part of it is lost again; how much, a queueing network says
(`removed`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments.samples import round_starts, usable
from perflib.experiments.threads_turns import ALONE, ONE, PROFILED, WITHOUT
from perflib.stats import Interval, block_means, percent, t_interval, time_blocks

__all__ = ["Gain", "ThreadTable", "WaitShare", "removed"]

Floats = NDArray[np.float64]
_WHOLE = 0.999  # of the loop is recorded where its waits are compared with the account
_MOST_STEPS = 500
_MOST_LOG = 700.0
_NOTHING = Interval(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class WaitShare:
    """What one lock costs: percent of the threads' time, and in how many turns it was the first.

    ``account``: the same by the job's own account, in the same turns; ``apart``: how much more the
    profile says, in percent of that.
    """

    lock: str
    kind: str
    share: Interval
    first: int
    turns: int
    account: Interval
    apart: Interval


@dataclass(frozen=True)
class Gain:
    """What switching one point off shortens the loop by, in percent of it.

    ``measured``, the ``bound`` and the queueing network's ``expected`` from the profile, and
    ``beyond``: measured less the bound, in percentage points.
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
        One row a turn; of a job that ran already, one row a stretch of its recording.
    versions
        The order in which versions are told of; others follow.

    Raises
    ------
    UserError
        No row is usable, or a time is not positive.
    """

    def __init__(self, samples: pd.DataFrame, versions: Sequence[str] = ()) -> None:
        rows = usable(samples, ["job_time_s", "threads"])
        again = rows.groupby(["version", "arm", "round"]).cumcount()  # stretches count as rounds
        self.rows = rows.assign(round=rows["round"] * (again.max() + 1) + again)
        known = dict.fromkeys(rows["version"])
        self.versions = [*(one for one in versions if one in known)]
        self.versions += [one for one in known if one not in self.versions]
        profiled = self.rows[self.rows["arm"] == PROFILED]
        if "locks" not in profiled:  # samples of a user, without a profile
            profiled = profiled.iloc[:0].assign(locks="")
        self.profiled = profiled.assign(lock_table=[json.loads(text) for text in profiled["locks"]])

    def is_profiled(self, version: str) -> bool:
        """Whether it was recorded."""
        return bool((self.profiled["version"] == version).any())

    def has_account(self, version: str) -> bool:
        """Whether the job's own account covers what was recorded."""
        return len(self._accounts(version)) > 0

    def sizes(self, version: str) -> tuple[int, int]:
        """How many threads, and how many CPUs they may use."""
        mine = self.profiled[self.profiled["version"] == version]
        return int(mine["threads"].max()), int(mine["cpus"].max())

    def calibration(self, published: pd.DataFrame) -> pd.DataFrame:
        """One row a version: what was measured here, with intervals, and what others published."""
        rows = []
        for version in self.versions:
            row: dict[str, Any] = {"version": version}
            for name, one in (
                ("speedup", self.speedup(version)),
                ("job_time_s", self.job_s(version, ALONE)),
                ("concurrency", self.concurrency(version)),
                ("profiled_job_time_s", self.job_s(version, PROFILED)),
                ("profile_cost_percent", self.overhead(version)),
            ):
                row |= {name: one.effect, f"{name}_low": one.low, f"{name}_high": one.high}
            rows.append(row)
        other = published.rename(
            columns=lambda name: name if name == "version" else f"published_{name}"
        )
        return pd.DataFrame(rows).merge(other, on="version", how="left")

    # --- times -----------------------------------------------------------------------------------

    @cached_property
    def _log_times(self) -> dict[str, pd.DataFrame]:
        """By version: ``[round, arm]`` of log seconds."""
        rows = self.rows.assign(log_s=np.log(self.rows["job_time_s"].to_numpy(np.float64)))
        return {
            str(version): mine.pivot_table(index="round", columns="arm", values="log_s")
            for version, mine in rows.groupby("version")
        }

    def arms(self, version: str) -> list[str]:
        """How a version was run."""
        return [str(arm) for arm in self._log_times[version]]

    def points(self, version: str) -> list[str]:
        """The points that were switched off one at a time."""
        return [arm.removeprefix(WITHOUT) for arm in self.arms(version) if arm.startswith(WITHOUT)]

    def _log_time(self, version: str, arm: str) -> pd.Series[float]:
        times = self._log_times[version]
        return times[arm] if arm in times else pd.Series(math.nan, index=times.index)

    def _interval(self, by_round: pd.Series[float], confidence: float = 0.95) -> Interval:
        """The mean, with an interval from blocks of time."""
        by_round = by_round[np.isfinite(by_round)]
        if by_round.empty:
            return _NOTHING
        starts = round_starts(self.rows, by_round.index)
        blocks = time_blocks(starts, len(by_round))
        means = block_means(by_round.to_numpy(np.float64)[:, None], blocks)[:, 0]
        return t_interval(means, confidence)

    def job_s(self, version: str, arm: str) -> Interval:
        """How long the loop takes, in s."""
        return _exp(self._interval(self._log_time(version, arm)))

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
        """A column of the profiled turns, by round."""
        mine = self.profiled[self.profiled["version"] == version]
        return mine.set_index("round")[column].astype(np.float64)

    def concurrency(self, version: str) -> Interval:
        """How many threads ran at once, on average over the loop."""
        return self._interval(self._profile(version, "concurrency"))

    def predicts(self, version: str) -> Interval:
        """Effective concurrency over speed-up: 1 where the one predicts the other."""
        log = np.log(self._profile(version, "concurrency")) - self._log_speedup(version)
        return _exp(self._interval(log))

    def differences(self, first: str, second: str, confidence: float) -> tuple[Interval, Interval]:
        """How much more, in percent, the second version has: of concurrency, of speed-up."""
        concurrency = [np.log(self._profile(one, "concurrency")) for one in (first, second)]
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
        mine = self.profiled.loc[self.profiled["version"] == version, "concurrency_s"]
        turns = [np.array(json.loads(text), dtype=np.float64) for text in mine]
        total = np.zeros(max((len(turn) for turn in turns), default=0))
        for turn in turns:
            total[: len(turn)] += turn
        return np.asarray(total / total.sum()) if total.sum() else total

    def share(self, version: str, column: str) -> Interval:
        """Seconds of a column in percent of the time that threads were awake for work."""
        return self._interval(100 * self._profile(version, column) / self._awake_s(version))

    def states(self) -> pd.DataFrame:
        """``[version, state]``: mean shares of the threads' time in percent.

        ``locked_s``: waiting for locks, and without a core meanwhile. Waiting for the end of other
        threads (join) is left out.
        """
        columns = ("running_s", "spinning_s", "free_ready_s", "sleeping_s", "unknown_s")
        rows = {}
        for version in self.versions:
            if not self.is_profiled(version):
                continue
            seconds = {one: float(self._profile(version, one).sum()) for one in columns}
            seconds["locked_s"] = float(
                self._waited(version, lambda _name, kind: kind != "join").sum()
            )
            total = max(sum(seconds.values()), 1e-9)
            rows[version] = {name: 100 * one / total for name, one in seconds.items()}
        return pd.DataFrame.from_dict(rows, orient="index")

    def serial(self, version: str) -> Interval:
        """Begin and end that one thread worked alone, in percent of what was recorded."""
        alone = self._profile(version, "serial_begin_s") + self._profile(version, "serial_end_s")
        return self._interval(100 * alone / self._profile(version, "whole_s"))

    def _awake_s(self, version: str) -> pd.Series[float]:
        """Time of all threads, but for sleep and for waiting until others have ended (join)."""
        states = ("running_s", "ready_s", "waiting_s", "spinning_s", "unknown_s")
        awake = sum(
            (self._profile(version, one) for one in states[1:]), self._profile(version, states[0])
        )
        return (awake - self._waited(version, lambda _name, kind: kind == "join")).clip(lower=1e-9)

    # --- waits -----------------------------------------------------------------------------------

    def _waited(self, version: str, counted: Callable[[str, str], bool]) -> pd.Series[float]:
        """By round: seconds of all threads for some locks, being ready meanwhile included."""
        mine = self.profiled[self.profiled["version"] == version]
        seconds = [
            sum(
                one["waiting_s"] + one["ready_s"]
                for name, one in locks.items()
                if counted(name, one["kind"])
            )
            for locks in mine["lock_table"]
        ]
        return pd.Series(seconds, index=mine["round"], dtype=np.float64)

    def _accounts(self, version: str) -> pd.Series[Any]:
        """By round: the job's own account in the profiled turns that were recorded whole."""
        mine = self.profiled[self.profiled["version"] == version].set_index("round")
        if "account" not in mine:
            return pd.Series(dtype=object)
        whole = mine["recorded_s"] >= _WHOLE * mine["job_time_s"]
        return mine.loc[whole & mine["account"].notna(), "account"].map(json.loads)

    def points_of(self, version: str) -> dict[str, str]:
        """The serialisation point that each lock belongs to, by the job's own account."""
        return {
            name: one["point"]
            for account in self._accounts(version)
            for name, one in account.items()
        }

    def waits(self, version: str) -> list[WaitShare]:
        """What locks cost, the dearest first."""
        mine = self.profiled[self.profiled["version"] == version]
        kinds = {
            name: one["kind"]
            for locks in mine["lock_table"]
            for name, one in locks.items()
            if one["kind"] != "join"
        }
        accounts = self._accounts(version)
        kinds |= {name: "" for account in accounts for name in account if name not in kinds}
        awake, first = self._awake_s(version), mine["limiting"].value_counts()
        found = []
        for lock, kind in kinds.items():
            here = self._waited(version, lambda name, _kind, lock=lock: name == lock)
            said = accounts.map(
                lambda account, lock=lock: account.get(lock, {}).get("waiting_s", 0)
            )
            said = said.astype(np.float64)
            apart = 100 * (here / said.where(said > 0) - 1)
            found.append(
                WaitShare(
                    lock, kind, self._interval(100 * here / awake), int(first.get(lock, 0)),
                    len(mine), self._interval(100 * said / awake), self._interval(apart),
                )
            )  # fmt: skip
        return sorted(found, key=lambda one: -one.share.effect)

    # --- what a point costs ----------------------------------------------------------------------

    @cached_property
    def _predictions(self) -> dict[str, pd.DataFrame]:
        """By version: ``[round, (bound, expected) x point]`` in percent of the loop."""
        found = {}
        for version in self.versions:
            points = self.points_of(version)
            mine = self.profiled[self.profiled["version"] == version].set_index("round")
            rows: dict[Any, dict[tuple[str, str], float]] = {}
            for number, row in mine.iterrows():
                waited = dict.fromkeys(points.values(), 0.0)
                for lock, one in row["lock_table"].items():
                    if lock in points:
                        waited[points[lock]] += one["waiting_s"] + one["ready_s"]
                threads, loop_s = int(row["threads"]), float(row["recorded_s"])
                shares = {point: s / (threads * loop_s) for point, s in waited.items()}
                spun = float(row["spinning_s"]) / (threads * loop_s)  # at which lock is not known
                # However little is waited for, the CPUs have the threads' work to do.
                most = max(0.0, 1 - float(row["running_s"]) / (float(row["cpus"]) * loop_s))
                expected = removed(list(shares.values()), threads)
                rows[number] = {
                    **{
                        ("bound", point): 100 * min(one + spun, most)
                        for point, one in shares.items()
                    },
                    **{
                        ("expected", point): 100 * min(one, most)
                        for point, one in zip(shares, expected, strict=True)
                    },
                }
            found[version] = pd.DataFrame.from_dict(rows, orient="index", dtype=np.float64)
        return found

    def gain(self, version: str, point: str) -> Gain:
        """What switching a point off gains: measured, and predicted from the profile alone."""
        shorter = self._log_time(version, WITHOUT + point) - self._log_time(version, ALONE)
        measured = -100 * np.expm1(shorter)
        table = self._predictions[version]
        bound, expected = (
            table[kind, point] if (kind, point) in table else pd.Series(math.nan, table.index)
            for kind in ("bound", "expected")
        )
        return Gain(
            point, self._interval(measured), self._interval(bound), self._interval(expected),
            self._interval(measured - bound),
        )  # fmt: skip


def removed(waiting: Sequence[float], threads: int) -> list[float]:
    """What share of the loop would be gained, for each lock, if it were not taken any more.

    A closed queueing network: threads go round and work, or ask for locks one after the other. From
    how long they wait at each lock follows, by mean value analysis (Reiser and Lavenberg 1980,
    doi:10.1145/322186.322195), how long each is held; from that, how long they wait at the others
    when one is gone. It takes locks to be held for irregular times (exponentially distributed);
    where these are regular the gain is smaller still.

    Parameters
    ----------
    waiting
        For each lock, the share of the threads' time that they wait there.
    threads
        How many threads there are.

    Examples
    --------
    >>> [round(gain, 3) for gain in removed([0.31, 0.32], 8)]  # each alone hardly helps
    [0.123, 0.131]
    """
    waits = np.maximum(np.asarray(waiting, dtype=np.float64), 0.0)
    worked = 1 - float(waits.sum())
    if threads < 2 or worked <= 0:
        return [float(one) for one in waits]
    held = np.sqrt(waits * worked / (threads - 1))
    for _ in range(_MOST_STEPS):
        held *= min(1.0, worked / max(float(held.sum()), 1e-12))
        found = _network(threads, worked - float(held.sum()), held)
        better = held * np.sqrt(np.divide(waits, found, out=np.zeros_like(waits), where=found > 0))
        settled = float(np.abs(better - held).max(initial=0.0)) < 1e-9
        held = better
        if settled:
            break
    gains = []
    for lock, share in enumerate(waits):
        left = np.where(np.arange(len(held)) == lock, 0.0, held)
        loop = worked + float(_network(threads, worked - float(left.sum()), left).sum())
        gains.append(min(max(0.0, 1 - loop), float(share)))
    return gains


def _network(threads: int, working: float, held: Floats) -> Floats:
    """How long a thread waits at each lock in one round, by mean value analysis."""
    waiting, there = np.zeros_like(held), np.zeros_like(held)
    for others in range(1, threads + 1):
        waiting = held * there
        stays = held + waiting
        there = others / (max(working, 0.0) + float(stays.sum())) * stays
    return waiting


def _exp(log: Interval) -> Interval:
    return Interval(*(math.exp(min(end, _MOST_LOG)) for end in log))
