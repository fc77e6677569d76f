"""Where each CPU is: its core, its package, its NUMA node, its siblings, and who may use it.

All from sysfs (Documentation/ABI/stable/sysfs-devices-system-cpu of the kernel): numbers as the
kernel gives them, so that they match those of taskset, numactl and perf. They need not be
contiguous, and CPU numbers need not follow cores: on most two-socket machines the siblings of the
first half of the CPUs are the second half.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from perflib.machine.cpulist import format_cpus, parse_cpus
from perflib.machine.files import fields, integer, kib_of, number_of, text, whole
from perflib.machine.hardware import cgroup
from perflib.machine.hardware.caches import Cache
from perflib.machine.hardware.measured import Pair, measured_siblings, notes, siblings
from perflib.model.errors import UserError

_SYSTEM = "sys/devices/system"


@dataclass(frozen=True)
class Cpu:
    """One logical CPU. ``None``: the kernel does not say (an offline CPU, a poor container).

    ``siblings`` are all CPUs of its core, itself among them. ``allowed``: this process may run
    there. ``isolated``: the scheduler puts nothing there by itself (``isolcpus``).
    ``kernel_siblings``: what the kernel says, where a measurement says something else.
    """

    cpu: int
    core: int | None
    package: int | None
    die: int | None
    node: int | None
    siblings: tuple[int, ...]
    online: bool
    allowed: bool
    isolated: bool
    kernel_siblings: tuple[int, ...] | None = None


@dataclass(frozen=True)
class NumaNode:
    """One NUMA node; ``cpus`` is empty where it has memory only.

    ``distances`` are the firmware's relative latencies to each node (10: local), in the order of
    the online nodes.
    """

    node: int
    cpus: tuple[int, ...]
    memory_bytes: int | None
    distances: tuple[int, ...]


@dataclass(frozen=True)
class Topology:
    """Every CPU that is present, and every NUMA node.

    ``notes``: a sentence for each pair of which a measurement says what the kernel does not.
    """

    cpus: tuple[Cpu, ...]
    nodes: tuple[NumaNode, ...]
    notes: Mapping[Pair, str] = field(default_factory=dict)

    @cached_property
    def _by_number(self) -> dict[int, Cpu]:
        return {cpu.cpu: cpu for cpu in self.cpus}

    @cached_property
    def _several_dies(self) -> bool:
        return len(self.dies()) > len(self.packages())

    def cpu(self, number: int) -> Cpu:
        """The CPU of that number.

        Raises
        ------
        UserError
            There is none.
        """
        if number not in self._by_number:
            have = format_cpus(self._by_number) or "none at all"
            msg = f"this machine has no CPU {number}: it has {have}"
            raise UserError(msg)
        return self._by_number[number]

    def online_cpus(self) -> list[int]:
        """CPUs that run."""
        return [cpu.cpu for cpu in self.cpus if cpu.online]

    def allowed_cpus(self) -> list[int]:
        """CPUs that run and that this process may use."""
        return [cpu.cpu for cpu in self.cpus if cpu.online and cpu.allowed]

    def one_per_core(self) -> list[int]:
        """Of each core the first CPU that this process may use."""
        seen: set[int] = set()
        chosen = []
        for number in self.allowed_cpus():
            if number not in seen:
                chosen.append(number)
                seen.update(self.cpu(number).siblings)
        return chosen

    def groups(self, found: tuple[Cache, ...] = ()) -> list[tuple[int, ...]]:
        """The CPUs that this process may use, by NUMA node and last-level cache.

        What one core of a group sees of memory the others see, too: on most machines. ``found``:
        the caches (``perflib.machine.hardware.caches``); without them, by node and die.
        """
        last = max((cache.level for cache in found if cache.kind == "unified"), default=None)
        sharers = {
            cpu: cache.shared_cpus for cache in found if cache.level == last
            for cpu in cache.shared_cpus
        }  # fmt: skip
        members: dict[tuple[object, ...], list[int]] = {}
        for number in self.allowed_cpus():
            cpu = self.cpu(number)
            place = (cpu.node, cpu.package, cpu.die, sharers.get(number))
            members.setdefault(place, []).append(number)
        return [tuple(group) for group in members.values()]

    def notes_of(self, cpus: Iterable[int]) -> list[str]:
        """Those that speak of any of these CPUs."""
        return [text for pair, text in self.notes.items() if {*pair} & {*cpus}]

    def packages(self) -> list[int]:
        """The packages (sockets) with a running CPU."""
        return sorted({cpu.package for cpu in self.cpus if cpu.package is not None})

    def dies(self) -> list[tuple[int | None, int]]:
        """The dies, each as (package, die)."""
        found = {(cpu.package, cpu.die) for cpu in self.cpus if cpu.die is not None}
        return sorted(found, key=lambda die: (-1 if die[0] is None else die[0], die[1]))

    def cores(self) -> list[tuple[int, ...]]:
        """The cores with a running CPU, each as the CPUs that are its hardware threads."""
        return sorted({cpu.siblings for cpu in self.cpus if cpu.online})

    def where(self, number: int) -> str:
        """Where a CPU is, for a reader: ``package 1, core 0, node 1, sibling of cpu24``."""
        cpu = self.cpu(number)
        if not cpu.online:
            return "offline"
        parts = [
            f"{what} {value}"
            for what, value in (
                ("package", cpu.package),
                ("die", cpu.die if self._several_dies else None),
                ("core", cpu.core),
                ("node", cpu.node),
            )
            if value is not None
        ]
        others = [f"cpu{sibling}" for sibling in cpu.siblings if sibling != number]
        if others:
            how = " (measured)" if cpu.kernel_siblings is not None else ""
            parts.append(f"sibling of {', '.join(others)}{how}")
        if cpu.isolated:
            parts.append("isolated")
        return ", ".join(parts) or "unknown"


def topology(root: Path = Path("/"), *, measured: bool = True) -> Topology:
    """Read the topology below ``root``; what is missing there is ``None`` or empty here.

    ``measured``: this machine's siblings are corrected by what `perflib.machine.hardware.measured`
    has.
    """
    base = root / _SYSTEM / "cpu"
    in_status = _cpus(_affinity(root))
    online = _cpus(text(base / "online")) or in_status
    present = _cpus(text(base / "present")) or online
    isolated = _cpus(text(base / "isolated"))
    nodes = _nodes(root)
    node_of = {cpu: node.node for node in nodes for cpu in node.cpus}
    allowed = _allowed(root, in_status, online, isolated)
    cpus = []
    for number in sorted(present | online):
        place = f"{base}/cpu{number}/topology"
        running = number in online
        siblings = (
            _cpus(text(f"{place}/core_cpus_list") or text(f"{place}/thread_siblings_list"))
            if running
            else set()
        )
        cpus.append(
            Cpu(
                cpu=number,
                core=integer(f"{place}/core_id") if running else None,
                package=integer(f"{place}/physical_package_id") if running else None,
                die=integer(f"{place}/die_id") if running else None,
                node=node_of.get(number),
                siblings=tuple(sorted(siblings)) or (number,),
                online=running,
                allowed=number in allowed,
                isolated=number in isolated,
            )
        )
    found = Topology(tuple(cpus), tuple(nodes))
    return _corrected(found) if measured and root == Path("/") else found


def _corrected(places: Topology) -> Topology:
    """With the siblings that were measured."""
    found, kernel = measured_siblings(), {cpu.cpu: cpu.siblings for cpu in places.cpus}
    now = siblings(found, kernel)
    cpus = [
        cpu
        if now[cpu.cpu] == cpu.siblings
        else replace(cpu, siblings=now[cpu.cpu], kernel_siblings=cpu.siblings)
        for cpu in places.cpus
    ]
    return Topology(tuple(cpus), places.nodes, notes(found, kernel))


def _affinity(root: Path) -> str | None:
    """The CPUs of this process's affinity mask, as the kernel lists them."""
    return fields(root / "proc/self/status").get("Cpus_allowed_list")


