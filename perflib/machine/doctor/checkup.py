"""What a check of the doctor is, and the facts about the machine that the checks share."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from perflib.machine.hardware import cgroup, hypervisor
from perflib.machine.hardware.cpuid import Leaves
from perflib.machine.hardware.topology import Topology, topology
from perflib.machine.processes import may_count_kernel
from perflib.machine.settings.knobs import KNOBS

_COSTS = tomllib.loads(Path(__file__).with_name("costs.toml").read_text(encoding="utf-8"))

State = Literal["good", "warn", "unknown"]


@dataclass(frozen=True)
class Check:
    """One thing that spoils measurements.

    ``now``: what it is. ``command``: what changes it; empty where no command on this machine does.
    ``values``: what was measured for it, as JSON can hold it. ``cost``: what it does to a
    measurement, and why; as ``costs.toml`` has it.
    """

    name: str
    state: State
    now: str
    command: str
    values: tuple[dict[str, Any], ...] = ()
    cost: str = ""

    def __post_init__(self) -> None:
        """Say what it costs; a saved check has it."""
        if not self.cost:
            knob = KNOBS.get(self.name)
            object.__setattr__(self, "cost", knob.cost if knob else _COSTS[self.name])


@dataclass(frozen=True)
class Patient:
    """What every check may read, read once.

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
    return Patient(
        root=root,
        topology=topology(root),
        limits=cgroup.limits(root),
        leaves=leaves,
        hypervisor=hypervisor.hypervisor(root, leaves),
        container=hypervisor.container(root),
        privileged=may_count_kernel(root),
    )
