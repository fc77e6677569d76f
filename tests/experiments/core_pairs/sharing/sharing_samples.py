"""Samples of `sharing` by simulation: the search is the experiment's, the trials are not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.core_pairs.sharing import SharingParams
from perflib.experiments.core_pairs.sharing.measure import SharingTrials
from perflib.experiments.core_pairs.sharing.search import Search
from perflib.machine.cpulist import format_cpus
from perflib.measure.conditions import Conditions
from perflib.measure.schedule import frame_of, round_order
from tests.experiments.made_once import made_once

Groups = Sequence[Sequence[int]]
SLOWER = {"ports": 0.4, "l1": 1.0, "l2": 0.6, "l3": 0.5, "memory": 0.3}
_TRIAL_S = 0.18


class Host:
    """Which CPUs share what, and what disturbs them.

    ``noise``: of a trial's log ratio, Student's t with 2.5 degrees of freedom. ``neighbours``: the
    share of trials in which a tenant of the host comes or goes, which lengthens or shortens all
    work of a state by up to 50 %.
    """

    def __init__(
        self, seed: int, cores: Groups, l2: Groups = (), noise: float = 0.01,
        neighbours: float = 0.1, dies: Groups = (), nodes: Groups = (),
    ) -> None:  # fmt: skip
        self._generator = np.random.default_rng(seed)
        self._groups = {
            "ports": cores, "l1": cores, "l2": [*cores, *l2], "l3": dies, "memory": nodes,
        }  # fmt: skip
        self._noise, self._neighbours = noise, neighbours
        self.clock = [0.0]  # s; hosts one after the other may have one

    def trial(
        self, listener: int, busy: Sequence[int], rest: Sequence[int], resource: str, _: int
    ) -> dict[str, Any]:
        """A row as a real trial makes it."""
        generator = self._generator
        mine = {cpu for one in self._groups[resource] if listener in one for cpu in one}
        log = SLOWER[resource] * (len(mine & set(busy)) > 0)
        log -= SLOWER[resource] * (len(mine & set(rest)) > 0)
        log += self._noise * float(np.clip(generator.standard_t(2.5), -30, 30))
        if generator.random() < self._neighbours:
            log += float(generator.uniform(-0.4, 0.4))
        self.clock[0] += _TRIAL_S * (1 + 0.2 * generator.random())
        return {
            "listener_cpu": listener, "busy_cpus": format_cpus(busy),
            "else_cpus": format_cpus(rest), "resource": resource, "ratio": math.exp(log),
            "busy_ns": 3000 * math.exp(log), "quiet_ns": 3000.0, "clock_ratio": 1.0,
            "alternations": 6, "held_percent": 99.9, "start_ns": int(self.clock[0] * 1e9),
            "ok": bool(generator.random() > 0.02),
        }  # fmt: skip


class Simulated(SharingTrials):
    """The trials of an experiment, each made by a host."""

    def __init__(self, cores: Sequence[int], search: Search, resources: Sequence[str]) -> None:
        plan = {"cores": list(cores), "sizes": dict.fromkeys(resources, (0, 0))}
        super().__init__(Conditions(), SharingParams(), plan, search)
        self.host: Host

    def _trial(self, *given: Any) -> dict[str, Any]:
        return self.host.trial(*given)


def run_through(
    cores: Sequence[int],
    hosts: Iterable[Host],
    *,
    rounds: int,
    pairs: Sequence[tuple[int, int]] = (),
    halve: bool = True,
    resources: Sequence[str] = ("ports",),
    seed: int = 1,
) -> tuple[pd.DataFrame, Search]:
    """All rounds of a run, and its search; ``hosts``: of each round."""
    trials: list[dict[str, Any]] = []
    search = Search(trials, cores, pairs, halve=halve, threshold=math.log(1.15))
    simulated = Simulated(cores, search, resources)
    for round_, simulated.host in zip(range(rounds), hosts, strict=False):
        for position, which in enumerate(round_order(seed, round_, len(cores))):
            if columns := simulated.take(round_, which):
                trials.append({"round": round_, "position": position, "columns": columns})
    return frame_of(trials), search


@made_once
def samples(
    seed: int = 1,
    *,
    cpus: int = 4,
    cores: Groups = (),
    l2: Groups = (),
    rounds: int = 16,
    moved: Groups | None = None,
    moves_at: int = 8,
    resources: Sequence[str] = ("ports", "l1", "l2"),
    **more: Any,
) -> pd.DataFrame:
    """A run over all pairs; from the round ``moves_at`` on the cores are ``moved``."""
    host = Host(seed, cores, l2, **more)
    after = Host(seed + 1000, cores if moved is None else moved, l2, **more)

    after.clock = host.clock
    hosts = [host] * moves_at + [after] * max(0, rounds - moves_at)
    every = [(a, b) for a in range(cpus) for b in range(a + 1, cpus)]
    return run_through(
        range(cpus), hosts, rounds=rounds, pairs=every, halve=False,
        resources=resources, seed=seed,
    )[0]  # fmt: skip


def machine(cores: Groups, l2: Groups, cpus: int) -> dict[str, Any]:
    """What the kernel says of CPUs, as the provenance has it."""
    sibling = {cpu: list(one) for one in cores for cpu in one}
    alone = [[cpu] for cpu in range(cpus) if cpu not in sibling]

    def cache(kind: str, level: int, groups: Groups) -> dict[str, Any]:
        rest = [[one] for one in range(cpus) if not any(one in group for group in groups)]
        shared = [format_cpus(group) for group in [*groups, *rest]]
        return {"kind": kind, "level": level, "shared_by": shared}

    return {
        "cpus": [
            {"cpu": cpu, "siblings": group} for group in [*cores, *alone] for cpu in group
        ],
        "caches": [cache("data", 1, cores), cache("unified", 2, l2 or cores)],
    }  # fmt: skip
