"""Simulated farms whose faults are known: to learn the analysis by, and to try it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Names = NDArray[np.object_]

SIMULATED = "simulated"  # the word that every figure and sentence of such a farm carries

_DAY = pd.Timestamp("2026-01-05", tz="UTC")
_HOUR_NOON, _HOUR_EVENING = 12, 18
_NS = {"kv_per_core": 42.0, "code_segment": 7.5}  # a level's usual value
_MICROCODES = ("0x43", "0x49")


class SimulatedFarm(NamedTuple):
    """A farm's table, and in words what was made slow in it."""

    levels: pd.DataFrame
    nodes: pd.DataFrame
    truth: list[str]


@dataclass(frozen=True)
class _Noise:
    """Standard deviations of logs."""

    node: float = 0.001
    day: float = 0.001
    run: float = 0.003
    core: float = 0.004


def simulated_farm(
    nodes: int = 60,
    cores: int = 16,
    days: int = 7,
    *,
    models: Sequence[str] = ("model A", "model B"),
    slow_core: Mapping[str, tuple[int, float]] | None = None,
    slow_nodes: Mapping[int, float] | None = None,
    warm_rack: tuple[int, float] | None = None,
    slow_bios: tuple[str, float] | None = None,
    experiment: str = "kv_per_core",
    rack_of: int = 20,
    seed: int = 0,
) -> SimulatedFarm:
    """A farm that no one has measured: one run a node and day, at random hours.

    Parameters
    ----------
    nodes, cores, days
        How many.
    models
        Given to the nodes in turn.
    slow_core
        By model: a core number that is slower on every node of it, and by which part (0.12).
    slow_nodes
        By the node's number: by which part all its cores are slower.
    warm_rack
        A rack's number, and by which part its nodes are slower from 12 to 18 h.
    slow_bios
        A version that a third of the nodes gets, and by which part they are slower; all of these
        have the same microcode too.
    rack_of
        Nodes in a rack.
    seed
        Of the random numbers.

    Returns
    -------
    ``levels`` and ``nodes`` as `perflib.fleet.analysis.comparisons.compare_farm` takes them, and
    the truth.
    """
    rng = np.random.default_rng(seed)
    noise = _Noise()
    names = np.array([f"{SIMULATED}{number:04d}" for number in range(1, nodes + 1)], dtype=object)
    model = np.array([models[number % len(models)] for number in range(nodes)], dtype=object)
    rack = np.array([f"R{number // rack_of + 1:02d}" for number in range(nodes)], dtype=object)
    late = rng.permutation(nodes) < nodes // 3
    newest = slow_bios[0] if slow_bios else "2.1"
    about = pd.DataFrame(
        {
            "node": names,
            "model": model,
            "rack": rack,
            "bios": np.where(late, newest, "2.0"),
            "microcode": np.where(late, *_MICROCODES[::-1]),
            "kernel": rng.choice(["5.14.0-427", "5.14.0-503"], nodes),
        }
    )
    truth = []
    hour = rng.integers(0, 24, (nodes, days))
    log = rng.normal(0, noise.node, (nodes, 1, 1)) + rng.normal(0, noise.day, (1, days, 1))
    log = log + rng.normal(0, noise.run, (nodes, days, 1))
    log = log + rng.normal(0, noise.core, (nodes, days, cores))
    for name, (core, part) in (slow_core or {}).items():
        log[model == name, :, core] += np.log1p(part)
        truth.append(f"cpu{core} of every {name} is {part:.0%} slower")
    for number, part in (slow_nodes or {}).items():
        log[number] += np.log1p(part)
        truth.append(f"{names[number]} is {part:.0%} slower")
    if warm_rack:
        place, part = warm_rack
        warm = (rack == f"R{place:02d}")[:, None] & (hour >= _HOUR_NOON) & (hour < _HOUR_EVENING)
        log[warm] += np.log1p(part)
        truth.append(f"rack R{place:02d} is {part:.0%} slower from 12 to 18 h")
    if slow_bios:
        log[late] += np.log1p(slow_bios[1])
        truth.append(f"nodes with BIOS {newest} are {slow_bios[1]:.0%} slower")
    return SimulatedFarm(_levels(names, model, hour, log, experiment, rng), about, truth)


def _levels(
    names: Names, model: Names, hour: Ints, log: Floats, experiment: str, rng: np.random.Generator
) -> pd.DataFrame:
    """One row a node, day and core."""
    nodes, days, cores = log.shape
    minutes = 1440 * np.arange(days) + 60 * hour + rng.integers(0, 60, hour.shape)
    start = (_DAY + pd.to_timedelta(minutes.ravel(), unit="min")).as_unit("ns")
    run = [f"{name}-{day}" for name in names for day in range(days)]
    each = np.full(nodes * days, cores)
    return pd.DataFrame(
        {
            "node": np.repeat(names, days * cores),
            "model": np.repeat(model, days * cores),
            "cpu": np.tile(np.arange(cores), nodes * days),
            "start": start.repeat(each),
            "experiment": experiment,
            "setting": SIMULATED,
            "value": _NS.get(experiment, 1.0) * np.exp(log.ravel()),
            "run": np.repeat(np.array(run, dtype=object), cores),
        }
    )
