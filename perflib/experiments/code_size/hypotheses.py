"""What explains the time that large code takes: the list of Guerri et al. 2015, for this run.

Two things may want an explanation: that large code takes longer than small code, which it does on
any machine, and that it does so more on one core than on the others, which they saw. The causes
differ in what they leave alone: pages of 2 MiB take the iTLB's misses away and leave those of the
caches as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from perflib.experiments.code_size.claims import HYPOTHESES
from perflib.experiments.code_size.reaches import Reaches
from perflib.experiments.code_size.table import CodeTable
from perflib.framework.page_control import PageControl
from perflib.measure.pages.kinds import SMALL_PAGES
from perflib.model.finding import Finding
from perflib.model.hypotheses import judge, unseen
from perflib.model.sentences import size
from perflib.stats.intervals import Floats

Contrast = Callable[[Floats, Floats], Floats]
Bound = Literal["", "upper", "lower"]
_ITLB, _CACHE, _SOFTIRQ, _FREQUENCY = HYPOTHESES
_MAX_TIMES_MEDIAN = (
    5.0  # in a sample so many times as long as its configuration's median, something interfered
)


def hypotheses(
    table: CodeTable, pattern: str, reaches: Reaches, threshold: float, control: PageControl
) -> list[Finding]:
    """A verdict on each cause: for the slowest core, and for large code as such.

    Where huge pages are not backed by the host (``control``), they take as many entries of the TLB
    as pages of 4 KiB do. What they save is then the least that misses cost, and what is left on
    them the most that caches do.
    """
    if SMALL_PAGES not in table.backings or len(table.sizes(pattern)) < 2:
        return []
    backed = not table.huge or control.prevents(table.huge[0]) is None
    sizes = _Sizes(table, pattern, reaches, backed)
    found = []
    if len(table.cores) > 1:
        effects = table.core_difference(pattern, SMALL_PAGES, sizes.large).effects
        slowest = int(np.argmax([np.nan_to_num(effect.slowdown.effect) for effect in effects]))

        def of_the_slowest(large: Floats, small: Floats) -> Floats:
            return _over_others(large - small, slowest)

        what = f"the extra time of cpu{table.cores[slowest]} with large code"
        chosen_of_many = 1 - 0.05 / len(table.cores)
        found += _judged(sizes, what, of_the_slowest, threshold, chosen_of_many)

    def of_all(large: Floats, small: Floats) -> Floats:
        extra = large - small
        some = np.isfinite(extra).any(axis=1)
        mean = np.full(len(extra), np.nan)
        mean[some] = np.nanmean(extra[some], axis=1)
        return mean

    return found + _judged(sizes, "the extra time of large code", of_all, threshold, 0.95)


class _Sizes:
    """Large and small code, ``[round, cpu]`` each."""

    def __init__(self, table: CodeTable, pattern: str, reaches: Reaches, backed: bool) -> None:
        self.table, self._pattern, self.backed = table, pattern, backed
        self.large, self.small = table.large(pattern), table.small(pattern, reaches)
        sizes = table.code_bytes(pattern)
        self.words = (
            f"{size(sizes[self.large[0]])} and more, compared with {size(sizes[self.small[-1]])}"
        )

    def _mean(self, values: Floats) -> tuple[Floats, Floats]:
        return values[:, :, self.large].mean(axis=2), values[:, :, self.small].mean(axis=2)

    def log(self, backing: str, column: str = "step_ns") -> tuple[Floats, Floats]:
        """Mean log of a column."""
        return self._mean(np.log(self.table.values(self._pattern, backing, column)))

    def softirq_share(self) -> tuple[Floats, Floats]:
        """Share of the time that goes with soft interrupts, on 4 KiB pages."""
        counts = self.table.values(self._pattern, SMALL_PAGES, "softirqs")
        times = self.table.values(self._pattern, SMALL_PAGES, "time_ns")
        return self._mean(self._softirq_ns() * counts / times)

    def _softirq_ns(self) -> float:
        """At most what goes with one soft interrupt, in ns: the slope of time over their number.

        Within the samples of each core, size and backing; the slope and twice its error. Whatever
        comes together with a soft interrupt (the interrupt itself, a task that it wakes) counts.
        """
        configuration, both = ["cpu", "pattern", "backing", "n"], ["time_ns", "softirqs"]
        rows = self.table.trials(both)
        median = rows.groupby(configuration)["time_ns"].transform("median")
        rows = rows[rows["time_ns"] < _MAX_TIMES_MEDIAN * median]
        away = rows[both] - rows.groupby(configuration)[both].transform("mean")
        scatter = float((away["softirqs"] ** 2).sum())
        if not scatter:
            return 0.0
        slope = float((away["time_ns"] * away["softirqs"]).sum()) / scatter
        left = away["time_ns"] - slope * away["softirqs"]
        return max(0.0, slope + 2 * float(left.std()) / math.sqrt(scatter))


def _over_others(extra: Floats, core: int) -> Floats:
    """``[round]``: a core's extra time less the median of those of the others that have one."""
    others = np.delete(extra, core, axis=1)
    some = np.isfinite(others).any(axis=1)
    over = np.full(len(extra), np.nan)
    over[some] = extra[some, core] - np.nanmedian(others[some], axis=1)
    return over


