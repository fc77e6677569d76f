"""Call stacks for the events of a data file of perf, as texts.

``perf script`` finds them, in a copy of the file that has the job's records alone. That is not only
faster: perf 6.1 keeps what a process mapped before it executed its program, and then, where its
C library was at a lower address, cannot find one caller. So the copy has of every process only what
came after it executed its last program. Names of threads are left out: one may have a line's end.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from perflib.instruments.perf.data import PerfData, Type
from perflib.instruments.perf.script import StackReader
from perflib.instruments.threads.formats import Event
from perflib.instruments.threads.perf.descendants import Tree
from perflib.instruments.threads.perf.tracepoints import Numbers, Tracepoints, numbers

_FIELDS = "comm,pid,tid,time,event,ip,sym,dso"
_TRACEPOINT, _SOFTWARE, _DUMMY = 2, 1, 9
_ATTRS_AT, _DATA_SIZE_AT, _FEATURES_AT, _SECTION = 16, 48, 72, 16
_VERSION = re.compile(r"@@?[A-Za-z_][\w.]*")
_WITH_STACK = (Event.SWITCH, Event.FUTEX_WAIT, Event.SAMPLE)


def write_job_only(path: Path, out: Path, tree: Tree, tracepoints: Tracepoints) -> None:
    """Copy the records of a job's processes that have stacks, and what names their addresses."""
    pids = np.array(sorted(tree.pids))
    executed = np.zeros(int(pids.max()) + 1, dtype=np.int64)
    for pid, time_ns in tree.executed_ns.items():
        executed[pid] = time_ns
    with path.open("rb") as source, out.open("wb") as target, PerfData(path) as data:
        of = numbers(data, tracepoints)
        if of.switch >= 0:
            data.fields(of.switch, tracepoints.fields["sched:sched_switch"])
        head = source.read(data.begin)
        target.write(head)
        for part in data.records():
            rows = part[_kept(part, pids, executed, of, tracepoints.state_bits)]
            if len(rows):
                target.writelines(_spans(source, data.begin, rows))
        end = target.tell()
        (size,) = struct.unpack_from("<Q", head, _DATA_SIZE_AT)
        if size and data.begin + size <= os.fstat(source.fileno()).st_size:
            source.seek(data.begin + size)
            target.write(_features(head, source.read(), data.begin + size, end))
        else:  # perf writes them at its end
            target.seek(_FEATURES_AT)
            target.write(bytes(32))
        target.seek(_DATA_SIZE_AT)
        target.write(struct.pack("<Q", end - data.begin))
        # perf reads tracepoints only with descriptions, which a perf that is killed does not write.
        entry, attrs = struct.unpack_from("<2Q", head, _ATTRS_AT)
        for i in range(len(data.events)):
            if struct.unpack_from("<I", head, attrs + i * entry)[0] == _TRACEPOINT:
                target.seek(attrs + i * entry)
                target.write(struct.pack("<I", _SOFTWARE))
                target.seek(attrs + i * entry + 8)
                target.write(struct.pack("<Q", _DUMMY))


def _kept(
    part: npt.NDArray[Any],
    pids: npt.NDArray[np.int64],
    executed: npt.NDArray[np.int64],
    of: Numbers,
    state_bits: int,
) -> npt.NDArray[np.bool_]:
    kinds, event = part["type"], part["event"]
    ours = np.isin(part["pid"], pids)
    since = executed[np.where(ours, part["pid"], 0)]
    ours &= part["time_ns"] >= since
    asleep = (event == of.switch) & (part["b"] & state_bits != 0)
    sampled = (kinds == Type.SAMPLE) & (asleep | np.isin(event, (of.wait, of.clock)))
    about = np.isin(kinds, (Type.FORK, Type.EXIT, Type.MMAP, Type.MMAP2))
    kernel = np.isin(kinds, (Type.MMAP, Type.MMAP2)) & (part["pid"] == -1)
    kept: npt.NDArray[np.bool_] = ours & (sampled | about) | kernel
    kept |= kinds == Type.FINISHED_ROUND
    return kept


