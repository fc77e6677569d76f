"""Counts that the kernel keeps anyway, on every machine: pressure, soft interrupts, steal, waits.

They need no counter and no privilege, and cost the program that is watched nothing: the kernel
counts, and a reading is the text of a file in /proc or /sys. system_counts.toml lists them with
their files. A file is opened once and read anew from its start.

A count here is cumulative *since its reader was made*, as that of a perf counter is. It never
falls: a 32-bit count that wraps continues; one that the kernel sets back stays where it was; and a
CPU that goes and comes back has its counts of meanwhile added then. What cannot be read is
`MISSING`, never 0.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from perflib.machine.cpulist import parse_cpus
from perflib.machine.files import mounts, text
from perflib.machine.processes import family
from perflib.model.errors import UserError, choose

MISSING = int(np.iinfo(np.int64).min)

_ROOT = Path("/")
_TICK_MS = 1000 // os.sysconf("SC_CLK_TCK")
_PIECE_BYTES = 1 << 16
_WRAP = 1 << 32  # the kernel prints soft interrupts as unsigned int
_FAMILY_EVERY_S = 1.0  # how often /proc is searched for children, where threads do not list them


@dataclass(frozen=True)
class SystemCount:
    """One count: its name and unit, what it counts, whose it is, and where the kernel shows it.

    ``lacking`` says why a kernel may not have it.
    """

    name: str
    unit: str
    help: str
    scope: Literal["machine", "cpu", "process", "cgroup"]
    file: str
    key: str
    lacking: str


def _data() -> tuple[dict[str, SystemCount], dict[str, tuple[str, ...]]]:
    data = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    counts = {
        name: SystemCount(
            name, one["unit"], words, one["scope"], one["path"], key, one.get("lacking", "")
        )
        for one in data["files"]
        for name, (key, words) in one["counts"].items()
    }
    return counts, {name: tuple(members) for name, members in data["sets"].items()}


SYSTEM_COUNTS: Mapping[str, SystemCount]
SYSTEM_SETS: Mapping[str, tuple[str, ...]]
SYSTEM_COUNTS, SYSTEM_SETS = _data()


# --- files, and what their text says -------------------------------------------------------------


class _File:
    """A file that stays open; ``content`` gives ``None``, and ``missing`` why, where it is gone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.missing = ""
        self._descriptor = -1

    def content(self) -> bytes | None:
        try:
            if self._descriptor < 0:
                self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            pieces, length = [], 0
            while piece := os.pread(self._descriptor, _PIECE_BYTES, length):
                pieces.append(piece)
                length += len(piece)
        except OSError as error:  # gone, or switched off: pressure then answers EOPNOTSUPP
            self.close()
            self.missing = f"{self.path}: {os.strerror(error.errno or 0)}"
            return None
        self.missing = ""
        return b"".join(pieces)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


Cell = tuple[str, int]  # the key in a file, and the CPU, or -1
Parser = Callable[[bytes, Sequence[Cell]], list[int]]


def _number(word: bytes | None) -> int:
    return int(word) if word is not None and word.isdigit() and len(word) < 19 else MISSING


@functools.cache
def _pattern(keys: tuple[str, ...], between: bytes) -> re.Pattern[bytes]:
    words = b"|".join(re.escape(key).encode() for key in keys)
    return re.compile(rb"^(" + words + rb")" + between + rb"(\d+)", re.MULTILINE)


def _after(between: bytes) -> Parser:
    """A parser of lines ``key ... number``: the number after ``between``."""

    def parse(content: bytes, cells: Sequence[Cell]) -> list[int]:
        pattern = _pattern(tuple(key for key, _ in cells), between)
        found: dict[bytes, bytes] = dict(pattern.findall(content))
        return [_number(found.get(key.encode())) for key, _ in cells]

    return parse


_pressure = _after(rb" .*total=")
_pairs = _after(rb":?[ \t]+")
_CPU_LINE = re.compile(rb"^cpu(\d*) +(.*)$", re.MULTILINE)


def _cpu_lines(content: bytes, cells: Sequence[Cell], factor: int = 1) -> list[int]:
    """Fields of the lines of CPUs; the line without a number (/proc/stat has one) is -1."""
    wanted = {b"%d" % cpu if cpu >= 0 else b"" for _, cpu in cells}
    lines = {cpu: rest.split() for cpu, rest in _CPU_LINE.findall(content) if cpu in wanted}
    found = []
    for field, cpu in cells:
        words, place = lines.get(b"%d" % cpu if cpu >= 0 else b"", []), int(field) - 1
        value = _number(words[place]) if len(words) > place else MISSING
        found.append(value if value == MISSING else factor * value)
    return found