def _judged(
    sizes: _Sizes, what: str, contrast: Contrast, threshold: float, confidence: float
) -> list[Finding]:
    def blocks(log_values: tuple[Floats, Floats]) -> Floats:
        """``[block]``: large against small code, in percent of the time."""
        changes = contrast(*log_values)
        means: Floats = sizes.table.by_block(100 * np.expm1(changes)[:, None])[:, 0]
        return means

    extra = blocks(sizes.log(SMALL_PAGES))

    def verdict(name: str, contribution: Floats, how: str, bound: Bound = "") -> Finding:
        return judge(
            name,
            what,
            extra,
            contribution,
            threshold_percent=threshold,
            how=how,
            bound=bound,
            evidence={"code": sizes.words},
            confidence=confidence,
        )

    def by_clock(backing: str) -> Floats:
        """What a lower frequency with large code accounts for."""
        large, small = sizes.log(backing, "core_mhz")
        return blocks((-large, -small))

    samples = sizes.table.samples
    has_clock = "core_mhz" in samples and bool(samples["core_mhz"].notna().any())
    if has_clock:
        how = "the core's frequency just before and after the samples"
        frequency = verdict(_FREQUENCY, by_clock(SMALL_PAGES), how)
    else:
        frequency = unseen(_FREQUENCY, what, "the samples do not hold the core's frequency")
    has_counts = "softirqs" in samples and bool(samples["softirqs"].notna().any())
    if has_counts:
        large, small = sizes.softirq_share()
        how = "soft interrupts during the samples, times what goes with one: an upper bound"
        softirq = verdict(_SOFTIRQ, blocks((np.log1p(large), np.log1p(small))), how, "upper")
    else:
        softirq = unseen(_SOFTIRQ, what, "the samples hold no counts of soft interrupts")
    if not sizes.table.huge:
        why = (
            "no huge pages were available, which would separate the iTLB's misses from the caches'"
        )
        return [unseen(name, what, why) for name in (_ITLB, _CACHE)] + [softirq, frequency]
    left = blocks(sizes.log(sizes.table.huge[0]))
    how = "what 2 MiB pages save in the same code"
    how += "" if sizes.backed else "; they are not backed by the host, so misses remain"
    itlb = verdict(_ITLB, extra - left, how, "" if sizes.backed else "lower")
    at_one_clock = left - by_clock(sizes.table.huge[0]) if has_clock else left
    how = (
        "what is left on 2 MiB pages, at an equal frequency; branches are as hard to predict in "
        "the small code"
    )
    # Soft interrupts are as slow on any pages: where they may be it, the caches are not proven.
    interference = has_counts and softirq.verdict == "inconclusive"
    bound: Bound = "upper" if interference or not sizes.backed else ""
    cache = verdict(_CACHE, at_one_clock, how, bound)
    return [itlb, cache, softirq, frequency]
