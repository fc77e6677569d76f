"""The event names that the kernel itself knows: generic ones, those of sysfs, and tracepoints.

Source: perf_event_open(2); linux/perf_event.h; the kernel's documentation of
/sys/bus/event_source/devices (Documentation/ABI/testing/sysfs-bus-event_source-devices-format and
-events).
"""

from __future__ import annotations

import contextlib
import functools
import re
from pathlib import Path

from perflib.machine.files import integer, text
from perflib.model.errors import UserError, choose

HARDWARE, SOFTWARE, TRACEPOINT, HW_CACHE, RAW = range(5)  # PERF_TYPE_*

_HARDWARE_EVENTS = (
    ("cycles cpu-cycles", "core cycles"),
    ("instructions", "retired instructions"),
    ("cache-references", "accesses to the last-level cache"),
    ("cache-misses", "misses of the last-level cache"),
    ("branches branch-instructions", "retired branches"),
    ("branch-misses", "mispredicted branches"),
    ("bus-cycles", "cycles of the bus, of fixed frequency"),
    ("stalled-cycles-frontend idle-cycles-frontend", "cycles in which nothing was issued"),
    ("stalled-cycles-backend idle-cycles-backend", "cycles in which nothing was retired"),
    ("ref-cycles", "cycles at a fixed frequency"),
)
_SOFTWARE_EVENTS = (
    ("cpu-clock", "time, by a timer of each CPU, in ns"),
    ("task-clock", "time that the task ran, in ns"),
    ("page-faults faults", "page faults"),
    ("context-switches cs", "context switches"),
    ("cpu-migrations migrations", "moves to another CPU"),
    ("minor-faults", "page faults that no disk was read for"),
    ("major-faults", "page faults that a disk was read for"),
    ("alignment-faults", "unaligned accesses that the kernel had to repair (never on x86)"),
    ("emulation-faults", "instructions that the kernel had to emulate"),
    ("dummy", "nothing"),
    ("bpf-output", "what a BPF program writes"),
    ("cgroup-switches", "context switches to another control group"),
)
# Cache, what it is, and which of load (0), store (1) and prefetch (2) it has.
_CACHES = (
    ("L1-dcache", "first data cache", (0, 1, 2)),
    ("L1-icache", "instruction cache", (0, 2)),
    ("LLC", "last-level cache", (0, 1, 2)),
    ("dTLB", "data TLB", (0, 1, 2)),
    ("iTLB", "instruction TLB", (0,)),
    ("branch", "branch predictor", (0,)),
    ("node", "memory of this NUMA node", (0, 1, 2)),
)
_OPERATIONS = (("load", "loads"), ("store", "stores"), ("prefetch", "prefetches"))


def _generic() -> dict[str, tuple[int, int, str]]:
    found = {}
    for kind, table in ((HARDWARE, _HARDWARE_EVENTS), (SOFTWARE, _SOFTWARE_EVENTS)):
        for config, (spellings, meaning) in enumerate(table):
            for name in spellings.split():
                found[name] = (kind, config, meaning)
    for cache, (name, what, operations) in enumerate(_CACHES):
        for operation in operations:
            one, many = _OPERATIONS[operation]
            config = cache | operation << 8
            found[f"{name}-{many}"] = (HW_CACHE, config, f"{what}: {many}")
            found[f"{name}-{one}-misses"] = (HW_CACHE, config | 1 << 16, f"{what}: {one} misses")
    return found


# Name to (type, config, meaning). Which of them a processor has, only opening them shows.
GENERIC = _generic()

_SYSFS = "sys/bus/event_source/devices"
_RANGE = re.compile(r"(\d{1,2})(?:-(\d{1,2}))?")
_FIELDS = ("config", "config1", "config2")