def _stat(content: bytes, cells: Sequence[Cell]) -> list[int]:
    """/proc/stat: fields of CPUs in ticks, and lines of their own."""
    times = [cell for cell in cells if cell[0].isdigit()]
    others = [cell for cell in cells if not cell[0].isdigit()]
    found = dict(zip(times, _cpu_lines(content, times, _TICK_MS), strict=True))
    if others:
        found |= dict(zip(others, _pairs(content, others), strict=True))
    return [found[cell] for cell in cells]


def _softirqs(content: bytes, cells: Sequence[Cell]) -> list[int]:
    """One CPU's column of /proc/softirqs; without a kind, the sum of the column."""
    head, *lines = content.splitlines()
    column = {word: place for place, word in enumerate(head.split())}
    kinds = {key.encode() for key, _ in cells}
    rows = {}
    for line in lines:
        kind, _, rest = line.partition(b":")
        if kind.strip() in kinds or b"" in kinds:
            rows[kind.strip()] = rest.split()
    numbers = {kind: [_number(word) for word in row] for kind, row in rows.items()}
    if "" in dict(cells):
        columns = zip(*numbers.values(), strict=False)
        numbers[b""] = [MISSING if MISSING in one else sum(one) for one in columns]
    found = []
    for key, cpu in cells:
        place, row = column.get(b"CPU%d" % cpu, -1), numbers.get(key.encode(), [])
        found.append(row[place] if 0 <= place < len(row) else MISSING)
    return found


_PARSERS: dict[str, Parser] = {
    "proc/stat": _stat,
    "proc/softirqs": _softirqs,
    "proc/schedstat": _cpu_lines,
    "proc/vmstat": _pairs,
    "cpu.stat": _pairs,
}
_WITHOUT_SUM = ("proc/softirqs", "proc/schedstat")


# --- sources: the cells of a file, each of which belongs to a column ------------------------------


class _Source(_File):
    """One file of the machine or of a control group."""

    def __init__(self, path: Path, parser: Parser) -> None:
        super().__init__(path)
        self.cells: list[Cell] = []
        self._parser = parser

    def read(self) -> list[int]:
        content = self.content()
        return self._parser(content, self.cells) if content else [MISSING] * len(self.cells)


class _Family:
    """A process with its threads and children.

    The kernel adds a child's faults and CPU time to its parent's when it is waited for, so that
    the sum over the living is all of them. What only threads have is kept here when they end.
    A cell's key is the file and the key in it.
    """

    def __init__(self, pid: int, root: Path) -> None:
        self.cells: list[Cell] = []
        self.missing = ""
        self._pid = pid
        self._proc = root / "proc"
        self._searches = root == _ROOT
        self._own = _File(self._proc / f"{pid}/stat")  # an open file stays with its process
        self._pids = [pid]
        self._searched_s = -_FAMILY_EVERY_S
        self._ended: dict[Cell, int] = {}
        self._alive: dict[str, dict[Cell, int]] = {}

    def read(self) -> list[int]:
        if not self._own.content():
            self.missing = f"process {self._pid} is gone"
            return [MISSING] * len(self.cells)
        pids = self._members()
        of_threads = [cell for cell in self.cells if not cell[0].startswith("stat ")]
        of_stat = [cell for cell in self.cells if cell[0].startswith("stat ")]
        found = self._of_stat(pids, of_stat) if of_stat else {}
        found |= self._of_threads(pids, of_threads) if of_threads else {}
        return [found[cell] for cell in self.cells]

    def _members(self) -> list[int]:
        now_s = time.monotonic()
        if (self._proc / f"{self._pid}/task/{self._pid}/children").exists():
            self._pids = [self._pid]
            for pid in self._pids:  # which grows meanwhile
                for path in (self._proc / f"{pid}/task").glob("*/children"):
                    self._pids += [int(word) for word in (text(path) or "").split()]
        elif self._searches and now_s >= self._searched_s + _FAMILY_EVERY_S:
            self._searched_s = now_s
            self._pids = family(self._pid)
        return self._pids

    def _of_stat(self, pids: list[int], cells: Sequence[Cell]) -> dict[Cell, int]:
        """Sums over processes; parents come first, so that no child is counted in both."""
        found = dict.fromkeys(cells, 0)
        for pid in list(pids):
            # "pid (comm) state ppid ...": comm may itself have blanks and parentheses
            words = (text(self._proc / f"{pid}/stat") or "").rpartition(")")[2].split()
            if not words and pid != self._pid:  # its parent, read before, has its counts by now
                pids.remove(pid)
                return self._of_stat(pids, cells)
            for cell in cells:
                found[cell] += _stat_fields(words, cell)
        return found

    def _of_threads(self, pids: Iterable[int], cells: Sequence[Cell]) -> dict[Cell, int]:
        """Sums over the threads that live and that lived; a number used again is another thread."""
        alive = {}
        for pid in pids:
            with contextlib.suppress(OSError):  # it has ended meanwhile
                for thread in (self._proc / f"{pid}/task").iterdir():
                    if found := _of_thread(thread, cells):
                        alive[thread.name] = found
        for tid, last in self._alive.items():
            now = alive.get(tid, {})
            for cell, value in last.items():
                if now.get(cell, -1) < value:
                    self._ended[cell] = self._ended.get(cell, 0) + value
        self._alive = alive
        sums = dict(self._ended)
        for found in alive.values():
            for cell, value in found.items():
                sums[cell] = sums.get(cell, 0) + value
        return {cell: sums.get(cell, MISSING) for cell in cells}

    def close(self) -> None:
        self._own.close()


