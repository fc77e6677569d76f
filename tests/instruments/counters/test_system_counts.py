from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from perflib.instruments.counters import system_counts
from perflib.instruments.counters.aliases import aliases
from perflib.instruments.counters.kernel_names import GENERIC
from perflib.instruments.counters.sets import sets
from perflib.instruments.counters.system_counts import (
    MISSING,
    SYSTEM_COUNTS,
    SYSTEM_SETS,
    SystemCounts,
)
from perflib.machine.files import text
from perflib.model.errors import UserError
from tests.machine import trees

TICK_MS = 1000 // os.sysconf("SC_CLK_TCK")
MOUNT = "30 1 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
GROUP = "sys/fs/cgroup/batch/job7"


def names(pid: int | None = None, root: Path = Path("/")) -> dict[str, str]:
    """Each count by its name: empty where it can be read, or else why it cannot."""
    with SystemCounts(SYSTEM_COUNTS, pid=pid, root=root) as counts:
        return {name: counts.lacking.get(name, "") for name in SYSTEM_COUNTS}


def softirqs(*rows: tuple[int, ...], cpus: tuple[int, ...] = (0, 1)) -> str:
    lines = ["".join(f"       CPU{cpu}" for cpu in cpus)]
    for kind, row in zip(("TIMER", "NET_RX"), rows, strict=True):
        lines.append(f"{kind:>12}:" + "".join(f" {count:10d}" for count in row))
    return "\n".join(lines)


def schedstat(*delays: int) -> str:
    return "\n".join(f"cpu{cpu} 0 0 0 0 0 0 900 {delay} 3" for cpu, delay in enumerate(delays))


def pressure(some: int, full: int) -> str:
    return "\n".join(
        f"{name} avg10=1.43 avg60=1.91 avg300=20.26 total={total}"
        for name, total in (("some", some), ("full", full))
    )


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    return trees.write(
        tmp_path,
        {
            "sys/devices/system/cpu/possible": "0-1",
            "proc/self/mountinfo": MOUNT,
            "proc/pressure/memory": pressure(1000, 500),
            "proc/stat": "cpu  30 0 3 9 0 0 0 7 0 0\ncpu0 10 0 1 4 0 0 0 7 0 0\n"
            "cpu1 20 0 2 5 0 0 0 0 0 0\nintr 100 1 2\nctxt 55\nprocesses 9",
            "proc/softirqs": softirqs((100, 200), (10, 20)),
            "proc/schedstat": "version 15\ntimestamp 1\n"
            + schedstat(1000, 2000).replace("\n", "\ndomain0 3 1 2\n"),
            "proc/vmstat": "pgfault 5000\npgmajfault 3\npgfault_other 7",
            f"{GROUP}/cgroup.procs": "",
            f"{GROUP}/cpu.stat": "usage_usec 10\nnr_throttled 2\nthrottled_usec 300",
            f"{GROUP}/cpu.pressure": pressure(40, 4),
        },
    )


def by_name(counts: SystemCounts) -> dict[tuple[str, int], int]:
    return dict(zip(counts.columns, counts.read().tolist(), strict=True))


def change(root: Path, file: str, content: str) -> None:
    (root / file).write_text(content + "\n")


def test_names_are_no_events_and_sets_name_counts() -> None:
    known = {name.lower() for name in GENERIC} | set(aliases())
    assert not known & set(SYSTEM_COUNTS)
    assert not set(SYSTEM_SETS) & (set(sets()) | known | set(SYSTEM_COUNTS))
    for members in SYSTEM_SETS.values():
        assert set(members) <= set(SYSTEM_COUNTS)
    scopes = {count.scope for count in SYSTEM_COUNTS.values()}
    assert scopes == {"machine", "cpu", "process", "cgroup"}
    assert all(count.help for count in SYSTEM_COUNTS.values())


