"""What samples of a sweep over the size of the code say, before anything is claimed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import nnls

from perflib.experiments.code_size.reaches import Reaches
from perflib.framework.brackets import CoreStates, classify
from perflib.framework.samples import mean_of_known, round_starts, usable
from perflib.framework.schema import check_cells
from perflib.measure.pages.kinds import SMALL_PAGES
from perflib.model.errors import UserError
from perflib.stats.compare import CoreComparison, compare_cores
from perflib.stats.interval import Interval, columns, exp, percent
from perflib.stats.intervals import Floats, batch_means, t_interval, time_batches
from perflib.stats.knees import Knees, find_knees

_PATTERNS = ("random", "compiled", "page", "chase", "line")
_BACKINGS = ("loaded", SMALL_PAGES, "thp", "collapse", "hugetlb", "hugectl")
_SHAPES: dict[str, Any] = {"chase": "cyclic"}
_COUNTS = ("softirqs", "itlb_misses", "time_ns", "steps")
RINGS = ("chase", "line")
COMPILED = "compiled"  # the control of "random"
_SHOWN = 10  # sizes in a sentence


State = Literal["alone", "shared"]


class CodeTable:
    """The samples of one run as log time a step, ``[time, cpu, n]`` of each pattern and backing.

    Rows whose ``ok`` is false are left out. Uncertainty comes from the scatter of batches.

    Where probes show when a core was alone, the table is of those samples (``state`` "alone") or of
    those whose sibling thread was busy at both ends ("shared"). Trials often have none of either,
    so a time is the median over a batch: its CPU time, which leaves out what other tasks take.
    Where no state is known, all samples count, a time is a round's, and configurations are compared
    within rounds.
    """

    def __init__(self, samples: pd.DataFrame, state: State = "alone") -> None:
        samples = usable(samples)
        core_states = classify(samples)
        self.core_states = (
            core_states if core_states is not None and core_states.any_calibrated else None
        )
        time_ns = samples["time_ns"]
        if core_states is not None and "cpu_time_ns" in samples:
            time_ns = samples["cpu_time_ns"].where(samples["cpu_time_ns"] > 0, time_ns)
        samples = samples.assign(
            pattern=samples["pattern"].astype(str),  # a user's table may name them by numbers
            backing=samples["backing"].astype(str),
            step_ns=time_ns / samples["steps"],
        )
        self.patterns = sorted(set(samples["pattern"]), key=_place_in(_PATTERNS))
        self.backings = sorted(set(samples["backing"]), key=_place_in(_BACKINGS))
        self.cores = sorted({int(cpu) for cpu in samples["cpu"]})
        extent = samples.groupby(["pattern", "n"])["code_bytes"].median()
        self._extent = {
            (str(pattern), int(n)): float(size)
            for (pattern, n), size in zip(extent.index, extent, strict=True)
        }
        for pattern in self.patterns:
            sizes = self.code_bytes(pattern)
            if (np.diff(sizes) <= 0).any():
                msg = (
                    f"of pattern {pattern!r} code_bytes must grow with n, the pieces of code: "
                    f"these are {', '.join(f'{size:g}' for size in sizes[:_SHOWN])} ..."
                )
                raise UserError(msg)
        self.state = state
        self.samples = samples  # in whatever state
        rounds = np.array(sorted(set(samples["round"])))
        start_s = round_starts(samples, rounds)
        blocks = time_batches(start_s, len(rounds))
        if self.core_states is None:
            self._rows = samples.assign(time=np.searchsorted(rounds, samples["round"]))
        else:
            here = _in_state(samples, self.core_states, state)
            places = blocks[np.searchsorted(rounds, samples["round"])]
            self._rows = samples.assign(time=places)[here]
            first = np.searchsorted(blocks, np.arange(blocks.max() + 1))
            start_s = None if start_s is None else start_s[first]
            blocks = np.arange(len(first))
        self.start_s, self.blocks = start_s, blocks
        self._kept: dict[tuple[str, str, str], Floats] = {}

    @classmethod
    def shared(cls, samples: pd.DataFrame) -> Self | None:
        """The table of a busy sibling; ``None`` where no state is known, or no sample is such."""
        table = cls(samples, "shared")
        return table if table.core_states is not None and len(table._rows) else None

    def share_alone(self, cpu: int) -> float:
        """The share of a core's samples that had it alone; NaN where no state is known."""
        mine = (self.samples["cpu"] == cpu).to_numpy()
        return math.nan if self.core_states is None else float(self.core_states.alone[mine].mean())

    @property
    def sweeps(self) -> list[str]:
        """The patterns that are of interest for themselves: all but the chase's control."""
        return [name for name in self.patterns if name != "line"] or self.patterns

    @property
    def huge(self) -> list[str]:
        """The backings of 2 MiB pages, the one that comparisons use first."""
        return [name for name in self.backings if name not in (SMALL_PAGES, "loaded")]

    def sizes(self, pattern: str) -> list[int]:
        """The numbers of pieces of code of a pattern, ascending."""
        return sorted(n for name, n in self._extent if name == pattern)

    def code_bytes(self, pattern: str) -> Floats:
        """The extent of the code at each of ``sizes``."""
        return np.array([self._extent[pattern, n] for n in self.sizes(pattern)])

    def large(self, pattern: str) -> list[int]:
        """Places of the sizes that count as large: from about half of the largest on."""
        sizes = self.code_bytes(pattern)
        return [int(place) for place in np.flatnonzero(sizes >= 0.49 * sizes.max())]

    def small(self, pattern: str, reaches: Reaches) -> list[int]:
        """Places of the sizes that the first-level cache holds; at least the smallest."""
        fits = np.flatnonzero(self.code_bytes(pattern) <= reaches.caches.get("L1i", 0))
        return [int(place) for place in fits] or [0]

    def misses_only(self, pattern: str, reaches: Reaches) -> list[int]:
        """Places of the sizes whose lines miss the first-level cache, whose pages no TLB.

        From twice that cache to the instruction TLB's reach: code at random misses the cache with
        at least every other line there (see ``miss_model``).
        """
        sizes = self.code_bytes(pattern)
        cache, reach = reaches.caches.get("L1i", 0), reaches.tlbs.get("iTLB", 0)
        between = (sizes >= 2 * cache) & (sizes <= reach) & (cache > 0)
        return [int(place) for place in np.flatnonzero(between)]

    def within(self, pattern: str, reaches: Reaches) -> list[int]:
        """Places of the sizes beyond the first-level cache that the second holds with ease."""
        sizes, caches = self.code_bytes(pattern), reaches.caches
        inside = (sizes > caches.get("L1i", 0)) & (sizes <= caches.get("L2", 0) / 2)
        return [int(place) for place in np.flatnonzero(inside)]

    def values(self, pattern: str, backing: str, column: str = "step_ns") -> Floats:
        """``[time, cpu, n]``: a column of the samples; NaN where there is none.

        The median of several samples, the mean of counts (most samples have none).
        """
        if (pattern, backing, column) not in self._kept:
            sizes = self.sizes(pattern)
            shape = len(self.blocks), len(self.cores), len(sizes)
            check_cells(dict(zip(("times", "cores", "sizes"), shape, strict=True)), len(self._rows))
            found = np.full(shape, np.nan)
            mine = self._rows
            mine = mine[(mine["pattern"] == pattern) & (mine["backing"] == backing)]
            if column in mine and len(mine):
                kept = mine.groupby(["time", "cpu", "n"])[column]
                joined = (kept.mean() if column in _COUNTS else kept.median()).reset_index()
                found[
                    joined["time"],
                    np.searchsorted(self.cores, joined["cpu"]),
                    np.searchsorted(sizes, joined["n"]),
                ] = joined[column].astype(float)
            self._kept[pattern, backing, column] = found
        return self._kept[pattern, backing, column]

    def trials(self, names: Sequence[str]) -> pd.DataFrame:
        """Sums of columns over the samples of each trial, in whatever state the core was."""
        labels = ["cpu", "pattern", "backing", "n"]
        rows = self.samples[["round", *labels, *names]].dropna()
        if self.core_states is None:
            return rows
        return rows.groupby(["round", *labels], as_index=False, sort=False)[list(names)].sum()

    def by_block(self, values: Floats) -> Floats:
        """``[block, ...]`` of ``[time, ...]``: robust means over the rounds of each batch."""
        return batch_means(values, self.blocks)

    # --- time against size -----------------------------------------------------------------------

    def curve(self, pattern: str, backing: str, cpu: int | None = None) -> pd.DataFrame:
        """Time a step in ns at each size of the code, with its interval, of one core or of all."""
        log_ns = np.log(self.values(pattern, backing))
        chosen = log_ns if cpu is None else log_ns[:, [self.cores.index(cpu)]]
        blocks = self.by_block(mean_of_known(chosen))
        found = [exp(t_interval(column)) for column in blocks.T]
        table = pd.DataFrame([columns("step_ns", one) for one in found])
        table.insert(0, "code_bytes", self.code_bytes(pattern))
        return table

    def miss_model(
        self, pattern: str, backing: str, holds: Mapping[str, int]
    ) -> tuple[pd.Series[float], Floats]:
        """What a miss of each level costs a step, if code at random misses as often as it must.

        Of ``s`` bytes of code in random order a level of ``C`` bytes misses the share 1 - C/s. The
        levels' sizes are given, their costs in ns are fitted (least squares, none negative) to the
        sizes whose time is known.

        Returns
        -------
        The costs in ns by level, that of a step which misses nothing first; and the model's time a
        step at each size. NaN where no size's time is known.
        """
        curve = self.curve(pattern, backing)
        size = curve["code_bytes"].to_numpy(np.float64)
        misses = [np.ones_like(size)] + [
            np.maximum(0, 1 - level / size) for level in holds.values()
        ]
        measured = curve["step_ns"].to_numpy(np.float64)
        shares = np.stack(misses, axis=1)
        known = np.isfinite(measured)  # a core that was never alone at a size has no time there
        costs = np.full(shares.shape[1], np.nan)
        if known.any():
            weight = 1 / measured[known]  # relative errors count alike
            costs, _ = nnls(shares[known] * weight[:, None], measured[known] * weight)
        return pd.Series(costs, index=["no miss", *holds]), shares @ costs

    # --- small against huge pages ----------------------------------------------------------------

    def page_ratio(self, pattern: str, huge: str, cpu: int | None = None) -> Floats:
        """``[block, n]``: log of the time on 4 KiB pages over that on huge ones, within rounds."""
        small, large = (np.log(self.values(pattern, backing)) for backing in (SMALL_PAGES, huge))
        which = slice(None) if cpu is None else [self.cores.index(cpu)]
        return self._compared(small[:, which], large[:, which])

    def _compared(self, log_ns: Floats, control: Floats) -> Floats:
        """``[block, n]``: log of a time over its control's, both ``[time, cpu, n]``.

        On each core where both were measured at one time. While a sibling is busy that is rare:
        a batch often lacks one of them. Then means over the cores are compared, and the control is
        filled in: it is a size's level and a batch's.
        """
        if self.state == "shared":
            return self.by_block(mean_of_known(log_ns) - _additive(mean_of_known(control)))
        return self.by_block(mean_of_known(log_ns - control))

    def knees(self, pattern: str, huge: str) -> Knees:
        """Where the curve on 4 KiB pages leaves that on huge ones."""
        return find_knees(*self.page_rows(pattern, huge), _SHAPES.get(pattern, "random"))

    def page_rows(self, pattern: str, huge: str) -> tuple[Floats, Floats]:
        """What ``knees`` looks at: sizes, and log of the ratio, ``[batch, n]``."""
        small, large = (np.log(self.values(pattern, backing)) for backing in (SMALL_PAGES, huge))
        return self.code_bytes(pattern), self._each_core(small, large)

    def _each_core(self, log_ns: Floats, control: Floats) -> Floats:
        """As ``_compared``, for knees, which all cores have at the same place.

        Where only samples that had the core alone count, what is left of the scatter is each
        core's own: then every core's batches are batches.
        """
        if self.core_states is None:
            return self._compared(log_ns, control)
        rows, controls = (one.reshape(-1, one.shape[2]) for one in (log_ns, control))
        filled = _additive(controls)
        if self.state == "alone":
            filled = np.where(np.isfinite(controls), controls, filled)
        return rows - filled

    # --- one jump a page against one a line ------------------------------------------------------

    @property
    def has_ring_control(self) -> bool:
        """Was the ring with one jump a line measured, too, on 4 KiB pages?"""
        mine = self.samples[self.samples["backing"] == SMALL_PAGES]
        return set(RINGS) <= set(mine["pattern"])

    def ring_ratio(self) -> tuple[Floats, Floats]:
        """What it costs that each jump has a page of its own, on 4 KiB pages, within rounds.

        Returns
        -------
        The extent of the chase in bytes, ``[n]``; and, ``[block, n]``, log of its time over that
        of a ring of as many jumps, one a line.
        """
        return self._ring_sizes, self._compared(*self._rings)

    @property
    def _ring_sizes(self) -> Floats:
        return self.code_bytes("chase")[self.ring_places("chase")]

    @property
    def _rings(self) -> list[Floats]:
        """Log times of the chase and of its control at the sizes that both have."""
        return [
            np.log(self.values(ring, SMALL_PAGES))[:, :, self.ring_places(ring)] for ring in RINGS
        ]

    def ring_places(self, pattern: str) -> list[int]:
        """Where in a ring's ``sizes`` those are that both rings have."""
        both = set.intersection(*(set(self.sizes(ring)) for ring in RINGS))
        return [place for place, n in enumerate(self.sizes(pattern)) if n in both]

    def ring_knees(self) -> Knees:
        """Where the chase leaves the ring of as many jumps on a 64th of the pages."""
        return find_knees(*self.ring_rows(), "cyclic")

    def ring_rows(self) -> tuple[Floats, Floats]:
        """What ``ring_knees`` looks at; as ``page_rows``."""
        return self._ring_sizes, self._each_core(*self._rings)

    # --- core against core -----------------------------------------------------------------------

    def core_difference(self, pattern: str, backing: str, chosen: list[int]) -> CoreComparison:
        """The cores compared, by their mean log time over some of the sizes (places in ``sizes``).

        Cores that lack a size in a round are left out of that round. Where only samples that had
        the core alone count, some size is often missing: then the mean is of what there is, each
        size compared with its own level in the run.
        """
        log_ns = np.log(self.values(pattern, backing)[:, :, chosen])
        if self.core_states is None:
            return compare_cores(log_ns.mean(axis=2), self.start_s)
        levels = mean_of_known(log_ns.reshape(-1, len(chosen)), axis=0)
        return compare_cores(mean_of_known(log_ns - levels, axis=2), self.start_s)

    def difference_by_size(self, pattern: str, backing: str) -> list[CoreComparison]:
        """The cores compared at each size, as Guerri et al. 2015 drew the runtime difference."""
        return [
            self.core_difference(pattern, backing, [place])
            for place in range(len(self.sizes(pattern)))
        ]

    # --- how precise -----------------------------------------------------------------------------

    @cached_property
    def half_width(self) -> float:
        """Widest half interval at the largest size, in points: core differences and page sizes."""
        widths = []
        for pattern, backing in self._measured:
            last = len(self.sizes(pattern)) - 1
            if len(self.cores) > 1:
                widths.append(self.core_difference(pattern, backing, [last]).half_width)
            if backing in self.huge and (pattern, SMALL_PAGES) in self._measured:
                ratio = percent(t_interval(self.page_ratio(pattern, backing)[:, last]))
                widths.append(ratio.half_width)
        if not widths:  # one core, one backing: the time itself
            for pattern, backing in self._measured:
                log_ns = np.log(self.values(pattern, backing))
                own: Interval = t_interval(self.by_block(mean_of_known(log_ns))[:, -1])
                widths.append(100 * own.half_width)
        return max(width if math.isfinite(width) else math.inf for width in widths)

    @property
    def _measured(self) -> list[tuple[str, str]]:
        """Patterns with the backings that each was measured on."""
        pairs = self.samples[["pattern", "backing"]].drop_duplicates()
        return sorted(zip(pairs["pattern"], pairs["backing"], strict=True))


