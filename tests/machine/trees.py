"""Small /proc and /sys trees of machines that are not this one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"


def write(root: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    return root


def cpu_files(cpu: int, package: int, core: int, siblings: str, die: int = 0) -> dict[str, str]:
    place = f"{CPU}/cpu{cpu}/topology"
    return {
        f"{place}/core_id": str(core),
        f"{place}/physical_package_id": str(package),
        f"{place}/die_id": str(die),
        f"{place}/core_cpus_list": siblings,
    }


def cache_files(
    cpu: int, index: int, level: int, kind: str, size: str, ways: int, shared: str
) -> dict[str, str]:
    place = f"{CPU}/cpu{cpu}/cache/index{index}"
    size_bytes = int(size[:-1]) * 1024
    return {
        f"{place}/level": str(level),
        f"{place}/type": kind,
        f"{place}/size": size,
        f"{place}/ways_of_associativity": str(ways),
        f"{place}/coherency_line_size": "64",
        f"{place}/number_of_sets": str(size_bytes // 64 // ways),
        f"{place}/shared_cpu_list": shared,
    }


def node_files(node: int, cpus: str, kib: int, distance: str) -> dict[str, str]:
    place = f"{NODE}/node{node}"
    return {
        f"{place}/cpulist": cpus,
        f"{place}/meminfo": f"Node {node} MemTotal:       {kib} kB\nNode {node} MemFree: 1 kB",
        f"{place}/distance": distance,
    }


def cpuinfo(vendor: str, family: int, model: int, stepping: int, name: str, flags: str) -> str:
    return (
        f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
        f"model name\t: {name}\nstepping\t: {stepping}\nmicrocode\t: 0x49\nflags\t\t: {flags}\n"
    )


def haswell_ep(root: Path) -> Path:
    """Two E5-2680 v3 (12 cores, SMT, 2 nodes), numbered as Dell does it: even CPUs on package 0.

    The core numbers have a hole (0-5, 8-13), as they have on this processor.
    """
    name = "Intel(R) Xeon(R) CPU E5-2680 v3 @ 2.50GHz"
    files = {
        f"{CPU}/online": "0-47",
        f"{CPU}/present": "0-47",
        f"{CPU}/isolated": "",
        f"{CPU}/smt/control": "on",
        f"{CPU}/intel_pstate/no_turbo": "0",
        "proc/self/status": "Name:\tcat\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-47",
        "proc/cpuinfo": cpuinfo("GenuineIntel", 6, 63, 2, name, "fpu constant_tsc"),
        "proc/meminfo": "MemTotal:       131072000 kB",
        "proc/sys/kernel/hostname": "node01",
        "proc/sys/kernel/osrelease": "5.14.0-427.el9.x86_64",
        "proc/sys/kernel/perf_event_paranoid": "2",
        "proc/sys/kernel/nmi_watchdog": "1",
        "proc/sys/kernel/numa_balancing": "1",
        "proc/sys/kernel/randomize_va_space": "2",
        "proc/sys/kernel/sched_rt_runtime_us": "950000",
        "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never",
        "sys/kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet",
        "sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet acpi_pm",
        "proc/loadavg": "0.02 0.03 0.00 1/900 1234",
    }
    for cpu in range(48):
        package, core = cpu % 2, cpu // 2 % 12
        first = cpu % 24
        siblings = f"{first},{first + 24}"
        files |= cpu_files(cpu, package, core if core < 6 else core + 2, siblings)
        everyone = ",".join(str(other) for other in range(48) if other % 2 == package)
        files |= cache_files(cpu, 0, 1, "Data", "32K", 8, siblings)
        files |= cache_files(cpu, 1, 1, "Instruction", "32K", 8, siblings)
        files |= cache_files(cpu, 2, 2, "Unified", "256K", 8, siblings)
        files |= cache_files(cpu, 3, 3, "Unified", "30720K", 20, everyone)
        files[f"{CPU}/cpufreq/policy{cpu}/scaling_governor"] = "powersave"
        files[f"{CPU}/cpu{cpu}/cpufreq/scaling_max_freq"] = "3300000"
        files[f"{CPU}/cpu{cpu}/cpufreq/cpuinfo_max_freq"] = "3300000"
        files[f"{CPU}/cpu{cpu}/thermal_throttle/core_throttle_count"] = "0"
    for node in range(2):
        cpus = ",".join(str(cpu) for cpu in range(48) if cpu % 2 == node)
        files |= node_files(node, cpus, 65536000, "10 21" if node == 0 else "21 10")
    return write(root, files)


def epyc(root: Path) -> Path:
    """One EPYC 7302P: 16 cores, SMT, 8 core complexes of 2 cores with 16 MiB of L3 each."""
    files = {
        f"{CPU}/online": "0-31",
        f"{CPU}/present": "0-31",
        "proc/self/status": "Cpus_allowed_list:\t0-31",
        "proc/cpuinfo": cpuinfo(
            "AuthenticAMD", 23, 49, 0, "AMD EPYC 7302P 16-Core Processor", "fpu constant_tsc"
        ),
    } | node_files(0, "0-31", 65536000, "10")
    for cpu in range(32):
        first = cpu % 16
        siblings = f"{first},{first + 16}"
        pair = first // 2 * 2
        files |= cpu_files(cpu, 0, first, siblings)
        files |= cache_files(cpu, 0, 1, "Data", "32K", 8, siblings)
        files |= cache_files(
            cpu, 3, 3, "Unified", "16384K", 16, f"{pair}-{pair + 1},{pair + 16}-{pair + 17}"
        )
    return write(root, files)


def kvm_guest(root: Path) -> Path:
    """A Firecracker guest with two CPUs, as recorded: version 1 control groups, no cpufreq."""
    mounts = "\n".join(
        f"{32 + number} 31 0:{29 + number} / /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}"
        for number, name in enumerate(("cpu", "cpuset", "memory"))
    )
    files = {
        f"{CPU}/online": "0-1",
        f"{CPU}/present": "0-1",
        f"{CPU}/isolated": "",
        f"{CPU}/smt/control": "notsupported",
        "proc/self/status": "CapEff:\t000001fffeffffff\nCpus_allowed_list:\t0-1",
        "proc/self/cgroup": "3:cpuset:/\n4:memory:/api/6778\n1:cpu:/\n0::/",
        "proc/self/mountinfo": "27 1 254:0 / / rw - ext4 /dev/vda rw\n"
        + mounts
        + "\n41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        "sys/fs/cgroup/cpuset/cpuset.cpus": "0-1",
        "sys/fs/cgroup/memory/api/6778/memory.limit_in_bytes": "9223372036854771712",
        "proc/cpuinfo": cpuinfo(
            "AuthenticAMD", 25, 17, 1, "AMD EPYC", "fpu hypervisor constant_tsc nonstop_tsc"
        ),
        "proc/sys/kernel/perf_event_paranoid": "2",
        "proc/sys/kernel/numa_balancing": "0",
        "proc/stat": "cpu0 1000 0 0 9000 0 0 0 20\ncpu1 1000 0 0 9000 0 0 0 0",
        ".dockerenv": "",
    } | node_files(0, "0-1", 5859532, "10")
    for cpu in range(2):
        files |= cpu_files(cpu, 0, cpu, str(cpu))
        files |= cache_files(cpu, 0, 1, "Data", "32K", 8, str(cpu))
        files |= cache_files(cpu, 3, 3, "Unified", "32768K", 16, "0-1")
    return write(root, files)


def container(root: Path) -> Path:
    """A docker container with one and a half CPUs' time, on CPUs 0-3 of 8 that are 4 cores.

    It sees its own control group as the top, but siblings 4-7 are outside of its set.
    """
    files = {
        f"{CPU}/online": "0-7",
        f"{CPU}/present": "0-7",
        "proc/self/status": "Cpus_allowed_list:\t0-3",
        "proc/self/cgroup": "0::/",
        "proc/self/mountinfo": (
            "600 500 0:50 / / rw,relatime - overlay overlay rw\n"
            "612 611 0:27 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate"
        ),
        "sys/fs/cgroup/cpu.max": "150000 100000",
        "sys/fs/cgroup/cpu.stat": "usage_usec 9\nnr_periods 400\nnr_throttled 12\nthrottled_usec 7",
        "sys/fs/cgroup/cpuset.cpus.effective": "0-3",
        "sys/fs/cgroup/memory.max": "2147483648",
        ".dockerenv": "",
    }
    for cpu in range(8):
        files |= cpu_files(cpu, 0, cpu % 4, f"{cpu % 4},{cpu % 4 + 4}")
    return write(root, files)


def offline(root: Path) -> Path:
    """Eight CPUs of which two were switched off; CPU 5 is isolated."""
    files = {
        f"{CPU}/online": "0-5",
        f"{CPU}/present": "0-7",
        f"{CPU}/isolated": "5",
        "proc/self/status": "Cpus_allowed_list:\t0-4",
    }
    for cpu in range(6):
        files |= cpu_files(cpu, 0, cpu, str(cpu))
    files[f"{CPU}/cpu6/online"] = "0"
    return write(root, files)