_FIRST_TIME = 11  # the field of /proc/PID/stat, after the name, from which on there are ticks


def _stat_fields(words: Sequence[str], cell: Cell) -> int:
    fields = [int(field) for field in cell[0].split()[1:]]
    if len(words) <= max(fields):
        return 0
    return (_TICK_MS if fields[0] >= _FIRST_TIME else 1) * sum(int(words[at]) for at in fields)


def _of_thread(folder: Path, cells: Iterable[Cell]) -> dict[Cell, int]:
    said: dict[str, str] = {}
    found = {}
    for cell in cells:
        file, key = cell[0].split()
        if file not in said:
            said[file] = text(folder / file) or ""
        if file == "schedstat":
            words = said[file].split()
            value = int(words[int(key)]) if len(words) > int(key) else MISSING
        else:
            value = _pairs(said[file].encode(), [(key, -1)])[0]
        if value != MISSING:
            found[cell] = value
    return found


def group_folder(cgroup: str, root: Path) -> Path:
    """The folder of a control group of version 2."""
    tops = [mount[4] for mount, system in mounts(root) if system[0] == "cgroup2"]
    for top in tops:
        path = Path(cgroup)
        inside = path.relative_to(top) if path.is_relative_to(top) else cgroup.lstrip("/")
        folder = root / top.lstrip("/") / inside
        if (folder / "cgroup.procs").exists():
            return folder
    where = (
        f"below {' or '.join(tops)}" if tops else "as no control groups of version 2 are mounted"
    )
    msg = (
        f"there is no control group {cgroup!r} {where}: "
        "name one by its path there, as in system.slice/ssh.service"
    )
    raise UserError(msg)


# --- the reader ----------------------------------------------------------------------------------


