"""The samples of a run as profiles: of each core, and of two runs together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from perflib.experiments.event_profile.alone import alone
from perflib.instruments.profile.comparison import Comparison, compare_samples
from perflib.instruments.profile.costs import costs_of
from perflib.instruments.profile.entry_cost import EntryCost, entry_cost
from perflib.instruments.profile.views import merge_copies
from perflib.model.errors import UserError, choose
from perflib.model.run import Run

_NO_TEXT = {"comm": "", "symbol": "", "object": "[unknown]", "event": "unknown"}
_TIMES = ["begin_ns", "event_time_ns", "missed_begin_ns", "missed_end_ns"]  # of a trial's event


# --- the samples ---------------------------------------------------------------------------------


def profiled(samples: pd.DataFrame, sampled_event: str | None = None) -> pd.DataFrame:
    """Samples as profiles' views take them, with a ``configuration``; copies of code as one.

    ``raw_symbol`` keeps the name that each copy has by itself.

    Raises
    ------
    UserError
        A core or a round is no whole number, so that a sample belongs nowhere; there are several
        events, and ``sampled_event`` names none of them.
    """
    samples = samples.copy()
    for name in ("round", "core"):
        samples[name] = _whole(samples[name], name) if name in samples else -1
    for name in ("event", "object"):
        samples[name] = samples.get(name, _NO_TEXT[name])
    if samples["event"].nunique() > 1:
        samples = _of_event(samples, sampled_event)
    for name, instead in _NO_TEXT.items():
        if name in samples:
            samples[name] = _text(samples[name], instead)
    leaf = samples["symbol"]
    samples["stack"] = _text(samples["stack"], leaf) if "stack" in samples else leaf
    for name in _NO_TEXT.keys() & set(samples) | {"stack"}:
        samples[name] = samples[name].astype("category")
    if "offset" in samples:
        known = np.isfinite(samples["offset"])
        samples["offset"] = samples["offset"].where(known, -1).astype(np.int64)
    if "ip" in samples:  # as a floating number an address has lost its last digits
        whole = pd.api.types.is_integer_dtype(samples["ip"])
        samples["ip"] = samples["ip"].to_numpy().astype(np.uint64) if whole else np.uint64(0)
    samples["configuration"] = "cpu" + samples["core"].astype(str)
    return merge_copies(samples).assign(raw_symbol=samples["symbol"])


def _of_event(samples: pd.DataFrame, event: str | None) -> pd.DataFrame:
    chosen = samples[samples["event"].astype(str) == str(event)]
    if chosen.empty:
        events = ", ".join(sorted(samples["event"].dropna().astype(str).unique()))
        msg = f"the samples are of several events: say which with sampled_event=... ({events})"
        raise UserError(msg)
    return chosen.copy()


def _text(values: pd.Series[Any], instead: str | pd.Series[str]) -> pd.Series[str]:
    return values.astype(str).where(values.notna(), instead)


def _whole(values: pd.Series[Any], name: str) -> pd.Series[int]:
    wrong = ~(np.isfinite(values) & (values % 1 == 0)).to_numpy(dtype=bool)
    if wrong.any():
        row = int(wrong.argmax())
        msg = f"the column {name!r} has no whole number in row {row + 1}, but {values.iloc[row]}"
        raise UserError(msg)
    return values.astype(np.int64)


# --- profiles of cores ---------------------------------------------------------------------------


class CoreProfiles:
    """The profiles of one run: one for each core in each round."""

    def __init__(self, run: Run) -> None:
        self.all = profiled(run.samples, run.params["sampled_event"])
        self.samples, self.alone_percent = alone(self.all)
        self.builds: Mapping[str, str] = run.provenance.get("objects") or {}
        self._instructions = run.provenance.get("instructions")
        self._classes = run.provenance.get("classes", 1)
        self._has_times = {"round", "core", "time_ns", *_TIMES} <= set(run.samples)
        plan = run.provenance.get("plan")  # a table that a user brings has none
        reference = plan["reference"] if plan else run.params["reference_core"]
        cores = sorted(self.samples["core"].unique())
        if plan and reference not in cores:  # it was never recorded
            reference = None
        self.cores = [f"cpu{core}" for core in cores]
        self.reference = self.cores[0] if reference is None else f"cpu{reference}"
        if self.reference not in self.cores:
            raise UserError(choose("core in reference_core", self.reference, self.cores))

    @property
    def others(self) -> list[str]:
        """The cores that are compared with the reference core."""
        return [core for core in self.cores if core != self.reference]

    @cached_property
    def comparisons(self) -> dict[str, Comparison]:
        """Each other core compared with the reference core."""
        claims = 2 * len(self.others) * self._classes  # of the event, and of functions
        return {
            core: compare_samples(self.samples, self.reference, core, self.alone_percent, claims)
            for core in self.others
        }

    @cached_property
    def entry(self) -> EntryCost | None:
        """The samples on functions' first instructions, over all cores.

        ``None`` without offsets, or with too few samples in each function.
        """
        try:
            return entry_cost(self.samples, self._instructions)
        except UserError:
            return None

    def placed(self, core: str) -> bool:
        """Is it known where in functions samples of both, that core and the reference, are?"""
        if "offset" not in self.samples:
            return False
        known = self.samples[(self.samples["offset"] >= 0).to_numpy()]
        here, there = (
            set(known.loc[(known["configuration"] == side).to_numpy(), "symbol"].astype(str))
            for side in (self.reference, core)
        )
        return bool(here & there)

    @property
    def timed(self) -> bool:
        """Is it known of samples of which trial they are, and when its event began and ended?"""
        return self._has_times and not self._with_times.empty

    @cached_property
    def _with_times(self) -> pd.DataFrame:
        return self.all.dropna(subset=["time_ns", *_TIMES])

    # --- tables ----------------------------------------------------------------------------------

    def shares(self) -> pd.DataFrame:
        """Each function's share of all costs, the largest first, with the errors of counting."""
        costs = costs_of(self.samples).groupby("function")["cost"].sum()
        share = (100 * costs / costs.sum()).sort_values(ascending=False, kind="stable")
        half_width = 1.96 * np.sqrt(share * (100 - share) / len(self.samples))
        columns = {
            "share_percent": share,
            "share_percent_low": share - half_width,
            "share_percent_high": share + half_width,
        }
        return pd.DataFrame(columns).reset_index()

    def trials(self) -> pd.DataFrame:
        """One row an event: how long it took, and how much of it was missed."""
        by_trial = self._with_times.groupby(["round", "core", "begin_ns"])
        first = by_trial[_TIMES[1:]].first() / 1e6
        missed_ms = first["missed_begin_ns"] + first["missed_end_ns"]
        event_ms = first["event_time_ns"]
        return (
            pd.DataFrame(
                {
                    "event_ms": event_ms,
                    "missed_ms": missed_ms,
                    "covered_percent": 100 * (1 - missed_ms / event_ms),
                    "samples": by_trial.size(),
                }
            )
            .reset_index(["round", "core"])
            .reset_index(drop=True)
        )

    def time_line(self) -> pd.DataFrame:
        """One row a sample of the first event: its time since that began; the event's own."""
        by_trial = self._with_times.groupby(["round", "core", "begin_ns"])
        _, trial = next(iter(by_trial))
        return pd.DataFrame(
            {
                "time_ms": (trial["time_ns"] - trial["begin_ns"]) / 1e6,
                "event_ms": trial["event_time_ns"] / 1e6,
                "missed_begin_ms": trial["missed_begin_ns"] / 1e6,
                "missed_end_ms": trial["missed_end_ns"] / 1e6,
            }
        ).reset_index(drop=True)


