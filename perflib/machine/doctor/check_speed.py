"""The doctor's checks of what makes one core slower than another by itself: limits and heat."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from perflib.machine.cpulist import format_cpus
from perflib.machine.doctor.checkup import Check, Patient
from perflib.machine.files import integer

_CPU = "sys/devices/system/cpu"


def check_speed(patient: Patient) -> list[Check]:
    """Whether all cores may run equally fast, and whether any was too hot to."""
    return [_frequency_limits(patient), _throttling(patient)]


def _per_cpu(patient: Patient, file: str) -> dict[int, int]:
    """The file's number for each running CPU that has it."""
    found = {}
    for cpu in patient.topology.online_cpus():
        value = integer(patient.root / f"{_CPU}/cpu{cpu}" / Path(file))
        if value is not None:
            found[cpu] = value
    return found


def _frequency_limits(patient: Patient) -> Check:
    groups: dict[int, list[int]] = defaultdict(list)
    for cpu, maximum_khz in _per_cpu(patient, "cpufreq/scaling_max_freq").items():
        groups[maximum_khz].append(cpu)
    highest = max(groups, default=0)
    listed = "; ".join(
        f"CPUs {format_cpus(cpus)} up to {khz / 1e6:.2f} GHz"
        for khz, cpus in sorted(groups.items(), reverse=True)
    )
    capable = set(_per_cpu(patient, "cpufreq/cpuinfo_max_freq").values())
    # Different limits on equal cores were set by somebody; unequal cores came so from the factory.
    limited = len(groups) > 1 and len(capable) == 1
    return Check(
        "frequency_limits",
        "warn" if len(groups) > 1 else "good" if groups else "unknown",
        listed or "not visible",
        f"echo {highest} | sudo tee /{_CPU}/cpu*/cpufreq/scaling_max_freq" if limited else "",
    )


def _throttling(patient: Patient) -> Check:
    throttled = {
        cpu: count
        for cpu, count in _per_cpu(patient, "thermal_throttle/core_throttle_count").items()
        if count
    }
    visible = bool(_per_cpu(patient, "thermal_throttle/core_throttle_count"))
    worst = sorted(throttled, key=lambda cpu: -throttled[cpu])
    listed = ", ".join(f"cpu{cpu} {throttled[cpu]} times" for cpu in worst[:8])
    return Check(
        "thermal_throttling",
        "warn" if throttled else "good" if visible else "unknown",
        f"since the start: {listed}" if throttled else "none" if visible else "not visible",
        "",
    )
