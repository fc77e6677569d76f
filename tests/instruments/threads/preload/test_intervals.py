from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from perflib.instruments.threads.formats import INTERVAL, Flag, State
from perflib.instruments.threads.preload import intervals as preload_intervals
from perflib.instruments.threads.preload.files import WAIT, WaitKind
from perflib.instruments.threads.preload.intervals import Life, spinning, thread_intervals
from perflib.instruments.threads.preload.sampler import READING

US = 1_000
R, S = b"R", b"S"


def waits(
    *rows: tuple[int, int, int, int], kind: WaitKind = WaitKind.MUTEX
) -> npt.NDArray[np.void]:
    """Of start, end, CPU time in it and CPU time at its end (microseconds)."""
    found = np.zeros(len(rows), WAIT)
    for one, (start, end, cpu, cpu_end) in zip(found, rows, strict=True):
        one["start_ns"], one["end_ns"] = start * US, end * US
        one["cpu_ns"], one["cpu_end_ns"] = cpu * US, cpu_end * US
        one["kind"], one["cpu"] = kind, 1
    return found


def readings(*rows: tuple[int, int, int, bytes]) -> npt.NDArray[np.void]:
    """Of time, CPU time, run-queue delay (microseconds) and state."""
    found = np.zeros(len(rows), READING)
    for one, (time, run, delay, state) in zip(found, rows, strict=True):
        one["time_ns"], one["run_ns"], one["delay_ns"] = time * US, run * US, delay * US
        one["state"] = state
    return found


def life(
    end_us: int,
    waited: npt.NDArray[np.void] | None = None,
    read: npt.NDArray[np.void] | None = None,
    *,
    cpu_us: int = -1,
    locks: list[int] | None = None,
    born: bool = True,
) -> Life:
    waited = waits() if waited is None else waited
    read = readings() if read is None else read
    n = len(waited)
    return Life(
        start_ns=0,
        end_ns=end_us * US,
        start_cpu_ns=0 if born else -1,
        end_cpu_ns=cpu_us * US if cpu_us >= 0 else -1,
        waits=waited,
        locks=np.arange(n, dtype=np.int32),
        others=np.full(n, 7, np.int32),
        stacks=np.full(n, 9, np.int32),
        readings=read,
        reading_locks=np.array(locks if locks is not None else [-1] * len(read), np.int32),
    )


def intervals(of: Life) -> npt.NDArray[np.void]:
    parts = list(thread_intervals(of))
    found = np.concatenate([np.empty(0, INTERVAL), *parts])
    if len(found):
        assert found["start_ns"][0] == of.start_ns
        assert found["end_ns"][-1] == of.end_ns
        assert (found["end_ns"][:-1] == found["start_ns"][1:]).all()
    return found


