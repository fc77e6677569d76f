from __future__ import annotations

from pathlib import Path

import pytest

from perflib.machine.hardware.cgroup import limits
from tests.machine import trees


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


def test_version_1_with_a_quota(tmp_path: Path) -> None:
    mount = "33 31 0:30 /docker/abc /sys/fs/cgroup/{0} rw - cgroup cgroup rw,{0}"
    files = {
        "proc/self/cgroup": "5:cpu,cpuacct:/docker/abc\n4:cpuset:/docker/abc\n3:memory:/docker/abc",
        "proc/self/mountinfo": "\n".join(map(mount.format, ("cpu,cpuacct", "cpuset", "memory"))),
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


V1 = "33 31 0:30 {} {} rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct"
V2 = "41 31 0:38 {} {} rw,relatime - cgroup2 cgroup2 rw,nsdelegate"
OVER = "42 31 0:39 / {} rw - tmpfs tmpfs rw"


@pytest.mark.parametrize(
    ("group", "mounted", "quotas", "expected"),
    [
        pytest.param(
            "/own/inner",
            [("/other", "mnt/first"), ("/", "mnt/second")],
            {"mnt/first": 1, "mnt/second": 8, "mnt/second/own": 2, "mnt/second/own/inner": 4},
            "mnt/second/own",
            id="a subtree of others comes first",
        ),
        pytest.param(
            "/docker/x/inner",
            [("/docker/x", "mnt/bound"), ("/docker", "mnt/wider"), ("/docker/xy", "mnt/like")],
            {"mnt/bound": 4, "mnt/wider": 2, "mnt/wider/x/inner": 8, "mnt/like": 1},
            "mnt/wider",
            id="the widest of those around it",
        ),
        pytest.param(
            "/own", [("/", "mnt/a\\040b\\134\\011c")], {"mnt/a b\\\tc/own": 3}, "mnt/a b\\\tc/own",
            id="escaped",
        ),
        pytest.param(
            "/a b", [("/a\\040b", "mnt/here")], {"mnt/here": 3}, "mnt/here", id="an escaped top"
        ),
        pytest.param(
            "/own", [("/", "mnt/no\u00a0\u2028break")], {"mnt/no\u00a0\u2028break/own": 3},
            "mnt/no\u00a0\u2028break/own", id="what only Python takes for a space or a line's end",
        ),
        pytest.param(
            "/own", [("/other", "mnt/cpu"), ("/", "mnt/cpu")], {"mnt/cpu": 9, "mnt/cpu/own": 2},
            "mnt/cpu/own", id="a later mount at the same place",
        ),
        pytest.param(
            "/own", [("/", "mnt/gone"), ("/own", "mnt/here")], {"mnt/here": 2}, "mnt/here",
            id="one that another mount covers",
        ),
        pytest.param(
            "/../own", [("/../other", "mnt/a"), ("/..", "mnt/b")], {"mnt/a": 1, "mnt/b/own": 2},
            "mnt/b/own", id="tops above the namespace",
        ),
        pytest.param(
            "/inner", [("/../..", "mnt/all")],
            {"mnt/all/x/z/inner": 1, "mnt/all/x/own": 2, "mnt/all/x/own/inner": 4},
            "mnt/all/x/own", id="the namespace's own top has no name",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("version", ["v1", "v2", "hybrid"])
def test_the_mount_that_shows_the_process_s_own_group(
    tmp_path: Path, version: str, group: str, mounted: list[tuple[str, str]],
    quotas: dict[str, int], expected: str,
) -> None:  # fmt: skip
    line = V2 if version == "v2" else V1
    lines = [line.format(top, f"/{where}") for top, where in mounted]
    if version == "hybrid":
        lines.insert(0, V2.format("/", "/mnt/unified"))
    first = f"5:cpu,cpuacct:{group}"
    files = {
        "proc/self/stat": "77 (python) R 1",
        "proc/self/mountinfo": "\n".join([*lines, OVER.format("/mnt/unrelated")]),
        "proc/self/cgroup": {"v1": first, "v2": f"0::{group}"}.get(version, f"{first}\n0::{group}"),
        "mnt/all/x/z/inner/cgroup.procs": "1\n78",
        "mnt/all/x/own/inner/cgroup.procs": "76\n77\n",
    }
    for folder, cpus in quotas.items():
        if version == "v2":
            files[f"{folder}/cpu.max"] = f"{cpus}0000 10000"
        else:
            files[f"{folder}/cpu.cfs_quota_us"] = f"{cpus}0000"
            files[f"{folder}/cpu.cfs_period_us"] = "10000"
    found = limits(trees.write(tmp_path, files))
    name = "cpu.max" if version == "v2" else "cpu.cfs_quota_us"
    assert found.version == version
    assert (found.quota_cpus, found.quota_path) == (quotas[expected], f"/{expected}/{name}")
