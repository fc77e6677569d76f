from __future__ import annotations

from pathlib import Path

from perflib.machine.hardware.cgroup import limits
from tests.machine import trees


def test_a_container_sees_its_own_group_as_the_top(tmp_path: Path) -> None:
    found = limits(trees.container(tmp_path))
    assert found.version == "v2"
    assert (found.quota_cpus, found.period_us) == (1.5, 100_000)
    assert found.quota_path == "/sys/fs/cgroup/cpu.max"
    assert (found.periods, found.throttled_periods) == (400, 12)
    assert found.cpus == (0, 1, 2, 3)
    assert found.memory_bytes == 2 << 30


def test_a_limit_further_up_counts(tmp_path: Path) -> None:
    top = "sys/fs/cgroup"
    files = {
        "proc/self/cgroup": "0::/user.slice/job.scope",
        "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
        f"{top}/user.slice/job.scope/cpu.max": "max 100000",
        f"{top}/user.slice/job.scope/memory.max": "max",
        f"{top}/user.slice/cpu.max": "50000 100000",
        f"{top}/user.slice/memory.max": "1000",
        f"{top}/cpuset.cpus.effective": "0-7",
    }
    found = limits(trees.write(tmp_path, files))
    assert found.quota_cpus == 0.5
    assert found.quota_path == "/sys/fs/cgroup/user.slice/cpu.max"
    assert found.memory_bytes == 1000
    assert found.cpus == tuple(range(8))


def test_the_narrowest_limit_wins(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/a/b",
        "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
        "sys/fs/cgroup/a/b/cpu.max": "400000 100000",
        "sys/fs/cgroup/a/cpu.max": "200000 100000",
    }
    assert limits(trees.write(tmp_path, files)).quota_cpus == 2


def test_version_1_with_a_quota(tmp_path: Path) -> None:
    mount = "33 31 0:30 {} /sys/fs/cgroup/{} rw - cgroup cgroup rw,{}"
    files = {
        "proc/self/cgroup": "5:cpu,cpuacct:/docker/abc\n4:cpuset:/docker/abc\n3:memory:/docker/abc",
        "proc/self/mountinfo": "\n".join(
            [
                mount.format("/docker/abc", "cpu,cpuacct", "cpu,cpuacct"),
                mount.format("/docker/abc", "cpuset", "cpuset"),
                mount.format("/docker/abc", "memory", "memory"),
            ]
        ),
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "250000",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
        "sys/fs/cgroup/cpu,cpuacct/cpu.stat": "nr_periods 10\nnr_throttled 3\nthrottled_time 99",
        "sys/fs/cgroup/cpuset/cpuset.cpus": "4-7",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824",
    }
    found = limits(trees.write(tmp_path, files))
    assert found.version == "v1"
    assert found.quota_cpus == 2.5
    assert found.throttled_periods == 3
    assert found.cpus == (4, 5, 6, 7)
    assert found.memory_bytes == 1 << 30


def test_no_limit_in_a_mixed_hierarchy(tmp_path: Path) -> None:
    found = limits(trees.kvm_guest(tmp_path))
    assert found.version == "hybrid"
    assert found.quota_cpus is None
    assert found.memory_bytes is None
    assert found.cpus == (0, 1)


def test_a_group_outside_of_what_is_mounted(tmp_path: Path) -> None:
    trees.container(tmp_path)
    trees.write(tmp_path, {"proc/self/cgroup": "0::/../../elsewhere"})
    assert limits(tmp_path).quota_cpus == 1.5


def test_nothing_to_read(tmp_path: Path) -> None:
    found = limits(tmp_path)
    assert found.version is None
    assert found.cpus is None
    assert found.quota_cpus is None
