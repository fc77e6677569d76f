"""Groups of counters: what is counted, on what, and the rows of what cannot be."""

from __future__ import annotations

import errno
import inspect
import math
import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from numpy.typing import NDArray

from perflib.instruments.counters.events import CounterEvent, event
from perflib.instruments.counters.groups import (
    CounterGroup,
    Lacking,
    Opener,
    in_domain,
    open_counter,
    why_not,
)
from perflib.instruments.counters.kernel_names import GENERIC, SOFTWARE
from perflib.instruments.counters.readings import count_rows, new_readings
from perflib.instruments.counters.watched import CounterTarget, watch
from perflib.model.errors import UserError
from tests.counted import skip_unless_allowed
from tests.processes import open_files

FAULTS, CLOCK = event("page-faults"), event("task-clock")
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")


@pytest.fixture(autouse=True)
def _allowed() -> None:
    skip_unless_allowed()


def touch(pages: int) -> None:
    """Fault in so many new pages."""
    with mmap.mmap(-1, pages * mmap.PAGESIZE) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(pages):
            memory[page * mmap.PAGESIZE] = 1


def by_event(table: pd.DataFrame) -> dict[str, Any]:
    """Each event's row; cells of a table are of no static type."""
    return {str(row["event"]): row for row in table.to_dict("records")}


def value(group: CounterGroup, name: str) -> float:
    return float(by_event(group.read())[name]["value"])


JOB = f"""
import mmap, os, sys, threading
{inspect.getsource(touch)}
def serve():
    for line in sys.stdin:
        words = line.split()
        if words[0] == "touch":
            touch(int(words[1]))
        elif words[0] == "thread":
            one = threading.Thread(target=touch, args=(int(words[1]),))
            one.start()
            one.join()
        elif os.fork() == 0:
            touch(int(words[1]))
            os._exit(0)
        else:
            os.wait()
        print("done", flush=True)
if sys.argv[1] == "thread":
    threading.Thread(target=serve).start()
elif sys.argv[1] == "child" and os.fork():
    os.wait()
else:
    serve()
"""


@contextmanager
def job(where: str = "main") -> Iterator[tuple[int, Callable[[str], None]]]:
    """A job that does what it is asked: its pid, and how to ask it."""
    with subprocess.Popen(
        [sys.executable, "-c", JOB, where],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def tell(command: str) -> None:
            print(command, file=stdin, flush=True)
            assert stdout.readline() == "done\n"

        tell("touch 1")  # it is up
        yield process.pid, tell
        stdin.close()


# --- this thread ---------------------------------------------------------------------------------


def test_nothing_is_counted_before_and_after() -> None:
    with CounterGroup([FAULTS, CLOCK]) as group:
        touch(100)
        group.enable()
        touch(100)
        group.disable()
        touch(100)
        rows = by_event(group.read())
    assert 100 <= rows["page-faults"]["value"] < 200
    assert rows["page-faults"]["scaled"] == rows["page-faults"]["value"]
    for row in rows.values():
        assert row["scaled_error"] == 0
        assert row["running_ns"] == row["enabled_ns"] > 0
        assert row["status"] == "counted"


def test_the_same_name_twice_is_refused() -> None:
    with pytest.raises(UserError, match="'mine' names page-faults more than once"):
        CounterGroup([FAULTS, CLOCK, FAULTS], name="mine")


# --- user space and the kernel -------------------------------------------------------------------


def test_domains_replace_one_another_and_keep_what_is_lacking() -> None:
    again = in_domain(in_domain([FAULTS, Lacking("odd", "why")], "user"), "kernel")
    assert [one.name for one in again] == ["page-faults:k", "odd:k"]
    assert in_domain(again, "all") == [FAULTS, Lacking("odd", "why")]
    with pytest.raises(UserError, match="did you mean 'kernel'"):
        in_domain([FAULTS], "kernle")  # type: ignore[arg-type]


# --- processes, threads, CPUs --------------------------------------------------------------------


@pytest.mark.parametrize("where", ["main", "thread", "child"])
@pytest.mark.parametrize("what", ["touch", "thread", "fork"])
def test_a_process_is_counted_with_threads_and_children(where: str, what: str) -> None:
    with job(where) as (pid, tell), CounterGroup([CLOCK, FAULTS], watch(pid=pid)) as group:
        group.enable()
        tell(f"{what} 2000")
        group.disable()
        assert 2000 <= value(group, "page-faults") < 3000


def test_without_inheritance_what_is_made_later_is_not_counted() -> None:
    with job() as (pid, tell), CounterGroup([FAULTS], watch(pid=pid, inherit=False)) as group:
        group.enable()
        tell("fork 2000")
        tell("thread 2000")
        assert value(group, "page-faults") < 1000


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"pid": 1, "tid": 2}, "name one of them"),
        ({"cpus": []}, "no CPU"),
        ({"pid": 0}, "no process id"),
    ],
)
def test_what_to_watch_is_checked(wrong: dict[str, int], says: str) -> None:
    with pytest.raises(UserError, match=says):
        watch(**wrong)  # type: ignore[arg-type]


