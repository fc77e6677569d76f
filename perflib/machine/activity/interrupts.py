"""What interrupted one CPU: its soft interrupts, its interrupts, and the tasks it switched to.

Counts since the start of the machine; the difference of two readings is what happened between.
From /proc/softirqs, /proc/interrupts and /proc/schedstat, of which the last is there only with a
kernel that was built with CONFIG_SCHEDSTATS. What cannot be read is ``None``, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perflib.machine.files import text, whole

_COUNTER = 1 << 32  # the kernel prints the counts of both tables as unsigned int
_CELL = 11  # a blank and ten digits for each CPU, in both tables

# Rows that are no interrupts of a CPU: errors of the interrupt controller, which have one count
# for all CPUs (ERR, MIS, on ARM Err), and what the kernel counts a second time in its handler:
# TLB shootdowns (they come by CAL), PMI (by NMI), re-read registers and polls by timer.
_NO_INTERRUPTS = frozenset({"ERR", "MIS", "TLB", "PMI", "RTR", "MCP"})

# Documentation/scheduler/sched-stats.rst: these versions have the same nine fields for a CPU.
_SCHEDSTAT_VERSIONS = ("15", "16", "17")
_TIMESLICES = 9


@dataclass(frozen=True)
class CoreActivity:
    """Counts of one CPU since the start of the machine, or between two readings.

    ``None``: this kernel does not say, or the CPU is offline.

    Parameters
    ----------
    by_kind
        Soft interrupts by kind (``TIMER``, ``NET_RX`` ...).
    by_source
        Interrupts by the name of their row in /proc/interrupts (``24``, ``LOC`` ...).
    switches
        Tasks that began to run there, the idle task left out: field 9 of /proc/schedstat. (Field
        3, calls of schedule(), stays 0 unless the sysctl kernel.sched_schedstats is set.) A task
        that interrupts another one counts twice: it begins, and the other begins again.
    """

    by_kind: Mapping[str, int] | None
    by_source: Mapping[str, int] | None
    switches: int | None

    @property
    def softirqs(self) -> int | None:
        """All soft interrupts."""
        return None if self.by_kind is None else sum(self.by_kind.values())

    @property
    def interrupts(self) -> int | None:
        """All interrupts: of devices, of the CPU's own timer, and those other CPUs sent."""
        return None if self.by_source is None else sum(self.by_source.values())

    def __sub__(self, earlier: CoreActivity) -> CoreActivity:
        """What happened since an earlier reading; ``None`` where either does not say."""
        known = self.switches is not None and earlier.switches is not None
        return CoreActivity(
            _since(self.by_kind, earlier.by_kind),
            _since(self.by_source, earlier.by_source),
            max(0, (self.switches or 0) - (earlier.switches or 0)) if known else None,
        )


def core_activity(cpu: int, root: Path = Path("/")) -> CoreActivity:
    """Read the counts of one CPU.

    Examples
    --------
    >>> before = core_activity(0)
    >>> meanwhile = core_activity(0) - before
    >>> meanwhile.softirqs is None or meanwhile.softirqs >= 0
    True
    """
    return CoreActivity(
        _column(text(root / "proc/softirqs"), cpu),
        _column(text(root / "proc/interrupts"), cpu),
        _switches(text(root / "proc/schedstat"), cpu),
    )


def _since(
    now: Mapping[str, int] | None, earlier: Mapping[str, int] | None
) -> Mapping[str, int] | None:
    if now is None or earlier is None:
        return None
    passed = {name: (count - earlier.get(name, 0)) % _COUNTER for name, count in now.items()}
    # More than half a turn is no wrap: a count that stepped back, as when an interrupt's number
    # was freed and given to another device.
    return {name: count if count < _COUNTER // 2 else 0 for name, count in passed.items()}


def _column(table: str | None, cpu: int) -> Mapping[str, int] | None:
    """One CPU's counts of a table that has a column for each CPU (an offline CPU has none).

    With 128 CPUs the table has half a megabyte: the cell is cut out by its place where the
    columns stand as the kernel sets them, which takes a fifth of the time of splitting the lines.
    """
    lines = (table or "").splitlines()
    header = lines[0] if lines else ""
    names = header.split()
    if f"CPU{cpu}" not in names:
        return None
    own, last = names.index(f"CPU{cpu}"), len(names) - 1
    regular = header.rfind("CPU") - header.find("CPU") == last * _CELL
    found = {}
    for line in lines[1:]:
        colon = line.find(":")
        name = line[:colon].strip()
        if colon < 0 or name.upper() in _NO_INTERRUPTS:
            continue
        if regular:
            begin = colon + 1
            cells = [line[begin + _CELL * n : begin + _CELL * (n + 1)].strip() for n in (own, last)]
        else:
            words = [*line[colon + 1 :].split(maxsplit=last + 1), *[""] * (last + 1)]
            cells = [words[own], words[last]]
        count, of_last = map(whole, cells)
        if count is not None and of_last is not None:  # a row that ends early is of no CPU
            found[name] = count
    return found


def _switches(schedstat: str | None, cpu: int) -> int | None:
    head, _, rest = (schedstat or "").partition("\n")
    if head.split() not in [["version", version] for version in _SCHEDSTAT_VERSIONS]:
        return None  # other versions have other fields
    start = rest.find(f"\ncpu{cpu} ")  # the line before the first CPU's is the time
    words = rest[start + 1 :].split("\n", 1)[0].split() if start >= 0 else []
    return whole(words[_TIMESLICES]) if len(words) > _TIMESLICES else None
