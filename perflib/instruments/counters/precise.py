"""Memory accesses one by one: address, latency and where the data came from.

Intel's PEBS samples loads above a latency; AMD's IBS samples operations as they come. perf records
both, and this module asks it to, and reads what ``perf script`` prints.

**Nothing here was verified on hardware**: no machine of the developers passes PEBS or IBS on. The
parser is held to text as perf's source prints it and to data sources quoted in kernel patches.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from os import geteuid
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from perflib.instruments.counters.data_source import decode
from perflib.machine.files import integer
from perflib.machine.hardware.hypervisor import hypervisor
from perflib.model.errors import UserError, choose

__all__ = [
    "Accesses",
    "Precise",
    "by_source",
    "can",
    "parse",
    "read",
    "record_argv",
    "script_argv",
]

_DEVICES = "sys/bus/event_source/devices"
_FIELDS = "comm,pid,tid,cpu,time,event,addr,ip,sym,symoff,dso,weight,data_src"
Kind = Literal["loads", "stores", "both"]
_KINDS = ("loads", "stores", "both")


@dataclass(frozen=True)
class Precise:
    """Whether this machine samples memory accesses; ``pmu`` is the device that does.

    ``method`` is ``PEBS``, ``IBS`` or empty. ``reason`` is a sentence, also where it can.
    """

    available: bool
    method: str
    pmu: str
    reason: str


def can(
    root: Path = Path("/"),
    find: Callable[[str], str | None] = shutil.which,
    user: Callable[[], int] = geteuid,
) -> Precise:
    """Whether memory accesses can be sampled here, by what, and else why not.

    Decided by what the kernel lists in sysfs; it does not open a counter.
    """
    devices = root / _DEVICES
    method = pmu = ""
    for name in ("cpu", "cpu_core"):
        if (devices / name / "events" / "mem-loads").exists():
            method, pmu = "PEBS", name
    if (devices / "ibs_op" / "type").exists():
        method, pmu = "IBS", "ibs_op"
    if not method:
        host = hypervisor(root)
        why = (
            f"the hypervisor ({host}) does not pass them on"
            if host
            else "this processor, or its driver, has none of Intel's PEBS and AMD's IBS"
        )
        return Precise(False, "", "", f"no precise memory samples: {why}")
    if find("perf") is None:
        return Precise(False, method, pmu, f"{method} is there, but the command perf is missing")
    # IBS cannot leave the kernel out, which takes one level more of trust.
    most = 1 if method == "IBS" else 2
    paranoid = integer(root / "proc/sys/kernel/perf_event_paranoid")
    if user() != 0 and paranoid is not None and paranoid > most:
        reason = (
            f"{method} is there, but not allowed: kernel.perf_event_paranoid is {paranoid}; "
            f"as root: sysctl kernel.perf_event_paranoid={most}"
        )
        return Precise(False, method, pmu, reason)
    return Precise(True, method, pmu, f"memory accesses are sampled by {method} (device {pmu})")


def record_argv(
    output: Path,
    target: Sequence[str],
    *,
    kind: Kind = "loads",
    latency_cycles: int = 30,
    physical: bool = False,
    root: Path = Path("/"),
    precise: Precise | None = None,
) -> list[str]:
    """The command line that records memory accesses.

    Parameters
    ----------
    output
        The file for perf to write.
    target
        What to record, as perf takes it: ``["-p", "1234"]``, ``["-a"]``, ``["--", "program"]``.
        IBS of kernels before 6.4 records whole CPUs only (``-a``).
    kind
        Loads, stores or both. IBS samples both whatever is asked; the table's ``op`` tells them
        apart.
    latency_cycles
        PEBS only samples loads that take longer than this. Shares by level are then shares of the
        slow loads, not of all.
    physical
        Physical addresses as well, which takes root or CAP_PERFMON.
    root
        Where ``sys`` is looked for.
    precise
        What `can` said; asked if not given.

    Raises
    ------
    UserError
        It cannot be done here, with the reason, or the latency or the kind means nothing.
    """
    precise = precise or can(root)
    if not precise.available:
        raise UserError(precise.reason)
    if kind not in _KINDS:
        raise UserError(choose("kind of access", kind, _KINDS))
    if not 1 <= latency_cycles <= 0xFFFF:
        msg = f"a latency of {latency_cycles} cycles is out of the hardware's range, 1 to 65535"
        raise UserError(msg)
    events = []
    if precise.method == "IBS":
        events.append("ibs_op//")
    else:
        loads = f"{precise.pmu}/mem-loads,ldlat={latency_cycles}/"
        auxiliary = f"{precise.pmu}/mem-loads-aux/"
        if (root / _DEVICES / precise.pmu / "events" / "mem-loads-aux").exists():
            # From Sapphire Rapids on the load event must stand in a group behind this one.
            loads = f"{{{auxiliary},{loads}}}:P"
        else:
            loads += "P"
        events += [loads] if kind != "stores" else []
        events += [f"{precise.pmu}/mem-stores/P"] if kind != "loads" else []
    asked = [part for event in events for part in ("-e", event)]
    more = ["--phys-data"] if physical else []
    return [
        *("perf", "record", "-o", str(output), "-k", "CLOCK_MONOTONIC", "--sample-cpu", "-W", "-d"),
        *(*more, *asked, *target),
    ]


def script_argv(data: Path, *, physical: bool = False) -> list[str]:
    """The command line that prints a recording as `read` takes it."""
    fields = f"{_FIELDS},phys_addr" if physical else _FIELDS
    return ["perf", "script", "-i", str(data), "--ns", "-F", fields]


@dataclass(frozen=True)
class Accesses:
    """Sampled accesses, one row each, and the lines that are none.

    Attributes
    ----------
    table : pandas.DataFrame
        ``time_ns`` (the clock of the recording), ``cpu``, ``pid``, ``tid``, ``comm``, ``event``,
        ``address``, ``physical_address`` (0: not recorded), ``ip``, ``symbol``, ``offset_bytes``
        (-1: not known), ``object``, ``latency_cycles`` (0: the hardware gave none), and
        ``op``, ``level``, ``hit``, ``snoop``, ``tlb``, ``lock``, ``blocked`` (data_source.py).
    unread : list of (int, str)
        Number and text of lines that could not be read, the first hundred.
    unread_count : int
        How many there are.
    """

    table: pd.DataFrame
    unread: list[tuple[int, str]]
    unread_count: int


_MOST_CHARACTERS = 8192
_MOST_UNREAD = 100
_HEAD = re.compile(
    r"\s*(?P<comm>\S.*?)\s+(?P<pid>-?\d+)/(?P<tid>-?\d+)\s+\[(?P<cpu>\d+)\]\s+"
    r"(?P<seconds>\d+)\.(?P<fraction>\d{1,9}):\s+(?P<event>\S+):\s+"
    r"(?P<address>[0-9a-f]{1,16})\s+(?P<source>[0-9a-f]{1,16})\s+(?:\|.*?\s+)?"
    r"(?P<weight>\d+)\s+(?P<ip>[0-9a-f]{1,16})\s+(?P<place>\S.*)"
)
# A symbol may have ' (' in it, as in 'f<int, (anonymous namespace)::T>+0x4 (/lib/l.so)'; its offset
# is the surer sign. The file's name may have it too: '/tmp/a.so (deleted)'.
_WITH_OFFSET = re.compile(r"(.*)\+0x([0-9a-f]{1,16}) \((.*)\)\s*([0-9a-f]{0,16})")
_WITHOUT = re.compile(r"(.*?)() \((.*)\)\s*([0-9a-f]{0,16})")
_INTEGERS: dict[str, Any] = {
    "time_ns": np.int64,
    "cpu": np.int32,
    "pid": np.int32,
    "tid": np.int32,
    "address": np.uint64,
    "physical_address": np.uint64,
    "ip": np.uint64,
    "offset_bytes": np.int64,
    "latency_cycles": np.int64,
}
_COLUMNS = (
    *("time_ns", "cpu", "pid", "tid", "comm", "event", "address", "physical_address", "ip"),
    *("symbol", "offset_bytes", "object", "latency_cycles"),
    *("op", "level", "hit", "snoop", "tlb", "lock", "blocked"),
)


def read(path: Path) -> Accesses:
    """Read what ``perf script`` printed by `script_argv`.

    Raises
    ------
    UserError
        The file cannot be opened.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return parse(file)
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}"
        raise UserError(msg) from error


