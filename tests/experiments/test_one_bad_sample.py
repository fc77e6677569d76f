"""No single sample decides: in null data, replacing one supports no anomaly, nor do two of a round.

Every experiment that can support an anomaly has null tables here, of few rounds and of two cores
(three where it compares more). Their noise is wider in the tails than any analysis assumes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd
import pytest

from perflib import experiments
from perflib.model.errors import UserError
from perflib.model.run import Run
from tests.experiments.aliasing import test_allocators, test_environment, test_erasure_coding
from tests.experiments.aliasing.offsets import test_sweep
from tests.experiments.bracketed import bracketed_samples as pieces
from tests.experiments.code_size import bracketed_samples, code_samples
from tests.experiments.core_pairs import cell_samples
from tests.experiments.core_pairs.coherence import coherence_samples
from tests.experiments.correctness import result_samples
from tests.experiments.counters import test_counters
from tests.experiments.event_profile import profiles
from tests.experiments.judged import made_run
from tests.experiments.layout import simulated as layouts
from tests.experiments.machine import test_machine
from tests.experiments.memory_levels import memory_samples
from tests.experiments.memory_load import load_samples
from tests.experiments.simulated import bracketed
from tests.experiments.simulated import samples as kv_samples
from tests.experiments.threads import thread_samples

_FACTORS = (0.01, 0.1, 0.5, 2.0, 10.0, 100.0, np.nan)  # NaN: the sample is missing
_TRIES, _QUICK_TRIES = 30, 7
# Times of the same sample: whatever lengthens it lengthens them all.
_TIMES = ("time_ns", "cpu_time_ns", "latency_ns", "latency_cycles", "wall_ns", "stolen_ns")
# What else a claim rests on: it can be wrong alone.
_ALSO = {
    "counters": ("value", "obtained"),
    "threads": ("waiting_s", "ready_s", "spinning_s", "running_s"),
    "memory_load": ("core_share", "bandwidth_gb_s"),
}


def code(cores: int) -> pd.DataFrame:
    return code_samples.samples(cores=range(cores), rounds=8, sizes_kib=(16, 64, 1024, 3072))


def code_between_probes() -> pd.DataFrame:
    return bracketed_samples.samples(rings=False, rounds=8, busy={0: 0.2, 1: 0.5})


def memory(cores: int) -> pd.DataFrame:
    sizes = memory_samples.SIZES[::4]
    return memory_samples.samples(
        cores=range(cores), array_bytes=sizes, orders=["window"], backings=["4k"], repeats=2
    )


def coherence(pairs: int) -> pd.DataFrame:
    groups = [(0, 1), (2, 3)][:pairs]
    whats = ("modified load",)
    return coherence_samples.samples(groups=groups, rounds=8, whats=whats, layouts=None)


def swept(rounds: int) -> pd.DataFrame:
    return test_sweep.made(rounds=rounds, hit=0.0).assign(function="convolution-O2")


def threads(rounds: int) -> pd.DataFrame:
    versions, shares = {"one": ("formula",)}, {"formula": 0.0}
    return thread_samples.samples(rounds=rounds, versions=versions, shares=shares)


NULLS: Mapping[str, Sequence[Callable[[], pd.DataFrame]]] = {
    "machine": [partial(test_machine.turns, {0: 0.001, 1: 0.002}, n) for n in (4, 8)],
    "kv_per_core": [
        *(partial(kv_samples, cores=n, rounds=8, events=6) for n in (2, 3)),
        partial(bracketed, cores=2, seconds=3.0, events=6, slices=8),
    ],
    "event_profile": [partial(profiles.samples, cores=n, rounds=6, count=200) for n in (2, 3)],
    "counters": [partial(test_counters.samples, rounds=n) for n in (4, 10)],
    "random_calls": [*(partial(code, n) for n in (2, 3)), code_between_probes],
    "code_segment": [*(partial(code, n) for n in (2, 3)), code_between_probes],
    "memory_levels": [partial(memory, n) for n in (2, 3)],
    "memory_load": [partial(load_samples.samples, 3, rounds=n, bursts=0.0) for n in (8, 12)],
    "numa": [
        partial(cell_samples.samples, cell_samples.flat(n), rounds=8, noise=0.03) for n in (2, 3)
    ],
    "coherence": [partial(coherence, n) for n in (1, 2)],
    "alias_environment": [partial(test_environment.samples, rounds=n) for n in (4, 8)],
    "alias_offsets": [partial(swept, n) for n in (4, 12)],
    "allocators": [partial(test_allocators.times, 1, rounds=n) for n in (4, 12)],
    "erasure_coding": [partial(test_erasure_coding.samples, {}, rounds=8, cores=n) for n in (2, 3)],
    "threads": [partial(threads, n) for n in (4, 8)],
    "bracketed": [
        *(partial(pieces.samples, longer=(0.0,), turns=n, busy=0.3) for n in (2, 8)),
        partial(pieces.samples, longer=(0.0,), processes=1, turns=12, between=0.0),
    ],
    "correctness": [partial(result_samples.samples, cores=n, operations=1e4) for n in (2, 3)],
    "layout": [partial(layouts.trials, 1000, rounds=n, bursts=0.0) for n in (12, 24)],
}


def test_every_experiment_with_an_anomaly_has_a_null_table() -> None:
    kinds = {name: {one.kind for one in experiments.get(name).claims} for name in experiments.NAMES}
    assert NULLS.keys() == {name for name, found in kinds.items() if "anomaly" in found}


@functools.cache
def null(name: str, place: int) -> Run:
    """A run in which nothing is wrong, with the heavy tails of Student's t in what was measured."""
    table = NULLS[name][place]().reset_index(drop=True)
    generator = np.random.default_rng(place)
    times = np.exp(np.clip(0.003 * generator.standard_t(3, len(table)), -0.1, 0.1))
    for column in _measured(name, table):
        table[column] = table[column] * times
    return made_run(experiments.get(name), table)


