"""The doctor's checks of what surrounds a measurement: counters, neighbours, limits, the clock."""

from __future__ import annotations

import shlex

from perflib.machine.activity import activity
from perflib.machine.cpulist import format_cpus
from perflib.machine.doctor.checkup import Check, Patient, State
from perflib.machine.files import text
from perflib.machine.hardware import hypervisor, pmu
from perflib.machine.settings.knobs import KNOBS

CpuTimes = dict[int, activity.CpuTime]

_BUSY = 0.05  # a CPU busier than this while nothing of ours runs is somebody else's
_STOLEN = 0.005


def check_surroundings(patient: Patient, total: CpuTimes, recent: CpuTimes) -> list[Check]:
    """One check each; ``total`` and ``recent`` are the CPUs' times since the start and lately."""
    return [
        _pmu(patient),
        _load(patient, recent),
        _steal(patient, total, recent),
        _isolated(patient),
        _quota(patient),
        _cpuset(patient),
        _clocksource(patient),
        _virtual(patient),
    ]


def _pmu(patient: Patient) -> Check:
    found = pmu.pmu(patient.root, virtual=patient.hypervisor is not None)
    state: State = "unknown" if found.available is None else "good" if found.available else "warn"
    command = ""
    if state == "warn" and "perf_event_paranoid" in found.reason:
        command = KNOBS["perf_event_paranoid"].command("1", patient.root)
    elif state == "warn" and patient.hypervisor:
        command = "(on the host) give the guest a PMU: qemu -cpu host,pmu=on; or use bare metal"
    return Check(
        "pmu",
        state,
        found.reason,
        command,
    )


def _load(patient: Patient, recent: CpuTimes) -> Check:
    average = activity.load_average(patient.root)
    busy = sorted(cpu for cpu, spent in recent.items() if spent.busy_share > _BUSY)
    parts = [] if average is None else [f"load average {average:.2f} over the last minute"]
    if any(spent.total for spent in recent.values()):
        shares = ", ".join(f"cpu{cpu} {recent[cpu].busy_share:.0%}" for cpu in busy[:8])
        more = f" and {len(busy) - 8} more" if len(busy) > 8 else ""
        parts.append(f"busy now: {shares}{more}" if busy else "all CPUs idle just now")
    state: State = "unknown" if not parts else "warn" if busy or (average or 0) > 0.5 else "good"
    return Check(
        "load",
        state,
        "; ".join(parts) or "not visible",
        "ps -eo pid,psr,pcpu,comm --sort=-pcpu | head" if state == "warn" else "",
    )


def _steal(patient: Patient, total: CpuTimes, recent: CpuTimes) -> Check:
    if not total:
        return Check("steal", "unknown", "not visible", "")
    if patient.hypervisor is None:
        return Check("steal", "good", "none: this is no virtual machine", "")
    if hypervisor.reports_steal(patient.leaves) is False:
        return Check("steal", "unknown", "this hypervisor does not report it", "")
    since_start, lately = _sum(total).steal_share, _sum(recent).steal_share
    return Check(
        "steal",
        "warn" if max(since_start, lately) > _STOLEN else "good",
        f"{since_start:.2%} of the CPU time wanted since the start, {lately:.2%} just now",
        "(on the host) virsh vcpupin GUEST VCPU CPU, or a dedicated instance",
    )


def _sum(times: CpuTimes) -> activity.CpuTime:
    return sum(times.values(), start=activity.CpuTime(0, 0, 0))


def _isolated(patient: Patient) -> Check:
    isolated = [cpu.cpu for cpu in patient.topology.cpus if cpu.isolated]
    cores = patient.topology.cores()
    command = ""
    if not isolated and len(cores) > 1:
        last = format_cpus(cores[-1])
        command = (
            f"add 'isolcpus=domain,managed_irq,{last} nohz_full={last} rcu_nocbs={last}' to the "
            "kernel's command line (grubby --update-kernel=ALL --args=..., or /etc/default/grub "
            "and update-grub), then reboot"
        )
    return Check(
        "isolated_cores",
        "good" if isolated else "warn",
        f"CPUs {format_cpus(isolated)}" if isolated else "none",
        command,
    )


def _quota(patient: Patient) -> Check:
    limits = patient.limits
    if limits.quota_cpus is None:
        return Check("cpu_quota", "good", "none", "")
    period_ms = (limits.period_us or 0) / 1000
    now = f"{limits.quota_cpus:g} CPUs' time in each {period_ms:g} ms"
    if limits.periods is not None and limits.throttled_periods is not None:
        now += f", used up in {limits.throttled_periods} of {limits.periods} periods"
    if patient.container in ("docker", "podman"):
        command = f"(on the host) {patient.container} update --cpu-quota=-1 CONTAINER"
    else:
        path = limits.quota_path or ""
        command = f"echo {'max' if path.endswith('cpu.max') else -1} | sudo tee {shlex.quote(path)}"
    return Check("cpu_quota", "warn", now, command)


def _cpuset(patient: Patient) -> Check:
    online = set(patient.topology.online_cpus())
    allowed = set(patient.topology.allowed_cpus())
    split = [
        core
        for core in patient.topology.cores()
        if allowed & set(core) and not allowed >= set(core)
    ]
    now = f"all {len(online)} CPUs may be used"
    if allowed != online:
        now = f"CPUs {format_cpus(allowed)} of {format_cpus(online)} may be used"
    if split:
        strangers = format_cpus(cpu for core in split for cpu in core if cpu not in allowed)
        now += f"; their siblings {strangers} belong to others"
    return Check(
        "cpuset",
        "unknown" if not online else "warn" if split else "good",
        now,
        f"taskset --cpu-list {format_cpus(online)} COMMAND, or a wider cpuset for the container"
        if split
        else "",
    )


def _clocksource(patient: Patient) -> Check:
    place = patient.root / "sys/devices/system/clocksource/clocksource0"
    name = text(place / "current_clocksource")
    offered = (text(place / "available_clocksource") or "").split()
    # These are read in user space (vDSO) in some 20 to 40 ns; any other costs a system call.
    fast = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter")
    state: State = "unknown" if name is None else "good" if name in fast else "warn"
    better = next((source for source in fast if source in offered), "")
    return Check(
        "clocksource",
        state,
        name or "not visible",
        f"echo {better} | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource"
        if state == "warn" and better
        else "",
    )


def _virtual(patient: Patient) -> Check:
    return Check(
        "hypervisor",
        "warn" if patient.hypervisor else "good",
        patient.hypervisor or "none: bare metal, as far as can be seen",
        "",
    )
