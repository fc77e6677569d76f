"""What ``threads`` claims: of each version of a job, and of all together."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from perflib.experiments.threads.measure import ALONE, ONE, PROFILED
from perflib.experiments.threads.table import Gain, ThreadTable, WaitShare
from perflib.framework.verdicts import threshold_verdict
from perflib.model.finding import Finding, Verdict
from perflib.stats.interval import Interval

__all__ = ["Limits", "findings"]

_MOSTLY = 0.9  # of the turns must name a lock first, for it to be the limiting one
_ALPHA = 0.05


@dataclass(frozen=True)
class Limits:
    """From where on something counts, all in percent.

    Parameters
    ----------
    distortion
        By how much longer the job may take under the profile, and by how much the profile's waiting
        may differ from the job's own account.
    ratio
        By how much effective concurrency may differ from the speed-up that it predicts.
    cost
        A lock, a point, a want of cores counts if it costs more of the threads' time than this.
    busy
        A job that keeps more than this of its cores busy uses them well.
    """

    distortion: float
    ratio: float
    cost: float
    busy: float


def findings(table: ThreadTable, limits: Limits) -> list[Finding]:
    """Of each version in turn; and whether concurrency orders the versions as speed-up does."""
    found = []
    for version in table.versions:
        arms = table.arms(version)
        profiled = table.is_profiled(version)
        if profiled and ALONE in arms and PROFILED in arms:
            found.append(_overhead(table, version, limits))
        if profiled and ONE in arms:
            found.append(_predicts(table, version, limits))
        if profiled:
            found += _of_the_profile(table, version, limits)
        gains = [table.gain(version, point) for point in table.points(version)]
        found += [_without(gain, version, limits) for gain in gains]
        found += _bounds(gains, version, limits)
    return found + _order(table)


def _of_the_profile(table: ThreadTable, version: str, limits: Limits) -> list[Finding]:
    found = [_busy(table, version, limits), _limiting(table, version, limits)]
    if table.points_of(version):
        found.append(_waits(table, version, limits))
    found.append(_cores(table, version, limits))
    spinning = table.share(version, "spinning_s")
    if spinning.effect > limits.cost / 2:
        found.append(
            _share(f"the threads of {version} spin", f"{version} spinning", spinning, limits)
        )
    serial = table.serial(version)
    if math.isfinite(serial.effect):
        what = f"{version} is serial, at its begin and its end,"
        found.append(_share(what, f"{version} serial part", serial, limits, of="what was recorded"))
    return found


def _share(
    what: str, subject: str, share: Interval, limits: Limits, of: str = "their time"
) -> Finding:
    verdict, reason = threshold_verdict(share, limits.cost)
    claim = f"{what} for more than {limits.cost:g} % of {of}"
    return Finding(claim, subject, verdict, *share, unit="percent", reason=reason)


def _overhead(table: ThreadTable, version: str, limits: Limits) -> Finding:
    longer = table.overhead(version)
    verdict, reason = _at_most(longer, limits.distortion)
    return Finding(
        f"{version} takes at most {limits.distortion:g} % longer under the profile",
        f"{version} under the profile", verdict, *longer, unit="percent", reason=reason,
        evidence={
            "alone_s": list(table.job_s(version, ALONE)),
            "profiled_s": list(table.job_s(version, PROFILED)),
        },
    )  # fmt: skip


def _at_most(found: Interval, limit: float) -> tuple[Verdict, str]:
    if not math.isfinite(found.half_width):
        return "inconclusive", "It takes two rounds or more."
    if found.high <= limit:
        return "supported", "The whole interval lies below."
    if found.low > limit:
        return "refuted", "The whole interval lies above."
    return "inconclusive", f"{limit:g} lies within the interval: more rounds would narrow it."


def _within(found: Interval, limit: float) -> Verdict:
    if not math.isfinite(found.half_width):
        return "inconclusive"
    if -limit <= found.low and found.high <= limit:
        return "supported"
    return "refuted" if found.low > limit or found.high < -limit else "inconclusive"


def _predicts(table: ThreadTable, version: str, limits: Limits) -> Finding:
    ratio = Interval(*(100 * (end - 1) for end in table.predicts(version)))
    verdict = _within(ratio, limits.ratio)
    speedup, concurrency = table.speedup(version), table.concurrency(version)
    reason = f"Speed-up {_said(speedup)}, effective concurrency {_said(concurrency)}"
    if not math.isfinite(ratio.half_width):
        reason += ": it takes two rounds or more."
    elif verdict == "inconclusive":
        reason += f": {limits.ratio:g} % lies within the interval, more rounds would narrow it."
    elif ratio.low > 0:
        reason += ": not all that threads run beside each other is gained."
    elif ratio.high < 0:
        reason += ": the profile is the more pessimistic, as in the source."
    else:
        reason += "."
    without_core = table.share(version, "free_ready_s").effect
    if without_core > limits.cost and verdict != "supported":
        reason += (
            f" Threads were without a core for {without_core:.0f} % of their time. Where other "
            "processes are why, one thread alone has to share as well, and the speed-up is less "
            "changed than concurrency is."
        )
    return Finding(
        f"effective concurrency predicts the speed-up of {version} to {limits.ratio:g} %",
        f"{version} concurrency over speed-up", verdict, *ratio, unit="percent", reason=reason,
        evidence={"speedup": list(speedup), "concurrency": list(concurrency)},
    )  # fmt: skip


def _said(one: Interval) -> str:
    if not math.isfinite(one.half_width):
        return f"{one.effect:.2f}"
    return f"{one.effect:.2f} [{one.low:.2f}, {one.high:.2f}]"


def _busy(table: ThreadTable, version: str, limits: Limits) -> Finding:
    busy = table.busy(version)
    verdict, reason = threshold_verdict(busy, limits.busy)
    histogram = table.histogram(version)
    return Finding(
        f"{version} keeps more than {limits.busy:g} % of what threads and cores allow busy",
        f"{version} concurrency", verdict, *busy, unit="percent", reason=reason,
        evidence={
            "effective": list(table.concurrency(version)),
            "share_of_time_by_threads_at_once": [round(float(one), 4) for one in histogram],
        },
    )  # fmt: skip


# --- locks ---------------------------------------------------------------------------------------


def _limiting(table: ThreadTable, version: str, limits: Limits) -> Finding:
    waits = table.waits(version)
    if not waits or not waits[0].share.effect > 0:
        return Finding(
            f"a lock costs the threads of {version} more than {limits.cost:g} % of their time",
            f"{version} limiting lock", "refuted", 0.0, math.nan, math.nan, unit="percent",
            reason="No thread waited for a lock.",
        )  # fmt: skip
    top = waits[0]
    verdict, reason = threshold_verdict(top.share, limits.cost)
    named = f"It is the first in {top.first} of {top.turns} profiles"
    if verdict == "supported" and top.first < _MOSTLY * top.turns:
        verdict, reason = "inconclusive", f"{named} only: others cost about as much."
    elif verdict == "supported":
        reason = f"{named}{_next(waits)}."
        if top.kind == "condition":
            reason += " It is a condition variable: threads may wait there for want of work."
    return Finding(
        f"{top.lock} costs the threads of {version} more than {limits.cost:g} % of their time, and "
        "more than any other lock",
        f"{version} limiting lock", verdict, *top.share, unit="percent", reason=reason,
        evidence={
            "lock": top.lock,
            "point": table.points_of(version).get(top.lock, ""),
            "locks_percent": {one.lock: list(one.share) for one in waits},
            "account_percent": {one.lock: list(one.account) for one in waits},
        },
    )  # fmt: skip


def _next(waits: list[WaitShare]) -> str:
    if len(waits) < 2 or not waits[1].share.effect > 0:
        return ""
    return f"; the next is {waits[1].lock} with {waits[1].share.effect:.1f} %"


def _waits(table: ThreadTable, version: str, limits: Limits) -> Finding:
    claim = (
        f"the profile's waiting for each lock of {version} is within {limits.distortion:g} % of "
        "the job's own account"
    )
    subject = f"{version} waits beside the account"
    waits = table.waits(version)
    counted = [one for one in waits if one.account.effect > limits.cost]
    if not counted:
        why = f"The job waits for no lock for more than {limits.cost:g} % of its threads' time."
        nothing = Interval(math.nan, math.nan, math.nan)
        return Finding(claim, subject, "inconclusive", *nothing, unit="percent", reason=why)
    each = {one.lock: _within(one.apart, limits.distortion) for one in counted}
    verdict: Verdict = "inconclusive"
    if "refuted" in each.values():
        verdict = "refuted"
    elif set(each.values()) == {"supported"}:
        verdict = "supported"
    worst = max(counted, key=lambda one: max(abs(one.apart.low), abs(one.apart.high)))
    reason = f"{worst.lock} is farthest off, of {len(counted)} waited for long enough."
    return Finding(
        claim, subject, verdict, *worst.apart, unit="percent", reason=reason,
        evidence={"apart_percent": {one.lock: list(one.apart) for one in counted}},
    )  # fmt: skip


def _cores(table: ThreadTable, version: str, limits: Limits) -> Finding:
    share = table.share(version, "free_ready_s")
    verdict, reason = threshold_verdict(share, limits.cost)
    threads, cpus = table.sizes(version)
    if threads > cpus:
        reason += f" The job has {threads} threads and may use {cpus} of the CPUs."
    elif verdict == "supported":
        reason += f" It has {threads} threads and may use {cpus} CPUs: other processes took them."
    return Finding(
        f"threads of {version} that wait for no lock are without a core for more than "
        f"{limits.cost:g} % of their time",
        f"{version} without a core", verdict, *share, unit="percent", reason=reason,
        evidence={"threads": threads, "cpus": cpus},
    )  # fmt: skip


# --- what a point costs --------------------------------------------------------------------------


def _without(gain: Gain, version: str, limits: Limits) -> Finding:
    verdict, reason = threshold_verdict(gain.measured, limits.cost)
    return Finding(
        f"the loop of {version} is more than {limits.cost:g} % shorter without its point "
        f"{gain.point!r}",
        f"{version} without {gain.point}", verdict, *gain.measured, unit="percent",
        reason=f"{reason}{_predicted(gain)}",
        evidence={
            "bound_percent": list(gain.bound), "expected_percent": list(gain.expected),
        },
    )  # fmt: skip


def _bounds(gains: list[Gain], version: str, limits: Limits) -> list[Finding]:
    """Does what was gained stay below what the profile said at most? By the point farthest off."""
    gains = [gain for gain in gains if math.isfinite(gain.beyond.effect)]
    if not gains:
        return []
    each = {gain.point: _at_most(gain.beyond, limits.cost)[0] for gain in gains}
    verdict: Verdict = "inconclusive"
    if "refuted" in each.values():
        verdict = "refuted"
    elif set(each.values()) == {"supported"}:
        verdict = "supported"
    worst = max(gains, key=lambda gain: gain.beyond.effect)
    return [
        Finding(
            f"no point of {version} gains more, switched off, than the profile's bound and "
            f"{limits.cost:g} percentage points",
            f"{version} gains beyond the bound", verdict, *worst.beyond, unit="percentage points",
            reason=f"The farthest is {worst.point!r}.",
            evidence={gain.point: list(gain.beyond) for gain in gains},
        )
    ]  # fmt: skip


def _predicted(gain: Gain) -> str:
    if not math.isfinite(gain.bound.effect):
        return ""
    return (
        f" From the profile: {gain.expected.effect:.1f} % expected, "
        f"{gain.bound.effect:.1f} % at most."
    )


# --- all versions --------------------------------------------------------------------------------


def _order(table: ThreadTable) -> list[Finding]:
    """Of pairs of versions that differ clearly in both: are they ordered alike?"""
    compared = [one for one in table.versions if table.is_profiled(one) and ONE in table.arms(one)]
    pairs = list(itertools.combinations(compared, 2))
    if not pairs:
        return []
    confidence = 1 - _ALPHA / (2 * len(pairs))  # every interval of both at once
    signs = {}
    for first, second in pairs:
        both = table.differences(first, second, confidence)
        if all(one.low > 0 or one.high < 0 for one in both):
            signs[f"{first}, {second}"] = 1 if (both[0].effect > 0) == (both[1].effect > 0) else -1
    verdict: Verdict = "inconclusive"
    clear = len(signs)
    reason = f"Of {len(pairs)} pairs of versions, {clear} differ clearly in both."
    if clear and min(signs.values()) < 0:
        verdict = "refuted"
        against = [pair for pair, sign in signs.items() if sign < 0]
        reason += f" Against it: {'; '.join(against)}."
    elif clear:
        verdict = "supported"
        reason += " All of them are ordered alike."
    effect = sum(signs.values()) / clear if clear else math.nan
    return [
        Finding(
            "versions with more effective concurrency have more speed-up", "order of versions",
            verdict, effect, math.nan, math.nan, unit="rank correlation", reason=reason,
            evidence={"pairs": signs},
        )
    ]  # fmt: skip
