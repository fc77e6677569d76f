"""The ledger of hypotheses: what could explain the extra time, and what each is worth here.

An experiment that sees extra time (of one core, of large code, of one buffer) looks for its cause.
For each hypothesis it measures, batch by batch, the part of the extra time that this cause accounts
for. ``judge`` makes a verdict of it: an ordinary finding, which runs, reports, comparisons and JSON
carry like any other. ``ledger`` collects such findings from many runs in one table.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.model import sentences
from perflib.model.claims import EXPLAINS
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Decision, Reason, Witness, decide
from perflib.stats.interval import NO_INTERVAL, Interval
from perflib.stats.intervals import t_interval
from perflib.stats.share import share_of

_TIME_UNIT = "percent of the run time"
# Share of the tails that intervals use. Few batches do not show how much each resembles the one
# before. Where they do (correlation 0.3, 8 batches), intervals of 95 % made of all of the tails
# cover 90 %, these 93 %; where they do not, 97 %.
_TAIL_SHARE = 0.6
_COLUMNS = (
    "hypothesis", "verdict", "share", "explains", "because", "experiment", "run", "measured"
)  # fmt: skip
_INDENT = 13
_NO_BREAK = "\xa0"  # a space at which no line breaks

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
        ``[batch]``, in percent of the run time, in the order of time, paired: the time to be
        explained, and the part of it that the cause accounts for. A batch in which one of them is
        NaN is left out. A number that was measured once is an array of one: there is no interval,
        and the verdict is ``inconclusive``.
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
    extra time: ``supported`` if the interval is above ``most_percent``, ``refuted`` if below. Of
    extra time that is not established there is no share; the effect is then the contribution, in
    percent of the run time, and the verdict ``refuted`` (nothing to explain: the extra time's
    interval is below the threshold) or ``inconclusive``.

    The share is a ratio of means (see ``share_of``).

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
        msg = f"extra {extra.shape} and contribution {contribution.shape} must be [batch], paired"
        raise ValueError(msg)
    if not threshold_percent > 0:
        msg = f"threshold_percent must be positive, not {threshold_percent}"
        raise ValueError(msg)
    level = 1 - _TAIL_SHARE * (1 - confidence)
    paired = np.isfinite(extra) & np.isfinite(contribution)
    extra, contribution = extra[paired], contribution[paired]
    lost, part = t_interval(extra, level), t_interval(contribution, level)
    share = share_of(extra, contribution, level) if lost.low > threshold_percent else NO_INTERVAL
    numbers = {"extra": lost, "share": share, "least": threshold_percent, "how": _sentence(how)}
    known = math.isfinite(share.effect)
    return EXPLAINS.found(
        _decision(lost, share, threshold_percent, most_percent, bound, numbers),
        share if known else part,
        about={"cause": name, "explains": what},
        threshold=most_percent,
        unit="" if known else _TIME_UNIT,
        confidence=confidence,
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
    return EXPLAINS.found(
        Decision("inconclusive", (Reason("unseen", {"why": _sentence(why)}),)),
        about={"cause": name, "explains": what},
        threshold=50.0,
        evidence={"explains": what},
    )


def _sentence(text: str) -> str:
    """A phrase ends with a full stop and begins with a capital, unless its first word is a name."""
    return sentences.capital(text.removesuffix(".") + ".")


def _decision(
    lost: Interval,
    share: Interval,
    least: float,
    most: float,
    bound: str,
    numbers: Mapping[str, Any],
) -> Decision:
    if not math.isfinite(lost.effect):
        return Decision("inconclusive", (Reason("no_block", numbers),))
    if not math.isfinite(lost.half_width):
        return Decision("inconclusive", (Reason("one_block", numbers),))
    if lost.high < least:
        return Decision("refuted", (Reason("nothing_to_explain", numbers),))
    if not math.isfinite(share.effect):
        return Decision("inconclusive", (Reason("not_established", numbers),))
    shares = Reason("share", numbers)
    only = Reason("only_bound", {"bound": bound, **numbers})
    beyond = (Reason("more_than_all"),) if share.low > 100 else ()
    return decide(
        share,
        most,
        to_support=[Witness(bound != "upper", only, shares)],
        to_refute=[Witness(bound != "lower", only, shares)],
        remarks=beyond,
    )


# --- many hypotheses ---------------------------------------------------------------------------


def standing(entries: Iterable[tuple[Run, Sequence[Finding]]]) -> list[tuple[Run, Finding]]:
    """The hypotheses whose verdict stands, sorted by name, each with the run it is from.

    Of several runs of one experiment on one machine the newest that judged any hypothesis decides.
    """
    newest: dict[tuple[str, ...], tuple[Run, list[Finding]]] = {}
    for run, findings in entries:
        judged = [finding for finding in findings if finding.of is EXPLAINS]
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
    last = rows["run"] != rows["run"].shift(-1)  # of those that one run decides
    for row, ends in zip(rows.to_dict("records"), last, strict=True):
        share = "" if row["share"] == "–" else ": " + row["share"].replace(" ", _NO_BREAK)
        subject = f"{row['hypothesis']} as the cause of {row['explains']}{share}"
        for line in fill.wrap(f"{row['verdict']:{_INDENT}s}{subject}"):
            yield line.replace(_NO_BREAK, " ")
        where = f" on {row['machine']}" if "machine" in row else ""
        from_run = f"run {row['run']}, measured {row['measured']}{where}"
        for text in (row["because"], from_run) if ends else (row["because"],):
            yield from fill.wrap(" " * _INDENT + text)


def _row(run: Run, finding: Finding) -> tuple[str, ...]:
    share = Interval(finding.effect, finding.low, finding.high)
    has_share = finding.unit == EXPLAINS.unit and math.isfinite(share.effect)
    return (
        _name(finding),
        finding.verdict,
        sentences.render("{share:interval %}", {"share": share}) if has_share else "–",
        _explains(finding),
        finding.reason,
        run.experiment,
        run.id,
        str(run.provenance.get("start", ""))[:10],
    )


def _name(finding: Finding) -> str:
    return str(finding.about["cause"])


def _explains(finding: Finding) -> str:
    return str(finding.about["explains"])


def _machine(run: Run) -> tuple[str, str]:
    """Machines of one make share a fingerprint: the host's name distinguishes them."""
    machine = run.provenance.get("machine", {})
    return str(machine.get("hostname", "")), str(machine.get("fingerprint", ""))


def _age(run: Run) -> tuple[str, str]:
    return str(run.provenance.get("start", "")), run.id
