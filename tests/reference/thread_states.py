"""thread_states.c and thread_bins.c in plain Python, one small rule after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

RUNNING, READY, WAITING, SLEEPING, SPINNING, UNKNOWN = range(6)
NOBODY = object()


class Interval(NamedTuple):
    start_ns: int
    end_ns: int
    state: int
    flags: int = 0
    cpu: int = -1
    lock: int = -1
    other: int = -1
    stack: int = -1


@dataclass
class Thread:
    tid: int
    pid: int
    start_ns: int
    name: int = -1
    alive: bool = True
    end_ns: int = 0
    since: int = 0
    certain: int = 0
    state: int = UNKNOWN
    cpu: int = -1
    lock: int = -1
    other: int = -1
    stack: int = -1
    flags: int = 0
    fresh: bool = True
    dying: bool = False
    futex: int = -1
    futex_stack: int = -1
    early_waker: Any = NOBODY
    process: list[str] = field(default_factory=list)
    spins: list[tuple[int, int, int]] = field(default_factory=list)
    intervals: list[Interval] = field(default_factory=list)


class Machine:
    """Everything that the kernel says, from a list of events (time, kind, cpu, tid, pid, a, b,
    stack)."""

    def __init__(self, start_ns: int, spins: set[int], *, follow: bool = True) -> None:
        self.start_ns = start_ns
        self.spins = spins
        self.follow = follow
        self.threads: list[Thread] = []
        self.by_tid: dict[int, int] = {}
        self.processes: dict[int, list[str]] = {}
        self.keys: dict[tuple[int, int], int] = {}
        self.samples: list[tuple[int, int, int, int]] = []
        self.lost: list[tuple[int, int, int, int]] = []
        self.impossible = 0

    # --- states ---

    def end_state(self, t: Thread, time: int) -> None:
        time = max(time, t.since)
        if t.state == RUNNING:
            at = t.since
            for begin, end, stack in merged(t.spins):
                self.emit(t, at, min(begin, time), RUNNING, -1)
                self.emit(t, max(at, begin), min(end, time), SPINNING, stack)
                at = max(at, min(end, time))
            self.emit(t, at, time, RUNNING, -1)
        else:
            self.emit(t, t.since, time, t.state, t.stack)
        t.since = t.certain = time

    @staticmethod
    def emit(t: Thread, start: int, end: int, state: int, stack: int) -> None:
        if end > start:
            t.intervals.append(Interval(start, end, state, t.flags, t.cpu, t.lock, t.other, stack))

    def begin_state(self, t: Thread, state: int, cpu: int = -1) -> None:
        t.state, t.cpu = state, cpu
        t.lock = t.other = t.stack = -1
        t.flags, t.fresh, t.spins = 0, False, []

    def lose_track(self, t: Thread, time: int) -> None:
        self.impossible += 1
        self.end_state(t, t.certain)
        self.begin_state(t, UNKNOWN)
        t.flags = 1
        self.end_state(t, time)
        t.futex = -1

    def is_running(self, t: Thread, time: int, cpu: int) -> None:
        if t.fresh:
            self.begin_state(t, RUNNING, cpu)
        elif t.state != RUNNING or t.cpu not in {-1, cpu}:
            self.lose_track(t, time)
            self.begin_state(t, RUNNING, cpu)
        t.cpu = cpu
        t.certain = max(t.certain, time)

    def end_life(self, t: Thread, time: int) -> None:
        self.end_state(t, time)
        self.begin_state(t, UNKNOWN)
        t.end_ns, t.alive = t.since, False

    # --- whose it is ---

    def living(self, tid: int) -> int:
        row = self.by_tid.get(tid, -1)
        return row if row >= 0 and self.threads[row].alive else -1

    def add(self, tid: int, pid: int, time: int) -> Thread:
        self.by_tid[tid] = len(self.threads)
        t = Thread(tid, pid, time, since=time, certain=time, process=self.processes[pid])
        self.threads.append(t)
        return t

    def whose(self, tid: int, pid: int, time: int) -> Thread | None:
        if tid in self.by_tid:
            t = self.threads[self.by_tid[tid]]
            if not t.alive and t.dying:
                return None
            if t.alive and (pid <= 0 or pid == t.pid):
                return t
            if t.alive:
                self.impossible += 1
                self.end_life(t, t.certain)
        if tid <= 0 or pid <= 0 or pid not in self.processes:
            return None
        return self.add(tid, pid, time if self.lost else self.start_ns)

    # --- events ---

    def feed(self, events: Sequence[tuple[int, ...]]) -> None:
        for time, kind, cpu, tid, pid, a, b, stack in events:
            at = max(time, self.start_ns)
            match kind:
                case 1:
                    self.switch(at, cpu, tid, pid, a, b, stack)
                case 2:
                    self.waking(at, tid, a)
                case 3 | 4:
                    self.futex(at, kind, cpu, tid, pid, a, stack)
                case 5:
                    self.sample(at, cpu, tid, pid, a, stack)
                case 6:
                    self.fork(time, tid, pid, a, b)
                case 7:
                    t = self.whose(tid, pid, at)
                    if t:
                        self.is_running(t, at, cpu)
                        self.end_life(t, at)
                        t.dying = True
                case 8:
                    self.comm(at, cpu, tid, pid, a, b, listed=time == 0)
                case 9:
                    self.lost.append((b, time, cpu, a))
                    for t in self.threads:
                        if t.alive and t.state == RUNNING and t.cpu == cpu:
                            if t.lock >= 0:
                                self.end_state(t, at)
                                self.begin_state(t, RUNNING, cpu)
                            t.futex = -1

    def switch(self, at: int, cpu: int, tid: int, pid: int, a: int, b: int, stack: int) -> None:
        t = self.whose(tid, pid, at)
        if t:
            self.is_running(t, at, cpu)
            if b & 0x30:
                self.end_life(t, at)
            else:
                self.end_state(t, at)
                if b & 0xFF == 0:
                    self.begin_state(t, READY)
                elif t.futex >= 0:
                    self.begin_state(t, WAITING)
                else:
                    self.begin_state(t, SLEEPING)
                t.lock = t.futex
                if t.futex >= 0 and t.futex_stack >= 0:
                    t.stack = t.futex_stack
                elif t.state != READY:
                    t.stack = stack
        elif tid in self.by_tid:
            self.threads[self.by_tid[tid]].dying = False
        row = self.living(a)
        if row < 0:
            return
        t = self.threads[row]
        if t.fresh:
            t.state = READY
        elif t.state == RUNNING:
            self.lose_track(t, at)
        elif t.state != READY and t.early_waker is not NOBODY:
            t.state, t.other = READY, t.early_waker
        elif t.state != READY:
            t.flags |= 1
        self.end_state(t, at)
        self.begin_state(t, RUNNING, cpu)
        t.lock = t.futex
        t.early_waker = NOBODY

    def waking(self, at: int, tid: int, a: int) -> None:
        row, waker = self.living(a), self.living(tid)
        if row < 0:
            return
        t = self.threads[row]
        if t.state == RUNNING:
            t.early_waker = waker
        elif t.state != READY:
            t.other = waker
            self.end_state(t, at)
            lock, stack = t.lock if t.state == WAITING else -1, t.stack
            self.begin_state(t, READY)
            t.lock, t.stack, t.other = lock, stack, waker

    def futex(self, at: int, kind: int, cpu: int, tid: int, pid: int, a: int, stack: int) -> None:
        t = self.whose(tid, pid, at)
        if t:
            self.is_running(t, at, cpu)
            if t.lock >= 0 or kind == 3:
                self.end_state(t, at)
                self.begin_state(t, RUNNING, cpu)
            t.futex = -1
            if kind == 3:
                t.futex = t.lock = self.keys.setdefault((t.pid, a), len(self.keys))
                t.futex_stack = stack

    def sample(self, at: int, cpu: int, tid: int, pid: int, weight: int, stack: int) -> None:
        t = self.whose(tid, pid, at)
        if t:
            self.is_running(t, at, cpu)
            self.samples.append((at, self.by_tid[tid], stack, weight))
            if stack in self.spins:
                begin = max(at - weight // 2, t.since)
                t.spins.append((begin, at + weight - weight // 2, stack))

    def fork(self, time: int, tid: int, pid: int, a: int, b: int) -> None:
        if tid <= 0:
            return
        at = max(time, self.start_ns)
        parent, old = self.living(b), self.by_tid.get(tid)
        if old is not None and self.threads[old].alive:
            if time < self.start_ns:
                return
            self.impossible += 1
            self.end_life(self.threads[old], self.threads[old].certain)
        if old is not None:
            self.threads[old].dying = False
        if tid == pid:
            ours = (self.follow and a in self.processes) or self.processes.get(pid) == ["expected"]
            self.processes.pop(pid, None)
            if ours:
                self.processes[pid] = ["born"]
        if pid in self.processes:
            t = self.add(tid, pid, at)
            t.name = self.threads[parent].name if parent >= 0 else -1
            if time >= self.start_ns:
                self.begin_state(t, READY)
                t.other = parent

    def comm(self, at: int, cpu: int, tid: int, pid: int, a: int, b: int, *, listed: bool) -> None:
        t: Thread | None
        if self.living(tid) < 0 and b and tid == pid and pid in self.processes:
            t = self.add(tid, pid, at)
            self.begin_state(t, RUNNING, cpu)
        else:
            t = self.whose(tid, pid, at)
        if not t:
            return
        t.name = a
        if b == 1 and listed:
            return
        if b == 1:
            t.futex = -1
        for one in self.threads:
            if b and one.alive and one.process is t.process and (one is not t or b == 2):
                self.end_life(one, at)
        if b == 2 and self.processes.get(t.pid) is t.process:
            self.processes.pop(t.pid)

    def finish(self, end_ns: int) -> None:
        for t in self.threads:
            if t.alive:
                if t.fresh:
                    t.state = SLEEPING
                self.end_state(t, end_ns)
                t.end_ns = t.since


def merged(spins: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Spans that touch, as one, with the first one's stack."""
    found: list[tuple[int, int, int]] = []
    for begin, end, stack in spins:
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], end, found[-1][2])
        else:
            found.append((begin, end, stack))
    return found


