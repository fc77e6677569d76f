"""Samples of a sweep over the size of the environment: times, counters, and what they share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments.aliasing.alone import ALONE, State, log_times
from perflib.experiments.aliasing.environment import AliasEnvironment
from perflib.experiments.aliasing.environment.addresses import PAGE, STACK, STATIC
from perflib.framework.samples import mean_of_known, round_starts, usable
from perflib.framework.schema import check_cells
from perflib.stats.interval import widest
from perflib.stats.intervals import (
    Floats,
    batch_means,
    holm,
    robust_mean,
    t_interval,
    t_intervals,
    time_batches,
)

_RESAMPLES = 4000
_NEAR = 31  # starts of the sweep that stand next to one: a tenth of a second
SWEEP, LINK_ORDER, ASLR = "environment", "link order", "aslr"  # kinds of starts
SIMULATED = "4K aliases (simulated)"
# Any other column of numbers is a counter.
_KNOWN = {column.name for column in AliasEnvironment.columns} | {"position", "beside"}


class AliasEnvTable:
    """The samples of one run: log time of the loop, ``[round, cpu, size]`` for the sweep.

    A start's time is that of the fastest of its repetitions: what the loop costs without
    interference. It is taken next to the starts of other sizes just before and after it on the same
    core, so that a machine whose speed drifts slows both. Several starts of a size in a round count
    as their median; uncertainty comes from the scatter of batches.

    Parameters
    ----------
    samples
        One row a start; rows whose ``ok`` is false are left out, and so are the times of those in
        another state than ``state``, where probes show it.
    simulated
        What ``simulated_aliases`` found, if it was run.
    iterations
        Of the loop, for times an iteration.
    """

    def __init__(
        self,
        samples: pd.DataFrame,
        simulated: Mapping[str, Any] | None = None,
        iterations: int = 1,
        state: State = ALONE,
    ) -> None:
        samples = usable(samples)
        if "cpu" not in samples:
            samples = samples.assign(cpu=0)
        samples = samples.reset_index(drop=True)
        log_ns = log_times(samples, state, column="least_ns")
        self.used = np.isfinite(log_ns)
        samples = samples.assign(least_ns=np.exp(log_ns))
        self.samples = samples.assign(beside=_beside(samples, log_ns))
        self.simulated = simulated
        self.iterations = iterations
        self.sweep = self.samples[self.samples["kind"] == SWEEP]
        self.sizes = sorted({int(size) for size in self.sweep["environment_bytes"]})
        self.cores = sorted({int(cpu) for cpu in samples["cpu"]})
        self.rounds = np.array(sorted(set(samples["round"])))
        self.start_s = round_starts(samples, self.rounds)
        self.blocks = time_batches(self.start_s, len(self.rounds))
        marked = self.sweep[self.sweep["predicted"].astype(bool)]
        self.predicted = sorted({int(size) for size in marked["environment_bytes"]})

    # --- the sweep -------------------------------------------------------------------------------

    def values(self, column: str) -> Floats:
        """``[round, cpu, size]``: a column of the sweep; NaN where there is none."""
        return _cube(self.sweep, column, (self.rounds.tolist(), self.cores, self.sizes),
                     ("round", "cpu", "environment_bytes"))  # fmt: skip

    @cached_property
    def log_ns(self) -> Floats:
        """Log of the loop's time, less that of the starts next to it."""
        return self.values("beside")

    @property
    def is_predicted(self) -> NDArray[np.bool_]:
        """Of each size: do addresses agree there?"""
        return np.isin(self.sizes, self.predicted)

    @cached_property
    def base_ns(self) -> float:
        """The typical time of an iteration, at sizes that are not predicted if there are any."""
        others = ~self.is_predicted
        logs = np.log(self.values("least_ns"))[..., others if others.any() else slice(None)]
        seen = np.isfinite(logs)
        return float(np.exp(np.median(logs[seen]))) / self.iterations if seen.any() else math.nan

    def extra(self) -> Floats:
        """``[block]``: log of the time at the predicted sizes over that at the others."""
        marked = self.is_predicted
        if not marked.any() or marked.all():
            return np.zeros(0)
        return self.by_block(_mean(self.log_ns[..., marked]) - _centre(self.log_ns[..., ~marked]))

    def by_block(self, values: Floats) -> Floats:
        """``[block, ...]`` of ``[round, ...]``: robust means over the rounds of each block."""
        return batch_means(values, self.blocks)

    def by_size(self) -> pd.DataFrame:
        """Time of an iteration at each size, in ns, with its interval; simulated aliases of one."""
        blocks = self.by_block(mean_of_known(self.log_ns))
        counts = self.simulated_counts
        return pd.DataFrame(
            {
                "environment_bytes": self.sizes,
                **self._iteration_ns(blocks),
                "predicted": self.is_predicted,
                "simulated_aliases": math.nan if counts is None else counts,
            }
        )

    def _iteration_ns(self, blocks: Floats) -> dict[str, Floats]:
        """Times of an iteration of ``[block, one]``, log times relative to others, intervals."""
        ends = self.base_ns * np.exp(t_intervals(blocks)).reshape(-1, 3)
        names = ("iteration_ns", "iteration_ns_low", "iteration_ns_high")
        return dict(zip(names, ends.T, strict=True))

    def pairs(self) -> dict[int, str]:
        """Which variables agree at each size where some do, by the addresses printed."""
        if "pairs" not in self.sweep:
            return dict.fromkeys(self.predicted, "")
        marked = self.sweep[self.sweep["pairs"].fillna("") != ""]
        pairs = zip(marked["environment_bytes"], marked["pairs"], strict=True)
        return {int(size): str(which) for size, which in sorted(set(pairs))}

    def addresses(self) -> pd.DataFrame:
        """Where the variables are at the smallest size."""
        names = [name for name in (*STATIC, *STACK) if f"{name}_address" in self.sweep]
        first = self.sweep.sort_values("environment_bytes", kind="stable").head(1)
        places = [f"{int(at):#x}" for name in names for at in first[f"{name}_address"]]
        return pd.DataFrame(
            {"variable": names, "address": places, "low_12_bits": [at[-3:] for at in places]}
        )

    @property
    def half_width(self) -> float:
        """The widest half interval of what the predicted sizes cost, and of each link order's time.

        In percentage points.
        """
        if not self.predicted:
            return 0.0
        orders = self.by_block(self.order_log_ns()).T if len(self.orders) > 1 else ()
        return widest(100 * t_interval(one).half_width for one in (self.extra(), *orders))

    # --- simulated -------------------------------------------------------------------------------

    @property
    def simulated_counts(self) -> Floats | None:
        """Simulated aliases an iteration, at each size; NaN where it was not simulated."""
        if self.simulated is None:
            return None
        rows = pd.DataFrame(self.simulated["rows"]).set_index("environment_bytes")
        found = rows["aliases_per_iteration"].reindex(self.sizes)
        return found.to_numpy(np.float64)

    # --- counters --------------------------------------------------------------------------------

    @property
    def counters(self) -> dict[str, Floats]:
        """What was counted at each size: ``[size]``, medians over rounds and cores."""
        names = [
            name for name in self.sweep.columns
            if name not in _KNOWN and pd.api.types.is_numeric_dtype(self.sweep[name])
        ]  # fmt: skip
        found = {}
        if "core_mhz" in self.sweep:
            cycles = self.sweep["least_ns"] * self.sweep["core_mhz"] / 1e3
            found["cycles of the loop (core clock)"] = self._medians(cycles)
        found |= {name: self._medians(self.sweep[name]) for name in names}
        if self.simulated_counts is not None:
            found[SIMULATED] = self.simulated_counts * self.iterations
        return {name: counts for name, counts in found.items() if np.isfinite(counts).any()}

    def _medians(self, counts: pd.Series[Any]) -> Floats:
        """``[size]``: the typical count, in which drifts are taken out as they are of the times."""
        values = counts.to_numpy(np.float64)
        beside = _beside(self.sweep, values)
        medians = beside.groupby(self.sweep["environment_bytes"]).median().reindex(self.sizes)
        return np.asarray(medians.to_numpy(np.float64) + float(pd.Series(values).median()))

    def spikes(self) -> list[int]:
        """The predicted size of each period of 4 KiB; of several that at which most time goes."""
        if not self.predicted:
            return []
        typical = self.by_size().set_index("environment_bytes")["iteration_ns"]
        best: dict[int, int] = {}
        for size in self.predicted:
            period = (size - self.sizes[0]) // PAGE
            if period not in best or typical[size] > typical[best[period]]:
                best[period] = size
        return [best[period] for period in sorted(best)]

    def ranking(self, seed: int = 0) -> pd.DataFrame:
        """Counters by how they go with the time, size by size, as in Jensen and Simonsen 2017.

        The correlation is that of the values (Pearson), of medians over the starts of each size:
        in ranks two spikes among 512 sizes would weigh nothing. ``p`` is the share of random
        orders of the sizes that give as strong a correlation, corrected for the number of counters
        (Holm).

        Returns
        -------
        ``counter``, ``median``, ``spike_1`` ... (at ``spikes``), ``correlation``, ``p``, and
        ``source``: ``measured`` or ``simulated``; the strongest correlation first.
        """
        time_ns = np.exp(_overall(self.log_ns))
        spikes = self.spikes()
        rows = []
        for name, counts in self.counters.items():
            correlation, p = _correlation(time_ns, counts, np.random.default_rng(seed))
            row: dict[str, Any] = {"counter": name, "median": float(np.nanmedian(counts))}
            for number, size in enumerate(spikes, start=1):
                row[f"spike_{number}"] = float(counts[self.sizes.index(size)])
            source = "simulated" if name == SIMULATED else "measured"
            rows.append({**row, "correlation": correlation, "p": p, "source": source})
        columns = ["counter", "median", *(f"spike_{n + 1}" for n in range(len(spikes)))]
        table = pd.DataFrame(rows, columns=[*columns, "correlation", "p", "source"])
        known = table["p"].notna().to_numpy()
        table.loc[known, "p"] = holm(table["p"].to_numpy(np.float64)[known])
        order = table["correlation"].abs().fillna(-1).sort_values(ascending=False, kind="stable")
        return table.loc[order.index].reset_index(drop=True)

    # --- link orders and random addresses --------------------------------------------------------

    @cached_property
    def linked(self) -> pd.DataFrame:
        """The starts of programs whose objects were linked in some order."""
        return self.samples[self.samples["kind"] == LINK_ORDER]

    @property
    def orders(self) -> list[str]:
        """The link orders, in the order in which they are named."""
        return list(
            dict.fromkeys(
                self.linked.get("link_order", pd.Series(dtype=str)).sort_values(kind="stable")
            )
        )

    @property
    def order_pairs(self) -> dict[str, str]:
        """Which variables agree in each order, by the addresses printed; empty where none do."""
        if "pairs" not in self.linked:
            return {}
        first = self.linked.dropna(subset="pairs").groupby("link_order")["pairs"].first()
        return {str(order): str(pairs) for order, pairs in first.items()}

    def order_log_ns(self) -> Floats:
        """``[round, order]``: log of the loop's time, less that of sweep starts next to it."""
        axes = self.rounds.tolist(), self.cores, self.orders
        names = "round", "cpu", "link_order"
        return mean_of_known(_cube(self.linked, "beside", axes, names))

    def by_order(self) -> pd.DataFrame:
        """Time of an iteration in each link order, in ns, with its interval."""
        return pd.DataFrame(
            {
                "link_order": self.orders,
                "pairs": [self.order_pairs.get(order, "") for order in self.orders],
                **self._iteration_ns(self.by_block(self.order_log_ns())),
            }
        )

    @property
    def randomised(self) -> pd.DataFrame:
        """The starts with random addresses."""
        return self.samples[self.samples["kind"] == ASLR]

    def single_starts(self) -> pd.DataFrame:
        """Time of an iteration in each start, with fixed and with random addresses.

        ``predicted``: whether at a predicted size, as all starts with random addresses are.
        """
        starts = pd.concat([self.sweep, self.randomised]).dropna(subset="least_ns")
        random = starts["kind"] == ASLR
        return pd.DataFrame(
            {
                "iteration_ns": starts["least_ns"].astype(float) / self.iterations,
                "addresses": np.where(random, "random", "fixed"),
                "predicted": starts["predicted"].astype(bool) | random,
            }
        ).reset_index(drop=True)