def states_of(of: Life) -> list[tuple[str, int, int]]:
    """State, length in microseconds, and lock of each interval."""
    return [
        (State(one["state"]).name, int(one["end_ns"] - one["start_ns"]) // US, int(one["lock"]))
        for one in intervals(of)
    ]


def test_what_nothing_is_known_of_is_unknown() -> None:
    found = states_of(life(1000, cpu_us=600))
    assert found == [("RUNNING", 600, -1), ("UNKNOWN", 400, -1)]


def test_a_wait_is_stamped_and_the_time_between_is_exact() -> None:
    of = life(2000, waits((300, 900, 5, 305), (1200, 1500, 5, 610)), cpu_us=1110)
    assert states_of(of) == [
        ("RUNNING", 300, -1),
        ("WAITING", 600, 0),
        ("RUNNING", 300, -1),
        ("WAITING", 300, 1),
        ("RUNNING", 500, -1),
    ]
    found = intervals(of)
    assert not found["flags"].any()
    assert found["other"].tolist() == [-1, 7, -1, 7, -1]
    assert found["stack"].tolist() == [-1, 9, -1, 9, -1]
    assert found["cpu"].tolist() == [1, -1, 1, -1, 1]


def test_the_end_of_a_wait_without_a_core_is_ready() -> None:
    of = life(
        10_000, waits((4000, 10_000, 0, 4000)), readings((10_000, 4000, 2000, S)), cpu_us=4000
    )
    assert states_of(of) == [("RUNNING", 4000, -1), ("WAITING", 4000, 0), ("READY", 2000, 0)]
    assert intervals(of)["flags"].tolist() == [0, 0, Flag.SAMPLED]


@pytest.mark.parametrize(
    ("length", "ready", "shown"), [(1000, 2, 0), (1000, 4, 4), (50, 2, 2), (200, 2, 0)]
)
def test_a_delay_that_a_switch_of_threads_takes_is_none(
    length: int, ready: int, shown: int
) -> None:
    """Of a wait of microseconds it is one from a fiftieth on."""
    of = life(length, waits((0, length, 0, 0)), readings((length, 0, ready, S)), cpu_us=0)
    states = {state: taken for state, taken, _ in states_of(of)}
    assert states == {"WAITING": length - shown} | ({"READY": shown} if shown else {})


def test_blocked_outside_of_waits() -> None:
    read = readings((10_000, 4000, 0, S))
    assert states_of(life(10_000, None, read)) == [("RUNNING", 4000, -1), ("SLEEPING", 6000, -1)]
    for_lock = states_of(life(10_000, None, read, locks=[3]))
    assert for_lock == [("RUNNING", 4000, -1), ("WAITING", 6000, 3)]
    of = life(10_000, None, read, locks=[-2])  # it says nothing of the time outside of waits
    assert states_of(of) == [("RUNNING", 4000, -1), ("SLEEPING", 6000, -1)]
    assert (intervals(of)["flags"] == Flag.SAMPLED).all()


def test_blocked_at_first_and_then_running() -> None:
    read = readings((1000, 1000, 0, S), (11_000, 3000, 2000, R))
    assert states_of(life(11_000, None, read, locks=[5, -1])) == [
        ("RUNNING", 1000, -1),
        ("WAITING", 6000, 5),
        ("READY", 2000, 5),
        ("RUNNING", 2000, -1),
    ]


def test_old_readings_of_a_thread_that_runs_are_made_good() -> None:
    """The kernel brings its account up to date at its ticks only."""
    cpu_us = [(10_000, 8000), (20_000, 20_000), (30_000, 26_500), (40_000, 40_000)]
    read = readings(*((time, run, 0, R) for time, run in cpu_us))
    assert states_of(life(40_000, None, read)) == [("RUNNING", 40_000, -1)]


def test_a_thread_that_was_ready_all_the_time_did_not_sleep() -> None:
    """Run-queue delay is added when it ends: until then it looks like sleep."""
    read = readings((10_000, 1000, 0, R), (20_000, 1000, 0, R), (30_000, 2000, 28_000, R))
    assert {state for state, *_ in states_of(life(30_000, None, read))} == {"RUNNING", "READY"}


def test_a_spinning_lock_is_spun_for() -> None:
    waited = waits((100, 500, 300, 400), kind=WaitKind.SPIN)
    assert states_of(life(500, waited, cpu_us=400)) == [
        ("RUNNING", 100, -1),
        ("SPINNING", 300, 0),
        ("READY", 100, 0),
    ]


def test_a_wait_remains_one_if_it_was_all_without_a_core() -> None:
    of = life(10_000, waits((0, 10_000, 0, 0)), readings((10_000, 0, 10_000, R)))
    assert [state for state, *_ in states_of(of)] == ["WAITING", "READY"]


@pytest.mark.parametrize("read", [False, True])
def test_parts_say_the_same_as_the_whole(monkeypatch: pytest.MonkeyPatch, read: bool) -> None:
    rng = np.random.default_rng(3)
    gaps, lengths = rng.integers(20, 400, 200), rng.integers(20, 400, 200)
    ends = np.cumsum(gaps + lengths)
    cpu = np.cumsum(gaps)
    waited = waits(
        *((int(e - n), int(e), 0, int(c)) for e, n, c in zip(ends, lengths, cpu, strict=True))
    )
    end = int(ends[-1])
    times = np.arange(1000, end, 1000)
    seen = readings(*((int(t), int(np.interp(t, ends, cpu)), 0, S) for t in times))
    of = life(end, waited, seen if read else None, locks=[-2] * len(times) if read else None)
    whole = intervals(of)
    monkeypatch.setattr(preload_intervals, "_MAX_WAITS", 7)
    parts = intervals(of)
    waiting = [each[each["state"] == State.WAITING] for each in (whole, parts)]
    assert waiting[0]["lock"].tolist() == waiting[1]["lock"].tolist() == list(range(200))
    assert waiting[0]["start_ns"].tolist() == waiting[1]["start_ns"].tolist()
    if not read:
        assert whole.tolist() == parts.tolist()


def test_what_is_unknown_is_no_wait() -> None:
    read = readings((1000, 500, 0, S), (2000, 600, 0, R))
    found = intervals(life(4000, None, read, locks=[4, -1], cpu_us=700, born=False))
    unknown = found[found["state"] == State.UNKNOWN]
    assert len(unknown)
    assert (unknown["lock"] == -1).all()


def test_samples_in_functions_that_spin() -> None:
    found = np.zeros(3, INTERVAL)
    found["start_ns"], found["end_ns"] = [0, 100, 200], [100, 200, 300]
    found["state"] = [State.RUNNING, State.WAITING, State.RUNNING]
    found["lock"] = [-1, 4, -1]
    spun = spinning(found, np.array([50, 250]), np.array([220, 260]))
    assert [
        (int(one["start_ns"]), int(one["end_ns"]), State(one["state"]).name) for one in spun
    ] == [
        (0, 50, "RUNNING"),
        (50, 100, "SPINNING"),
        (100, 200, "WAITING"),
        (200, 220, "SPINNING"),
        (220, 250, "RUNNING"),
        (250, 260, "SPINNING"),
        (260, 300, "RUNNING"),
    ]
    assert (spun["lock"] == 4).sum() == 1
    none = np.empty(0, np.int64)
    assert spinning(found, none, none) is found
    assert len(spinning(found[:0], np.array([1]), np.array([2]))) == 0