# --- sums over intervals -------------------------------------------------------------------------


class Wait(NamedTuple):
    row: int
    lock: int
    start_ns: int
    end_ns: int
    waiting_ns: int
    ready_ns: int
    other: int
    stack: int
    flags: int


def bins_of(intervals: Sequence[Interval], start: int, end: int, bins: int) -> list[list[int]]:
    """ns by bin and state."""
    edges = [start + b * (end - start) // bins for b in range(bins + 1)]
    table = [[0] * 6 for _ in range(bins)]
    for one in intervals:
        for b in range(bins):
            overlap = min(one.end_ns, edges[b + 1]) - max(one.start_ns, edges[b])
            table[b][one.state] += max(overlap, 0)
    return table


def running_at_once(threads: Sequence[Sequence[Interval]], start: int, end: int) -> list[int]:
    """For how many ns k threads ran, nanosecond by nanosecond."""
    ran = [[one for one in every if one.state in {RUNNING, SPINNING}] for every in threads]
    at_once = Counter(
        sum(any(one.start_ns <= time < one.end_ns for one in intervals) for intervals in ran)
        for time in range(start, end)
    )
    return [at_once[k] for k in range(len(threads) + 1)]


def serial_of(awake: Sequence[int], tolerance: float) -> tuple[int, int]:
    """Begin and end, of how many threads are awake in each nanosecond."""

    def begin(levels: Sequence[int]) -> int:
        if sum(level > 1 for level in levels) <= tolerance * len(levels):
            return len(levels)
        excess, found = 0, 0
        for time, level in enumerate(levels):
            starts = level > 1 and (time == 0 or levels[time - 1] <= 1)
            if starts and excess <= tolerance * time:
                found = time
            excess += level > 1
        return found

    return begin(awake), begin(awake[::-1])


def waits_of(
    threads: Sequence[Sequence[Interval]], start: int, end: int, retry_ns: int
) -> list[Wait]:
    """Operations on locks."""
    found: list[Wait] = []
    for row, intervals in enumerate(threads):
        now: Wait | None = None
        for one in intervals:
            length = min(one.end_ns, end) - max(one.start_ns, start)
            if length <= 0:
                continue
            if one.lock < 0:
                if one.state != RUNNING or one.end_ns - one.start_ns >= retry_ns:
                    now = None
                continue
            if now is None or now.lock != one.lock:
                now = Wait(row, one.lock, max(one.start_ns, start), 0, 0, 0, -1, -1, 0)
                found.append(now)
            ready = one.state == READY
            now = now._replace(
                end_ns=min(one.end_ns, end),
                waiting_ns=now.waiting_ns + (0 if ready else length),
                ready_ns=now.ready_ns + (length if ready else 0),
                other=one.other if now.other < 0 else now.other,
                stack=one.stack if now.stack < 0 else now.stack,
                flags=now.flags | one.flags,
            )
            found[-1] = now
    return found


def lost_flags(one: Interval, lost: Sequence[tuple[int, int, int, int]]) -> int:
    """Whether lost events touch it."""
    cpus = {cpu for begin, end, cpu, _ in lost if one.end_ns > begin and one.start_ns < end}
    return int(bool(cpus if one.state not in {RUNNING, SPINNING} else cpus & {-1, one.cpu}))
