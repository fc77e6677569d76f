"""A quota holds within its block, and the process is back where it was afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perflib.course.mystery import companion
from perflib.course.quota import cpu_quota
from perflib.machine.hardware.cgroup import limits
from perflib.model.errors import UserError


@pytest.mark.skipif(not companion.can_limit(), reason="no control group can be made here: no root")
def test_a_quota_holds_meanwhile_and_the_process_comes_back_to_its_group() -> None:
    process, home = os.getpid(), Path(companion.home_of(os.getpid()))
    inner = home / f"test-{process}"
    inner.mkdir()
    try:
        (inner / "cgroup.procs").write_text(str(process))
        with cpu_quota(0.5):
            assert companion.home_of(process).endswith(f"perflib-{process}")
            assert limits().quota_cpus == 0.5
        assert companion.home_of(process) == str(inner)
        assert limits().quota_cpus != 0.5
    finally:
        (home / "cgroup.procs").write_text(str(process))
        inner.rmdir()


def test_impossible_quotas(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="between 0 and 1"), cpu_quota(1.5):
        pass
    with pytest.raises(UserError, match="docker --cpus"), cpu_quota(0.5, str(tmp_path / "none")):
        pass
    assert not (tmp_path / "none").exists()
