"""Samples of pairs of cores as servers with known groups would give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments import get
from perflib.experiments.core_pairs.cells import PairColumns
from perflib.measure.arrays import SAMPLE
from perflib.model.run import Run
from tests.experiments.judged import made_run
from tests.experiments.made_once import made_once

Floats = NDArray[np.float64]

# The figures of Derumigny and Thomas 2018.
# Two EPYC 7451: 3 cores a CCX, 2 CCX a die, 4 dies a socket.
_CORES = np.arange(48)
CCX, DIE, SOCKET = _CORES // 3, _CORES // 6, _CORES // 24
AMD: Floats = np.select(
    [
        CCX[:, None] == CCX,
        DIE[:, None] == DIE,
        SOCKET[:, None] == SOCKET,
        DIE[:, None] % 4 == DIE % 4,
    ],
    [185.0, 205.0, 300.0, 480.0],
    630.0,
)
# Two of the four sockets of their Intel server, with eight cores each.
INTEL: Floats = np.where((np.arange(16) // 8)[:, None] == np.arange(16) // 8, 220.0, 360.0)


COLUMNS = PairColumns("alloc", "load", "cycles")
_MHZ = 2000.0


def run_of(table: pd.DataFrame, described: dict[str, Any] | None = None, **params: Any) -> Run:
    """A run of ``numa`` with these samples; by default, two per cent count as a difference."""
    known = {"machine": described} if described else {}
    return made_run(get("numa"), table, known, **{"threshold_percent": 2.0} | params)


def flat(cores: int, cycles: float = 200.0) -> Floats:
    """A machine on which all memory is equally far."""
    return np.full((cores, cores), cycles)


@made_once
def samples(
    cycles: Floats,
    *,
    rounds: int = 8,
    noise: float = 0.1,
    seed: int = 1,
    slow: Mapping[int, float] | None = None,
    missing: Sequence[tuple[int, int]] | NDArray[np.bool_] = (),
) -> pd.DataFrame:
    """Rows as ``numa`` makes them; the cells of a round in random order.

    ``slow``: a core's slowdown, in all its loads; ``missing``: cells that are not there, by their
    places.
    """
    generator = np.random.default_rng(seed)
    cores = len(cycles)
    slower = np.array([(slow or {}).get(cpu, 0.0) for cpu in range(cores)])
    absent = np.zeros(cycles.shape, dtype=bool)
    if isinstance(missing, np.ndarray):
        absent = missing
    else:
        for cell in missing:
            absent[cell] = True
    size, wanted = cycles.size, ~absent.ravel()
    parts = []
    for round_ in range(rounds):
        places = generator.permutation(size)
        positions = np.flatnonzero(wanted[places])
        when = round_ * size + positions
        one, other = np.divmod(places[positions], cores)
        usual = cycles[one, other] * (1 + slower[other])
        latency = usual * np.exp(noise * generator.standard_normal(len(usual)))
        parts.append(
            {
                "round": np.full(len(usual), round_),
                "position": positions,
                "alloc_cpu": one,
                "load_cpu": other,
                "start_ns": when * 10_000_000,
                "latency_cycles": latency,
            }
        )
    made = pd.DataFrame({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
    cycles_each = made["latency_cycles"]
    return made.assign(repeat=0, latency_ns=cycles_each / 2.5, core_mhz=2500.0, ok=True)


def machine(
    node_of: Sequence[int],
    distances: Sequence[Sequence[int]] | None = None,
    *,
    package_of: Sequence[int] | None = None,
    cache_of: Sequence[int] | None = None,
) -> dict[str, Any]:
    """The description of a machine, as in a run's provenance; as much as is asked for."""
    packages = list(package_of or node_of)
    shared = list(cache_of or node_of)
    nodes = sorted(set(node_of))
    claimed = distances or [[10 if one == other else 21 for other in nodes] for one in nodes]
    return {
        "cpus": [
            {
                "cpu": cpu, "core": cpu, "package": packages[cpu], "die": 0, "node": node,
                "siblings": [cpu], "where": f"package {packages[cpu]}, core {cpu}, node {node}",
            }
            for cpu, node in enumerate(node_of)
        ],
        "nodes": [
            {
                "node": node, "cpus": [cpu for cpu, at in enumerate(node_of) if at == node],
                "distances": list(row),
            }
            for node, row in zip(nodes, claimed, strict=True)
        ],
        "caches": [
            {
                "name": "L3", "level": 3, "kind": "unified", "size_bytes": 8 << 20,
                "shared_by": [
                    ",".join(str(cpu) for cpu, at in enumerate(shared) if at == group)
                    for group in sorted(set(shared))
                ],
            }
        ],
    }  # fmt: skip


