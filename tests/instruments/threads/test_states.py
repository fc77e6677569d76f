"""The state machine against plain Python, and story by story."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib.instruments.threads.formats import EVENT, STATES, Event
from perflib.instruments.threads.states import Pieces, StateMachine
from perflib.model.errors import MeasurementError
from tests.reference.thread_states import Interval, Machine

JOB = 10
STACKS = ("main;work", "main;lock;spin_lock", "main;wait")
NAMES = ("job", "event-0", "wörker;{}\udcff", "")
SPINS = {1}


def event(
    time: int,
    kind: Event,
    tid: int,
    a: int = 0,
    b: int = 0,
    *,
    cpu: int = 0,
    pid: int = JOB,
    stack: int = -1,
) -> tuple[int, ...]:
    return (time, kind, cpu, tid, pid, a, b, stack)


def switch(time: int, tid: int, to: int, state: int = 0, **more: Any) -> tuple[int, ...]:
    return event(time, Event.SWITCH, tid, to, state, **({"pid": JOB if tid else 0} | more))


def born(tid: int, time: int = 0, **more: Any) -> tuple[int, ...]:
    return event(time, Event.FORK, tid, JOB, JOB, **more)


def machine_of(**options: Any) -> StateMachine:
    given_: dict[str, Any] = {"start_ns": 0, "names": NAMES, "stacks": STACKS}
    machine = StateMachine(**(given_ | {"spin_functions": "spin"} | options))
    machine.process(JOB)
    return machine


def found(machine: StateMachine, pieces: list[Pieces]) -> list[list[Interval]]:
    """Each thread's intervals."""
    threads: list[list[Interval]] = [[] for _ in range(len(machine.threads))]
    for piece in pieces:
        for row, one in zip(piece.rows.tolist(), piece.intervals.tolist(), strict=True):
            threads[row].append(Interval(*one))
    return threads


def fed(
    events: list[tuple[int, ...]], end: int = 1000, **options: Any
) -> tuple[StateMachine, list[list[Interval]]]:
    """The machine after these events, and each thread's intervals."""
    machine = machine_of(**options)
    pieces = [machine.feed(np.array(events, dtype=EVENT)), machine.finish(end)]
    return machine, found(machine, pieces)


def states(intervals: list[Interval]) -> list[tuple[int, int, str]]:
    return [(one.start_ns, one.end_ns, STATES[one.state]) for one in intervals]


# --- against the reference -----------------------------------------------------------------------

TIDS = st.sampled_from([0, 10, 11, 12, 20, 21, 30])
PIDS = st.sampled_from([-1, 0, 10, 10, 10, 20, 30])


ANY = st.tuples(
    st.integers(-3, 30),
    st.sampled_from(list(Event)),
    st.integers(0, 1),
    TIDS,
    PIDS,
    st.integers(0, 59),
    st.sampled_from([0, 0, 1, 2, 0x100, 0x10, 0x81]),
    st.integers(-1, 2),
)


