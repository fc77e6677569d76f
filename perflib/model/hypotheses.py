"""The ledger of hypotheses: what could explain the extra time, and what each is worth here.

An experiment that sees extra time (of one core, of large code, of one buffer) asks what it comes
from. For each hypothesis it measures the part of the extra time that this cause accounts for, block
by block, and ``judge`` makes a verdict of it: an ordinary finding, which runs, reports, comparisons
and JSON carry like any other. ``ledger`` collects such findings from many runs in one table.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq

from perflib.model.finding import Finding, Verdict
from perflib.model.run import Run
from perflib.stats import Interval, t_interval

__all__ = ["HYPOTHESIS", "judge", "ledger", "ledger_lines", "standing", "unseen"]

HYPOTHESIS = "hypothesis: "  # what the subject of such a finding begins with

_SHARE_UNIT = "percent of the extra time"
_TIME_UNIT = "percent of the run time"
# How much of the tails is used. Few blocks do not tell how much each resembles the one before:
# where they do (correlation 0.3, 8 blocks), intervals of 95 % made of all of the tails cover 90 %,
# these 93 %; where they do not, 97 %.
_TAILS_USED = 0.6
_COLUMNS = (
    "hypothesis", "verdict", "share", "explains", "because", "experiment", "run", "measured"
)  # fmt: skip
_INDENT = 13
_KEPT = "\xa0"  # a space at which no line breaks
_NONE = Interval(math.nan, math.nan, math.nan)

Floats = NDArray[np.float64]


# --- one hypothesis ----------------------------------------------------------------------------


def judge(
    name: str,
    what: str,
    extra: Floats,
    contribution: Floats,
    *,
    threshold_percent: float,
    how: str,
    most_percent: float = 50.0,
    bound: Literal["", "upper", "lower"] = "",
    evidence: Mapping[str, Any] | None = None,
    confidence: float = 0.95,
) -> Finding:
    """Does this cause explain most of the extra time?

    Parameters
    ----------
    name
        The cause: ``iTLB misses``.
    what
        What it may explain, for a sentence: ``the extra time of core 8 with large code``.
    extra, contribution
        ``[block]``, in percent of the run time, in the order of time, paired: the time to be
        explained, and the part of it that the cause accounts for. A block in which one of them is
        NaN is left out. A number that was measured once is an array of one: no interval can be
        had, and the verdict is ``inconclusive``.
    threshold_percent
        The least extra time that is worth explaining, in percent of the run time.
    how
        How the contribution was measured, in a phrase or a sentence.
    most_percent
        The share of the extra time that is ``most`` of it.
    bound
        ``upper``: the contribution is at most what was measured, so it can refute and not support;
        ``lower``: at least that, so it can support and not refute.
    evidence
        More of it. ``explains``, ``how``, ``blocks`` and, each as ``[effect, low, high]``,
        ``extra_percent``, ``contribution_percent`` and ``share_percent`` are always there.

    Returns
    -------
    A finding with the subject ``hypothesis: NAME``. Its effect is the share, in percent of the
    extra time: ``supported`` if the interval lies above ``most_percent``, ``refuted`` if below. Of
    extra time that is not established there is no share; the effect is then the contribution, in
    percent of the run time, and the verdict ``refuted`` (nothing to explain: the extra time's
    interval lies below the threshold) or ``inconclusive``.

    The share is a ratio of means. Its interval (Fieller's, the blocks' dependence taken into
    account as ``t_interval`` does) is the set of all shares that the data do not contradict.

    Example
    -------
    >>> extra = np.array([9.1, 9.9, 9.4, 8.8, 9.6, 9.2, 9.5, 9.3])
    >>> misses = np.array([7.9, 8.4, 8.2, 7.7, 8.3, 7.9, 8.3, 8.0])
    >>> how = "Time with 4 KiB pages minus time with 2 MiB pages."
    >>> judge("iTLB misses", "the extra time of core 8", extra, misses, threshold_percent=1,
    ...       how=how).verdict
    'supported'
    """
    if extra.shape != contribution.shape or extra.ndim != 1:
        msg = f"extra {extra.shape} and contribution {contribution.shape} must be [block], paired"
        raise ValueError(msg)
    if not threshold_percent > 0:
        msg = f"threshold_percent must be positive, not {threshold_percent}"
        raise ValueError(msg)
    level = 1 - _TAILS_USED * (1 - confidence)
    paired = np.isfinite(extra) & np.isfinite(contribution)
    extra, contribution = extra[paired], contribution[paired]
    lost, part = t_interval(extra, level), t_interval(contribution, level)
    share = _share(extra, contribution, level) if lost.low > threshold_percent else _NONE
    verdict, reason = _verdict(lost, share, threshold_percent, most_percent)
    explained = math.isfinite(share.effect)
    if explained and (bound, verdict) in (("upper", "supported"), ("lower", "refuted")):
        verdict = "inconclusive"
        reason += f" But what was measured is only the {bound} bound of its part."
    known = math.isfinite(share.effect)
    most = "most" if most_percent == 50 else f"more than {most_percent:g} %"
    return Finding(
        claim=_claim(name, most, what),
        subject=HYPOTHESIS + name,
        verdict=verdict,
        **(share if known else part)._asdict(),
        unit=_SHARE_UNIT if known else _TIME_UNIT,
        confidence=confidence,
        reason=f"{reason} {_sentence(how)}",
        evidence={
            **(evidence or {}),
            "explains": what,
            "how": how,
            "blocks": int(extra.size),
            "extra_percent": list(lost),
            "contribution_percent": list(part),
            "share_percent": list(share),
        },
    )


def unseen(name: str, what: str, why: str) -> Finding:
    """A hypothesis that this machine cannot test: inconclusive, and ``why``."""
    return Finding(
        claim=_claim(name, "most", what),
        subject=HYPOTHESIS + name,
        verdict="inconclusive",
        **_NONE._asdict(),
        unit=_SHARE_UNIT,
        reason=_sentence(why),
        evidence={"explains": what},
    )


def _claim(name: str, most: str, what: str) -> str:
    plural = name.endswith("s") and not name.endswith("ss")
    return f"{name} {'explain' if plural else 'explains'} {most} of {what}"


def _sentence(text: str) -> str:
    """A phrase begins with a capital and ends with a full stop, unless its first word has its own.

    >>> _sentence("what 2 MiB pages save"), _sentence("iTLB misses, simulated.")
    ('What 2 MiB pages save.', 'iTLB misses, simulated.')
    """
    first = text.split(maxsplit=1)[0]
    head = text[0].upper() if first.islower() else text[0]
    return head + text[1:].removesuffix(".") + "."


def _share(extra: Floats, contribution: Floats, level: float) -> Interval:
    """The ratio of the means in percent: all ratios at which nothing but noise is left over.

    The mean of ``extra`` must differ from 0 (its interval at this level excludes it): then the set
    has two ends.
    """
    ratio = float(contribution.mean() / extra.mean())

    def contradicted(at: float) -> float:
        """Above 0: what is left over at this ratio is more than noise."""
        left = t_interval(contribution - at * extra, level)
        return abs(left.effect) - left.half_width

    ends = [ratio, ratio]
    if contradicted(ratio) < 0:  # else nothing scatters
        for place, side in enumerate((-1, 1)):
            reach = max(abs(ratio), 1e-3)
            while contradicted(ratio + side * reach) <= 0:
                reach *= 2
            ends[place] = float(brentq(contradicted, ratio, ratio + side * reach))
    return Interval(100 * ratio, 100 * ends[0], 100 * ends[1])


def _verdict(lost: Interval, share: Interval, threshold: float, most: float) -> tuple[Verdict, str]:
    if not math.isfinite(lost.effect):
        return "inconclusive", "No block of the measurement has both the extra time and its part."
    extra_time = f"the extra time is {_percent(lost)} of the run time"
    if not math.isfinite(lost.half_width):
        return "inconclusive", f"One block has no interval ({extra_time}): measure longer."
    if lost.high < threshold:
        return "refuted", f"Nothing to explain here: {extra_time}, below {threshold:g} %."
    if not math.isfinite(share.effect):
        return "inconclusive", (
            f"It is not established that there is extra time of {threshold:g} %: {extra_time}. "
            "More blocks would narrow it."
        )
    extra_time = extra_time.capitalize()
    if share.low > most:
        beyond = (
            " (More than all of it: something else saves time, or the part is overrated.)"
            if share.low > 100
            else ""
        )
        return "supported", f"{extra_time}; this explains at least {_end(share, 1)} of it.{beyond}"
    if share.high < most:
        return "refuted", f"{extra_time}; this explains at most {_end(share, 2)} of it."
    return "inconclusive", (
        f"{extra_time}; {most:g} % of it lies within the share's interval. More blocks would "
        "narrow it."
    )


def _percent(value: Interval) -> str:
    """``12 % [9, 15]``: as many digits as the interval is worth."""
    digits = _digits(value)
    if not math.isfinite(value.half_width):
        return f"{value.effect:.{digits}f} %"
    effect, low, high = (f"{round(number, digits) + 0.0:.{digits}f}" for number in value)
    return f"{effect} % [{low}, {high}]"


def _end(value: Interval, which: int) -> str:
    """One end; no share is said to be less than nothing."""
    return f"{max(0.0, value[which]):.{_digits(value)}f} %"


def _digits(value: Interval) -> int:
    half = value.half_width
    return min(3, max(0, -math.floor(math.log10(half / 3)))) if half > 0 else 1


# --- many hypotheses ---------------------------------------------------------------------------


def standing(entries: Iterable[tuple[Run, Sequence[Finding]]]) -> list[tuple[Run, Finding]]:
    """The hypotheses whose verdict stands, sorted by name, each with the run it is from.

    Of several runs of one experiment on one machine the newest that judged any hypothesis decides.
    """
    newest: dict[tuple[str, ...], tuple[Run, list[Finding]]] = {}
    for run, findings in entries:
        judged = [finding for finding in findings if finding.subject.startswith(HYPOTHESIS)]
        place = (*_machine(run), run.experiment)
        if judged and (place not in newest or _age(run) >= _age(newest[place][0])):
            newest[place] = (run, judged)
    found = [(run, finding) for run, judged in newest.values() for finding in judged]
    return sorted(
        found,
        key=lambda pair: (
            _name(pair[1]).lower(),
            _explains(pair[1]),
            *_machine(pair[0]),
            _age(pair[0]),
        ),
    )


def ledger(entries: Iterable[tuple[Run, Sequence[Finding]]]) -> pd.DataFrame:
    """The ledger: one row for each hypothesis and what it may explain (see ``standing``).

    Parameters
    ----------
    entries
        Runs, each with what its experiment's ``analyse`` found.

    Returns
    -------
    All columns are text: ``hypothesis``, ``verdict``, ``share`` (of the extra time,
    ``12 % [9, 15]``; a dash where there is none), ``explains`` (what), ``because``,
    ``experiment``, ``run``, ``measured`` (the day, UTC), and ``machine`` if there are several.
    """
    found = standing(entries)
    rows = pd.DataFrame([_row(run, finding) for run, finding in found], columns=_COLUMNS)
    machines = sorted({_machine(run) for run, _ in found})
    if len(machines) > 1:
        hosts = [host for host, _ in machines]
        rows["machine"] = [
            host if hosts.count(host) == 1 else f"{host} ({fingerprint})"
            for host, fingerprint in (_machine(run) for run, _ in found)
        ]
    return rows


def ledger_lines(rows: pd.DataFrame, width: int = 80) -> Iterator[str]:
    """A ledger as lines of text no wider than ``width``, except for words that are."""
    fill = textwrap.TextWrapper(
        width, subsequent_indent=" " * _INDENT, break_long_words=False, break_on_hyphens=False
    )
    for row in rows.to_dict("records"):
        share = "" if row["share"] == "–" else ": " + row["share"].replace(" ", _KEPT)
        told = f"{row['hypothesis']} as the cause of {row['explains']}{share}"
        for line in fill.wrap(f"{row['verdict']:{_INDENT}s}{told}"):
            yield line.replace(_KEPT, " ")
        where = f" on {row['machine']}" if "machine" in row else ""
        for text in (row["because"], f"run {row['run']}, measured {row['measured']}{where}"):
            yield from fill.wrap(" " * _INDENT + text)


def _row(run: Run, finding: Finding) -> tuple[str, ...]:
    share = Interval(finding.effect, finding.low, finding.high)
    has_share = finding.unit == _SHARE_UNIT and math.isfinite(share.effect)
    return (
        _name(finding),
        finding.verdict,
        _percent(share) if has_share else "–",
        _explains(finding),
        finding.reason,
        run.experiment,
        run.id,
        str(run.provenance.get("start", ""))[:10],
    )


def _name(finding: Finding) -> str:
    return finding.subject.removeprefix(HYPOTHESIS)


def _explains(finding: Finding) -> str:
    return str(finding.evidence.get("explains", ""))


def _machine(run: Run) -> tuple[str, str]:
    """Machines of one make share a fingerprint: the host's name tells them apart."""
    machine = run.provenance.get("machine", {})
    return str(machine.get("hostname", "")), str(machine.get("fingerprint", ""))


def _age(run: Run) -> tuple[str, str]:
    return str(run.provenance.get("start", "")), run.id