def _beside(samples: pd.DataFrame, values: Floats) -> pd.Series[float]:
    """Each start's value, less the median of starts of the sweep near to it in time on its core.

    Those at predicted sizes do not count. The bursts in which a shared host slows a core last
    seconds, and starts milliseconds.
    """
    every = pd.Series(values, index=samples.index)
    if every.isna().all():  # none was in the state that is asked for
        return every
    order = [name for name in ("round", "start_ns", "position") if name in samples][:2]
    ordered = samples.sort_values(order, kind="stable").index
    counts = (samples["kind"] == SWEEP) & ~samples["predicted"].astype(bool)
    typical = every.where(counts)[ordered].groupby(samples["cpu"][ordered]).transform(
        lambda near: near.rolling(_NEAR, center=True, min_periods=1).median().ffill().bfill()
    )  # fmt: skip
    beside: pd.Series[float] = every - typical.fillna(every.median())
    return beside


def _cube(
    rows: pd.DataFrame, column: str, axes: tuple[list[Any], ...], names: tuple[str, ...]
) -> Floats:
    """Medians of a column by the values of other columns; NaN where there is none."""
    check_cells({name: len(axis) for name, axis in zip(names, axes, strict=True)}, len(rows))
    found = np.full([len(axis) for axis in axes], np.nan)
    if column in rows and len(rows):
        medians = rows.groupby(list(names))[column].median().dropna()
        places = [
            [axis.index(value) for value in medians.index.get_level_values(name)]
            for axis, name in zip(axes, names, strict=True)
        ]
        found[tuple(places)] = medians.to_numpy(np.float64)
    return found


