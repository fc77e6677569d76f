"""Samples of `contention` by simulation: the noise is not the analysis's own model."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.contention import KINDS, experiment
from perflib.machine.cpulist import format_cpus
from perflib.model.finding import Finding
from tests.experiments.judged import by_claim, made_run
from tests.experiments.made_once import made_once

ALONE_NS = 30.0
SAMPLE_NS = 1e6
SETS: tuple[tuple[tuple[int, ...], str], ...] = (((0,), "none"), ((0, 1), "cache"))
SHARED_NS = {"fetch_add": 40.0, "cas": 60.0, "spin": 120.0, "ticket": 120.0, "mcs": 200.0,
             "pthread": 90.0, "futex": 95.0}  # fmt: skip


@made_once
def samples(
    seed: int = 1,
    *,
    kinds: Sequence[str] = KINDS,
    sets: Sequence[tuple[tuple[int, ...], str]] = SETS,
    one_line: float = 0.0,
    shared_ns: Mapping[str, float] | None = None,
    favour: Mapping[str, float] | None = None,
    rounds: int = 24,
    round_s: float = 0.2,
    noise: float = 0.02,
    bursts: float = 0.3,
    winner: float = 0.0,
    preempted: float = 0.1,
) -> pd.DataFrame:
    """Rows as ``measure`` makes them.

    Parameters
    ----------
    one_line
        Log of how much longer counting takes where counters share a line; on neighbours, nothing.
    shared_ns
        By kind, the time from one operation to the next where cores share a counter; without it
        cores do not disturb each other at all.
    favour
        By kind, log of how much more the first core gets than each other.
    noise
        Of one sample, with heavy tails (Student's t, 2.5 degrees of freedom), skewed.
    bursts
        The share of time in which the second core is slower by up to 60 %, in bursts of seconds.
    winner
        How far one core, another each time, gets ahead of the others in a sample of a lock.
    preempted
        The share of samples in which one thread lost its core, and did half.
    """
    generator = np.random.default_rng(seed)
    favour = favour or {}
    rows: list[dict[str, Any]] = []
    second = generator.random(int(rounds * round_s) + 2) < bursts
    for round_ in range(rounds):
        slow = 0.5 * generator.random() if second[int(round_ * round_s)] else 0.0
        for place in generator.permutation(len(kinds) * len(sets)):
            kind, (cpus, far) = kinds[place // len(sets)], sets[place % len(sets)]
            for repeat in range(4):
                start_ns = (round_ * round_s + 1e-3 * place) * 1e9 + repeat * 2e6
                got = _rates(generator, kind, cpus, one_line, shared_ns)
                got *= np.exp(-slow * (np.arange(len(cpus)) == 1))
                got *= np.exp(favour.get(kind, 0.0) * (np.arange(len(cpus)) == 0))
                if kind in SHARED_NS:
                    got *= np.exp(winner * (np.arange(len(cpus)) == generator.integers(len(cpus))))
                tail = np.abs(generator.standard_t(2.5, len(cpus)))
                got *= np.exp(-noise * np.minimum(tail, 20))
                lost = generator.random() < preempted
                got[-1] *= 0.5 if lost else 1.0
                rows += [
                    {
                        "round": round_, "position": int(place), "kind": kind,
                        "cpus": format_cpus(cpus), "distance": far, "repeat": repeat, "cpu": cpu,
                        "operations": int(rate * SAMPLE_NS), "time_ns": SAMPLE_NS,
                        "cpu_time_ns": SAMPLE_NS, "run_delay_ns": 0.0,
                        "involuntary_switches": int(lost and cpu == cpus[-1]),
                        "start_ns": int(start_ns), "ok": True,
                    }
                    for cpu, rate in zip(cpus, got, strict=True)
                ]  # fmt: skip
    return pd.DataFrame(rows)


def _rates(
    generator: np.random.Generator,
    kind: str,
    cpus: Sequence[int],
    one_line: float,
    shared_ns: Mapping[str, float] | None,
) -> np.ndarray[Any, Any]:
    """Operations a ns of each core, before all that disturbs them."""
    count = len(cpus)
    rate = np.full(count, 1 / ALONE_NS)
    if count > 1 and kind == "one_line":
        rate *= np.exp(-one_line)
    if count > 1 and shared_ns is not None and kind in shared_ns:
        rate = np.full(count, 1 / (count * shared_ns[kind]))
    rate *= np.exp(0.01 * generator.standard_normal())
    return rate


run_of = functools.partial(made_run, experiment)


def findings(rows: pd.DataFrame, **given: Any) -> dict[str, list[Finding]]:
    """By claim, what an analysis of them finds."""
    return by_claim(experiment.analyse(run_of(rows, **given)))