def test_counts_begin_at_zero_and_are_those_of_the_files(machine: Path) -> None:
    wanted = ["pressure-memory-full", "cpu-user", "machine-context-switches", "softirqs"]
    wanted += ["softirqs-net-rx", "run-queue-delay", "vm-page-faults"]
    with SystemCounts(wanted, root=machine) as counts:
        assert set(by_name(counts).values()) == {0}
        change(machine, "proc/pressure/memory", pressure(1100, 507))
        stat = "cpu  36 0 3 9 0 0 0 7 0 0\ncpu0 13 0 1 4 0 0 0 7 0 0\nctxt 60\nprocesses 9"
        change(machine, "proc/stat", stat)
        change(machine, "proc/softirqs", softirqs((101, 203), (15, 20)))
        change(machine, "proc/schedstat", schedstat(1005, 2001))
        change(machine, "proc/vmstat", "pgfault_other 99\npgfault 5007")
        assert by_name(counts) == {
            ("pressure-memory-full", -1): 7,
            ("cpu-user", -1): 6 * TICK_MS,
            ("machine-context-switches", -1): 5,
            ("softirqs", -1): 9,
            ("softirqs-net-rx", -1): 5,
            ("run-queue-delay", -1): 6,
            ("vm-page-faults", -1): 7,
        }
        assert counts.remarks == []


def test_a_cpu_that_goes_and_comes_back(machine: Path) -> None:
    with (
        SystemCounts(["softirqs", "run-queue-delay"], cpus=[0, 1], root=machine) as apart,
        SystemCounts(["softirqs", "run-queue-delay"], root=machine) as together,
    ):
        apart.read()
        change(machine, "proc/softirqs", softirqs((110,), (10,), cpus=(0,)))
        change(machine, "proc/schedstat", schedstat(1001))
        assert apart.read().tolist() == [10, MISSING, 1, MISSING]
        assert together.read().tolist() == [10, 1]
        change(machine, "proc/softirqs", softirqs((110, 205), (10, 20)))
        change(machine, "proc/schedstat", schedstat(1001, 2005))
        assert apart.read().tolist() == [10, 5, 1, 5]
        assert together.read().tolist() == [15, 6]


def test_a_count_of_32_bits_wraps(machine: Path) -> None:
    change(machine, "proc/softirqs", softirqs(((1 << 32) - 3, 200), (10, 20)))
    with SystemCounts(["softirqs-timer"], root=machine) as counts:
        change(machine, "proc/softirqs", softirqs((4, 200), (10, 20)))
        assert counts.read().tolist() == [7]
        assert counts.remarks == []


def test_a_count_that_is_set_back_stays_and_goes_on(machine: Path) -> None:
    with SystemCounts(["vm-page-faults", "softirqs-timer"], root=machine) as counts:
        change(machine, "proc/vmstat", "pgfault 5010")
        counts.read()
        change(machine, "proc/vmstat", "pgfault 4000")
        change(machine, "proc/softirqs", softirqs((90, 200), (10, 20)))
        assert counts.read().tolist() == [10, 0]
        change(machine, "proc/vmstat", "pgfault 4001")
        assert counts.read().tolist() == [11, 0]
        counts.read()
        assert sorted(counts.remarks) == [
            f"the kernel set {name} back; what it had stays"
            for name in ("softirqs-timer", "vm-page-faults")
        ]


def test_a_file_that_vanishes_is_missing_and_comes_back(machine: Path) -> None:
    with SystemCounts(
        ["cgroup-cpu-time", "vm-page-faults"], cgroup="batch/job7", root=machine
    ) as counts:
        file = machine / GROUP / "cpu.stat"
        os.truncate(file, 0)
        assert counts.read().tolist() == [MISSING, 0]
        change(machine, f"{GROUP}/cpu.stat", "usage_usec 25")
        assert counts.read().tolist() == [15, 0]


# --- control groups ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["batch/job7", "/batch/job7", "/sys/fs/cgroup/batch/job7"])
def test_a_control_group(machine: Path, path: str) -> None:
    wanted = ["cgroup-throttled", "cgroup-pressure-cpu-some"]
    with SystemCounts(wanted, cgroup=path, root=machine) as counts:
        change(machine, f"{GROUP}/cpu.stat", "usage_usec 10\nnr_throttled 2\nthrottled_usec 301")
        change(machine, f"{GROUP}/cpu.pressure", pressure(42, 4))
        assert counts.read().tolist() == [1, 2]


def test_a_control_group_that_is_not_there(machine: Path) -> None:
    with pytest.raises(
        UserError, match=r"no control group 'batch/job8' below /sys/fs/cgroup: name"
    ):
        SystemCounts(["cgroup-throttled"], cgroup="batch/job8", root=machine)
    change(machine, "proc/self/mountinfo", "")
    with pytest.raises(UserError, match="no control groups of version 2 are mounted"):
        SystemCounts(["cgroup-throttled"], cgroup="batch/job7", root=machine)


# --- a process -----------------------------------------------------------------------------------


