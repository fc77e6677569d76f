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

from perflib.experiments.memory_levels import experiment
from perflib.experiments.memory_levels.measure import sizes
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
_TRIAL_NS = 1e6
_SHARPNESS = 4.0  # of misses beyond a cache's end, as of a cyclic chase

Floats = NDArray[np.float64]


def machine(
    cores: Sequence[int] = range(4), claims: Mapping[str, int] | None = None, tlbs: bool = True
) -> dict[str, Any]:
    """The machine as ``describe`` describes it; ``claims``: cache sizes that it reports wrongly."""
    reported = CACHES if claims is None else claims
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
            for name, size in reported.items()
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
    backed: bool = True,
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
    backed
        Whether the host backs huge pages: else they are none for the TLB.
    flat
        Every array is as fast as the smallest.
    slow, slow_memory
        By what share a core takes longer: always; with arrays beyond the caches.
    clock
        A core's frequency in MHz in a round.
    noise, tails, drift
        Of where an array's pages lie (log-normal, one for a trial); the share of repeats that an
        interrupt lengthens, by a fifth in the mean; how much slower the machine is at the end.
    """
    generator = np.random.default_rng(seed)
    configurations = pd.MultiIndex.from_product(
        [cores, orders, backings, array_bytes], names=["cpu", "order", "backing", "array_bytes"]
    ).to_frame(index=False)
    size = configurations["array_bytes"].to_numpy(np.float64)
    memory = size >= 2 * CACHES["L3"]

    def of_core(shares: Mapping[int, float] | None) -> Floats:
        return np.array([(shares or {}).get(int(cpu), 0.0) for cpu in configurations["cpu"]])

    longer = (1 + of_core(slow)) * np.where(memory, 1 + of_core(slow_memory), 1.0)
    now_ns = 0.0
    parts = []
    for round_ in range(rounds):
        true = np.zeros(len(configurations))
        mhz = np.zeros(len(configurations))
        for cpu, order, backing in itertools.product(cores, orders, backings):
            mine = (
                configurations["cpu"].eq(cpu)
                & configurations["order"].eq(order)
                & configurations["backing"].eq(backing)
            )
            mhz[mine] = clock(round_, cpu)
            huge = backing != "4k" and backed
            true[mine] = latency_ns(size[mine], order, huge, clock(round_, cpu), walk_ns, flat)
        true *= longer * (1 + drift * round_ / rounds)
        true *= np.exp(generator.normal(0, noise, len(configurations)))
        shuffled = generator.permutation(len(configurations))
        start_ns = np.zeros(len(configurations))
        for one in shuffled:
            start_ns[one] = now_ns
            now_ns += _TRIAL_NS * (repeats + 10)  # placing the array takes as long as ten
        for repeat in range(repeats):
            hit = generator.random(len(configurations)) < tails
            each = true * np.where(hit, 1 + generator.exponential(0.2, len(configurations)), 1.0)
            each *= np.exp(np.abs(generator.normal(0, noise / 4, len(configurations))))
            seen = mhz * np.exp(generator.normal(0, 0.001, len(configurations)))
            loads = np.maximum(2000, _TRIAL_NS / each).astype(np.int64)
            rows = configurations.assign(
                round=round_,
                position=np.argsort(shuffled),
                repeat=repeat,
                loads=loads,
                time_ns=each * loads,
                latency_ns=each,
                latency_cycles=each * seen / 1000,
                core_mhz=seen,
                start_ns=(start_ns + repeat * _TRIAL_NS).astype(np.int64),
                involuntary_switches=0,
                ok=True,
            )
            parts.append(rows)
    made = pd.concat(parts, ignore_index=True)
    return made.sort_values("start_ns", kind="stable", ignore_index=True)


def page_reach(*, backed: bool, seed: int = 1) -> dict[str, list[list[float]]]:
    """The control: ns a load through few pages and through many."""
    generator = np.random.default_rng(seed)
    many = {"4k": 6.0, "thp": 1.0 if backed else 6.0}
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
