"""What the trials of ``threads`` say: findings of each version and of all together, and tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.threads import claims
from perflib.experiments.threads.recordings import kept
from perflib.experiments.threads.table import LONG_WAIT_S, Gain, ThreadTable, WaitShare
from perflib.experiments.threads.trials import ALONE, ONE, PROFILED
from perflib.framework.published import published
from perflib.instruments.threads.intervals import compiled
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.use import CLASSES, use_by_function, use_of_time
from perflib.instruments.threads.waits import wait_paths
from perflib.instruments.threads.wakeups import PATH_BY, critical_path, path_summary
from perflib.model.claim import Claim
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Decision, Reason, Verdict, Witness, decide
from perflib.stats.interval import NO_INTERVAL, Interval

_MIN_FIRST_SHARE = 0.9  # of the profiles must name a lock first, for it to be the limiting one
_ALPHA = 0.05
_EXCLUSIVE = ("mutex", "rwlock")  # who waits for one waits for its holder, not for work
_STATES = {
    "running_s": "running",
    "spinning_s": "spinning",
    "free_ready_s": "run-queue delay",
    "locked_s": "waiting for a lock",
    "sleeping_s": "sleeping or in I/O",
    "unknown_s": "unknown",
}


def findings(run: Run) -> list[Finding]:
    """Of each version in turn; and whether concurrency orders the versions as speed-up does."""
    table = _table(run)
    found = []
    for version in table.versions:
        of = _Version(table, version, run.params)
        ways = table.configurations(version)
        if table.is_profiled(version):
            if ALONE in ways:
                found.append(of.overhead())
            if ONE in ways:
                found.append(of.predicts())
            found += of.profile()
        gains = [table.gain(version, point) for point in table.points(version)]
        found += [of.gain(gain) for gain in gains]
        found += of.bounded([gain for gain in gains if math.isfinite(gain.beyond.effect)])
    return found + _order(table)


def _table(run: Run) -> ThreadTable:
    return ThreadTable(run.samples, run.params["versions"])


class _Version:
    """The findings of one version."""

    def __init__(self, table: ThreadTable, version: str, params: Mapping[str, Any]) -> None:
        self._table = table
        self._version = version
        self._cost: float = params["cost_percent"]
        self._busy: float = params["busy_percent"]
        self._ratio: float = params["ratio_percent"]
        self._distortion: float = params["distortion_percent"]

    def _decided(self, claim: Claim, found: Interval, threshold: float, **more: Any) -> Finding:
        return claim.decided(found, threshold, about={"version": self._version}, **more)

    def profile(self) -> list[Finding]:
        """Those that need nothing but the profile."""
        found = [self._uses_cores(), self._limiting()]
        if self._table.points_of(self._version):
            found.append(self._waits_agree())
        found.append(self._run_queue())
        spinning = self._table.share(self._version, "spinning_s")
        if spinning.effect > self._cost / 2:
            found.append(self._decided(claims.SPINNING, spinning, self._cost))
        serial = self._table.serial(self._version)
        if math.isfinite(serial.effect):
            found.append(self._decided(claims.SERIAL, serial, self._cost))
        return found

    def overhead(self) -> Finding:
        """Does the profile slow the job?"""
        return self._decided(
            claims.OVERHEAD,
            self._table.overhead(self._version),
            self._distortion,
            evidence={
                "alone_s": list(self._table.job_s(self._version, ALONE)),
                "profiled_s": list(self._table.job_s(self._version, PROFILED)),
            },
        )

    def predicts(self) -> Finding:
        """Is the speed-up what concurrency says?"""
        ratio = Interval(*(100 * (end - 1) for end in self._table.predicts(self._version)))
        both = {
            "speedup": self._table.speedup(self._version),
            "concurrency": self._table.concurrency(self._version),
        }
        remarks = [Reason("both", both)]
        if ratio.low > 0:
            remarks.append(Reason("not_all_gained"))
        elif ratio.high < 0:
            remarks.append(Reason("pessimistic"))
        delayed = self._table.share(self._version, "free_ready_s").effect
        if delayed > self._cost:
            remarks.append(Reason("delayed", {"share": delayed}))
        evidence = {name: list(one) for name, one in both.items()}
        return self._decided(
            claims.PREDICTS, ratio, self._ratio, evidence=evidence, remarks=remarks
        )

    def _uses_cores(self) -> Finding:
        histogram = self._table.histogram(self._version)
        return self._decided(
            claims.USES_CORES,
            self._table.busy(self._version),
            self._busy,
            evidence={
                "effective": list(self._table.concurrency(self._version)),
                "share_of_time_by_threads_at_once": [round(float(one), 4) for one in histogram],
            },
        )

    # --- locks -----------------------------------------------------------------------------------

    def _limiting(self) -> Finding:
        waits = self._table.waits(self._version)
        if not waits or not waits[0].share.effect > 0:
            return self._no_wait()
        # A wait by itself limits nothing: the job may not depend on it.
        costly = [one for one in waits if one.share.effect > self._cost]
        limits = [one for one in costly if all(witness.holds for witness in self._depends(one))]
        top = next(iter(limits or costly), waits[0])
        others = [one for one in limits or waits if one is not top]
        depends = self._depends(top)
        first = self._table.first_of(self._version, {one.lock for one in (top, *others)})
        named = {"first": first[top.lock], "profiles": first.total()}
        remarks = []
        if others and others[0].share.effect > 0:
            following = {"next": others[0].lock, "share": others[0].share.effect}
            remarks.append(Reason("next", following))
        mostly = named["first"] >= _MIN_FIRST_SHARE * named["profiles"]
        return self._decided(
            claims.LIMITING,
            top.share,
            self._cost,
            facts={"lock": top.lock},
            evidence={
                "lock": top.lock,
                "point": self._table.points_of(self._version).get(top.lock, ""),
                "locks_percent": {one.lock: list(one.share) for one in waits},
                "gain_percent": {one.lock: list(one.gain) for one in waits},
                "self_reported_percent": {one.lock: list(one.reported) for one in waits},
            },
            to_support=[
                *depends,
                Witness(mostly, Reason("others_alike", named), Reason("first", named)),
            ],
            remarks=remarks,
        )

    def _depends(self, wait: WaitShare) -> list[Witness]:
        """What shows that the job is longer for a lock, if it was not measured without it."""
        point = self._table.points_of(self._version).get(wait.lock)
        if point and self._table.gain(self._version, point).measured.low > 0:
            return []
        gain = {"gain": wait.gain}
        return [
            Witness(wait.kind in _EXCLUSIVE, Reason("work", {"kind": wait.kind or "unknown"})),
            Witness(math.isfinite(wait.gain.effect), Reason("no_gain")),
            Witness(
                wait.gain.low > self._cost, Reason("not_shorter", gain), Reason("shorter", gain)
            ),
        ]

    def _no_wait(self) -> Finding:
        """No wait was seen: refuted only where the recordings could have shown one."""
        unseen = self._table.unseen_wait(self._version)
        remarks = [Reason("no_wait")]
        lost = self._table.lost_events(self._version)
        if lost:
            unseen = Interval(0.0, math.nan, math.nan)
        elif math.isfinite(unseen.high):
            remarks.append(Reason("rare", {"long_ms": 1e3 * LONG_WAIT_S}))
        return self._decided(
            claims.LIMITING,
            unseen,
            self._cost,
            facts={"lock": "the costliest lock"},
            prevented=Reason("lost_events") if lost else None,
            remarks=remarks,
        )

    def _waits_agree(self) -> Finding:
        waits = self._table.waits(self._version)
        counted = [one for one in waits if one.reported.effect > self._cost]
        about = {"version": self._version}
        if not counted:
            nothing = Decision("inconclusive", (Reason("no_long_wait", {"threshold": self._cost}),))
            return claims.WAITS_AGREE.found(nothing, about=about, threshold=self._distortion)
        verdict = _of_all(claims.WAITS_AGREE, [one.apart for one in counted], self._distortion)
        worst = max(counted, key=lambda one: max(abs(one.apart.low), abs(one.apart.high)))
        farthest = Reason("farthest", {"lock": worst.lock, "count": len(counted)})
        return claims.WAITS_AGREE.found(
            Decision(verdict, (farthest,)),
            worst.apart,
            about=about,
            threshold=self._distortion,
            evidence={"apart_percent": {one.lock: list(one.apart) for one in counted}},
        )

    def _run_queue(self) -> Finding:
        threads, cpus = self._table.sizes(self._version)
        sizes = {"threads": threads, "cpus": cpus}
        share = self._table.share(self._version, "free_ready_s")
        remarks = []
        if threads > cpus:
            remarks.append(Reason("too_many_threads", sizes))
        elif share.low > self._cost:
            remarks.append(Reason("others_took", sizes))
        return self._decided(claims.RUN_QUEUE, share, self._cost, evidence=sizes, remarks=remarks)

    # --- what a synchronisation point costs ------------------------------------------------------

    def gain(self, gain: Gain) -> Finding:
        """Is the loop shorter without a synchronisation point?"""
        predicted = {"expected": gain.expected.effect, "bound": gain.bound.effect}
        known = math.isfinite(gain.bound.effect)
        return claims.GAIN.decided(
            gain.measured,
            self._cost,
            about={"version": self._version, "point": gain.point},
            evidence={
                "bound_percent": list(gain.bound),
                "expected_percent": list(gain.expected),
            },
            remarks=[Reason("predicted", predicted)] if known else [],
        )

    def bounded(self, gains: list[Gain]) -> list[Finding]:
        """Is what was gained below what the profile said at most? By the point farthest off."""
        if not gains:
            return []
        verdict = _of_all(claims.GAINS_BOUNDED, [gain.beyond for gain in gains], self._cost)
        worst = max(gains, key=lambda gain: gain.beyond.effect)
        return [
            claims.GAINS_BOUNDED.found(
                Decision(verdict, (Reason("farthest", {"point": worst.point}),)),
                worst.beyond,
                about={"version": self._version},
                threshold=self._cost,
                facts={"point": worst.point},
                evidence={gain.point: list(gain.beyond) for gain in gains},
            )
        ]


def _of_all(claim: Claim, each: Iterable[Interval], threshold: float) -> Verdict:
    """The verdict on all of them: refuted by one, supported by all together."""
    verdicts = {decide(one, threshold, claim.direction).verdict for one in each}
    if "refuted" in verdicts:
        return "refuted"
    return "supported" if verdicts == {"supported"} else "inconclusive"


def _order(table: ThreadTable) -> list[Finding]:
    """Of pairs of versions that differ clearly in both: are they ordered alike?"""
    compared = [
        one for one in table.versions if table.is_profiled(one) and ONE in table.configurations(one)
    ]
    pairs = list(itertools.combinations(compared, 2))
    if not pairs:
        return []
    confidence = 1 - _ALPHA / (2 * len(pairs))  # every interval of both at once
    signs = {}
    for first, second in pairs:
        both = table.differences(first, second, confidence)
        if all(one.low > 0 or one.high < 0 for one in both):
            signs[f"{first}, {second}"] = 1 if (both[0].effect > 0) == (both[1].effect > 0) else -1
    against = [pair for pair, sign in signs.items() if sign < 0]
    verdict: Verdict = "inconclusive"
    reasons = [Reason("pairs", {"pairs": len(pairs), "clear": len(signs)})]
    if against:
        verdict = "refuted"
        reasons.append(Reason("against", {"against": against}))
    elif signs:
        verdict = "supported"
        reasons.append(Reason("alike"))
    effect = sum(signs.values()) / len(signs) if signs else math.nan
    return [
        claims.ORDER.found(
            Decision(verdict, tuple(reasons)),
            Interval(effect, math.nan, math.nan),
            evidence={"pairs": signs},
        )
    ]


# --- tables --------------------------------------------------------------------------------------


def tables(run: Run) -> dict[str, Callable[[], pd.DataFrame]]:
    """The derived tables; see ``Threads.tables``."""
    table = _table(run)
    made: dict[str, Callable[[], pd.DataFrame]] = {
        "calibration": partial(_calibration, table),
        "states": partial(_states, table),
        "concurrency": partial(_concurrency, table),
        "waits": partial(_waits, table),
        "gains": partial(_gains, table),
        "overhead": partial(_overhead, table),
    }
    if kept(run):
        made["wait_paths"] = partial(_wait_paths, run)
        made["use"] = partial(_use, run)
        made["use_by_function"] = partial(_use_by_function, run)
        if compiled("thread_path"):
            made["critical_path"] = partial(_critical_path, run)
    return made


def _columns(**intervals: Interval) -> dict[str, float]:
    """Of each the estimate, and the ends of its interval as ``..._low`` and ``..._high``."""
    row: dict[str, float] = {}
    for name, one in intervals.items():
        row |= {name: one.effect, f"{name}_low": one.low, f"{name}_high": one.high}
    return row


def _profiled(table: ThreadTable) -> list[str]:
    return [version for version in table.versions if table.is_profiled(version)]


def _calibration(table: ThreadTable) -> pd.DataFrame:
    """One row a version: what was measured here, with intervals, and what Jones 2015 did."""
    rows: list[dict[str, Any]] = [
        {
            "version": version,
            "threads": table.sizes(version)[0] if table.is_profiled(version) else None,
            **_columns(
                speedup=table.speedup(version),
                job_time_s=table.job_s(version, ALONE),
                concurrency=table.concurrency(version),
                profiled_job_time_s=table.job_s(version, PROFILED),
                profile_cost_percent=table.overhead(version),
            ),
        }
        for version in table.versions
    ]
    other = published("vtune_calibration").set_index("version").add_prefix("published_")
    return pd.DataFrame(rows).merge(other, left_on="version", right_index=True, how="left")


def _states(table: ThreadTable) -> pd.DataFrame:
    """One row a version and state: its share of the threads' time."""
    shares = table.states().rename(columns=_STATES).rename_axis("version").reset_index()
    return shares.melt("version", var_name="state", value_name="share_percent")


