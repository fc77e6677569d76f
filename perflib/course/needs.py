"""What a lesson can need of a machine, and what stays inconclusive where it is missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from perflib.model.errors import UserError, choose

Machine = Mapping[str, Any]
# What is observed, and whether the need is met; ``None``: only a measurement can show it.
Found = tuple[bool | None, str]


@dataclass(frozen=True)
class Need:
    """One thing that a lesson can need: how to look for it, and what is inconclusive without."""

    look: Callable[[Machine], Found]
    without: str


def _cores(machine: Machine) -> Found:
    cores = machine["topology"]["cores"]
    return cores > 1, f"{cores} core{'' if cores == 1 else 's'}"


def _nodes(machine: Machine) -> Found:
    nodes = machine["topology"]["nodes"]
    return nodes > 1, f"{nodes} NUMA node{'' if nodes == 1 else 's'}"


def _tlbs(machine: Machine) -> Found:
    from perflib.machine.hardware.known_tlbs import tlbs_of

    known = tlbs_of(machine)
    return bool(known.tlbs), known.origin or "the processor reports none, and none is published"


def _huge(machine: Machine) -> Found:
    switch = machine["settings"]["thp"]
    return switch in ("always", "madvise"), f"transparent huge pages: {switch or 'unknown'}"


def _backed(machine: Machine) -> Found:
    host = machine["hypervisor"]
    return None if host else True, f"{host or 'no hypervisor'}; the page control measures it"


def _counters(machine: Machine) -> Found:
    pmu = machine["pmu"]
    return bool(pmu["available"]), "available" if pmu["available"] else str(pmu["reason"])


def _bare(machine: Machine) -> Found:
    host = machine["hypervisor"]
    return not host, f"virtual machine ({host})" if host else "no hypervisor seen"


def _compiler(machine: Machine) -> Found:  # noqa: ARG001 what is here, not what is described
    found = next(filter(None, map(shutil.which, ("gcc", "cc", "clang"))), None)
    return found is not None, found or "no C compiler"


def _perf(machine: Machine) -> Found:  # noqa: ARG001
    found = shutil.which("perf")
    return found is not None, found or "not installed; perflib samples by itself"


def _root(machine: Machine) -> Found:  # noqa: ARG001
    return os.geteuid() == 0, f"user {os.geteuid()}"


NEEDS = {
    "two cores": Need(_cores, "comparisons between cores, and everything that two threads do"),
    "several NUMA nodes": Need(_nodes, "near and far memory; use the recorded guests instead"),
    "TLB sizes": Need(_tlbs, "predictions from entries; take those of your processor's manual"),
    "huge pages": Need(_huge, "comparisons of page sizes; the ring on few pages replaces them"),
    "backed huge pages": Need(
        _backed, "what huge pages save: where the host does not back them, they save nothing"
    ),
    "hardware counters": Need(_counters, "counted misses; simulated ones replace them"),
    "no hypervisor": Need(_bare, "shared caches and clocks: neighbours on the host take part"),
    "C compiler": Need(_compiler, "kernels that are not in the bundle"),
    "perf": Need(_perf, "nothing, as a rule"),
    "root": Need(_root, "reserved huge pages, real-time priority, quotas, settings"),
}


def need(name: str) -> Need:
    """The need of that name.

    Raises
    ------
    UserError
        There is none; the nearest name is given.
    """
    if name not in NEEDS:
        raise UserError(choose("need", name, NEEDS))
    return NEEDS[name]
