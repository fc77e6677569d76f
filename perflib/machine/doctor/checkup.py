"""What a check of the doctor is, and the facts about the machine that the checks share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from perflib.machine.files import fields
from perflib.machine.hardware import cgroup, hypervisor
from perflib.machine.hardware.cpuid import Leaves
from perflib.machine.hardware.topology import Topology, topology

__all__ = ["Check", "Patient", "State", "examine"]

State = Literal["good", "warn", "unknown"]

_CAP_SYS_ADMIN, _CAP_PERFMON = 1 << 21, 1 << 38


@dataclass(frozen=True)
class Check:
    """One thing that spoils measurements.

    ``now``: what it is. ``cost``: what that does to a measurement, and why. ``command``: what
    changes it; empty where no command on this machine does.
    """

    name: str
    state: State
    now: str
    cost: str
    command: str


@dataclass(frozen=True)
class Patient:
    """What every check may look at, read once.

    ``privileged``: this process may count events whatever ``perf_event_paranoid`` says.
    """

    root: Path
    topology: Topology
    limits: cgroup.Limits
    leaves: Leaves
    hypervisor: str | None
    container: str | None
    privileged: bool


def examine(root: Path, leaves: Leaves) -> Patient:
    """Read the facts below ``root``."""
    capabilities = int(fields(root / "proc/self/status").get("CapEff", "0"), 16)
    return Patient(
        root=root,
        topology=topology(root),
        limits=cgroup.limits(root),
        leaves=leaves,
        hypervisor=hypervisor.hypervisor(root, leaves),
        container=hypervisor.container(root),
        privileged=bool(capabilities & (_CAP_SYS_ADMIN | _CAP_PERFMON)),
    )