# --- two runs ------------------------------------------------------------------------------------


class RunsCompared(NamedTuple):
    """Two runs' functions compared, the samples that were, and all: also those taken not alone."""

    comparison: Comparison
    samples: pd.DataFrame
    every: pd.DataFrame


def compare_runs(first: Run, second: Run) -> RunsCompared:
    """Two runs' profiles, whatever their cores; the samples' ``configuration`` is the run.

    Each core's trial is a repetition, ``round``.

    Raises
    ------
    UserError
        The runs have samples of different events.
    """
    runs = (first, second)
    every = [profiled(run.samples, run.params["sampled_event"]) for run in runs]
    sampled = [str(table["event"].iloc[0]) for table in every]
    if sampled[0] != sampled[1]:
        each = f"{first.id} has samples of {sampled[0]}, {second.id} of {sampled[1]}"
        msg = f"{each}: they cannot be compared"
        raise UserError(msg)
    samples, alone_percent = zip(*map(alone, every), strict=True)
    both_alone = float(np.min(alone_percent))  # NaN if it is not known of one of them
    together = _by_run(runs, samples)
    comparison = compare_samples(together, first.id, second.id, both_alone, claims=2)
    return RunsCompared(comparison, together, _by_run(runs, every))


def _by_run(runs: Iterable[Run], tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Samples of runs for a comparison of the runs: each core's trial is a repetition."""
    renamed = [
        samples.assign(configuration=run.id, round=samples.groupby(["round", "core"]).ngroup())
        for run, samples in zip(runs, tables, strict=True)
    ]
    whole = pd.concat(renamed, ignore_index=True)
    # What has other categories in each is text now, and profiles' views need categories.
    texts = [name for name in (*_NO_TEXT, "stack", "raw_symbol") if name in whole]
    return whole.astype(dict.fromkeys(texts, "category"))
