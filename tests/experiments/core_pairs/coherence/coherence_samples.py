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
from tests.experiments.core_pairs import cell_samples
from tests.experiments.judged import by_subject, made_run
from tests.experiments.made_once import made_once

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
    node_of = {cpu: place for place, group in enumerate(groups) for cpu in group}
    return cell_samples.machine([node_of[cpu] for cpu in sorted(node_of)])


@made_once
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
    tail_ns
        What samples that were preempted add to a row's mean, not to its median.
    """
    generator = np.random.default_rng(seed)
    group_of = {cpu: place for place, group in enumerate(groups) for cpu in group}
    cores = sorted(group_of)
    latencies = {what: {**NEAR_NS, **(changed or {})}[what] for what in whats}
    pairs = [(a, b) for a in cores for b in cores if a != b]
    rows: list[tuple[Any, ...]] = []
    usual_ns: list[float] = []
    noises: list[Any] = []
    for round_ in range(rounds):
        now = round_ * 1_000_000_000
        scale = 1 + drift * round_ / rounds
        for place in generator.permutation(len(pairs)):
            owner, requester = pairs[place]
            for what, near_ns in latencies.items():
                stays = what.startswith(_STAYS)
                apart = group_of[owner] != group_of[requester] and not stays
                ns = near_ns * (far if apart else 1.0) * scale
                ns *= 1 + (slow or {}).get(requester, 0.0)
                for control in ("", "alone") if at_once > 1 and place < 4 else ("",):
                    now += 1_000_000
                    usual_ns.append(ns * (1 if control or stays else together))
                    row = _row(round_, now, owner, requester, what)
                    rows.append((*row, control, 1 if control else at_once))
        for layout, ns in (layouts or {}).items():
            now += 1_000_000
            usual_ns.append(ns * scale)
            row = _row(round_, now, cores[0], cores[1], f"{CHASED}, {layout}", layout)
            rows.append((*row, "layout", 1))
        noises.append(np.exp(generator.normal(0, noise, len(rows) - sum(map(len, noises)))))
    made = pd.DataFrame(rows, columns=_COLUMNS)
    ns = np.array(usual_ns) * np.concatenate(noises)
    return made.assign(
        position=0, third_cpu=-1, samples=15, latency_ns=ns, quarter_ns=0.99 * ns,
        three_quarters_ns=1.01 * ns, mean_ns=ns + tail_ns, latency_cycles=ns * MHZ / 1e3,
        core_mhz=MHZ, proven=1.0, involuntary_switches=0, ok=True,
    )  # fmt: skip


_COLUMNS = (
    "round", "start_ns", "owner_cpu", "requester_cpu", "what", "kind", "way", "state", "access",
    "layout", "lines", "control", "at_once",
)  # fmt: skip


def _row(
    round_: int, start_ns: int, owner: int, requester: int, what: str, layout: str = ""
) -> tuple[Any, ...]:
    """The first of ``_COLUMNS``; ``layout``: that of the control."""
    way = way_of(what) or "one line"
    if what in PROTOCOLS:
        return round_, start_ns, owner, requester, what, "protocol", way, "", "", "", 1
    state, access = what.partition(",")[0].split()
    lines = 512 if layout else 48
    place = layout or "spread shuffled"
    return (round_, start_ns, owner, requester, what, "transfer", way, state, access, place, lines)


def run_of(made: pd.DataFrame, groups: Sequence[Sequence[int]] = ((0, 1),), **params: Any) -> Run:
    """A run with these samples."""
    return made_run(get("coherence"), made, {"machine": machine(groups)}, **params)


def findings(
    made: pd.DataFrame, groups: Sequence[Sequence[int]] = ((0, 1),), **params: Any
) -> dict[str, Finding]:
    """What is found in them, by subject."""
    return by_subject(get("coherence").analyse(run_of(made, groups, **params)))
