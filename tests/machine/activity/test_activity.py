from __future__ import annotations

from pathlib import Path

from perflib.machine.activity.activity import CpuTime, cpu_times
from tests.machine import trees


def test_times_of_each_cpu(tmp_path: Path) -> None:
    text = "cpu  9 9 9 9\ncpu0 10 1 5 70 4 2 3 6 8 0\ncpu3 1 0 1 8\nintr 5\nctxt 1"
    found = cpu_times(trees.write(tmp_path, {"proc/stat": text}))
    assert found == {0: CpuTime(busy=21, idle=74, steal=6, softirq=3), 3: CpuTime(2, 8, 0)}
    assert found[3].busy_share == 0.2


def test_steal_is_a_share_of_the_time_wanted() -> None:
    assert CpuTime(busy=90, idle=900, steal=10).steal_share == 0.1
    assert CpuTime(0, 900, 0).steal_share == 0
    assert CpuTime(0, 0, 0).busy_share == 0


def test_differences_do_not_go_below_zero() -> None:
    assert CpuTime(5, 9, 1) - CpuTime(4, 10, 0) == CpuTime(1, 0, 1)
    assert CpuTime(5, 9, 1) + CpuTime(1, 1, 1) == CpuTime(6, 10, 2)