def _allowed(root: Path, in_status: set[int], online: set[int], isolated: set[int]) -> set[int]:
    """CPUs that this process may move to.

    ``isolcpus`` takes the isolated CPUs out of every process's mask, but a process may still put
    itself there, and they are the best ones to measure on: they count as allowed, unless the user
    has narrowed the mask (``taskset``) to fewer CPUs than the scheduler's own choice.
    """
    allowed = in_status or set(online)
    if isolated:
        cpuset = set(cgroup.limits(root).cpus or online)
        if allowed >= (cpuset & online) - isolated:
            allowed = allowed | (isolated & cpuset & online)
    return allowed


def _nodes(root: Path) -> list[NumaNode]:
    places = sorted((root / _SYSTEM / "node").glob("node[0-9]*"), key=number_of)
    return [
        NumaNode(
            node=number_of(place),
            cpus=tuple(sorted(_cpus(text(f"{place}/cpulist")))),
            memory_bytes=kib_of(place / "meminfo", f"Node {number_of(place)} MemTotal"),
            distances=tuple(
                number
                for word in (text(f"{place}/distance") or "").split()
                if (number := whole(word)) is not None
            ),
        )
        for place in places
    ]


def _cpus(words: str | None) -> set[int]:
    return set(parse_cpus(words or ""))