def events_of(drawn: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Anything at all, most of it impossible; time goes back by a little now and then."""
    time = 0
    events: list[tuple[int, ...]] = []
    for step, kind, cpu, tid, pid, a, b, stack in drawn:
        time = max(0, time + step)
        whose = (0, 10, 11, 12, 20, 21, 30)[a % 7]
        fields = {
            Event.SAMPLE: (a + 1, b),
            Event.FORK: ((10, 20, 30)[a % 3], whose),
            Event.COMM: (a % 4, a // 4 % 3),
            Event.LOST: (a, max(0, time - 20)),
        }
        kinds = fields.get(Event(kind), (whose, b))
        events.append((time, kind, cpu, tid, pid, *kinds, stack))
    return events


def any_events() -> st.SearchStrategy[list[tuple[int, ...]]]:
    return st.lists(ANY, max_size=40).map(events_of)


@given(any_events(), st.lists(st.integers(0, 40)), st.integers(0, 50), st.booleans())
def test_any_events_give_what_plain_python_says_wherever_batches_are_cut(
    events: list[tuple[int, ...]], cuts: list[int], start: int, follow: bool
) -> None:
    machine = machine_of(start_ns=start, follow=follow)
    edges = [0, *sorted(cut for cut in cuts if cut <= len(events)), len(events)]
    pieces = [
        machine.feed(np.array(events[a:b], dtype=EVENT)) for a, b in itertools.pairwise(edges)
    ]
    pieces.append(machine.finish(5000))
    reference = Machine(start, SPINS, follow=follow)
    reference.processes[JOB] = ["expected"]
    reference.feed(events)
    reference.finish(5000)
    assert found(machine, pieces) == [t.intervals for t in reference.threads]
    lives = machine.threads
    assert lives[["tid", "pid", "start_ns", "end_ns"]].to_numpy().tolist() == [
        [t.tid, t.pid, t.start_ns, t.end_ns] for t in reference.threads
    ]
    assert lives["name"].tolist() == [
        NAMES[t.name] if t.name >= 0 else str(t.tid) for t in reference.threads
    ]
    samples = [tuple(one) for piece in pieces for one in piece.samples.tolist()]
    assert samples == reference.samples
    keys = [(int(key["pid"]), int(key["address"])) for key in machine.keys]
    assert keys == list(reference.keys)
    assert [tuple(one) for one in machine.lost.tolist()] == reference.lost
    assert machine.impossible == reference.impossible


# --- stories -------------------------------------------------------------------------------------


def test_a_wait_for_a_lock_from_its_begin_to_its_end() -> None:
    """Two threads; 12 waits for a lock until 11 lets it go."""
    machine, (_, holder, waiter) = fed(
        [
            born(JOB, 0),
            born(11, 0),
            born(12, 0),
            switch(10, 0, 11, cpu=0),
            switch(20, 0, 12, cpu=1),
            event(50, Event.FUTEX_WAIT, 12, 0x7000, 128, cpu=1, stack=2),
            switch(60, 12, 0, 1, cpu=1, stack=0),
            event(200, Event.WAKING, 11, 12),
            switch(230, 0, 12, cpu=1),
            event(235, Event.FUTEX_EXIT, 12, cpu=1),
            switch(300, 12, 0, 1, cpu=1, stack=0),
        ],
        400,
    )
    assert states(holder) == [(0, 10, "ready"), (10, 400, "running")]
    assert states(waiter) == [
        (0, 20, "ready"),
        (20, 50, "running"),
        (50, 60, "running"),  # the kernel's way into the wait
        (60, 200, "waiting"),
        (200, 230, "ready"),
        (230, 235, "running"),  # and out of it
        (235, 300, "running"),
        (300, 400, "sleeping"),
    ]
    into, wait, ready, out, sleep = *waiter[2:6], waiter[7]
    assert (into.lock, out.lock) == (0, 0)
    assert (wait.lock, wait.other, wait.stack) == (0, 1, 2)  # row 1 held it; the futex's stack
    assert (ready.lock, ready.other) == (0, 1)
    assert (sleep.lock, sleep.stack) == (-1, 0)
    assert machine.keys.tolist() == [(0x7000, 128, JOB, 2)]
    assert machine.impossible == 0


def test_processes_that_the_job_starts() -> None:
    """A child is followed; a program that is to be left alone is not, nor what it starts."""
    asked = []

    def belongs(pid: int, name: str) -> bool:
        asked.append((pid, name))
        return name != "event-0"

    events = [
        born(JOB),
        event(5, Event.COMM, JOB, 0, 1),
        event(10, Event.FORK, 20, JOB, JOB, pid=20),
        event(11, Event.FORK, 30, JOB, JOB, pid=30),
        event(20, Event.COMM, 20, 1, 1, pid=20),
        event(21, Event.FORK, 21, 20, 20, pid=21),
        event(22, Event.FORK, 40, 30, 30, pid=40),
        event(23, Event.FORK, 50, 99, 99, pid=50),
    ]
    machine, _ = fed(events, 100, belongs=belongs)
    assert machine.threads["tid"].tolist() == [JOB, 20, 30, 40]
    assert machine.threads["end_ns"].tolist() == [100, 20, 100, 100]
    assert asked == [(JOB, "job"), (20, "event-0")]
    alone, _ = fed(events, 100, follow=False)
    assert alone.threads["tid"].tolist() == [JOB]


def test_no_memory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = machine_of()
    refusing = SimpleNamespace(thread_states_finish=lambda *_: -1)
    monkeypatch.setattr(machine, "_lib", refusing)
    with pytest.raises(MeasurementError, match="not enough memory"):
        machine.finish(10)
