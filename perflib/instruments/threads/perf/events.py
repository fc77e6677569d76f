"""What perf recorded of a whole machine, as events of threads in the order of time.

A data file has the records of each CPU's buffer in pieces. Where perf ends a round, what is earlier
than all of the round before is complete; so a round's worth of records is in memory, and no more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from perflib.instruments.perf.data import PerfData, Type, lost
from perflib.instruments.threads import futex
from perflib.instruments.threads.formats import EVENT, Event
from perflib.instruments.threads.perf.tracepoints import Tracepoints, numbers

_ALWAYS = (0, np.iinfo(np.int64).max)
_BATCH = 1 << 18  # records in memory at least, before they are put in order
_INTERRUPT = 0x58  # of common_flags: hard and soft interrupts, and those that cannot be masked
_EXIT_DEAD = 0x10
_DEAD = 0x30  # of prev_state: a thread's last switch
_NOBODY = -2
_WAITERS, _MOST_PIDS = 1 << 31, 1 << 22


class Converted:
    """Turns a file's records into events, and keeps what else was in them.

    Parameters
    ----------
    data
        The file.
    tracepoints
        Of the kernel that it was recorded on.
    span
        From when to when all was recorded; events before and after are there in part.

    Attributes
    ----------
    lost : tuple
        How many records were lost, as full buffers count them, and as the events do.
    lost_samples : int
        How many of them were samples of CPU time, as far as that is known.
    missing : int
        How many switches the kernel did not report, although there was room for them.
    throttled : int
        How often the kernel thinned out samples.
    hints : dict
        By process and address of a futex: its kind (``mutex``, ``join``), where the values that
        threads expected in it show it.
    last_ns : int
        The time of the last event.
    """

    def __init__(
        self, data: PerfData, tracepoints: Tracepoints, span: tuple[int, int] = _ALWAYS
    ) -> None:
        self._data = data
        self._tracepoints = tracepoints
        self._numbers = numbers(data, tracepoints)
        for name, number in zip(tracepoints.fields, self._numbers, strict=False):
            if number >= 0:
                data.fields(number, tracepoints.fields[name])
        self.lost = (0, 0)
        self.lost_samples = 0
        self.throttled = 0
        self.missing = 0
        self.hints: dict[tuple[int, int], str] = {}
        self.last_ns = 0
        self._ends = np.empty(0, dtype=EVENT)  # records of ends whose last switch is to come
        self._since_ns, self._until_ns = span
        self._expected: dict[int, int] = {}  # by CPU: who comes to it by a second record
        self._on_cpu: dict[int, int] = {}
        self._latest: dict[int, int] = defaultdict(int)  # by CPU, in the order of the file
        self._lost_by_cpu: dict[int, int] = defaultdict(int)
        self._lost_by_id: dict[int, int] = defaultdict(int)
        self._cpu_of: dict[int, int] = {}

    def batches(self) -> Iterator[npt.NDArray[Any]]:
        """All events (dtype `EVENT`), in the order of time."""
        pending: list[npt.NDArray[Any]] = []
        kept = fresh = 0
        for part in self._data.records():
            pending.append(part)
            fresh += len(part)
            if fresh >= max(_BATCH, kept):
                ready, rest = _complete(np.concatenate(pending))
                if len(ready):
                    yield self._ordered(ready)
                pending, kept, fresh = [rest], len(rest), 0
        if pending:
            yield self._ordered(np.concatenate(pending))
        self._ends["time_ns"] = self.last_ns
        yield np.concatenate([self._ends, self._lost_at_the_end()])

    def _ordered(self, records: npt.NDArray[Any]) -> npt.NDArray[Any]:
        made = np.concatenate([self._events(records), self._unreported(records)])
        made = self._without_early_ends(made[np.argsort(made["time_ns"], kind="stable")])
        if len(gaps := self._gaps(made)):
            made = np.concatenate([gaps, made])
            made = made[np.argsort(made["time_ns"], kind="stable")]
        # What comes later than its round allows counts as now.
        np.maximum(made["time_ns"], self.last_ns, out=made["time_ns"])
        if len(made):
            self.last_ns = int(made["time_ns"][-1])
        return made

    def _unreported(self, records: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Switches without the tracepoint's sample, from a second record that each of them has.

        Seen with Linux 6.18 in a virtual machine: for a while nothing is reported of a CPU's idle
        thread, so neither are the switches from it. Who comes to a CPU still is.
        """
        second = (records["type"] == Type.SWITCH_CPU_WIDE) & (records["misc"] & Type.OUT == 0)
        second &= records["time_ns"] >= self._since_ns
        first = (records["type"] == Type.SAMPLE) & (records["event"] == self._numbers.switch)
        rows = records[first | second]
        rows = rows[np.lexsort([rows["time_ns"], rows["cpu"]])]
        if not len(rows):
            return np.empty(0, dtype=EVENT)
        is_first = rows["type"] == Type.SAMPLE
        comes = np.where(is_first, rows["a"], rows["tid"])
        other_cpu = rows["cpu"][1:] != rows["cpu"][:-1]
        # The second record follows the first one at once. One that ends has no number any more.
        expected = np.append(_NOBODY, np.where(is_first[:-1], comes[:-1], _NOBODY))
        for at in np.flatnonzero(np.append(True, other_cpu)).tolist():
            expected[at] = self._expected.get(int(rows["cpu"][at]), _NOBODY)
        for at in np.flatnonzero(np.append(other_cpu, True)).tolist():
            self._expected[int(rows["cpu"][at])] = int(comes[at]) if is_first[at] else _NOBODY
        known = (expected == comes) | ((comes == -1) & (expected != _NOBODY))
        missing = rows[~is_first & ~known]
        out = np.zeros(len(missing), dtype=EVENT)
        out["time_ns"], out["cpu"] = missing["time_ns"], missing["cpu"]
        out["kind"], out["stack"] = Event.SWITCH, -1
        out["tid"], out["pid"], out["a"] = missing["b"], missing["a"], missing["tid"]
        ends = np.append(self._ends["tid"], records["tid"][records["type"] == Type.EXIT])
        out["b"] = np.where(np.isin(out["tid"], ends), _EXIT_DEAD, 1)
        return out

    def _gaps(self, made: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Switches that are missing although no buffer was full, as events that were lost.

        Who comes to a CPU must be who leaves it next. Some kernels hide threads of theirs.
        """
        found = []
        noted = set(made["cpu"][made["kind"] == Event.LOST].tolist())
        switches = made[(made["kind"] == Event.SWITCH) & (made["time_ns"] > 0)]
        for cpu in np.unique(switches["cpu"]).tolist():
            of_cpu = switches[switches["cpu"] == cpu]
            before = np.append(self._on_cpu.get(cpu, of_cpu["tid"][0]), of_cpu["a"][:-1])
            self._on_cpu[cpu] = int(of_cpu["a"][-1])
            for at in np.flatnonzero(before != of_cpu["tid"]).tolist() if cpu not in noted else []:
                time_ns = int(of_cpu["time_ns"][at])
                since = int(of_cpu["time_ns"][at - 1]) if at else self.last_ns
                if since >= self._since_ns and time_ns <= self._until_ns:
                    found.append((time_ns, Event.LOST, cpu, 0, 0, 1, since, -1))
        self.missing += len(found)
        return np.array(found, dtype=EVENT)

    def _without_early_ends(self, made: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A thread's end is its last switch, after the record of its end by up to milliseconds.

        Within them it wakes who waits for the locks that it held. The record counts where the last
        switch has not come a whole batch later: it is lost.
        """
        if self._numbers.switch < 0 or not len(made):
            return made
        last = (made["kind"] == Event.SWITCH) & (made["b"] & _DEAD != 0)
        ends = made["kind"] == Event.EXIT
        overdue = self._ends[~np.isin(self._ends["tid"], made["tid"][last])]
        overdue["time_ns"] = made["time_ns"][0]
        self._ends = made[ends & ~np.isin(made["tid"], made["tid"][last])]
        return np.concatenate([overdue, made[~ends]])

    def _events(self, records: npt.NDArray[Any]) -> npt.NDArray[Any]:
        kinds = records["type"]
        sampled = np.where(kinds == Type.SAMPLE, records["event"], -2)
        self._note(records, kinds)
        made = []
        of = self._numbers

        def add(kind: Event, rows: npt.NDArray[Any], **values: Any) -> npt.NDArray[Any]:
            out = np.zeros(len(rows), dtype=EVENT)
            for name in ("time_ns", "cpu", "tid", "pid"):
                out[name] = rows[name]
            out["kind"], out["stack"] = kind, -1
            for name, value in values.items():
                out[name] = value
            made.append(out)
            return out

        rows = records[sampled == of.switch]
        add(
            Event.SWITCH,
            rows,
            tid=rows["c"],
            a=rows["a"],
            b=rows["b"] & self._tracepoints.state_bits,
        )
        rows = records[sampled == of.waking]
        add(Event.WAKING, rows, tid=np.where(rows["c"] & _INTERRUPT, 0, rows["b"]), a=rows["a"])
        rows = records[sampled == of.wait]
        self._note_hints(rows)
        add(Event.FUTEX_WAIT, rows, a=rows["a"], b=rows["b"])
        rows = records[sampled == of.exit]
        add(Event.FUTEX_EXIT, rows, a=rows["a"])
        rows = records[sampled == of.clock]
        if of.clock >= 0:
            add(Event.SAMPLE, rows, a=self._data.events[of.clock].period)
        rows = records[kinds == Type.FORK]
        add(Event.FORK, rows, a=rows["a"], b=rows["b"])
        add(Event.EXIT, records[kinds == Type.EXIT])
        rows = records[kinds == Type.COMM]
        # A process that was there before is treated as if it executed its program now.
        before = (rows["time_ns"] == 0) & (rows["pid"] == rows["tid"])
        executed = (rows["misc"] & Type.EXEC != 0) | before
        add(Event.COMM, rows, a=rows["text"], b=executed)
        made.append(self._losses(records, kinds))
        return np.concatenate(made)

    def _note(self, records: npt.NDArray[Any], kinds: npt.NDArray[Any]) -> None:
        of_buffers, of_events = lost(records)
        self.lost = (self.lost[0] + of_buffers, self.lost[1] + of_events)
        self.throttled += int((kinds == Type.THROTTLE).sum())
        for one in records[kinds == Type.ID_INDEX]:
            self._cpu_of[int(one["a"])] = int(one["c"])
        for one in records[kinds == Type.LOST_SAMPLES]:
            self._lost_by_id[int(one["b"])] += int(one["a"])
            if one["event"] >= 0 and one["event"] == self._numbers.clock:
                self.lost_samples += int(one["a"])

    def _note_hints(self, rows: npt.NDArray[Any]) -> None:
        """How glibc uses futexes; for a C library without symbols of its own.

        A mutex with waiters is 2, or has the owner's number and the highest bit. A thread that ends
        clears its own number in a word that other processes may share, and joining waits for that.
        """
        op, value = rows["b"] & futex.COMMAND, rows["c"] & 0xFFFFFFFF
        owned = np.isin(op, (futex.LOCK_PI, futex.LOCK_PI2))
        mutex = ((op == futex.WAIT) & ((value == 2) | (value & _WAITERS != 0))) | owned
        shared = rows["b"] & futex.PRIVATE == 0
        join = shared & (value > 1) & (value < _MOST_PIDS) & (value != rows["tid"]) & ~mutex
        for kind, chosen in (("mutex", mutex), ("join", join)):
            for pid, address in set(rows[chosen][["pid", "a"]].tolist()):
                self.hints.setdefault((pid, address), kind)

    def _losses(self, records: npt.NDArray[Any], kinds: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Of each: since when records of that CPU may be missing, from the order of the file."""
        places = np.flatnonzero(kinds == Type.LOST)
        out = np.zeros(len(places), dtype=EVENT)
        begin = 0
        for i, place in enumerate(places.tolist()):
            self._note_latest(records[begin:place])
            begin = place
            row = records[place]
            cpu, time_ns = int(row["cpu"]), int(row["time_ns"])
            since = min(self._latest[cpu], time_ns)  # an interrupt's record may be in between
            out[i] = (time_ns, Event.LOST, cpu, 0, 0, row["b"], since, -1)
            self._lost_by_cpu[cpu] += int(row["b"])
        self._note_latest(records[begin:])
        return out

    def _note_latest(self, records: npt.NDArray[Any]) -> None:
        timed = records[(records["time_ns"] > 0) & (records["cpu"] >= 0)]
        for cpu in np.unique(timed["cpu"]).tolist():
            latest = int(timed["time_ns"][timed["cpu"] == cpu].max())
            self._latest[cpu] = max(self._latest[cpu], latest)

    def _lost_at_the_end(self) -> npt.NDArray[Any]:
        """What events count as lost after the last record of a CPU: no buffer could note it."""
        by_cpu: dict[int, int] = defaultdict(int)
        for one, number in self._lost_by_id.items():
            by_cpu[self._cpu_of.get(one, -1)] += number
        found = []
        for cpu, number in by_cpu.items():
            missing = number - self._lost_by_cpu[cpu]
            if missing > 0:
                since = min(self._latest[cpu], self.last_ns) if cpu >= 0 else 0
                found.append((self.last_ns, Event.LOST, cpu, 0, 0, missing, since, -1))
        return np.array(found, dtype=EVENT)


def _complete(records: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """What no later record of the file can come before; and the rest."""
    rounds = np.flatnonzero(records["type"] == Type.FINISHED_ROUND)
    if len(rounds) < 2:
        return records[:0], records
    limit = records["time_ns"][: rounds[-2]].max(initial=0)
    done = records["time_ns"] <= limit
    done[rounds[-1]] = False  # where the next round begins
    return records[done], records[~done]
