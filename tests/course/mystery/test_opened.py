"""Every trouble in force, by its own account; and all put back, however the process ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from perflib.course.mystery import Mystery, RecordedMystery, companion, mystery
from perflib.course.mystery.causes import CAUSES, LEVELS, NOTHING
from perflib.machine.activity.tasks import TaskWatch
from perflib.machine.hardware.cgroup import limits
from perflib.model.errors import MeasurementError, UserError
from tests.course.mystery.cases import opened, seed_of, trouble_of
from tests.processes import is_gone, soon

# One at a time: an opened one clears up after those that were killed.
pytestmark = pytest.mark.xdist_group("mystery")

SCRIPT = """
import json, os, sys
import perflib.course.mystery as package
machine = package.mystery(int(sys.argv[1]), sys.argv[2])
print(json.dumps([machine._opened.companion, os.getpid()]), flush=True)
{end}
"""
WAITS = "sys.stdin.read()"


def groups() -> list[str]:
    return Path("/proc/self/cgroup").read_text().splitlines()


def started(cause: str, end: str = WAITS) -> tuple[subprocess.Popen[str], int]:
    """A process with an open mystery, and its companion."""
    argv = [sys.executable, "-c", SCRIPT.format(end=end), str(seed_of(cause)), "medium"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())[0]


def group_of(pid: int) -> Path:
    return Path(companion._group(pid, companion.GROUPS))


# --- in force ------------------------------------------------------------------------------------


def test_a_thief_takes_its_share_of_its_core() -> None:
    trouble = trouble_of("thief")
    with opened("thief") as machine:
        process = psutil.Process(machine._opened.companion)
        assert process.cpu_affinity() == [trouble.cpu]
        assert trouble.place == f"cpu{trouble.cpu}"
        assert soon(lambda: sum(process.cpu_times()[:2]) > 0.1)
        assert process.memory_info().rss < companion._STREAMED_BYTES / 2


def test_a_hog_has_memory_that_it_streams_through() -> None:
    with opened("hog") as machine:
        process = psutil.Process(machine._opened.companion)
        assert process.cpu_affinity() == [trouble_of("hog").cpu]
        assert soon(lambda: process.memory_info().rss > companion._STREAMED_BYTES)
        assert soon(lambda: sum(process.cpu_times()[:2]) > 0.2)


def test_a_quota_holds_for_this_process_and_what_it_starts() -> None:
    before = groups()
    with opened("quota"):
        allowed = 1 - trouble_of("quota").thousandths / 1000
        assert limits().quota_cpus == pytest.approx(allowed, abs=1e-4)
        script = "from perflib.machine.hardware.cgroup import limits; print(limits().quota_cpus)"
        child = subprocess.check_output([sys.executable, "-c", script], text=True)
        assert float(child) == pytest.approx(allowed, abs=1e-4)
        group = group_of(os.getpid())
        assert group.is_dir()
    assert groups() == before
    assert not group.exists()


@pytest.mark.parametrize("cause", ["function", "code", "buffer", "lock", NOTHING])
def test_where_the_trouble_is_in_the_job_the_machine_is_left_alone(cause: str) -> None:
    before = groups()
    with opened(cause) as machine:
        process = psutil.Process(machine._opened.companion)
        assert set(process.cpu_affinity()) == os.sched_getaffinity(0)
        assert groups() == before
        assert machine.job["job"] == "command"
        assert "{first} {events} {seed}" in machine.job["job_command"]


def test_the_companion_is_no_child_so_that_a_measurement_sees_it() -> None:
    with opened("thief") as machine:
        watch = TaskWatch(every_s=0.0)
        pid, cpu = machine._opened.companion, trouble_of("thief").cpu
        assert pid not in [child.pid for child in psutil.Process().children(recursive=True)]

        def seen() -> bool:
            watch.look(now=True)
            return pid in [task["pid"] for task in watch.busiest(cpu)]

        assert soon(seen)


def test_the_share_is_reported_while_it_is_open() -> None:
    with opened("thief") as machine:
        assert machine._opened.share_percent() is None  # too soon to say
        machine._opened._began_s -= 10
        assert soon(lambda: (machine._opened.share_percent() or 0) > 0)
    assert machine._opened.share_percent() is None


def test_decoys_of_the_hard_level_use_less_than_counts() -> None:
    trouble = trouble_of("code", "hard")
    with opened("code", "hard") as machine:
        process = psutil.Process(machine._opened.companion)
        assert process.cpu_affinity() == [trouble.decoy_cpu]


# --- put back ------------------------------------------------------------------------------------


def test_one_that_nobody_keeps_is_closed() -> None:
    pid = opened("thief")._opened.companion
    assert is_gone(pid)
    opened("thief").close()


@pytest.mark.parametrize("cause", ["thief", "hog", "quota", NOTHING])
@pytest.mark.parametrize("end", [WAITS, "", "raise SystemExit(3)", "os._exit(1)"])
def test_the_end_of_the_process_puts_all_back(cause: str, end: str) -> None:
    process, pid = started(cause, end)
    with process:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)
    assert is_gone(pid)
    assert soon(lambda: not group_of(process.pid).exists())


@pytest.mark.parametrize("cause", ["thief", "hog", "quota"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_killed_it_is_put_back(cause: str, number: int) -> None:
    process, pid = started(cause)
    with process:
        assert group_of(process.pid).exists() == (cause == "quota")
        process.send_signal(number)
        process.wait(60)
    assert is_gone(pid)
    assert soon(lambda: not group_of(process.pid).exists())


def test_the_quota_is_lifted_from_what_outlives_a_killed_process() -> None:
    start = "import subprocess; child = subprocess.Popen(['sleep', '600']); print(child.pid)"
    process, pid = started("quota", f"{start}; sys.stdout.flush(); {WAITS}")
    with process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            assert str(child) in (group_of(process.pid) / "cgroup.procs").read_text().split()
            process.kill()
            process.wait(60)
            assert is_gone(pid)
            assert f"perflib-{process.pid}" not in Path(f"/proc/{child}/cgroup").read_text()
            assert not group_of(process.pid).exists()
        finally:
            os.kill(child, signal.SIGKILL)


def test_where_the_companion_was_killed_closing_lifts_the_quota() -> None:
    before = groups()
    with opened("quota") as machine:
        os.kill(machine._opened.companion, signal.SIGKILL)
        assert is_gone(machine._opened.companion)
        assert groups() != before
        machine._opened._began_s -= 10
        assert machine._opened.share_percent() is None
    assert groups() == before


def test_where_both_were_killed_the_next_mystery_clears_up() -> None:
    process, pid = started("quota")
    with process:
        os.kill(pid, signal.SIGSTOP)  # it cannot see the end of its input
        process.kill()
        process.wait(60)
    os.kill(pid, signal.SIGKILL)
    assert is_gone(pid)  # the group is left, unless another perflib here cleared it up by now
    opened(NOTHING).close()
    assert not group_of(process.pid).exists()


def test_groups_of_the_living_and_of_other_containers_are_left_alone(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    for name, members in (
        (f"perflib-{os.getpid()}", ""),
        (f"perflib-{dead.pid}", ""),
        (f"perflib-{dead.pid}0000000", "0\n"),
        ("perflib-quota-1", ""),
        ("system.slice", ""),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").write_text(members)
    assert list(companion.groups_left(str(tmp_path))) == [dead.pid]
    assert list(companion.groups_left(str(tmp_path / "none"))) == []


def test_a_fork_closes_nothing() -> None:
    with opened("thief") as machine:
        child = os.fork()
        if child == 0:
            machine.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert psutil.Process(machine._opened.companion).status() != psutil.STATUS_ZOMBIE


def test_runs_are_marked_as_of_an_exercise_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(NOTHING):
        assert os.environ["PERFLIB_TAG"] == "exercise"
    assert "PERFLIB_TAG" not in os.environ
    monkeypatch.setenv("PERFLIB_TAG", "mine")
    with opened(NOTHING):
        assert os.environ["PERFLIB_TAG"] == "mine"
    assert os.environ["PERFLIB_TAG"] == "mine"


# --- refused -------------------------------------------------------------------------------------


def test_two_at_once_are_refused_and_the_first_goes_on() -> None:
    with opened(NOTHING) as machine:
        with pytest.raises(UserError, match=r"open already, in this process.*machine\.close"):
            mystery(1)
        assert "open" in repr(machine)
    mystery(1).close()
    process, _ = started(NOTHING)
    with process:
        with pytest.raises(UserError, match=f"open already, in process {process.pid}"):
            mystery(1)
        process.kill()
    assert soon(lambda: isinstance(_tried(), Mystery))


def _tried() -> Mystery | RecordedMystery | None:
    try:
        made = mystery(1)
    except UserError:
        return None
    made.close()
    return made


def test_a_companion_that_cannot_do_it_leaves_all_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seed_of("quota")
    group_of(os.getpid()).mkdir()  # in the way: it fails as where the group cannot be made
    with pytest.raises(MeasurementError, match=r"cannot be made: .*Try another seed"):
        opened("quota")
    assert not group_of(os.getpid()).exists()
    monkeypatch.setattr(companion, "__file__", "/nowhere.py")
    with pytest.raises(MeasurementError, match="its companion did not start"):
        opened(NOTHING)
    monkeypatch.undo()
    opened(NOTHING).close()


# --- the table of causes ---------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_causes_are_a_table(level: str) -> None:
    with mystery(1, level) as machine:  # type: ignore[arg-type]
        table = machine.causes
    assert list(table.index) == [name for name, one in CAUSES.items() if level in one.sizes]
    assert list(table.columns) == ["does", "place", "size (percent)", "examined in", "here"]
    notebooks = Path(__file__).parents[3] / "notebooks"
    for notebook in table["examined in"]:
        assert (notebooks / f"{notebook}.ipynb").is_file()