def _spans(source: BinaryIO, begin: int, rows: npt.NDArray[Any]) -> list[memoryview]:
    """The bytes of records, neighbours together."""
    starts = rows["offset"] - rows["offset"][0]
    ends = starts + rows["bytes"]
    source.seek(begin + int(rows["offset"][0]))
    block = memoryview(source.read(int(ends[-1])))
    first = np.flatnonzero(np.append(True, starts[1:] != ends[:-1]))
    last = np.append(first[1:] - 1, len(rows) - 1)
    spans = zip(starts[first].tolist(), ends[last].tolist(), strict=True)
    return [block[start:end] for start, end in spans]


def _features(head: bytes, features: bytes, table: int, end: int) -> bytes:
    """What follows the records: a table of sections, shifted with them, and the sections."""
    flags = int.from_bytes(head[_FEATURES_AT : _FEATURES_AT + 32], "little")
    shifted = bytearray(features)
    for i in range(min(flags.bit_count(), len(shifted) // _SECTION)):
        (offset,) = struct.unpack_from("<Q", shifted, i * _SECTION)
        struct.pack_into("<Q", shifted, i * _SECTION, max(0, offset + end - table))
    return bytes(shifted)


class Stacks:
    """The stacks of a data file, given to events that come in the order of time.

    Parameters
    ----------
    perf
        The program.
    path
        The data file.

    Attributes
    ----------
    texts : list of str
        Every different stack so far, folded, by its number.
    remark : str
        Why there are none, or not all, in a sentence; empty if there are. At the end.
    """

    def __init__(self, perf: Path, path: Path) -> None:
        self.texts: list[str] = []
        self.remark = ""
        self._argv = [str(perf), "script", "-i", str(path), "--ns", "--no-inline", "-F", _FIELDS]
        self._later: list[pd.DataFrame] = []

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as started:
            self._errors = started.enter_context(tempfile.TemporaryFile())
            self._process = subprocess.Popen(
                self._argv,
                bufsize=0,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**os.environ, "PERF_CONFIG": os.devnull},
            )
            started.callback(self._kill)
            self._reader = StackReader(self._process.stdout)  # type: ignore[arg-type]
            self._parts: Iterator[Any] = iter(self._reader)
            self._ending = started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def _kill(self) -> None:
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.kill()
        self._process.wait()

    def join(self, events: npt.NDArray[Any]) -> None:
        """Give each event the number of its stack, by its thread and time."""
        if not len(events):
            return
        found = self._until(int(events["time_ns"][-1]))
        wanted = np.flatnonzero(np.isin(events["kind"], _WITH_STACK))
        if not len(wanted) or found.empty:
            return
        keys = pd.DataFrame({name: events[name][wanted] for name in ("time_ns", "tid")})
        stacks = keys.merge(found, how="left", on=["time_ns", "tid"])["stack"]
        events["stack"][wanted] = stacks.fillna(-1).astype("int32")

    def _until(self, time_ns: int) -> pd.DataFrame:
        """All that perf found up to a time, and that was not returned yet."""
        while not self._later or self._later[-1]["time_ns"].iloc[-1] <= time_ns:
            part = next(self._parts, None)
            if part is None:
                break
            times_ns, tids, stacks = part
            new = self._reader.texts[len(self.texts) :]
            self.texts += [_VERSION.sub("", text).replace("__GI_", "") for text in new]
            if len(times_ns):
                table = pd.DataFrame({"time_ns": times_ns, "tid": tids, "stack": stacks})
                self._later.append(table[[bool(self.texts[i]) for i in stacks.tolist()]])
                if self._later[-1].empty:
                    self._later.pop()
        if not self._later:
            return pd.DataFrame({"time_ns": [], "tid": [], "stack": []}, dtype="int64")
        table = pd.concat(self._later)
        later = table["time_ns"] > time_ns
        self._later = [table[later]] if later.any() else []
        return table[~later].drop_duplicates(["time_ns", "tid"])

    def finish(self) -> None:
        """Wait for perf's end; ``remark`` reports what it could not do."""
        for _ in self._parts:
            pass
        if self._process.wait():
            self._errors.seek(0)
            last = self._errors.read().decode(errors="replace").strip().splitlines()[-3:]
            self.remark = f"perf script did not find all call stacks. It reported: {' '.join(last)}"