# --- refused -------------------------------------------------------------------------------------


def refusing(refuse: Callable[[CounterEvent, CounterTarget, int], int]) -> Opener:
    """Opens counters like the kernel, but refuses where ``refuse`` does."""

    def opener(event: CounterEvent, target: CounterTarget, leader: int, **how: bool) -> int:
        if number := refuse(event, target, leader):
            raise OSError(number, os.strerror(number))
        return open_counter(event, target, leader, inherit=how["inherit"], off=how["off"])

    return opener


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOENT, "absent"),
        (errno.EOPNOTSUPP, "absent"),
        (errno.ENODEV, "absent"),
        (errno.EINVAL, "absent"),
        (errno.EMFILE, "too many open files: the limit is"),
        (errno.EBUSY, "another profiler"),
        (errno.ENOSYS, "no perf_event_open"),
        (errno.EACCES, "not allowed"),
        (errno.EIO, "failed: Input/output error"),
    ],
)
def test_a_refused_leader_gives_way_to_the_next(number: int, says: str) -> None:
    opener = refusing(lambda event, *_: number if event is CLOCK else 0)
    before = open_files()
    with CounterGroup([CLOCK, FAULTS], opener=opener) as group:
        group.enable()
        touch(20)
        rows = by_event(group.read())
    assert says in rows["task-clock"]["status"]
    assert rows["page-faults"]["value"] >= 20
    assert open_files() == before


def test_more_counters_than_the_processor_has() -> None:
    opener = refusing(lambda event, _, leader: errno.EINVAL * (event is CLOCK and leader >= 0))
    with CounterGroup([FAULTS, CLOCK], opener=opener) as group:
        assert "does not fit into the set" in group.refused["task-clock"]
        assert [one.name for one in group.events] == ["page-faults"]


def test_a_driver_that_forgets_a_leader_that_is_off() -> None:
    """As Linux 6.1 does on a Neoverse N1 of six counters: nine opened, and none ever counted."""
    sizes: dict[int, int] = {}  # of each group by its leader, one that is off left out
    rates = [event(f"r{code:02x}") for code in range(1, 10)]
    before = open_files()

    def opener(_: CounterEvent, target: CounterTarget, leader: int, **how: bool) -> int:
        if sizes.get(leader, 0) == 6:
            raise OSError(errno.EINVAL, "")
        counter = open_counter(FAULTS, target, leader, inherit=how["inherit"], off=how["off"])
        sizes[counter if leader == -1 else leader] = sizes.get(leader, 0) + (not how["off"])
        return counter

    with CounterGroup(rates, opener=opener) as group:
        assert [one.name for one in group.events] == [f"r{code:02x}" for code in range(1, 7)]
        assert list(group.refused) == ["r07", "r08", "r09"]
        assert all("does not fit into the set" in why for why in group.refused.values())
    assert open_files() == before


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ESRCH])
def test_an_event_refused_on_one_target_is_not_summed_over_the_others(number: int) -> None:
    """Of a thread that has ended meanwhile, no event is."""
    main = threading.get_native_id()
    go = threading.Event()
    other = threading.Thread(target=go.wait)
    other.start()
    before = open_files()
    try:
        opener = refusing(lambda event, target, _: number * (event is CLOCK and target.tid != main))
        with CounterGroup([FAULTS, CLOCK], watch(pid=os.getpid()), opener=opener) as group:
            if number == errno.EMFILE:
                assert list(group.refused) == ["task-clock"]
                assert group.counters.shape[0] >= 2
            else:
                assert not group.refused
                assert group.counters.shape == (1, 2)
            assert open_files() == before + group.counters.size
    finally:
        go.set()
        other.join()


def test_the_limit_of_open_files_is_met_by_rows() -> None:
    import resource

    names = [name for name in GENERIC if GENERIC[name][0] == SOFTWARE]
    events = [event(name) for name in names]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = open_files()
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 3, hard))
    try:
        group = CounterGroup(events)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with group:
        assert len(group.events) < len(events)
        assert set(group.refused) | {one.name for one in group.events} == set(names)
        assert all("too many open files" in reason for reason in group.refused.values())


