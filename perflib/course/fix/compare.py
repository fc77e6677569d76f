"""How much less time does changed code take? Paired within rounds, by batches of fresh processes.

Each process is one batch: where its memory is is drawn once for all of its rounds, so rounds of
one process are alike, and the interval comes from the scatter of processes. Within a round both
versions are timed, in random order, a few milliseconds apart; a drift or a busy neighbour slows
both. Of each trial counts the median of those samples whose core was alone, where probes show it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.framework.brackets import classify
from perflib.model.sentences import number
from perflib.stats.decide import decide
from perflib.stats.interval import Interval, percent_of
from perflib.stats.intervals import robust_mean, t_interval

Floats = NDArray[np.float64]
Verdict = Literal["faster", "slower", "no difference", "not known"]
ORIGINAL, YOURS = 0, 1  # versions
LEAST_BATCHES = 8
# Of what is called an interval of 95 %: it covers that where each process is like the one before
# (a correlation of 0.5) and placement in memory is skewed. Tests simulate it.
_CONFIDENCE = 0.98
_LEAST_ROUNDS = 2
_MOST_DELAY = 0.02  # of a sample's time, in which another task had the core
_LEAST_SHARE = 0.1  # of each version's samples: what is left of fewer is not typical


@dataclass(frozen=True)
class Compared:
    """Changed code compared with the original.

    Parameters
    ----------
    longer
        The time of the changed code as the logarithm of its ratio to the original's.
    verdict
        ``faster`` or ``slower`` (the whole interval is beyond the threshold), ``no difference``
        (it is within), ``not known``.
    why
        Where it is not known, a sentence; else empty.
    threshold_percent
        From where on a difference counts, in percent of the original's time.
    ratios
        What ``longer`` is the mean of: one of each process that counts.
    samples
        The share of samples that count, from 0 to 1, and which those are, in words.
    """

    longer: Interval
    verdict: Verdict
    why: str
    threshold_percent: float
    ratios: tuple[float, ...]
    samples: tuple[float, str] = (1.0, "all samples count")

    @property
    def batches(self) -> int:
        """How many processes count."""
        return len(self.ratios)

    @property
    def saved_percent(self) -> Interval:
        """The part of the original's time that is saved; negative: it takes longer."""
        low, high = self.longer.high, self.longer.low
        return Interval(*(-percent_of(value) for value in (self.longer.effect, low, high)))

    @property
    def times_as_fast(self) -> Interval:
        """The original's time over that of the changed code."""
        low, high = -self.longer.high, -self.longer.low
        return Interval(*(1 + percent_of(end) / 100 for end in (-self.longer.effect, low, high)))

    def __str__(self) -> str:
        saved, limit = self.saved_percent, f"{self.threshold_percent:g} %"
        if self.verdict == "faster":
            fast = self.times_as_fast
            factor = f"{fast.effect:.2f} [{fast.low:.2f}, {fast.high:.2f}]"
            return f"faster by {_spread(saved)} of the original's time: {factor} times as fast"
        if self.verdict == "slower":
            longer = Interval(*(percent_of(value) for value in self.longer))
            return f"slower by {_spread(longer)} of the original's time"
        if self.verdict == "no difference":
            return f"no difference: {_spread(saved)} saved, which is less than {limit} either way"
        if not math.isfinite(saved.half_width):
            return f"not known: {self.why}"
        return f"not known: {_spread(saved)} saved; {self.why}"


def _spread(found: Interval) -> str:
    """``23 % ± 2``; with both ends where they are uneven."""
    effect, low, high = found
    half = found.half_width
    if abs(high + low - 2 * effect) < 0.2 * half:
        return f"{number(effect, half)} % ± {number(half, half)}"
    return f"{number(effect, half)} % [{number(low, half)}, {number(high, half)}]"