def _additive(values: Floats) -> Floats:
    """``[time, n]`` as a level of each size and one of each time: with values where NaN was."""
    times = np.zeros((len(values), 1))
    for _ in range(20):
        sizes = mean_of_known(values - times, axis=0)
        times = mean_of_known(values - sizes)[:, None]
    return np.asarray(times + sizes, dtype=np.float64)


def _in_state(samples: pd.DataFrame, core_states: CoreStates, state: State) -> NDArray[np.bool_]:
    """Which rows a table of that state has.

    Who had the core in the sample before, another task or the sibling, has replaced what the
    caches held: the samples after a change, and those in which another task ran, are left out. A
    program of its own has no probes: its samples count as those of a core that is alone.
    """
    interrupted = np.zeros(len(samples), dtype=np.bool_)
    for name in ("run_delay_ns", "involuntary_switches"):
        if name in samples:
            interrupted |= samples[name].to_numpy(np.float64, na_value=0.0) > 0
    here = (core_states.alone if state == "alone" else core_states.shared) & ~interrupted
    trials = samples.groupby(["round", "cpu", "pattern", "backing", "n"], sort=False).ngroup()
    first = np.append(True, np.diff(trials) != 0)
    settled = first | np.append(True, here[:-1])
    unknown = samples["probe_before_ns"].isna().to_numpy() & (state == "alone")
    return np.asarray((here & settled) | unknown, dtype=np.bool_)


def _place_in(order: Sequence[str]) -> Callable[[str], tuple[int, str]]:
    """To sort names in a given order, unknown ones (of a user's table) after it."""
    return lambda name: (order.index(name) if name in order else len(order), name)