def _concurrency(table: ThreadTable) -> pd.DataFrame:
    """One row a version and number of threads at once; the mean of that number on each."""
    parts = [
        pd.DataFrame({"threads_at_once": np.arange(len(shares)), "share_percent": 100 * shares})
        .assign(**_columns(effective=table.concurrency(version)))
        .assign(version=version)
        for version in _profiled(table)
        if len(shares := table.histogram(version))
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _waits(table: ThreadTable) -> pd.DataFrame:
    """One row a version and lock, the costliest first; a version without waits has one row."""
    rows: list[dict[str, Any]] = []
    for version in _profiled(table):
        waits = table.waits(version)
        first = table.first_of(version, {one.lock for one in waits})
        rows += [
            {
                "version": version,
                "lock": one.lock,
                "kind": one.kind,
                **_columns(
                    share_percent=one.share,
                    gain_percent=one.gain,
                    self_reported_percent=one.reported,
                    apart_percent=one.apart,
                ),
                "first": first[one.lock],
                "profiles": first.total(),
            }
            for one in waits
        ] or [{"version": version, "lock": None, **_columns(share_percent=NO_INTERVAL)}]
    return pd.DataFrame(rows)


def _gains(table: ThreadTable) -> pd.DataFrame:
    """One row a version and synchronisation point, in percent of the loop."""
    rows: list[dict[str, Any]] = []
    for version in table.versions:
        for point in table.points(version):
            gain = table.gain(version, point)
            shares = _columns(
                measured_percent=gain.measured,
                expected_percent=gain.expected,
                bound_percent=gain.bound,
                beyond_points=gain.beyond,
            )
            rows.append({"version": version, "point": point, **shares})
    return pd.DataFrame(rows)


def _overhead(table: ThreadTable) -> pd.DataFrame:
    """One row a version that was run alone as well: the ratio of its times, here and published."""
    theirs = published("vtune_calibration").set_index("version")
    ratio = theirs["vtune_job_time_s"] / theirs["regular_job_time_s"]
    rows: list[dict[str, Any]] = [
        {
            "version": version,
            **_columns(time_ratio=Interval(*(1 + end / 100 for end in table.overhead(version)))),
            "published_time_ratio": ratio.get(version, math.nan),
        }
        for version in _profiled(table)
        if ALONE in table.configurations(version)
    ]
    return pd.DataFrame(rows)


def _wait_paths(run: Run) -> pd.DataFrame:
    """One row a version, lock and stack of calls, the longest total first within a version."""
    parts = [
        wait_paths(Recording.open(folder)).assign(version=version)
        for version, folder in kept(run).items()
    ]
    columns = ["version", "name", "stack", "waits", "total_s"]
    return pd.concat(parts, ignore_index=True)[columns].rename(columns={"name": "lock"})


def _use(run: Run) -> pd.DataFrame:
    """One row a version and class of use: how long the kept recording was in it."""
    parts = [
        use_of_time(Recording.open(folder)).assign(version=version)
        for version, folder in kept(run).items()
    ]
    return pd.concat(parts, ignore_index=True)[["version", "use", "seconds", "share_percent"]]


def _use_by_function(run: Run) -> pd.DataFrame:
    """One row a version and function: its CPU seconds in each class of use."""
    parts = [
        use_by_function(Recording.open(folder)).assign(version=version)
        for version, folder in kept(run).items()
    ]
    return pd.concat(parts, ignore_index=True)[["version", "function", "cpu_s", *CLASSES]]


def _critical_path(run: Run) -> pd.DataFrame:
    """One row a version and thread, lock, function or state: its share of the critical path."""
    parts = []
    for version, folder in kept(run).items():
        recording = Recording.open(folder)
        path = critical_path(recording)
        parts += [
            path_summary(recording, by, path).assign(version=version, by=by) for by in PATH_BY
        ]
    columns = ["version", "by", "name", "seconds", "share_percent"]
    return pd.concat(parts, ignore_index=True)[columns]
