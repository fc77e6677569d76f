"""Samples of cache coherence as a machine with known latencies would give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments import get
from perflib.experiments.core_pairs.coherence.names import CHASED, PROTOCOLS, way_of
from perflib.model.finding import Finding
from perflib.model.run import Run

# Of cores that share a cache, in ns; what goes from core to core is longer across groups.
NEAR_NS: Mapping[str, float] = {
    "cas_one_line": 52.0,
    "write_read_two_lines": 90.0,
    "one_way_message": 49.0,
    "local load": 1.2,
    "modified load": 28.0,
    "exclusive load": 28.0,
    "shared load": 28.0,
    "forward load": 28.0,
    "owned load": 28.0,
    "invalid load": 130.0,
    "shared_here load": 1.2,
    "owned_here load": 1.2,
    "local write": 2.5,
    "modified write": 30.0,
    "exclusive write": 30.0,
    "invalid write": 135.0,
    "shared_here write": 39.0,
    "owned_here write": 2.5,
}
LAYOUT_NS: Mapping[str, float] = {
    "spread shuffled": 29.0,
    "neighbours shuffled": 22.0,
    "spread ascending": 29.0,
    "neighbours ascending": 2.8,
}
MHZ = 3700.0
_STAYS = ("local", "invalid", "shared_here load", "owned_here")  # never depends on the pair


def machine(groups: Sequence[Sequence[int]] = ((0, 1),)) -> dict[str, Any]:
    """As ``describe`` describes it: each group is a NUMA node with a last-level cache."""
    return {
        "hostname": "simulated",
        "fingerprint": "simulated",
        "caches": [
            {
                "level": 3, "kind": "unified", "size_bytes": 32 << 20,
                "shared_by": [",".join(map(str, group)) for group in groups],
            }
        ],
        "nodes": [
            {"node": place, "cpus": list(group), "distances": []}
            for place, group in enumerate(groups)
        ],
        "cpus": [
            {
                "cpu": cpu, "where": f"node {place}", "node": place, "package": place,
                "die": 0, "siblings": [cpu],
            }
            for place, group in enumerate(groups)
            for cpu in group
        ],
    }  # fmt: skip


def samples(
    seed: int = 1,
    *,
    groups: Sequence[Sequence[int]] = ((0, 1),),
    rounds: int = 24,
    whats: Iterable[str] = NEAR_NS,
    changed: Mapping[str, float] | None = None,
    layouts: Mapping[str, float] | None = LAYOUT_NS,
    far: float = 2.5,
    noise: float = 0.02,
    drift: float = 0.1,
    slow: Mapping[int, float] | None = None,
    at_once: int = 1,
    together: float = 1.0,
    absent: float = 0.0,
    tail_ns: float = 0.0,
) -> pd.DataFrame:
    """Rows as ``coherence`` makes them, in the order of time.

    Parameters
    ----------
    groups
        The cores; what goes between two groups takes ``far`` times as long.
    whats, changed
        What is measured, and latencies that differ from ``NEAR_NS``.
    layouts
        The control's latencies, on the first pair; ``None``: no control.
    noise, drift
        Of the log-normal noise of a row; how much slower the machine is at the end.
    slow
        By how much a core's every request takes longer.
    at_once, together
        How many pairs are measured at the same time, and how many times as long that makes it.
    absent
        The share of rows that are missing.
    tail_ns
        What samples that were preempted add to a row's mean, not to its median.
    """
    generator = np.random.default_rng(seed)
    group_of = {cpu: place for place, group in enumerate(groups) for cpu in group}
    cores = sorted(group_of)
    latencies = {what: {**NEAR_NS, **(changed or {})}[what] for what in whats}
    rows = []
    for round_ in range(rounds):
        now = round_ * 1_000_000_000
        scale = 1 + drift * round_ / rounds
        pairs = [(a, b) for a in cores for b in cores if a != b]
        for place in generator.permutation(len(pairs)):
            owner, requester = pairs[place]
            for what, near_ns in latencies.items():
                stays = what.startswith(_STAYS)
                apart = group_of[owner] != group_of[requester] and not stays
                ns = near_ns * (far if apart else 1.0) * scale
                ns *= 1 + (slow or {}).get(requester, 0.0)
                for control in ("", "alone") if at_once > 1 and place < 4 else ("",):
                    now += 1_000_000
                    taken = ns * (1 if control or stays else together)
                    taken *= float(np.exp(generator.normal(0, noise)))
                    rows.append(
                        _row(round_, now, owner, requester, what, taken, tail_ns)
                        | {"control": control, "at_once": 1 if control else at_once}
                    )
        for layout, ns in (layouts or {}).items():
            now += 1_000_000
            taken = ns * scale * float(np.exp(generator.normal(0, noise)))
            row = _row(round_, now, cores[0], cores[1], f"{CHASED}, {layout}", taken, tail_ns)
            rows.append(row | {"layout": layout, "lines": 512, "control": "layout", "at_once": 1})
    made = pd.DataFrame(rows)
    return made[generator.random(len(made)) >= absent].reset_index(drop=True)


def _row(
    round_: int, start_ns: int, owner: int, requester: int, what: str, ns: float, tail_ns: float
) -> dict[str, Any]:
    protocol = what in PROTOCOLS
    state, access = ("", "") if protocol else what.partition(",")[0].split()
    return {
        "round": round_, "position": 0, "owner_cpu": owner, "requester_cpu": requester,
        "third_cpu": -1, "what": what, "kind": "protocol" if protocol else "transfer",
        "way": way_of(what) or "one line", "state": state, "access": access,
        "layout": "" if protocol else "spread shuffled", "lines": 1 if protocol else 48,
        "start_ns": start_ns, "samples": 15, "latency_ns": ns, "quarter_ns": 0.99 * ns,
        "three_quarters_ns": 1.01 * ns, "mean_ns": ns + tail_ns,
        "latency_cycles": ns * MHZ / 1e3, "core_mhz": MHZ, "proven": 1.0,
        "involuntary_switches": 0, "ok": True,
    }  # fmt: skip


def run_of(made: pd.DataFrame, groups: Sequence[Sequence[int]] = ((0, 1),), **params: Any) -> Run:
    """A run with these samples."""
    experiment = get("coherence")
    given = experiment.params(params).model_dump(mode="json")
    return Run("coherence-simulated", "coherence", given, made, {"machine": machine(groups)})


def findings(
    made: pd.DataFrame, groups: Sequence[Sequence[int]] = ((0, 1),), **params: Any
) -> dict[str, Finding]:
    """What is found in them, by subject."""
    found = get("coherence").analyse(run_of(made, groups, **params))
    assert len({one.subject for one in found}) == len(found)
    return {one.subject: one for one in found}