def _mean(values: Floats) -> Floats:
    """``[round]`` of ``[round, cpu, size]``: plain means."""
    return mean_of_known(values.reshape(len(values), -1))


def _centre(values: Floats) -> Floats:
    """``[round]`` of ``[round, cpu, size]``: means that a few far values do not shift."""
    return robust_mean(values.reshape(len(values), -1).T)


def _overall(values: Floats) -> Floats:
    """``[size]`` of ``[round, cpu, size]``: medians over rounds and cores."""
    flat = values.reshape(-1, values.shape[-1])
    seen = np.isfinite(flat).any(axis=0)
    found = np.full(flat.shape[1], np.nan)
    found[seen] = np.nanmedian(flat[:, seen], axis=0)
    return found


def _correlation(
    time_ns: Floats, counts: Floats, generator: np.random.Generator
) -> tuple[float, float]:
    """Pearson's correlation, and its two-sided p value by permutation; NaN where one is flat."""
    both = np.isfinite(time_ns) & np.isfinite(counts)
    if both.sum() < 3:
        return math.nan, math.nan
    x, y = time_ns[both] - time_ns[both].mean(), counts[both] - counts[both].mean()
    size = math.sqrt(float((x**2).sum() * (y**2).sum()))
    if size == 0:
        return math.nan, math.nan
    found = float((x * y).sum()) / size
    drawn = generator.permuted(np.tile(x, (_RESAMPLES, 1)), axis=1) @ y / size
    return found, float(1 + (np.abs(drawn) >= abs(found) - 1e-12).sum()) / (1 + _RESAMPLES)