def process(
    root: Path, pid: int, minor: tuple[int, int], threads: dict[int, int], children: str = ""
) -> None:
    stat = f"{pid} (a job) S (x) S 1 1 1 0 -1 4194304 {minor[0]} {minor[1]} 0 0 5 6 7 8 20 0 1"
    files = {f"proc/{pid}/stat": stat, f"proc/{pid}/task/{pid}/children": children}
    for tid, delay in threads.items():
        files[f"proc/{pid}/task/{tid}/schedstat"] = f"99 {delay} 3"
        files[f"proc/{pid}/task/{tid}/status"] = (
            f"Name:\tjob\nvoluntary_ctxt_switches:\t{delay}\nnonvoluntary_ctxt_switches:\t1"
        )
    trees.write(root, files)


TASK = ["task-run-queue-delay", "task-switches-voluntary", "task-minor-faults"]


def test_threads_that_come_and_end_keep_what_they_had(tmp_path: Path) -> None:
    process(tmp_path, 50, (1000, 0), {50: 10, 51: 100})
    with SystemCounts(TASK, pid=50, root=tmp_path) as counts:
        assert counts.read().tolist() == [0, 0, 0]
        process(tmp_path, 50, (1004, 0), {50: 11, 51: 105, 52: 7})
        assert counts.read().tolist() == [13, 13, 4]
        shutil.rmtree(tmp_path / "proc/50/task/51")
        assert counts.read().tolist() == [13, 13, 4]
        process(tmp_path, 50, (1004, 0), {50: 11, 51: 2, 52: 7})  # the number, used again
        assert counts.read().tolist() == [15, 15, 4]
        process(tmp_path, 50, (1004, 0), {52: 3})  # ended and used again between two readings
        assert counts.read().tolist() == [18, 18, 4]
        assert counts.remarks == []


def test_a_child_that_was_waited_for_is_counted_once(tmp_path: Path) -> None:
    process(tmp_path, 50, (1000, 0), {50: 10}, children="60")
    process(tmp_path, 60, (500, 0), {60: 5})
    with SystemCounts(TASK, pid=50, root=tmp_path) as counts:
        process(tmp_path, 60, (520, 0), {60: 6}, children="61")
        process(tmp_path, 61, (7, 0), {61: 1})
        assert counts.read().tolist() == [2, 2, 27]
        for pid in (60, 61):
            shutil.rmtree(tmp_path / f"proc/{pid}")
        process(tmp_path, 50, (1000, 530), {50: 10})
        assert counts.read().tolist() == [2, 2, 30]


def test_a_child_that_ends_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process(tmp_path, 50, (1000, 0), {50: 10}, children="60")
    process(tmp_path, 60, (500, 0), {60: 5})
    with SystemCounts(["task-minor-faults"], pid=50, root=tmp_path) as counts:

        def waited_for(path: Path) -> str | None:
            if path == tmp_path / "proc/60/stat" and path.exists():
                path.unlink()  # after its parent was read
                process(tmp_path, 50, (1000, 501), {50: 10})
            return text(path)

        monkeypatch.setattr(system_counts, "text", waited_for)
        assert counts.read().tolist() == [1]
        assert counts.read().tolist() == [1]


def test_a_process_that_ends() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with SystemCounts(["task-minor-faults", "vm-page-faults"], pid=child.pid) as counts:
            assert (counts.read() >= 0).all()
            child.communicate(b"\n", timeout=60)
            after = counts.read()
            assert after[0] == MISSING
            assert after[1] >= 0
            assert counts.remarks == [f"process {child.pid} is gone"]
        assert "is gone" in names(child.pid)["task-user"]
    finally:
        child.kill()
        child.wait()


# --- this machine --------------------------------------------------------------------------------


def test_counts_never_fall_and_every_absence_has_a_reason() -> None:
    reasons = names(os.getpid())
    assert set(reasons) == set(SYSTEM_COUNTS)
    here = [name for name, why in reasons.items() if not why]
    assert "cpu-user" in here
    assert "a control group's" in reasons["cgroup-throttled"]
    assert "a process's" in names()["task-user"]
    with SystemCounts(here, pid=os.getpid()) as counts:
        assert counts.lacking == {}
        readings = np.array([counts.read() for _ in range(5)])
    assert (np.diff(readings, axis=0) >= 0).all()
    assert (readings >= 0).all()


def test_a_name_that_is_none() -> None:
    with pytest.raises(UserError, match="did you mean 'softirqs-timer'"):
        SystemCounts(["softirq-timer"])