def parse(lines: Iterable[str]) -> Accesses:
    """Read lines of ``perf script``; comments and empty lines are passed over."""
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    known: dict[int, tuple[str, ...]] = {}
    unread: list[tuple[int, str]] = []
    unread_count = 0
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        row = _row(line, known)
        if row is None:
            unread_count += 1
            if len(unread) < _MOST_UNREAD:
                unread.append((number, line.rstrip("\n")[:200]))
            continue
        for name, value in zip(_COLUMNS, row, strict=True):
            columns[name].append(value)
    table = pd.DataFrame(
        {
            name: np.asarray(values, dtype=_INTEGERS[name])
            if name in _INTEGERS
            else pd.Categorical(values)
            for name, values in columns.items()
        }
    )
    return Accesses(table, unread, unread_count)


def _row(line: str, known: dict[int, tuple[str, ...]]) -> tuple[Any, ...] | None:
    if len(line) > _MOST_CHARACTERS:
        return None
    head = _HEAD.fullmatch(line.rstrip())
    if head is None:
        return None
    place = _WITH_OFFSET.fullmatch(head["place"]) or _WITHOUT.fullmatch(head["place"])
    if place is None:
        return None
    integers = [int(head[name]) for name in ("cpu", "pid", "tid")]
    time_ns = int(head["seconds"]) * 10**9 + int(head["fraction"].ljust(9, "0"))
    weight = int(head["weight"])
    if max(map(abs, integers)) >= 1 << 31 or max(time_ns, weight) >= 1 << 63:
        return None
    offset = int(place[2], 16) if place[2] else -1
    if offset >= 1 << 63:
        return None
    source = int(head["source"], 16)
    if source not in known:
        words = decode(source)
        known[source] = (
            *(words.op, words.level, words.hit, words.snoop, words.tlb, words.lock),
            words.blocked,
        )
    return (
        *(time_ns, *integers, head["comm"], head["event"], int(head["address"], 16)),
        *(int(place[4] or "0", 16), int(head["ip"], 16), place[1], offset, place[3], weight),
        *known[source],
    )


def by_source(table: pd.DataFrame) -> pd.DataFrame:
    """Samples, their share and their median latency for each operation and level, most first.

    The median is over the samples with a latency (IBS gives none to hits and stores); ``NaN`` if
    there is none.
    """
    latency = table["latency_cycles"].where(table["latency_cycles"] > 0)
    keys = [table[name].astype(str) for name in ("op", "level", "hit")]
    groups = latency.groupby(keys)
    summary = pd.DataFrame(
        {
            "samples": groups.size(),
            "share": groups.size() / max(len(table), 1),
            "median_latency_cycles": groups.median(),
        }
    )
    return summary.sort_values("samples", ascending=False, kind="stable").reset_index()