def sysfs_event(pmu: str, terms: str, root: Path = Path("/")) -> tuple[int, int, int, int]:
    """Encode ``pmu/terms/`` as the kernel's format files say: type, config, config1, config2.

    Parameters
    ----------
    pmu
        A device below /sys/bus/event_source/devices.
    terms
        ``event=0x3c,umask=0x1``, or the name of one of the device's events, or both.
    root
        Where ``sys`` is; another machine's recorded files serve as well.

    Raises
    ------
    UserError
        Unknown device, term or event; a value that does not fit or is missing.
    """
    devices = root / _SYSFS
    kind = integer(devices / pmu / "type")
    if kind is None:
        raise UserError(choose("PMU", pmu, _names(devices)))
    formats = _names(devices / pmu / "format")
    events = [name for name in _names(devices / pmu / "events") if "." not in name]
    values: dict[str, str] = {}
    for term in filter(None, (part.strip() for part in terms.split(","))):
        name, equals, value = term.partition("=")
        if name in events and not equals:
            given = text(devices / pmu / "events" / name) or ""
            for part in given.split(","):
                inner, _, default = part.partition("=")
                values.setdefault(inner.strip(), default.strip() or "1")
        elif name in (*formats, *_FIELDS):
            values[name] = value.strip() or "1"
        else:
            raise UserError(choose(f"term of PMU {pmu!r}", name, [*formats, *events, *_FIELDS]))
    words = [0, 0, 0]
    for name, value in values.items():
        number = _number(f"{pmu}/{name}={value}/", value)
        layout = f"{name}:0-63" if name in _FIELDS else text(devices / pmu / "format" / name) or ""
        _place(words, layout, number, f"{pmu}/{name}={value}/")
    return kind, words[0], words[1], words[2]


@functools.cache
def unlisted_on_arm(root: Path = Path("/")) -> frozenset[int]:
    """Arm's common events that this processor's counters lack.

    The kernel opens them all the same, and they stay zero. Its driver (armv8_pmuv3) has names for
    all common events up to 0x30, since Linux 5.10 (which brought ``caps/slots``) for all of them,
    and lists those that the processor reports (PMCEID).
    """
    devices = [*(root / _SYSFS).glob("armv[89]_*")]
    if len(devices) != 1:  # none, or cores of several kinds
        return frozenset()
    (device,) = devices
    given = [text(path) or "" for path in (device / "events").glob("*")]
    listed = {int(one.removeprefix("event="), 16) for one in given if one.startswith("event=0x")}
    named = 0x40 if (device / "caps/slots").exists() else 0x31
    return frozenset(range(named)) - listed if listed else frozenset()


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*"))


def _number(what: str, value: str) -> int:
    try:
        number = int(value, 0)
    except ValueError:
        number = -1
    if number < 0:
        msg = f"{what}: {value!r} is no number (write 60 or 0x3c)"
        raise UserError(msg)
    return number


def _place(words: list[int], layout: str, number: int, what: str) -> None:
    """Put a value's bits where a format file says: ``config:0-7,32-35``, lowest bits first."""
    field, _, ranges = layout.partition(":")
    pieces = [_RANGE.fullmatch(part.strip()) for part in ranges.split(",")]
    backwards = any(piece and int(piece[2] or piece[1]) < int(piece[1]) for piece in pieces)
    if field not in _FIELDS or None in pieces or backwards:
        msg = f"{what}: the kernel's format {layout!r} is not one that is known here"
        raise UserError(msg)
    left = number
    for piece in filter(None, pieces):
        first = int(piece[1])
        width = int(piece[2] or first) - first + 1
        mask = (1 << width) - 1
        index = _FIELDS.index(field)
        words[index] = words[index] & ~(mask << first) | (left & mask) << first
        left >>= width
    if left:
        msg = f"{what}: the value does not fit; the term has the bits {ranges} of {field}"
        raise UserError(msg)


def tracefs(root: Path = Path("/")) -> Path | None:
    """Where the kernel describes its tracepoints; None: nowhere that may be seen."""
    for place in (root / "sys/kernel/tracing/events", root / "sys/kernel/debug/tracing/events"):
        with contextlib.suppress(PermissionError):  # Debian lets root alone into /sys/kernel/debug
            if place.is_dir():
                return place
    return None


def tracepoint(system: str, name: str, root: Path = Path("/")) -> tuple[int | None, str]:
    """The number of a tracepoint; else ``None`` and the reason, empty where it does not exist."""
    events = tracefs(root)
    if events is None:
        reason = (
            "tracepoints cannot be seen: tracefs is not mounted or closed to this user "
            "(as root: mount -t tracefs nodev /sys/kernel/tracing)"
        )
        return None, reason
    try:
        number = integer(events / system / name / "id")
        if number is None and (events / system / name).is_dir():
            return None, f"the tracepoint {system}:{name} exists, but only root may use it"
    except PermissionError:
        return None, "tracepoints cannot be seen: tracefs is closed to this user (root may)"
    return number, ""


def tracepoints(root: Path = Path("/")) -> list[str]:
    """Every tracepoint's name, as far as this user may see them: ``sched:sched_switch`` ..."""
    events = tracefs(root)
    if events is None:
        return []
    return sorted(f"{path.parent.name}:{path.name}" for path in events.glob("*/*") if path.is_dir())
