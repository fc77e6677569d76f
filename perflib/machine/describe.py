"""A machine's provenance record: what a reader of a result must know about where it was measured.

Everything is plain JSON. ``fingerprint`` stays the same from day to day and from kernel to kernel,
and is equal on machines of the same make, so that runs can be distinguished and grouped by it;
`perflib.machine.identity` distinguishes such machines.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from perflib.machine.cpulist import format_cpus
from perflib.machine.files import assignments, fields, integer, kib_of, text
from perflib.machine.hardware import cgroup, hypervisor, pmu
from perflib.machine.hardware.caches import Cache, caches
from perflib.machine.hardware.cpuid import Leaves, leaves_or_reason, signature
from perflib.machine.hardware.firmware import firmware
from perflib.machine.hardware.known_tlbs import known_tlbs
from perflib.machine.hardware.microarch import processor
from perflib.machine.hardware.topology import Topology, topology
from perflib.machine.identity import identity
from perflib.machine.settings.knobs import KNOBS

_TSC_FLAGS = ("constant_tsc", "nonstop_tsc", "tsc_known_freq", "tsc_reliable", "rdtscp")


def describe(root: Path = Path("/"), *, leaves: Leaves | None = None) -> dict[str, Any]:
    """Describe a machine; what cannot be seen is ``None`` or empty.

    Parameters
    ----------
    root
        Where /proc and /sys are found; another machine's recorded files serve as well.
    leaves
        The processor's CPUID leaves; read if this is the machine itself.
    """
    missing = "" if leaves else "not this machine: its CPUID cannot be read"
    if leaves is None:
        leaves = {}
        if root == Path("/"):
            leaves, missing = leaves_or_reason()
    known = signature(root, leaves)
    cpuinfo = fields(root / "proc/cpuinfo")
    places = topology(root)
    found = caches(root)
    name = processor(root, leaves, found)
    tlbs = known_tlbs(leaves, name)
    host = hypervisor.hypervisor(root, leaves)
    flags = (cpuinfo.get("flags") or cpuinfo.get("Features") or "").split()
    record: dict[str, Any] = {
        "hostname": text(root / "proc/sys/kernel/hostname"),
        **identity(root),
        "microarchitecture": name.name,
        "product": name.product,
        "processor": cpuinfo.get("model name")
        or (text(root / "proc/device-tree/model") or "").strip("\0")
        or None,
        "vendor": known.vendor,
        "family": known.family,
        "model": known.model,
        "stepping": known.stepping,
        "microcode": cpuinfo.get("microcode"),
        "architecture": platform.machine() if root == Path("/") else None,
        "kernel": text(root / "proc/sys/kernel/osrelease"),
        "system": assignments(root / "etc/os-release").get("PRETTY_NAME"),
        "firmware": firmware(root),
        "memory_bytes": kib_of(root / "proc/meminfo", "MemTotal"),
        "hypervisor": host,
        "container": hypervisor.container(root),
        "topology": _topology_summary(places),
        "cpus": [asdict(cpu) | {"where": places.where(cpu.cpu)} for cpu in places.cpus],
        "nodes": [asdict(node) for node in places.nodes],
        "caches": _cache_summary(found),
        "tlbs": [asdict(tlb) for tlb in tlbs.tlbs],
        "tlbs_origin": tlbs.origin or None,
        "tlbs_source": tlbs.source or None,
        "cpuid_missing": missing or None,
        "limits": asdict(cgroup.limits(root)),
        "pmu": asdict(pmu.pmu(root, virtual=host is not None)),
        "clocksource": text(
            root / "sys/devices/system/clocksource/clocksource0/current_clocksource"
        ),
        "tsc_flags": [flag for flag in _TSC_FLAGS if flag in flags],
        "frequency": _frequency(root),
        "settings": {knob.name: knob.read(root) for knob in KNOBS.values()},
        "mitigations": _mitigations(root),
    }
    record["fingerprint"] = _fingerprint(record, places, found)
    return dict(json.loads(json.dumps(record)))


def _fingerprint(record: dict[str, Any], places: Topology, found: Iterable[Cache]) -> str:
    """Hash what neither a reboot, a new kernel, a container nor an offline CPU changes."""
    lasting = [
        *(record[key] for key in ("vendor", "family", "model", "stepping", "processor")),
        record["hypervisor"] is not None,
        len(places.cpus),
        len(places.nodes),
        sorted({(cache.level, cache.kind, cache.size_bytes, cache.ways or 0) for cache in found}),
    ]
    return hashlib.sha256(json.dumps(lasting).encode()).hexdigest()[:16]


def _topology_summary(places: Topology) -> dict[str, Any]:
    return {
        "packages": len(places.packages()),
        "dies": len(places.dies()),
        "cores": len(places.cores()),
        "threads_per_core": max((len(core) for core in places.cores()), default=0),
        "nodes": len(places.nodes),
        "online": format_cpus(places.online_cpus()),
        "offline": format_cpus(cpu.cpu for cpu in places.cpus if not cpu.online),
        "allowed": format_cpus(places.allowed_cpus()),
        "isolated": format_cpus(cpu.cpu for cpu in places.cpus if cpu.isolated),
        "notes": list(places.notes.values()),
    }


def _cache_summary(found: Iterable[Cache]) -> list[dict[str, Any]]:
    """Caches that differ only in who shares them, as one entry with the groups that share."""
    shared_by: dict[Cache, list[str]] = defaultdict(list)
    for cache in found:
        shared_by[replace(cache, shared_cpus=())].append(format_cpus(cache.shared_cpus))
    summary = []
    for cache, groups in shared_by.items():
        entry = asdict(cache)
        del entry["shared_cpus"]
        summary.append({"name": str(cache), **entry, "shared_by": groups})
    return summary


def _frequency(root: Path) -> dict[str, int | str | None]:
    """The frequencies that the driver of the first CPU knows; they may differ between CPUs."""
    place = root / "sys/devices/system/cpu/cpu0/cpufreq"
    return {
        "driver": text(place / "scaling_driver"),
        "minimum_khz": integer(place / "cpuinfo_min_freq"),
        "base_khz": integer(place / "base_frequency"),
        "maximum_khz": integer(place / "cpuinfo_max_freq"),
    }


def _mitigations(root: Path) -> dict[str, str]:
    """What the kernel does against speculative attacks; it slows system calls and branches."""
    folder = root / "sys/devices/system/cpu/vulnerabilities"
    return {file.name: text(file) or "" for file in sorted(folder.glob("*"))}