def decided(
    ratios: Floats,
    threshold_percent: float = 1.0,
    samples: tuple[float, str] = (1.0, "all samples count"),
) -> Compared:
    """From one log ratio of times a batch to a verdict.

    Parameters
    ----------
    ratios
        Changed over original, successive batches; NaN where a batch says nothing.
    threshold_percent
        From where on a difference counts.
    samples
        Passed on.

    Returns
    -------
    ``faster`` and ``slower`` need the whole interval beyond the threshold, ``no difference`` the
    whole interval within.
    """
    known = ratios[np.isfinite(ratios)]
    if known.size < LEAST_BATCHES:
        why = f"{known.size} processes gave a comparison; it takes {LEAST_BATCHES}: more time"
        longer = Interval(float(known.mean()) if known.size else math.nan, math.nan, math.nan)
        return Compared(longer, "not known", why, threshold_percent, tuple(known), samples)
    longer = t_interval(known, _CONFIDENCE)
    limit = threshold_percent / 100
    slower = decide(longer, math.log1p(limit)).verdict
    faster = decide(longer, math.log1p(-limit), "below").verdict
    verdict: Verdict = "not known"
    why = f"the interval holds {threshold_percent:g} % and more or less: more time narrows it"
    if slower == "supported":
        verdict, why = "slower", ""
    elif faster == "supported":
        verdict, why = "faster", ""
    elif slower == faster == "refuted":
        verdict, why = "no difference", ""
    return Compared(longer, verdict, why, threshold_percent, tuple(known), samples)


def compare(samples: pd.DataFrame, threshold_percent: float = 1.0) -> Compared:
    """Compare the two versions in a table of samples.

    Parameters
    ----------
    samples
        Rows with ``batch``, ``round``, ``version``, ``time_ns``, ``calls``; ``cpu`` and probes,
        ``cpu_time_ns``, ``run_delay_ns``, ``partner_delay_ns`` where they are known.
    threshold_percent
        From where on a difference counts.
    """
    best: Compared | None = None
    for used, words in _choices(samples):
        share = float(used.mean())
        found = decided(batch_ratios(samples, used), threshold_percent, (share, words))
        if found.batches >= LEAST_BATCHES:
            return found
        best = best or found
    assert best is not None
    return best


def batch_ratios(samples: pd.DataFrame, used: NDArray[np.bool_]) -> Floats:
    """``[batch]``: the robust mean over rounds of changed over original, as a logarithm."""
    times = samples["time_ns"].to_numpy(np.float64)
    if not _two_threads(samples) and "cpu_time_ns" in samples:
        # What other tasks and a hypervisor take is no property of the code.
        own = samples["cpu_time_ns"].to_numpy(np.float64, na_value=np.nan)
        times = np.where(own > 0, own, times)
    each = samples[["batch", "round", "version"]].assign(
        log=np.where(used, np.log(times / samples["calls"].to_numpy(np.float64)), np.nan)
    )
    trials = each.pivot_table(
        index=["batch", "round"], columns="version", values="log", aggfunc="median"
    )
    if not {ORIGINAL, YOURS} <= set(trials.columns):
        return np.full(samples["batch"].nunique(), np.nan)
    rounds = (trials[YOURS] - trials[ORIGINAL]).dropna()
    found = [
        float(robust_mean(mine.to_numpy(np.float64)[:, None])[0])
        if len(mine) >= _LEAST_ROUNDS
        else math.nan
        for _, mine in rounds.groupby("batch")
    ]
    return np.array(found, dtype=np.float64)


def _two_threads(samples: pd.DataFrame) -> bool:
    return "partner_cpu" in samples and bool((samples["partner_cpu"] != -2).any())


def _choices(samples: pd.DataFrame) -> list[tuple[NDArray[np.bool_], str]]:
    """Which samples may count, the best choice first; each keeps enough of both versions."""
    every = np.ones(len(samples), dtype=np.bool_)
    if "ok" in samples:
        every = samples["ok"].to_numpy(np.bool_)
    core_states = classify(samples) if "cpu" in samples else None
    choices = []
    if core_states is not None and core_states.any_calibrated:
        choices.append(
            (every & core_states.usable, "those between probes that had the core alone count")
        )
    delays = np.zeros(len(samples))
    for name in ("run_delay_ns", "partner_delay_ns"):
        if name in samples:
            column = samples[name].to_numpy(np.float64, na_value=0.0)
            delays += np.where(np.isfinite(column), np.maximum(column, 0.0), 0.0)
    quiet = delays <= _MOST_DELAY * samples["time_ns"].to_numpy(np.float64)
    if not quiet.all():
        choices = [(used & quiet, words) for used, words in choices]
        choices.append((every & quiet, "those that waited for no core count"))
    versions = samples["version"].to_numpy()
    enough = [
        (used, words)
        for used, words in choices
        if all(used[versions == which].mean() >= _LEAST_SHARE for which in (ORIGINAL, YOURS))
    ]
    return [*enough, (every, "all samples count")]
