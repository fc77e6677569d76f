from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from perflib.lab.neighbour import busy_neighbour, cpu_quota
from perflib.machine.hardware.cgroup import limits
from perflib.machine.hardware.topology import topology
from perflib.model.errors import UserError


def test_the_neighbour_sits_on_the_core_and_goes_away() -> None:
    cpu = topology().allowed_cpus()[-1]
    with busy_neighbour(cpu, share=0.2):
        (child,) = (
            child
            for child in psutil.Process().children()
            if "thread_time" in "".join(child.cmdline())
        )
        assert child.cpu_affinity() == [cpu]
    assert not child.is_running()


def test_impossible_neighbours() -> None:
    with pytest.raises(UserError, match=r"between 0 and 1"), busy_neighbour(0, share=1.5):
        pass
    with pytest.raises(UserError, match="cpu99999"), busy_neighbour(99999, share=0.5):
        pass


def cgroups() -> str:
    return Path("/proc/self/cgroup").read_text()


def test_a_quota_holds_meanwhile_and_is_gone_afterwards() -> None:
    before = cgroups()
    try:
        with cpu_quota(0.5):
            assert f"perflib-quota-{os.getpid()}" in cgroups()
            assert limits().quota_cpus == 0.5
    except UserError as error:
        pytest.skip(str(error))
    assert cgroups() == before
    assert limits().quota_cpus != 0.5


def test_impossible_quotas(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="between 0 and 1"), cpu_quota(1.5):
        pass
    with pytest.raises(UserError, match="docker --cpus"), cpu_quota(0.5, tmp_path / "none"):
        pass
    assert not (tmp_path / "none").exists()