class SystemCounts:
    """Read counts of the kernel again and again; close it, or use it in a ``with`` statement.

    Parameters
    ----------
    names
        Names of `SYSTEM_COUNTS`.
    cpus
        For counts of CPUs: one column for each of these; none: one column, the sum of all.
    pid
        For counts of a process: the process, with its threads and children.
    cgroup
        For counts of a control group (version 2): its path, from the mount point on or in full.
    root
        Where /proc and /sys are; tests make their own.

    Attributes
    ----------
    columns
        ``(name, cpu)`` of each number that `read` gives; ``cpu`` is -1 where it is no one CPU's.
    lacking
        The counts that cannot be read here, with the reason. They have no column.
    remarks
        What happened meanwhile, in words: a file vanished, a count was set back.

    Raises
    ------
    UserError
        No such name, no such control group.

    Examples
    --------
    >>> with SystemCounts(["cpu-user", "machine-context-switches"]) as counts:
    ...     first, second = counts.read(), counts.read()
    >>> bool((second >= first).all())
    True
    """

    def __init__(
        self,
        names: Iterable[str],
        *,
        cpus: Iterable[int] = (),
        pid: int | None = None,
        cgroup: str | None = None,
        root: Path = _ROOT,
    ) -> None:
        self.lacking: dict[str, str] = {}
        self.remarks: list[str] = []
        self._cpus = sorted(set(cpus))
        self._pid = pid
        self._root = root
        self._folder = None if cgroup is None else group_folder(cgroup, root)
        self._open: dict[str, _Source | _Family] = {}
        wanted = []
        for name in dict.fromkeys(names):
            if name not in SYSTEM_COUNTS:
                raise UserError(choose("count of the system", name, SYSTEM_COUNTS))
            count = SYSTEM_COUNTS[name]
            if count.scope == "process" and pid is None:
                self.lacking[name] = "it is a process's: name one, or a command"
            elif count.scope == "cgroup" and cgroup is None:
                self.lacking[name] = "it is a control group's: name one"
            else:
                wanted.append(count)
        self.columns: list[tuple[str, int]] = []
        self._column = self._last = self._counted = np.zeros(0, dtype=np.int64)
        self._wraps = self._seen = np.zeros(0, dtype=bool)
        here = self._begin(wanted)
        self._begin([count for count in wanted if count.name in here])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        for source in self._open.values():
            source.close()
        self._open = {}

    def read(self) -> npt.NDArray[np.int64]:
        """Each column's count since the reader was made; `MISSING` where it cannot be read now."""
        raw = self._raw()
        here = raw != MISSING
        step = np.where(here & self._seen, raw - np.where(here, self._last, 0), 0)
        wrapped = (step < 0) & self._wraps & (step % _WRAP < _WRAP // 2)
        step = np.where(wrapped, step % _WRAP, step)
        for at in np.unique(self._column[step < 0]):
            self._remark(f"the kernel set {self.columns[at][0]} back; what it had stays")
        for source in self._open.values():
            if source.missing:
                self._remark(source.missing)
        self._counted += np.maximum(step, 0)
        self._last = np.where(here, raw, self._last)
        self._seen |= here
        totals = np.zeros(len(self.columns), dtype=np.int64)
        np.add.at(totals, self._column, self._counted)
        known = np.bincount(self._column[here], minlength=totals.size) > 0
        return np.where(known, totals, MISSING)

    def _remark(self, words: str) -> None:
        if words not in self.remarks:
            self.remarks.append(words)

    # A cell is one number of a file. A count that is summed over CPUs has a cell for each: the
    # kernel may leave out a CPU that is offline, and the sum must neither fall nor jump then.
    def _begin(self, counts: Sequence[SystemCount]) -> set[str]:
        """Open the files, and say which counts are in them; of the others `lacking` says why."""
        self.close()
        self.columns = []
        column_of: dict[str, list[int]] = {}
        for count in counts:
            path = self._path(count)
            if path not in self._open:
                self._open[path] = self._source(count, path)
                column_of[path] = []
            for cpu in (self._cpus or [-1]) if count.scope == "cpu" else [-1]:
                summed = cpu < 0 and count.file in _WITHOUT_SUM
                for one in self._all_cpus if summed else [cpu]:
                    key = f"{count.file} {count.key}" if count.scope == "process" else count.key
                    self._open[path].cells.append((key, one))
                    column_of[path].append(len(self.columns))
                self.columns.append((count.name, cpu))
        places = [at for places in column_of.values() for at in places]
        self._column = np.array(places, dtype=np.int64)
        wraps = [path.endswith("/softirqs") for path, cells in column_of.items() for _ in cells]
        self._wraps = np.array(wraps, dtype=bool)
        self._last = self._raw()
        self._seen = self._last != MISSING
        self._counted = np.zeros(self._column.size, dtype=np.int64)
        here = {self.columns[at][0] for at in self._column[self._seen]}
        for count in counts:
            if count.name not in here:
                path = self._path(count)
                why = self._open[path].missing or f"{path} does not have it"
                self.lacking[count.name] = f"{why}; {count.lacking}" if count.lacking else why
        return here

    @functools.cached_property
    def _all_cpus(self) -> list[int]:
        words = text(self._root / "sys/devices/system/cpu/possible")
        return parse_cpus(words or "") or list(range(os.cpu_count() or 1))

    def _path(self, count: SystemCount) -> str:
        if count.scope == "process":
            return f"{self._root}/proc/{self._pid}"
        folder = self._folder if count.scope == "cgroup" and self._folder else self._root
        return str(folder / count.file)

    def _source(self, count: SystemCount, path: str) -> _Source | _Family:
        if count.scope == "process":
            return _Family(self._pid or 0, self._root)
        return _Source(Path(path), _PARSERS.get(count.file, _pressure))

    def _raw(self) -> npt.NDArray[np.int64]:
        numbers = [number for source in self._open.values() for number in source.read()]
        return np.array(numbers, dtype=np.int64)