def amd_machine() -> dict[str, Any]:
    """The AMD server as its firmware describes it: all other sockets are equally far."""
    dies = range(8)
    claimed = [[10 if a == b else 16 if a // 4 == b // 4 else 32 for b in dies] for a in dies]
    return machine(
        DIE.tolist(), claimed, package_of=SOCKET.tolist(), cache_of=CCX.tolist()
    )  # fmt: skip


class FakeArrays:
    """Arrays on a machine of any size: its matrix, and what fails there.

    ``cycles`` is ``[alloc, load]`` by CPU number. ``refused``: why a core's array cannot be placed;
    ``elsewhere``: the node on which a core's pages lie instead; ``gone``: cores that cannot load.
    """

    def __init__(self, cycles: Floats, *, noise: float = 0.05) -> None:
        self.cycles = cycles
        self.noise = noise
        self.refused: dict[int, str] = {}
        self.elsewhere: dict[int, int] = {}
        self.gone: set[int] = set()
        self.placed: list[tuple[Any, int]] = []
        self.loaded: list[tuple[Any, int]] = []
        self.violated: list[str] = []
        self._keys: dict[Any, tuple[int, int | None]] = {}
        self._generator = np.random.default_rng(1)

    def __call__(self, _conditions: Any) -> FakeArrays:
        """Instead of the class."""
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._keys.clear()

    def __contains__(self, key: Any) -> bool:
        return key in self._keys

    def provenance(self) -> dict[str, Any]:
        return {"kernel": "fake"}

    def place(self, key: Any, *, cpu: int, node: int | None, seed: int, **_: Any) -> str:
        self.placed.append((key, seed))
        self._keys.pop(key, None)
        if cpu in self.gone:
            return f"cpu{cpu} cannot be used"
        if cpu in self.refused:
            return self.refused[cpu]
        self._keys[key] = cpu, self.elsewhere.get(cpu, node)
        return "" if cpu not in self.elsewhere else "only 0 of 16 pages are there"

    def nodes(self, key: Any) -> dict[int | None, int]:
        return {self._keys[key][1]: 16}

    def release(self, key: Any) -> None:
        self._keys.pop(key, None)

    def run(
        self, key: Any, cpu: int, _warm: int, loads: int, repeats: int
    ) -> tuple[NDArray[Any], str]:
        self.loaded.append((key, cpu))
        samples = np.zeros(repeats, dtype=SAMPLE)
        if cpu in self.gone:
            return samples[:0], f"cpu{cpu} cannot be used"
        each_ns = self.cycles[self._keys[key][0], cpu] / _MHZ * 1e3
        scatter = np.exp(self.noise * self._generator.standard_normal(repeats))
        samples["loads"] = loads
        times = samples["sample"]
        times["time_ns"] = times["cpu_time_ns"] = loads * each_ns * scatter
        times["chain_before_ns"] = times["chain_after_ns"] = round(6400e3 / _MHZ)
        samples["cpu"] = cpu
        times["start_ns"] = 10_000_000 * len(self.loaded) + np.arange(repeats)
        return samples, ""
