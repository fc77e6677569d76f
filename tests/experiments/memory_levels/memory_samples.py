"""Samples of dependent loads as a machine with known levels of memory would give them."""

from __future__ import annotations

import itertools
import math
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
from tests.experiments.judged import by_subject, made_run
from tests.experiments.made_once import made_once

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
    return {
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


def latency_ns(
    size: Floats,
    order: str,
    huge: bool,
    mhz: float,
    walk_ns: float,
    flat: bool = False,
    caches: Mapping[str, float] = CACHES,
) -> Floats:
    """What a load takes: the caches in cycles of the core's clock, memory in ns, the TLB's part."""
    steps = [*np.diff(CYCLES) * 1000 / mhz, MEMORY_NS - CYCLES[-1] * 1000 / mhz]
    beyond = np.zeros_like(size)
    for step, end in zip(steps, caches.values(), strict=True):
        beyond += step * (1 - np.minimum(end / size, 1.0) ** _SHARPNESS)
    if order == "sequential":
        beyond *= 0.03
    if order in ("random", "lmbench") and not huge:
        beyond += walk_ns * np.maximum(0.0, 1 - REACH / size)
    return np.asarray(CYCLES[0] * 1000 / mhz + (0.0 if flat else beyond))


@made_once
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
    each = len(array_bytes)
    curves = list(itertools.product(cores, orders, backings))
    count = len(configurations)
    now_ns = 0.0
    parts: list[dict[str, NDArray[Any]]] = []
    for round_ in range(rounds):
        clocks = {cpu: clock(round_, cpu) for cpu in cores}
        mhz = np.repeat([clocks[cpu] for cpu, _, _ in curves], each)
        true = np.zeros((len(curves), each))
        for place, (cpu, order, backing) in enumerate(curves):
            huge = backing != "4k" and backed
            true[place] = latency_ns(size[:each], order, huge, clocks[cpu], walk_ns, flat)
        true = true.ravel() * longer * (1 + drift * round_ / rounds)
        true *= np.exp(generator.normal(0, noise, count))
        position = np.argsort(generator.permutation(count))
        # Placing the array takes as long as ten repeats.
        start_ns = now_ns + position * (_TRIAL_NS * (repeats + 10))
        now_ns += count * (_TRIAL_NS * (repeats + 10))
        for repeat in range(repeats):
            hit = generator.random(count) < tails
            ns = true * np.where(hit, 1 + generator.exponential(0.2, count), 1.0)
            ns *= np.exp(np.abs(generator.normal(0, noise / 4, count)))
            seen = mhz * np.exp(generator.normal(0, 0.001, count))
            loads = np.maximum(2000, _TRIAL_NS / ns).astype(np.int64)
            parts.append(
                {
                    "round": np.full(count, round_),
                    "position": position,
                    "repeat": np.full(count, repeat),
                    "loads": loads,
                    "time_ns": ns * loads,
                    "latency_ns": ns,
                    "latency_cycles": ns * seen / 1000,
                    "core_mhz": seen,
                    "start_ns": (start_ns + repeat * _TRIAL_NS).astype(np.int64),
                }
            )
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    places = np.tile(np.arange(count), len(parts))
    made = configurations.iloc[places].reset_index(drop=True).assign(**columns)
    made = made.assign(involuntary_switches=0, ok=True)
    return made.sort_values("start_ns", kind="stable", ignore_index=True)


def beside_sibling(
    made: pd.DataFrame,
    alone: float | Mapping[int, float] = 0.6,
    seed: int = 1,
    *,
    part: Mapping[str, float] | None = None,
    slower: float = 0.15,
    spike: bool = True,
) -> pd.DataFrame:
    """The same samples with probes, on cores whose siblings come and go; and the machine is busy.

    Nothing of this is what the analysis assumes: a sibling stays for times of a heavy tail, may
    come or go within a sample, and slows each sample by another share.

    Parameters
    ----------
    made
        What ``samples`` made, of windows on 4 KiB pages.
    alone
        The share of the time that a core has for itself; by core where they differ.
    part
        What is left of a cache next to a busy sibling: 0.5 is half of it.
    slower
        How much longer a load takes there in the mean, in addition to what smaller caches cost.
    spike
        Whether the probe of a core that is alone always takes the same time.
    """
    generator = np.random.default_rng(seed)
    size = made["array_bytes"].to_numpy(np.float64)
    left = {name: (part or {}).get(name, 1.0) * own for name, own in CACHES.items()}
    plain = latency_ns(size, "window", False, MHZ, 0.0)
    small = latency_ns(size, "window", False, MHZ, 0.0, caches=left)
    begin, busy = made["start_ns"].to_numpy(np.float64), np.zeros((2, len(made)))
    for cpu in made["cpu"].unique():
        share = alone[int(cpu)] if isinstance(alone, Mapping) else alone
        mine = (made["cpu"] == cpu).to_numpy()
        ends, states = _visits(share, begin[mine].max() + 1e9, generator)
        for row, at in enumerate((begin[mine], begin[mine] + _TRIAL_NS)):
            busy[row, mine] = states[np.searchsorted(ends, at)]
    longer = 1 + busy.mean(axis=0) * (small / plain - 1)
    longer *= 1 + busy.mean(axis=0) * generator.uniform(0, 2 * slower, len(made))
    probes = 4070 * (1 + np.abs(generator.normal(0, 0.002, (2, len(made)))))
    if not spike:
        probes *= generator.uniform(1, 1.5, probes.shape)
    probes *= np.where(busy > 0, generator.uniform(1.06, 1.5, probes.shape), 1.0)
    probes += np.where(generator.random(probes.shape) < 0.005, 15_000, 0)
    delay_ns = np.where(generator.random(len(made)) < 0.3, generator.exponential(4e6, len(made)), 0)
    cpu_time_ns = made["time_ns"] * longer
    return made.assign(
        latency_ns=made["latency_ns"] * longer,
        latency_cycles=made["latency_cycles"] * longer,
        cpu_time_ns=cpu_time_ns,
        time_ns=cpu_time_ns + delay_ns,
        run_delay_ns=delay_ns,
        throttled_ns=0.0,
        probe_before_ns=probes[0],
        probe_after_ns=probes[1],
        chain_before_ns=6400e3 / MHZ * (1 + generator.exponential(0.001, len(made))),
        chain_after_ns=6400e3 / MHZ * (1 + generator.exponential(0.001, len(made))),
    )


def _visits(
    alone: float, until_ns: float, generator: np.random.Generator
) -> tuple[Floats, NDArray[np.bool_]]:
    """When a sibling comes and goes: the ends of times, and whether it worked in each."""
    count = int(until_ns / 1e7) + 100
    pairs = 2e7 * generator.pareto(1.6, (count, 1)) + 1e6
    ends = np.cumsum((pairs * [alone, 1 - alone] * generator.uniform(0.5, 1.5, (count, 2))).ravel())
    return np.append(ends, math.inf), np.append(np.tile([False, True], count), False)


def in_turns(made: pd.DataFrame) -> pd.DataFrame:
    """Larger arrays in every third round only, as a run visits them."""
    turn = np.floor(np.log2(made["array_bytes"].to_numpy())).astype(int)
    now = (made["round"].to_numpy() + turn) % 3 == 0
    seen: pd.DataFrame = made[made["array_bytes"].le(2 * MIB) | now]
    return seen


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
    known = {"machine": machine()} if provenance is None else provenance
    return made_run(experiment, table, known, **params)


def findings(table: pd.DataFrame, **more: Any) -> dict[str, Finding]:
    """What the analysis finds, by subject."""
    return by_subject(experiment.analyse(run_of(table, **more)))
