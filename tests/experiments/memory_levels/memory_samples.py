"""Samples of dependent loads as a machine with known levels of memory would give them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments.memory_levels import experiment, sizes
from perflib.machine.hardware.tlbs import Tlb
from perflib.model.finding import Finding
from perflib.model.run import Run

KIB, MIB = 1 << 10, 1 << 20
CACHES = {"L1d": 32 * KIB, "L2": MIB, "L3": 32 * MIB}
CYCLES = (4.0, 14.0, 50.0)  # of the three caches
MEMORY_NS, MHZ = 90.0, 3500.0
TLB_ENTRIES = (72, 3072)
REACH = 4096 * TLB_ENTRIES[1]
SIZES = tuple(sizes(2 * KIB, 128 * MIB, 3))
REQUIRED = ["round", "cpu", "order", "backing", "array_bytes", "latency_ns"]
_TURN_NS = 1e6
_SHARPNESS = 4.0  # of misses beyond a cache's end, as of a cyclic chase

Floats = NDArray[np.float64]


def machine(
    cores: Sequence[int] = range(4), claims: Mapping[str, int] | None = None, tlbs: bool = True
) -> dict[str, Any]:
    """The machine as ``describe`` describes it; ``claims``: cache sizes that it tells wrongly."""
    told = CACHES if claims is None else claims
    known = [Tlb(level, "data", (4096,), n, n) for level, n in enumerate(TLB_ENTRIES, start=1)]
    groups = [str(cpu) for cpu in cores]
    shared = [f"{min(cores)}-{max(cores)}"]
    described = {
        "hostname": "simulated",
        "fingerprint": "simulated",
        "caches": [
            {
                "level": int(name[1]),
                "kind": "data" if name.endswith("d") else "unified",
                "size_bytes": size,
                "shared_by": groups if name != "L3" else shared,
            }
            for name, size in told.items()
        ]
        + [{"level": 1, "kind": "instruction", "size_bytes": 8 * KIB, "shared_by": groups}],
        "tlbs": [asdict(tlb) for tlb in known] if tlbs else [],
        "cpus": [{"cpu": cpu, "where": f"core {cpu}"} for cpu in cores],
    }
    plain: dict[str, Any] = json.loads(json.dumps(described))
    return plain


def latency_ns(
    size: Floats, order: str, huge: bool, mhz: float, walk_ns: float, flat: bool = False
) -> Floats:
    """What a load takes: the caches in cycles of the core's clock, memory in ns, the TLB's part."""
    steps = [*np.diff(CYCLES) * 1000 / mhz, MEMORY_NS - CYCLES[-1] * 1000 / mhz]
    beyond = np.zeros_like(size)
    for step, end in zip(steps, CACHES.values(), strict=True):
        beyond += step * (1 - np.minimum(end / size, 1.0) ** _SHARPNESS)
    if order == "sequential":
        beyond *= 0.03
    if order in ("random", "lmbench") and not huge:
        beyond += walk_ns * np.maximum(0.0, 1 - REACH / size)
    return np.asarray(CYCLES[0] * 1000 / mhz + (0.0 if flat else beyond))


def samples(
    seed: int = 1,
    *,
    cores: Sequence[int] = (0,),
    rounds: int = 8,
    array_bytes: Sequence[int] = SIZES,
    orders: Sequence[str] = ("window", "random", "sequential"),
    backings: Sequence[str] = ("4k", "thp"),
    repeats: int = 5,
    walk_ns: float = 40.0,
    broken: bool = False,
    flat: bool = False,
    slow: Mapping[int, float] | None = None,
    slow_memory: Mapping[int, float] | None = None,
    clock: Callable[[int, int], float] = lambda _round, _cpu: MHZ,
    noise: float = 0.02,
    tails: float = 0.1,
    drift: float = 0.05,
) -> pd.DataFrame:
    """Rows as ``memory_levels`` makes them, in the order of time.

    Parameters
    ----------
    walk_ns
        What a miss of the TLB costs.
    broken
        Huge pages are none for the TLB.
    flat
        Every array is as fast as the smallest.
    slow, slow_memory
        By what share a core takes longer: always; with arrays beyond the caches.
    clock
        A core's frequency in MHz in a round.
    noise, tails, drift
        Of where an array's pages lie (log-normal, one for a turn); the share of repeats that an
        interrupt lengthens, by a fifth in the mean; how much slower the machine is at the end.
    """
    generator = np.random.default_rng(seed)
    arms = pd.MultiIndex.from_product(
        [cores, orders, backings, array_bytes], names=["cpu", "order", "backing", "array_bytes"]
    ).to_frame(index=False)
    size = arms["array_bytes"].to_numpy(np.float64)
    memory = size >= 2 * CACHES["L3"]

    def of_core(shares: Mapping[int, float] | None) -> Floats:
        return np.array([(shares or {}).get(int(cpu), 0.0) for cpu in arms["cpu"]])

    longer = (1 + of_core(slow)) * np.where(memory, 1 + of_core(slow_memory), 1.0)
    now_ns = 0.0
    parts = []
    for round_ in range(rounds):
        true = np.zeros(len(arms))
        mhz = np.zeros(len(arms))
        for cpu, order, backing in itertools.product(cores, orders, backings):
            mine = arms["cpu"].eq(cpu) & arms["order"].eq(order) & arms["backing"].eq(backing)
            mhz[mine] = clock(round_, cpu)
            huge = backing != "4k" and not broken
            true[mine] = latency_ns(size[mine], order, huge, clock(round_, cpu), walk_ns, flat)
        true *= longer * (1 + drift * round_ / rounds)
        true *= np.exp(generator.normal(0, noise, len(arms)))
        order_of_arms = generator.permutation(len(arms))
        start_ns = np.zeros(len(arms))
        for arm in order_of_arms:
            start_ns[arm] = now_ns
            now_ns += _TURN_NS * (repeats + 10)  # laying the array takes as long as ten
        for repeat in range(repeats):
            hit = generator.random(len(arms)) < tails
            each = true * np.where(hit, 1 + generator.exponential(0.2, len(arms)), 1.0)
            each *= np.exp(np.abs(generator.normal(0, noise / 4, len(arms))))
            seen = mhz * np.exp(generator.normal(0, 0.001, len(arms)))
            loads = np.maximum(2000, _TURN_NS / each).astype(np.int64)
            rows = arms.assign(
                round=round_,
                position=np.argsort(order_of_arms),
                repeat=repeat,
                loads=loads,
                time_ns=each * loads,
                latency_ns=each,
                latency_cycles=each * seen / 1000,
                core_mhz=seen,
                start_ns=(start_ns + repeat * _TURN_NS).astype(np.int64),
                involuntary_switches=0,
                ok=True,
            )
            parts.append(rows)
    made = pd.concat(parts, ignore_index=True)
    return made.sort_values("start_ns", kind="stable", ignore_index=True)


def page_reach(broken: bool, seed: int = 1) -> dict[str, list[list[float]]]:
    """The control: ns a load through few pages and through many."""
    generator = np.random.default_rng(seed)
    many = {"4k": 6.0, "thp": 6.0 if broken else 1.0}
    return {
        name: (np.array([1.0, ns]) * generator.normal(1, 0.02, (9, 2))).tolist()
        for name, ns in many.items()
    }


def run_of(table: pd.DataFrame, provenance: Mapping[str, Any] | None = None, **params: Any) -> Run:
    """A run with these samples, on the simulated machine unless its provenance says otherwise."""
    made = experiment.Params.make(params).model_dump(mode="json")
    known = {"machine": machine()} if provenance is None else dict(provenance)
    return Run("r", "memory_levels", made, table, known)


def findings(table: pd.DataFrame, **more: Any) -> dict[str, Finding]:
    """What the analysis finds, by subject."""
    found = experiment.analyse(run_of(table, **more))
    named = {finding.subject: finding for finding in found}
    assert len(named) == len(found)
    return named
