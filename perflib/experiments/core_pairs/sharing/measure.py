"""Which CPUs are busy when, who listens, and how a trial is made."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.core_pairs.sharing import SharingParams
from perflib.experiments.core_pairs.sharing.claims import CACHES
from perflib.experiments.core_pairs.sharing.search import Search
from perflib.experiments.core_pairs.sharing.table import Pair, SharingTable, pair_of
from perflib.framework.experiment import Session
from perflib.framework.siblings import alternated
from perflib.kernels import build
from perflib.machine.cpulist import format_cpus
from perflib.machine.hardware.caches import caches
from perflib.machine.hardware.topology import topology
from perflib.measure.conditions import Conditions
from perflib.measure.schedule import Columns
from perflib.measure.workers import Workers
from perflib.model.errors import UserError
from perflib.stats.interval import widest

_ALL_PAIRS = 8  # CPUs up to which every pair is tried
_KINDS = {"ports": 0, "l1": 1, "l2": 1, "l3": 1, "memory": 2}  # as sharing.c numbers them
_LONG = ("l3", "memory")  # it takes tens of ms to fill them
_LONG_HALF_MS, _LONG_ALTERNATIONS = 50.0, 3
_MOST_BYTES = 48 << 20  # of a cache that is filled so
_REST = 0.5  # of a trial's time, in which the CPUs are everybody's
_MIN_S = 8.0


def plan(params: SharingParams) -> dict[str, Any]:
    """The CPUs, the pairs that are tried in any case, and the sizes.

    Raises
    ------
    UserError
        There are not two CPUs, or nothing can be asked of them.
    """
    cores = params.resolved_cores()
    if len(cores) < 2:
        msg = f"cores: sharing needs two CPUs, and {params.cores!r} is only cpu{cores[0]}"
        raise UserError(msg)
    sizes, notes = {}, []
    for resource in dict.fromkeys(params.resources):
        mine, why = _sizes(resource, cores)
        if why:
            notes.append(f"{resource} is left out: {why}")
        else:
            sizes[resource] = mine
    if not sizes:
        msg = f"resources: nothing is left to try: {'; '.join(notes)}"
        raise UserError(msg)
    every = len(cores) <= _ALL_PAIRS
    if not every:
        halved = "all others" if "ports" in sizes else "those that the kernel names"
        notes.append(
            f"of {len(cores)} CPUs not every pair is tried: ports with halves of {halved}, caches "
            "with those that were found so, and with one that the kernel names"
        )
    build("sharing")  # what cannot be compiled fails here
    pairs = list(itertools.combinations(cores, 2)) if every else _named(cores)
    return {"cores": cores, "pairs": pairs, "halve": not every, "sizes": sizes, "notes": notes}


def _sizes(resource: str, cores: Sequence[int]) -> tuple[list[int], str]:
    """Bytes that the listener chases or reads, and that the others read; why it is left out."""
    if resource == "ports":
        return [0, 0], ""
    of = {name: _size_bytes(*place, cores) for name, place in CACHES.items()}
    last = of["l3"] or of["l2"]
    if not (of["l2"] and of.get(resource, last)):
        return [], "the machine does not report that cache"
    if resource in _LONG and last > _MOST_BYTES:
        return [], f"a trial does not fill {last >> 20} MiB of cache"
    if resource == "memory":
        return 2 * [max(2 * last, _MOST_BYTES)], ""  # a guest may hide a cache
    # Of one cache together more than all, while what each has fits.
    return [of[resource] // 2, max(of[resource], of["l2"]) * 3 // 4], ""


def _size_bytes(kind: str, level: int, cores: Sequence[int]) -> int:
    """The smallest such cache of these CPUs; 0: none is reported."""
    mine = [
        one.size_bytes for one in caches()
        if (one.kind, one.level) == (kind, level) and set(one.shared_cpus) & set(cores)
    ]  # fmt: skip
    return min(mine, default=0)


def _named(cores: Sequence[int]) -> list[Pair]:
    """Of each core and private cache that the kernel names, each CPU with the next one."""
    places, found = topology(measured=False), set()
    groups = [places.cpu(cpu).siblings for cpu in cores]
    groups += [one.shared_cpus for one in caches() if one.level <= 2]  # private ones
    shared = [tuple(sorted({*one.shared_cpus} & {*cores})) for one in caches() if one.level > 2]
    groups += [one[:2] for one in shared]  # of each two, and one with the next group's
    groups.append(tuple(one[0] for one in shared if one))
    for group in groups:
        here = sorted(set(group) & set(cores))
        found |= {pair_of(one, other) for one, other in itertools.pairwise(here)}
    return sorted(found)


class SharingTrials(Workers):
    """One worker, whose threads are the listener and the others.

    Parameters
    ----------
    conditions
        What the worker is to have; its threads have its priority.
    params, plan
        Of the run.
    search
        Who is tried in a round.
    """

    def __init__(
        self,
        conditions: Conditions,
        params: SharingParams,
        plan: Mapping[str, Any],
        search: Search,
    ) -> None:
        super().__init__(build("sharing"), [conditions])
        self._params, self._sizes = params, plan["sizes"]
        self._cores: list[int] = plan["cores"]
        self._search = search

    def take(self, round_: int, configuration: int) -> Columns:
        """All trials in which one CPU listens: a halving, then its pairs, each resource.

        Raises
        ------
        WorkerError
            The worker died, or took too long.
        """
        listener = self._cores[configuration]
        rng = random.Random(f"{self._params.seed}/{round_}/{listener}")
        wanted: list[tuple[list[int], list[int], str]] = []
        if self._search.halves(round_, listener):
            others = [cpu for cpu in self._cores if cpu != listener]
            busy = rng.sample(others, len(others) // 2)
            wanted.append((busy, [cpu for cpu in others if cpu not in busy], "ports"))
        for other in self._search.partners(round_, listener):
            wanted += [
                ([other], [], one) for one in rng.sample(list(self._sizes), len(self._sizes))
            ]
        rows = [self._trial(listener, *one, rng.getrandbits(62)) for one in wanted]
        return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}

    def _trial(
        self, listener: int, busy: Sequence[int], rest: Sequence[int], resource: str, seed: int
    ) -> dict[str, Any]:
        params, long = self._params, resource in _LONG
        started = time.monotonic()
        used, held_percent, why = alternated(
            self[0],
            _KINDS[resource],
            [listener, *busy, *rest],
            len(busy),
            round(1e6 * (_LONG_HALF_MS if long else params.alternate_ms)),
            _LONG_ALTERNATIONS if long else params.alternations,
            self._sizes[resource],
            seed,
        )
        time.sleep(_REST * (time.monotonic() - started))
        labels = {
            "listener_cpu": listener, "busy_cpus": format_cpus(busy),
            "else_cpus": format_cpus(rest), "resource": resource,
        }  # fmt: skip
        if why:
            self.problems[f"some trials are not used: {why}"] = None
        if not len(used):
            unknown = dict.fromkeys(("ratio", "busy_ns", "quiet_ns", "clock_ratio"), math.nan)
            more = {"alternations": 0, "held_percent": 0.0, "start_ns": time.monotonic_ns()}
            return labels | unknown | more | {"ok": False}
        ratio = float(np.exp(np.median(np.log(used["busy_ns"] / used["quiet_ns"]))))
        return labels | {
            "ratio": ratio,
            "busy_ns": float(np.median(used["busy_ns"])),
            "quiet_ns": float(np.median(used["quiet_ns"])),
            "clock_ratio": float(np.median(used["chain_ratio"])),
            "alternations": len(used),
            "held_percent": held_percent,
            "start_ns": int(used["start_ns"][0]),
            "ok": not why,
        }


def take(params: SharingParams, session: Session) -> str:
    """Every pair that is to be tried once a round, and one halving of each CPU."""
    plan = session.plan
    search = Search(
        session.journal.trials,
        plan["cores"],
        [pair_of(*pair) for pair in plan["pairs"]],
        halve=plan["halve"] and "ports" in plan["sizes"],
        threshold=math.log1p(params.threshold_percent / 100),
    )

    def half_width(samples: pd.DataFrame) -> float:
        if not samples["ok"].any():
            return math.inf
        table = SharingTable(samples)
        widths = [table.slower(*one).half_width for one in table.pairs]
        widths += [table.alone(cpu)[0].half_width for cpu in search.without(table.listeners)]
        return widest(widths, math.inf)

    with SharingTrials(params.conditions(None), params, plan, search) as trials:
        stopped = session.rounds(params, len(plan["cores"]), trials.take, half_width, _MIN_S)
        session.note(trials)
    session.problems += plan["notes"]
    return stopped