def test_an_event_of_another_processor_is_not_counted() -> None:
    foreign = CounterEvent("ITLB_MISSES", type=4, config=0xE85, cpu="no-such-cpu")
    with CounterGroup([foreign]) as group:
        assert group.refused["ITLB_MISSES"].startswith("absent: encoded for no-such-cpu")


CPU0, THREAD = CounterTarget(-1, 0), CounterTarget(5)
USER = in_domain([FAULTS], "user")[0]
TRACEPOINT = CounterEvent("sched:sched_switch", type=2, config=1)


@pytest.mark.parametrize(
    ("event", "target", "paranoid", "level"),
    [
        (FAULTS, THREAD, 2, 1),
        (FAULTS, THREAD, 4, 1),
        (USER, THREAD, 4, 2),  # Debian and Ubuntu: nothing at all but for root
        (USER, THREAD, 3, 2),
        (USER, CPU0, 2, 0),
        (FAULTS, CPU0, 1, 0),
        (TRACEPOINT, THREAD, 2, -1),
    ],
)
def test_not_allowed_names_the_setting(
    event: CounterEvent, target: CounterTarget, paranoid: int, level: int
) -> None:
    assert isinstance(event, CounterEvent)
    for number in (errno.EACCES, errno.EPERM):
        words = why_not(number, event, target, paranoid)
        assert f"kernel.perf_event_paranoid is {paranoid}" in words
        assert words.endswith(f"sysctl kernel.perf_event_paranoid={level}")
        assert ("domain 'user'" in words) == (level == 1 and paranoid == 2)


def test_not_allowed_though_the_setting_allows_it() -> None:
    assert isinstance(USER, CounterEvent)
    for paranoid in (2, None):
        assert "another user" in why_not(errno.EACCES, USER, THREAD, paranoid)


AS_NOBODY = """
import os, resource, sys  # nobody may not read where Python is
from perflib.instruments.counters.events import event
from perflib.instruments.counters.groups import CounterGroup, in_domain
from perflib.instruments.counters.kernel_names import GENERIC, SOFTWARE
from perflib.instruments.counters.readings import kernel
from perflib.instruments.counters.watched import watch
kernel()
events = [event("task-clock"), event("page-faults")]
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
for asked, watched in (
    (events, watch()),
    (in_domain(events, "user"), watch()),
    (events, watch(cpus=[0])),
    (in_domain(events, "user"), watch(pid=int(sys.argv[1]))),
):
    with CounterGroup(asked, watched) as group:
        group.enable()
        print("|".join(group.read()["status"]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: CPUs, or another user")
@pytest.mark.skipif(
    not PARANOID.exists() or PARANOID.read_text().strip() != "2",
    reason="expects kernel.perf_event_paranoid = 2, and leaves it as it is",
)
def test_as_a_user_without_rights() -> None:
    said = subprocess.check_output([sys.executable, "-c", AS_NOBODY, str(os.getpid())], text=True)
    whole, user, cpu, other = (line.split("|") for line in said.splitlines())
    assert all("perf_event_paranoid is 2; count user space alone" in words for words in whole)
    assert user == ["counted", "counted"]
    assert all(words.endswith("perf_event_paranoid=0") for words in cpu)
    assert all("another user" in words for words in other)


# --- the arithmetic of rows ----------------------------------------------------------------------


def readings(*targets: tuple[int, int, int]) -> NDArray[Any]:
    out = new_readings((len(targets), 1))
    for row, (count, enabled, running) in zip(out, targets, strict=True):
        row["value"], row["enabled_ns"], row["running_ns"] = count, enabled, running
    return out


def only(change: NDArray[Any], slice_ns: float) -> dict[str, Any]:
    (row,) = count_rows(change, slice_ns=slice_ns).to_dict("records")
    return {str(name): value for name, value in row.items()}


def test_each_target_is_scaled_by_its_own_clock() -> None:
    row = only(readings((100, 80, 20), (50, 80, 80)), slice_ns=4)
    assert (row["value"], row["enabled_ns"], row["running_ns"]) == (150, 160, 100)
    assert row["scaled"] == pytest.approx(450)
    assert row["scaled_error"] == pytest.approx(400 * math.sqrt(0.75 / 5))
    assert row["status"] == "scaled"


@pytest.mark.parametrize(
    ("target", "status"), [((0, 80, 0), "not counted"), ((0, 0, 0), "did not run")]
)
def test_no_running_time_is_no_number(target: tuple[int, int, int], status: str) -> None:
    row = only(readings(target), slice_ns=4)
    assert row["status"] == status
    assert all(math.isnan(row[name]) for name in ("value", "scaled", "scaled_error"))
