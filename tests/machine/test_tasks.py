from __future__ import annotations

import os
from pathlib import Path

from perflib.lab.neighbour import busy_neighbour
from perflib.machine.activity.tasks import TaskTime, busiest_tasks, task_times


def task(pid: int, name: str, cpu_ms: float, cpu: int = 1, read_s: float = 0.0) -> TaskTime:
    return TaskTime(pid, name, int(1e6 * cpu_ms), cpu, "normal", read_s)


def test_the_busiest_are_named_by_what_they_used_meanwhile() -> None:
    before = {1: task(1, "old", 9e6), 2: task(2, "thief", 100)}
    after = {
        1: task(1, "old", 9e6, read_s=10.0),
        2: task(2, "thief", 800, read_s=10.0),
        3: task(3, "new", 2000, read_s=10.0),
        4: task(4, "elsewhere", 5000, cpu=0, read_s=10.0),
        5: task(os.getpid(), "us", 5000, read_s=10.0),
    }
    found = busiest_tasks(before, after, 1)
    assert [one["name"] for one in found] == ["new", "thief"]
    assert [one["percent"] for one in found] == [20.0, 7.0]
    assert busiest_tasks(before, after, 7) == []
    assert busiest_tasks({}, {}, 1) == []


def test_a_stat_with_blanks_and_parentheses_in_the_name_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "proc/70/task/71"
    folder.mkdir(parents=True)
    (tmp_path / "proc/uptime").write_text("12.5 3.0\n")
    words = ["S", *["0"] * 35, "3", "0", "1", *["0"] * 10]
    (folder / "stat").write_text(f"71 (a (odd) name) {' '.join(words)}\n")
    (folder / "schedstat").write_text("5000000 7 9\n")
    assert task_times(tmp_path) == {71: TaskTime(70, "a (odd) name", 5_000_000, 3, "fifo", 12.5)}
    (folder / "schedstat").unlink()
    assert task_times(tmp_path) == {}


def test_a_real_neighbour_is_found_on_its_core() -> None:
    cpu = max(os.sched_getaffinity(0))
    before = task_times()
    with busy_neighbour(cpu, share=0.9):
        used = 0.0
        while used < 100e6:  # CPU time, not wall time: the machine may be busy
            after = task_times()
            ours = [one for tid, one in after.items() if tid not in before and one.cpu == cpu]
            used = max((one.cpu_ns for one in ours), default=0)
    busiest = max(ours, key=lambda one: one.cpu_ns)
    assert busiest.policy == "normal"
    assert busiest.pid != os.getpid()
