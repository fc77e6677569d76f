"""Farms made of noise that no model of ours has, with and without faults that are known."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.fleet.analysis.comparisons import Farm, compare_farm

Floats = NDArray[np.float64]
ALPHA = 0.05
DAY = pd.Timestamp("2026-03-02", tz="UTC")


@dataclass(frozen=True)
class Healthy:
    """A farm in which nothing is wrong; ``noise`` is what its levels scatter by.

    ``heavy``: Student's distribution with three degrees of freedom. ``skewed``: interference that
    only slows. ``days``: the hall's days differ, and a node's days resemble the day before.
    ``unequal``: some nodes scatter ten times as much as others. ``quantised``: times in steps of
    half a percent.
    """

    nodes: int = 300
    cores: int = 16
    days: int = 4
    noise: str = "heavy"
    rack_of: int = 20
    models: tuple[str, ...] = ("A", "B")
    slow: dict[str, Any] = field(default_factory=dict)


class Table(NamedTuple):
    levels: pd.DataFrame
    nodes: pd.DataFrame


NOISES = ("heavy", "skewed", "days", "unequal", "quantised")


def drawn(rng: np.random.Generator, noise: str, shape: tuple[int, ...]) -> Floats:
    """Noise of the size of one."""
    if noise == "heavy":
        return np.asarray(rng.standard_t(3, shape) / np.sqrt(3))
    if noise == "skewed":
        return rng.lognormal(0, 1, shape) / 2.16
    if noise == "unequal":
        size = rng.lognormal(0, 0.8, (shape[0], *(1 for _ in shape[1:])))
        return rng.logistic(0, 0.4, shape) * size
    return rng.laplace(0, 0.7, shape)


def table(farm: Healthy, seed: int) -> Table:
    rng = np.random.default_rng(seed)
    number = np.arange(farm.nodes)
    model = np.array(farm.models, dtype=object)[number % len(farm.models)]
    rack = number // farm.rack_of
    shape = (farm.nodes, farm.days)
    log = 0.004 * drawn(rng, farm.noise, shape)
    if farm.noise == "days":
        log += rng.normal(0, 0.01, (1, farm.days))
        before = log.copy()
        for day in range(1, farm.days):
            log[:, day] = 0.7 * log[:, day - 1] + 0.7 * before[:, day]
    hour = rng.integers(0, 24, shape)
    slow = farm.slow
    if "node" in slow:
        log[rng.integers(farm.nodes)] += np.log1p(slow["node"])
    if "rack" in slow:
        warm = (rack == rng.integers(rack.max() + 1))[:, None] & (hour >= 12) & (hour < 18)
        log[warm] += np.log1p(slow["rack"])
    bios = np.where(rng.permutation(farm.nodes) < farm.nodes // 3, "2.2", "2.0")
    if "bios" in slow:
        log[bios == "2.2"] += np.log1p(slow["bios"])
    log = log[:, :, None] + 0.006 * drawn(rng, farm.noise, (*shape, farm.cores))
    if "core" in slow:
        log[model == farm.models[0], :, 8] += np.log1p(slow["core"])
    value = 40 * np.exp(log)
    if farm.noise == "quantised":
        value = np.round(value / 0.2) * 0.2
    kept = rng.random(log.shape) > 0.05
    minutes = 1440 * np.arange(farm.days) + 60 * hour + rng.integers(0, 60, shape)
    start = (DAY + pd.to_timedelta(minutes.ravel(), unit="min")).as_unit("ns")
    node, of_day, cpu = np.nonzero(kept)
    names = np.array([f"n{one:04d}" for one in number], dtype=object)
    levels = pd.DataFrame(
        {
            "node": names[node], "model": model[node], "cpu": cpu,
            "start": start[node * farm.days + of_day], "experiment": "kv_per_core",
            "setting": "s", "value": value[kept], "run": node * farm.days + of_day,
        }
    )  # fmt: skip
    about = {"node": names, "model": model, "rack": rack.astype(str), "bios": bios}
    kernel = rng.choice(["5.14", "6.1", "6.12"], farm.nodes)
    return Table(levels, pd.DataFrame({**about, "kernel": kernel}))


def reported(farm: Farm) -> pd.DataFrame:
    """The comparisons that a report names."""
    effects = farm.effects
    return effects[(effects["q"] < ALPHA) & (effects["effect_low"] > effects["threshold"])]


def report(farm: Healthy, seed: int, **changes: Any) -> pd.DataFrame:
    return reported(compare_farm(*table(replace(farm, **changes), seed)))
