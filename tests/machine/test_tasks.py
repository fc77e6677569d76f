from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import psutil

from perflib.lab.neighbour import busy_neighbour
from perflib.machine.activity.tasks import TaskTime, TaskWatch, task_times


def task(
    pid: int, name: str, cpu_ms: float, cpu: int = 1, read_s: float = 0.0, parent: int = 1
) -> TaskTime:
    return TaskTime(pid, name, int(1e6 * cpu_ms), cpu, "normal", read_s, parent=parent)


def watch(
    *readings: dict[int, TaskTime], affinity: Callable[[int], set[int]] = lambda _: {0, 1}
) -> TaskWatch:
    left = iter(readings)
    made = TaskWatch(read=lambda: next(left), affinity=affinity)
    for _ in readings[1:]:
        made.look(now=True)
    return made


def test_the_busiest_are_named_by_what_they_used_meanwhile() -> None:
    me = os.getpid()
    found = watch(
        {1: task(1, "old", 9e6), 2: task(2, "thief", 100)},
        {
            1: task(1, "old", 9e6, read_s=10.0),
            2: task(2, "thief", 800, read_s=10.0),
            3: task(3, "new", 2000, read_s=10.0),
            4: task(4, "elsewhere", 5000, cpu=0, read_s=10.0),
            me: task(me, "us", 5000, read_s=10.0),
            6: task(6, "ours", 5000, read_s=10.0, parent=me),
            7: task(7, "our child's", 5000, read_s=10.0, parent=6),
        },
    )
    assert [one["name"] for one in found.busiest(1)] == ["new", "thief"]
    assert [one["percent"] for one in found.busiest(1)] == [20.0, 7.0]
    assert found.busiest(5) == []
    assert watch({}, {}).busiest(1) == []


def test_a_task_that_is_bound_to_one_core_after_another_is_bound_to_none() -> None:
    readings = [
        {2: task(2, "wanders", 0), 3: task(3, "stays", 0)},
        {2: task(2, "wanders", 1000, 0, 5.0), 3: task(3, "stays", 1000, 1, 5.0)},
        {2: task(2, "wanders", 3000, 1, 10.0), 3: task(3, "stays", 2000, 1, 10.0)},
    ]
    places = {2: iter([{0}, {1}]), 3: iter([{1}, {1}])}
    found = watch(*readings, affinity=lambda tid: next(places[tid]))
    assert [(one["name"], one["percent"], one["bound"]) for one in found.busiest(1)] == [
        ("stays", 20.0, True),
        ("wanders", 20.0, False),
    ]
    assert [(one["name"], one["bound"]) for one in found.busiest(0)] == [("wanders", False)]


def test_a_task_that_may_run_elsewhere_is_not_bound() -> None:
    found = watch({2: task(2, "free", 0)}, {2: task(2, "free", 1000, 1, 10.0)})
    assert not found.busiest(1)[0]["bound"]


def test_a_stat_with_blanks_and_parentheses_in_the_name_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "proc/70/task/71"
    folder.mkdir(parents=True)
    (tmp_path / "proc/uptime").write_text("12.5 3.0\n")
    words = ["S", "9", *["0"] * 34, "3", "0", "1", *["0"] * 10]
    (folder / "stat").write_text(f"71 (a (odd) name) {' '.join(words)}\n")
    (folder / "schedstat").write_text("5000000 7 9\n")
    assert task_times(tmp_path) == {
        71: TaskTime(70, "a (odd) name", 5_000_000, 3, "fifo", 12.5, parent=9)
    }
    (folder / "schedstat").unlink()
    assert task_times(tmp_path) == {}


def test_a_real_neighbour_is_found_on_its_core() -> None:
    cpu = max(os.sched_getaffinity(0))
    before = task_times()
    with busy_neighbour(cpu, share=0.9):
        used = 0.0
        while used < 100e6:  # CPU time, not wall time: the machine may be busy
            after = task_times()
            started = {child.pid for child in psutil.Process().children(recursive=True)}
            new = [one for tid, one in after.items() if tid not in before and one.cpu == cpu]
            ours = [one for one in new if one.pid in started]  # other tests start some, too
            used = max((one.cpu_ns for one in ours), default=0)
    busiest = max(ours, key=lambda one: one.cpu_ns)
    assert busiest.policy == "normal"
    assert busiest.pid != os.getpid()
