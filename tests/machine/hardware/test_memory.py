from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from perflib.machine.hardware import cgroup
from perflib.machine.hardware.memory import free_bytes


def test_free_memory_is_the_kernels_or_a_control_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert free_bytes(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 4000 kB\nMemAvailable:    2000 kB\n")
    assert free_bytes(tmp_path) == 2000 * 1024
    allowed = dataclasses.replace(cgroup.limits(tmp_path), memory_bytes=1 << 20)
    monkeypatch.setattr(cgroup, "limits", lambda _: allowed)
    assert free_bytes(tmp_path) == 1 << 20