def _measured(name: str, table: pd.DataFrame) -> list[str]:
    columns = experiments.get(name).columns
    measured = [one.name for one in columns if one.role == "measured" and one.name in table]
    return list(dict.fromkeys([*measured, *(one for one in _TIMES if one in table)]))


def anomalies(name: str, run: Run, table: pd.DataFrame) -> set[str]:
    try:
        found = experiments.get(name).analyse(dataclasses.replace(run, samples=table))
    except UserError:
        return set()
    return {one.subject for one in found if (one.kind, one.verdict) == ("anomaly", "supported")}


def spoiled(name: str, table: pd.DataFrame, number: int) -> tuple[pd.DataFrame, str]:
    """The table with one bad sample, or with two of one round; and which, by which factors."""
    generator = np.random.default_rng([number, *name.encode()])
    rows = generator.choice(len(table), 1)
    if number % 3 == 2:
        mine = np.flatnonzero(table["round"] == table["round"].iloc[rows[0]])
        rows = generator.choice(mine, 2, replace=False)
    factors = [_FACTORS[number % len(_FACTORS)], *generator.choice(_FACTORS, 1)][: len(rows)]
    times = _measured(name, table)
    wholes = [times[:1], times, *([one] for one in _ALSO.get(name, ()) if one in table)]
    columns = wholes[int(generator.integers(len(wholes)))]
    wrong = table.astype(dict.fromkeys(columns, np.float64))
    for row, factor in zip(rows, factors, strict=True):
        wrong.loc[row, columns] *= factor
    gone = [row for row, factor in zip(rows, factors, strict=True) if np.isnan(factor)]
    return wrong.drop(index=gone), f"rows {rows.tolist()} times {factors}, {columns}"


def check(name: str, tries: int) -> None:
    for place in range(len(NULLS[name])):
        run = null(name, place)
        assert anomalies(name, run, run.samples) == set(), place
        for number in range(tries):
            table, what = spoiled(name, run.samples, number)
            assert anomalies(name, run, table) == set(), (place, number, what)


@pytest.mark.parametrize("name", ["machine", "numa"])
def test_null_a_bad_sample_supports_no_anomaly(name: str) -> None:
    check(name, _QUICK_TRIES)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(NULLS))
def test_null_no_bad_sample_supports_an_anomaly(name: str) -> None:
    check(name, _TRIES)
