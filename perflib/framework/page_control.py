"""The control of every comparison of page sizes: is a page of 2 MiB one entry of the TLB here?

In a virtual machine it need not be: an entry covers no more than the host's page behind it. So,
before the first trial, dependent loads are timed through lines side by side and through as many
lines in pages of their own, on each kind of pages (``kernels_c/common/page_reach.h``). On pages of
1 GiB the lines are 2 MiB apart: such pages may be behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.framework.page_claims import HUGE_PAGES
from perflib.measure.pages.kinds import GIGANTIC_PAGES, SMALL_PAGES, page_words
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Reason
from perflib.stats.interval import NO_INTERVAL, Interval
from perflib.stats.intervals import t_interval

Floats = NDArray[np.float64]
_REPEATS = 9  # half a millisecond each
_MIN_COST_LOG = 0.2  # log: many small pages must cost so much more than few, or nothing is tested
_HALF = 50.0


def timed_pairs(
    backings: Iterable[str], pair: Callable[[str, int], Sequence[float] | None]
) -> dict[str, list[list[float]]]:
    """The control's times, for the plan: by backing, pairs of ns a load.

    Parameters
    ----------
    backings
        Those that are compared. Where all are small pages there is nothing to test.
    pair
        Times a backing, by a seed: ns a load through few pages and through many; ``None`` where
        that fails, or the pages are not what was requested.
    """
    named = list(dict.fromkeys([SMALL_PAGES, *backings]))
    found: dict[str, list[list[float]]] = {}
    for seed in range(_REPEATS if len(named) > 1 else 0):
        for name in named:
            times = pair(name, seed)
            if times is not None:
                found.setdefault(name, []).append([float(one) for one in times])
    return found


@dataclass(frozen=True)
class PageControl:
    """What the control says. ``pairs``: as of ``timed_pairs``."""

    pairs: Mapping[str, Sequence[Sequence[float]]]

    @classmethod
    def of(cls, run: Run) -> Self:
        """A run's; one without a control says nothing."""
        return cls(run.provenance.get("plan", {}).get("page_reach", {}))

    @cached_property
    def findings(self) -> list[Finding]:
        """Of each kind of huge pages: does the processor's TLB see them as huge?

        The effect is how much of what many pages cost on 4 KiB pages is left on huge ones.
        """
        small = self._times(SMALL_PAGES)
        if not len(small):
            return []
        return [
            _finding(name, self._times(name), small) for name in self.pairs if name != SMALL_PAGES
        ]

    def prevents(self, huge: str) -> Reason | None:
        """Why a comparison of 4 KiB pages with these decides nothing; ``None``: it may decide.

        It is the ``prevented`` of ``Claim.decided``; a claim has its words from ``NOT_BACKED``.
        """
        refuted = {one.about["backing"] for one in self.findings if one.verdict == "refuted"}
        return Reason("not_backed", {"backing": huge}) if huge in refuted else None

    def table(self) -> pd.DataFrame:
        """By backing, the median times of a load in ns through few pages and through many."""
        rows = [(name, *np.median(self._times(name), axis=0)) for name in self.pairs]
        return pd.DataFrame(rows, columns=["backing", "few_pages_ns", "many_pages_ns"])

    def _times(self, backing: str) -> Floats:
        return np.array(self.pairs.get(backing, []), dtype=np.float64).reshape(-1, 2)


def _finding(backing: str, huge: Floats, small: Floats) -> Finding:
    count = min(len(huge), len(small))
    cost = float(np.median(np.diff(small, axis=1)))
    seen = t_interval(np.log(small[:count, 1] / small[:count, 0]))
    share = NO_INTERVAL
    if cost > 0:
        left = np.diff(huge[:count], axis=1)[:, 0]
        share = Interval(*(100 * end for end in t_interval(left / cost)))
    return HUGE_PAGES.decided(
        share,
        _HALF,
        about={"backing": backing},
        facts={
            "page": page_words(backing),
            "smaller": "2 MiB" if backing == GIGANTIC_PAGES else "4 KiB",
        },
        prevented=None if seen.low > _MIN_COST_LOG else Reason("no_cost"),
        evidence={
            "ns_few_and_many_pages": {
                SMALL_PAGES: np.median(small, axis=0),
                backing: np.median(huge, axis=0),
            }
        },
    )
