"""Samples of `memory_load` by simulation: the noise is not the analysis's own model."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.memory_load import experiment
from perflib.measure.schedule import round_order
from perflib.model.finding import Finding
from tests.experiments.judged import by_claim, made_run
from tests.experiments.made_once import made_once

RATES = (10.0, 40.0, 70.0, 100.0)
MOST_GB_S = 20.0
IDLE_NS = 100.0
NOISE = 0.02
Curve = Callable[[float], float]


def nothing(_gb_s: float) -> float:
    """Log of what load does to latency: nothing."""
    return 0.0


def queue(gb_s: float) -> float:
    """As requests that queue: slow, then steep; e to the power of 0.5 at the highest rate."""
    return 0.5 * (gb_s / MOST_GB_S) ** 4


@made_once
def samples(
    seed: int = 1,
    curve: Curve = nothing,
    *,
    rounds: int = 24,
    round_s: float = 1.0,
    bursts: float = 0.3,
    drift: float = 0.2,
    busy: float = 0.0,
    starved: float = 0.0,
    slow: dict[int, float] | None = None,
    cores: int = 2,
    extra: float = 1.7,
    probes: str = "none",
) -> pd.DataFrame:
    """Rows as ``measure`` makes them; samples scatter with heavy tails, skewed.

    Parameters
    ----------
    curve
        Log of what load does to latency, by GB/s.
    bursts
        The share of time in which all memory is slower, by up to 60 %, in bursts of seconds.
    drift
        By which latency rises over the run.
    busy
        Log of what busy cores do to latency, whether they use memory or not: a lower clock.
    starved
        The share of samples under load in which a core that streams did not get its time.
    slow
        By CPU, log of how much longer it takes to move the same bytes.
    extra
        How much more all cores move together than one.
    probes
        ``none``; ``alone``: always; ``sibling``: the core that streams is a thread of the same
        core, so under any load the probes see company.
    """
    generator = np.random.default_rng(seed)
    slow = slow or {}
    trials: list[tuple[Any, ...]] = [("latency", "idle", 0.0)]
    if cores > 1:
        trials += [("latency", "cache", 0.0), *(("latency", "memory", rate) for rate in RATES)]
    sets = [str(cpu) for cpu in range(cores)] + ([f"0-{cores - 1}"] if cores > 1 else [])
    trials += [("bandwidth", streams, "read") for streams in sets]
    total_s = rounds * round_s
    edges, high = [0.0], [False]
    while edges[-1] < total_s:
        high.append(not high[-1])
        mean_s = 3.0 if high[-1] else 3.0 * (1 - bursts) / max(bursts, 1e-9)
        edges.append(edges[-1] + generator.exponential(mean_s))
    heights = generator.uniform(0.05, 0.47, len(edges))
    rows, now_s = [], 0.0
    for round_ in range(rounds):
        for position, which in enumerate(round_order(seed, round_, len(trials))):
            what, first, second = trials[which]
            now_s += round_s / len(trials)
            place = int(np.searchsorted(edges, now_s)) - 1
            slowed = heights[place] if bursts and high[place] else 0.0
            base = drift * now_s / total_s + slowed + 0.3 * NOISE * generator.standard_normal()
            for repeat in range(4):
                scatter = NOISE * generator.standard_t(2.5)
                scatter += NOISE * (generator.gamma(1.0) - 1)
                row: dict[str, Any] = {
                    "round": round_, "position": position, "what": what, "cpu": 0,
                    "memory_node": 0, "core_node": 0, "kind": "read", "repeat": repeat,
                    "start_ns": int(1e9 * now_s) + repeat * 1_000_000, "ok": True,
                    "time_ns": 1e6, "cpu_time_ns": 1e6, "core_share": 1.0,
                }  # fmt: skip
                if what == "latency":
                    row |= _latency(generator, curve, first, second, cores, starved, busy)
                    row["latency_ns"] = IDLE_NS * np.exp(row.pop("log") + base + scatter)
                else:
                    alone = first.isdecimal()
                    log = slow.get(int(first), 0.0) if alone else -np.log(extra)
                    row |= {
                        "streams": first, "kind": second, "load": "memory",
                        "cpu": int(first) if alone else 0, "rate_percent": 100.0,
                        "bandwidth_gb_s": MOST_GB_S * np.exp(-log - base - scatter),
                    }  # fmt: skip
                rows.append(row | _probes(generator, row, probes))
    return pd.DataFrame(rows)


def _latency(
    generator: np.random.Generator,
    curve: Curve,
    load: str,
    rate: float,
    cores: int,
    starved: float,
    busy: float,
) -> dict[str, Any]:
    gb_s = MOST_GB_S * rate / 100 * (1 + 0.03 * generator.standard_normal())
    share = 1.0
    if load != "idle" and generator.random() < starved:
        share = generator.uniform(0.0, 0.9)
        gb_s *= share
    others = "1" if cores == 2 else f"1-{cores - 1}"
    return {
        "streams": "none" if load == "idle" else others,
        "load": load,
        "rate_percent": rate,
        "bandwidth_gb_s": gb_s if load == "memory" else 0.0,
        "core_share": np.nan if load == "idle" else share,
        "log": curve(gb_s if load == "memory" else 0.0) + (busy if load != "idle" else 0.0),
    }


def _probes(generator: np.random.Generator, row: dict[str, Any], probes: str) -> dict[str, Any]:
    if probes == "none":
        return {}
    company = row["what"] == "latency" and row["load"] != "idle" and probes == "sibling"
    ports = 6000.0 if company else 4000.0
    seen = ports * (1 + 0.003 * generator.standard_normal(2))
    names = ("probe_before_ns", "probe_after_ns", "chain_before_ns", "chain_after_ns")
    return dict(zip(names, (*seen, 2200.0, 2200.0), strict=True))


run_of = functools.partial(made_run, experiment)


def findings(
    rows: pd.DataFrame, provenance: dict[str, Any] | None = None
) -> dict[str, list[Finding]]:
    """By claim."""
    return by_claim(experiment.analyse(run_of(rows, provenance)))
