"""Counts of hardware events, held to the instructions that a job is known to have."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from perflib.instruments.counters import monitor as monitoring
from perflib.instruments.counters.events import event
from perflib.instruments.counters.groups import CounterGroup, Requested
from perflib.instruments.counters.monitor import Monitor, totals
from perflib.instruments.counters.multiplexing import Scaled
from perflib.instruments.counters.watched import watch
from tests.arm.inside.conftest import Ended

LOOP, JOB = "/dev/shm/out/loop", "/dev/shm/out/job"
ROUND = 1000  # instructions, as loop.S says
# Of loop.S, once it waits: six instructions a digit of ROUNDS, and ten around them.
READING, AROUND = 6, 10
COUNTERS = 6  # of a Neoverse N1, and one more for cycles alone
REPEATS = 200


def known(rounds: int) -> int:
    """All instructions in user space of the program ``loop`` after it has waited."""
    return ROUND * rounds + READING * len(str(rounds)) + AROUND


@contextlib.contextmanager
def waiting(*argv: str) -> Iterator[tuple[int, Callable[[], None]]]:
    """A job that waits in the kernel until it is let run to its end."""
    with subprocess.Popen(argv, stdin=subprocess.PIPE, env={}) as job:

        def go() -> None:
            job.communicate(b"\n")
            assert job.returncode == 0

        # A read of standard input: the loader reads libraries before.
        while not Path(f"/proc/{job.pid}/syscall").read_text().startswith("63 0x0 "):
            time.sleep(0.001)
        yield job.pid, go


def held(*argv: str) -> contextlib.AbstractContextManager[tuple[int, Callable[[], None]]]:
    """A shell that becomes a job when it is let: its few instructions until then are counted."""
    return waiting("/bin/sh", "-c", 'read -r x && exec "$@"', "sh", *argv)


def named(*names: str) -> list[Requested]:
    return [event(name) for name in names]


def counted(names: tuple[str, ...], rounds: int = 1000) -> pd.DataFrame:
    with (
        waiting(LOOP, str(rounds), "wait") as (pid, go),
        CounterGroup(named(*names), watch(pid=pid)) as group,
    ):
        group.enable()
        go()
        return group.read().set_index("event")


# --- plain counts --------------------------------------------------------------------------------


def test_a_process_is_counted_to_the_instruction() -> None:
    names = ("instructions:u", "cycles:u", "r08:u", "INST_RETIRED:u", "instructions:k")
    for rounds in (1, 1000, 30_000):
        table = counted(names, rounds)
        for name in names[:4]:
            assert table.value[name] == known(rounds)
        assert (table.status == "counted").all()
        assert (table.enabled_ns == table.running_ns).all()
    print(f"in user space: none but the job's own; in the kernel: {table.value[names[4]]:g}")


@pytest.mark.parametrize("how", ["threads", "children"])
def test_threads_and_children_are_counted_with_their_process(how: str) -> None:
    """What the C library does is the same whatever the number of rounds: it drops out."""
    fewer, more = (count_alone((JOB, how, "3", rounds)) for rounds in ("1000", "3000"))
    own = fewer - 3 * ROUND * 1000
    print(f"{how}: {own:g} instructions of the shell before and of the C library")
    assert more - fewer == pytest.approx(3 * ROUND * 2000, rel=1e-3)


def test_a_whole_cpu_is_counted() -> None:
    with (
        waiting(LOOP, "30000", "wait") as (_, go),
        CounterGroup(named("instructions:u", "instructions"), watch(cpus=[0])) as group,
    ):
        group.enable()
        go()
        group.disable()
        table = group.read().set_index("event")
    own = table.value["instructions:u"] - known(30_000)
    print(f"a CPU: {own:g} instructions in user space are not the job's")
    assert 0 < own < 500_000  # this Python waits for it
    # One instruction is one nanosecond.
    assert table.value["instructions"] == pytest.approx(table.enabled_ns["instructions"], rel=0.01)


@pytest.mark.parametrize(
    ("argv", "works"), [((LOOP, "30000"), 30_000), ((JOB, "threads", "3", "3000"), 9000)]
)
def test_the_command_counts_a_job_from_its_begin(
    argv: tuple[str, ...], works: int, perflib: Callable[..., Ended]
) -> None:
    ended = perflib("count", "-e", "instructions:u", "--every", "10ms", "--", *argv)
    assert ended.run is not None, ended.said
    own = ended.run.samples["value"].sum() - works * ROUND
    print(f"{' '.join(argv[1:])}: {own:g} instructions of what starts it and of the C library")
    assert 0 < own < 500_000


def test_a_control_group_is_counted_and_what_runs_beside_it_is_not(
    perflib: Callable[..., Ended], tmp_path: Path
) -> None:
    groups = Path("/sys/fs/cgroup")
    (groups / "cgroup.subtree_control").write_text("+pids")  # or new groups have no counters
    one = groups / "one"
    one.mkdir()
    later = f"read -r x; {LOOP} 20000; echo $$ > {one}/cgroup.procs; exec {LOOP} 30000"
    with subprocess.Popen(["/bin/sh", "-c", later], stdin=subprocess.PIPE) as job:

        def begin() -> None:
            while not any(path.stat().st_size for path in tmp_path.rglob("tail")):
                time.sleep(0.05)
            job.communicate(b"\n")  # an interval is written: the counters are on

        beginning = threading.Thread(target=begin)
        beginning.start()
        ended = perflib("count", "--cgroup", "one", "-e", "instructions:u", "--for", "6s")
        beginning.join(60)
        assert job.returncode == 0
    assert ended.run is not None, ended.said
    counted = ended.run.samples["value"].sum()
    assert known(30_000) < counted < known(30_000) + 100_000


# --- what cannot be counted ----------------------------------------------------------------------


def test_an_event_that_this_processor_lacks_is_named(perflib: Callable[..., Ended]) -> None:
    lacking = ("branch-misses", "cache-misses", "L1-dcache-loads", "bus-cycles")
    # The kernel would open these, and they would stay zero.
    unlisted = ("itlb-walks", "L2D_CACHE_REFILL", "r1b")
    words = [word for name in (*lacking, *unlisted, "instructions") for word in ("-e", name)]
    ended = perflib("count", *words, "--", LOOP, "20000")
    assert ended.status == 0, ended.said
    said = " ".join(ended.said.split())
    for name in lacking:
        assert f"{name} is not counted: absent: this machine has no such counter" in said
    for name in unlisted:
        assert f"{name} is not counted: absent: this processor does not list it" in said
    assert "instructions is not counted" not in said


def test_a_set_that_does_not_fit_is_refused_with_a_sentence() -> None:
    six = ("r08", "r11", "instructions", "r23", "r24", "r23:u", "r24:u")
    fits = counted((*six[:COUNTERS], "cycles"))
    assert (fits.status == "counted").all()
    table = counted((*six, "r08:u", "instructions:u"))
    assert table.status.iloc[:COUNTERS].eq("counted").all()
    refused = table.status[table.status.str.startswith("does not fit into the set")]
    assert len(refused) == 2
    assert table.value.notna().sum() == COUNTERS + 1


def test_a_set_that_never_has_the_counters_was_not_counted() -> None:
    """Six of a whole CPU have them all, but that of cycles alone; they come first."""
    names = ("r08", "instructions", "r23", "r24", "r08:k", "r23:k")
    with CounterGroup(named(*names), watch(cpus=[0])) as first:
        first.enable()
        with waiting(LOOP, "100000", "wait") as (pid, go):
            sets = {"never": named("r08:u"), "other": named("cycles:u")}
            with Monitor(sets, watch(pid=pid), period_s=0.01) as monitor:
                go()
            table = totals(monitor.series()).set_index("event")
    never = table.loc["r08:u"]
    assert (never.status, never.running_ns, never.collected_percent) == ("not counted", 0, 0)
    assert never.enabled_ns > 0
    assert np.isnan(never.scaled)
    assert table.scaled["cycles:u"] == pytest.approx(known(100_000), rel=0.05)


# --- multiplexing --------------------------------------------------------------------------------


def test_more_events_than_counters_are_right_within_one_percent() -> None:
    names = ("instructions", "r08", "r08:u", "instructions:u", "INST_RETIRED", "INST_RETIRED:u")
    sets = {name: named(name) for name in (*names, "r23", "r24", "r23:u", "r24:u")}
    with waiting(LOOP, "300000", "wait") as (pid, go):
        with Monitor(sets, watch(pid=pid), order="kernel") as monitor:
            go()
        table = totals(monitor.series()).set_index("event")
    print(table[["value", "enabled_ns", "running_ns", "scaled", "scaled_error"]].to_string())
    for name in ("r08:u", "instructions:u", "INST_RETIRED:u"):
        assert table.scaled[name] == pytest.approx(known(300_000), rel=0.01)
    share = table.running_ns / table.enabled_ns
    assert share.between(0.45, 0.75).all()  # six of ten
    assert (table.status == "scaled").all()


def test_the_stated_uncertainty_covers_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job whose rate has no rhythm, in slices of a millisecond instead of ten: it is cheaper."""
    monkeypatch.setattr(monitoring, "LEAST_PERIOD_S", 0.001)
    names = ("instructions:u", "r08:u", "INST_RETIRED:u", "CPU_CYCLES:u", "r11:u")
    sets = {name: named(name) for name in names}
    argv = (JOB, "mixed", "800", "40")
    truth, again = count_alone(argv), count_alone(argv)
    # Of the shell and the C library a few more at times; the estimates scatter by a tenth.
    print(f"{truth:g} instructions, and {again - truth:+g} the second time")
    assert again == pytest.approx(truth, rel=0.005)
    inside, errors, lengths = [], [], []
    for seed in range(REPEATS // len(names)):
        with held(*argv) as (pid, go):
            with Monitor(sets, watch(pid=pid), period_s=0.001, seed=seed) as monitor:
                go()
            table = totals(monitor.series()).set_index("event")
        for name in names:
            row = table.loc[name]
            interval = Scaled(*map(float, row[["scaled", "scaled_error", "freedom"]])).interval()
            inside.append(interval.low <= truth <= interval.high)
            errors.append(row.scaled / truth - 1)
            lengths.append(row.samples)
    print(
        f"{np.mean(inside):.3f} of {len(inside)} intervals of 95 % have the truth in them; "
        f"mean error {100 * np.mean(errors):+.2f} %, scatter {100 * np.std(errors):.2f} %, "
        f"{np.mean(lengths):.0f} slices"
    )
    assert len(inside) == REPEATS
    # By simulation 91 to 99 % (multiplexing.py); less three times the scatter of 200.
    assert np.mean(inside) > 0.85


def count_alone(argv: tuple[str, ...]) -> float:
    with (
        held(*argv) as (pid, go),
        CounterGroup(named("instructions:u"), watch(pid=pid)) as group,
    ):
        group.enable()
        go()
        return float(group.read().value[0])
