"""An event's name becomes what ``perf_event_open`` takes, for this CPU or for any other."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from perflib.instruments.counters import pfm
from perflib.instruments.counters.aliases import Alias, aliases
from perflib.instruments.counters.kernel_names import (
    GENERIC,
    RAW,
    TRACEPOINT,
    sysfs_event,
    tracepoint,
    tracepoints,
)
from perflib.model.errors import UserError

_RAW = re.compile(r"r([0-9a-fA-F]{1,16})")
_SYSFS = re.compile(r"([\w.-]+)/([^/]*)/(\w*)")
_TRACEPOINT = re.compile(r"([a-z0-9_]+):(\w+)")
_DOMAINS = {"u": ":u", "k": ":k", "uk": "", "ku": ""}  # both is the default, and needs no word


@dataclasses.dataclass(frozen=True)
class CounterEvent:
    """What to count, in the terms of ``struct perf_event_attr``.

    Attributes
    ----------
    name
        As it was requested, with ``:u`` or ``:k`` if it counts in one of the two alone.
    type, config, config1, config2
        The attribute's fields: PERF_TYPE_HARDWARE 0, SOFTWARE 1, TRACEPOINT 2, HW_CACHE 3, RAW 4,
        above that a device of /sys/bus/event_source/devices.
    exclude_user, exclude_kernel
        Where it does not count.
    source
        Who knew the name: ``kernel``, ``raw``, ``sysfs``, ``tracepoint`` or ``libpfm4``.
    help
        What is counted, in a few words; empty where nobody says.
    cpu
        libpfm4's name of the processor whose encoding this is; empty where it is not bound to one.
        On another processor the same numbers count something else.
    """

    name: str
    type: int
    config: int
    config1: int = 0
    config2: int = 0
    exclude_user: bool = False
    exclude_kernel: bool = False
    source: str = "kernel"
    help: str = ""
    cpu: str = ""


def event(name: str, cpu: str | None = None, root: Path = Path("/")) -> CounterEvent:
    """Find an event by its name.

    Parameters
    ----------
    name
        A generic name of the kernel (``cycles``, ``L1-dcache-loads``, ``task-clock``), an alias
        (``4k-aliasing``, see aliases.toml), a name of libpfm4 (``ITLB_MISSES:WALK_COMPLETED``, also
        ``skx::ITLB_MISSES:WALK_COMPLETED``), a raw code (``r01c2``), terms of a device in sysfs
        (``cpu/event=0x3c,umask=0x1/``), or a tracepoint (``sched:sched_switch``). Any of them may
        end in ``:u`` (user space only), ``:k`` (the kernel only) or ``:uk`` (both).
    cpu
        The processor whose names and encodings are meant, as libpfm4 calls it (``skx``) or shorter
        (``zen4``); this machine's if not given.
    root
        Where ``sys`` is.

    Raises
    ------
    UserError
        No such name, or the processor has no such event; the message names the nearest, and says
        so if libpfm4 is not installed and would know more.

    Examples
    --------
    >>> event("instructions:u")
    CounterEvent(name='instructions:u', type=0, config=1, config1=0, config2=0, exclude_user=False, exclude_kernel=True, source='kernel', help='retired instructions', cpu='')
    """  # noqa: E501
    name = name.strip()
    prefix, colons, rest = name.partition("::")
    if colons:
        if cpu is not None and pfm.pmu_named(cpu) != pfm.pmu_named(prefix):
            msg = f"event {name!r} is one of {prefix}, but the requested CPU is {cpu}"
            raise UserError(msg)
        name, cpu = rest, prefix
    if cpu is not None and not pfm.missing():
        cpu = pfm.pmu_named(cpu)
    base, domain = _domain(name)
    found = _of_kernel(base, root) or _of_cpu(base, cpu)
    if found is None:
        raise UserError(_unknown(base, cpu, root))
    return dataclasses.replace(
        found,
        name=f"{found.name}{_DOMAINS[domain]}" if domain else found.name,
        exclude_user=found.exclude_user or domain == "k",
        exclude_kernel=found.exclude_kernel or domain == "u",
    )


def names(cpu: str | None = None) -> list[str]:
    """Every name that `event` knows for a CPU, but raw codes, sysfs terms and tracepoints.

    Generic names first, which a given processor need not have, then aliases, then libpfm4's names.
    Without libpfm4, or where it does not know this machine's processor, the generic ones remain.

    Raises
    ------
    UserError
        A CPU is named that libpfm4 does not know, or libpfm4 is not installed.
    """
    if cpu is None and pfm.missing():
        return list(GENERIC)
    pmu = pfm.this_cpu() if cpu is None else pfm.pmu_named(cpu)
    if pmu is None:
        return list(GENERIC)
    mine = [alias.name for alias in aliases().values() if pmu in alias.events]
    return [*GENERIC, *mine, *_pfm_names(pmu)]


def _pfm_names(pmu: str) -> list[str]:
    found = []
    for known in pfm.pmu_events(pmu).values():
        if not known.masks or any(mask.default for mask in known.masks):
            found.append(known.name)
        found += [f"{known.name}:{mask.name}" for mask in known.masks]
    return found


def _domain(name: str) -> tuple[str, str]:
    """The name without its last ``:u``, ``:k`` or ``:uk``, and that word."""
    base, _, last = name.rpartition(":")
    if base and last in _DOMAINS:
        return base, last
    sysfs = _SYSFS.fullmatch(name)
    if sysfs and sysfs[3] in _DOMAINS:  # perf's way: cpu/event=0x3c/u
        return name.removesuffix(sysfs[3]), sysfs[3]
    return name, ""


def _of_kernel(name: str, root: Path) -> CounterEvent | None:
    spelled = {known.lower(): known for known in GENERIC}.get(name.lower())
    if spelled is not None:
        kind, config, meaning = GENERIC[spelled]
        return CounterEvent(spelled, kind, config, help=meaning)
    raw = _RAW.fullmatch(name)
    if raw:
        return CounterEvent(name, RAW, int(raw[1], 16), source="raw")
    sysfs = _SYSFS.fullmatch(name)
    if sysfs:
        if sysfs[3]:
            raise UserError(_no_modifier(sysfs[3], name))
        return CounterEvent(name, *sysfs_event(sysfs[1], sysfs[2], root), source="sysfs")
    trace = _TRACEPOINT.fullmatch(name)
    number = tracepoint(trace[1], trace[2], root)[0] if trace else None
    if number is not None:
        return CounterEvent(name, TRACEPOINT, number, source="tracepoint")
    base, _, modifier = name.rpartition(":")
    if base.count(":") < 2 and base and _of_kernel(base, root) is not None:
        raise UserError(_no_modifier(modifier, name))
    return None


def _no_modifier(word: str, name: str) -> str:
    return f"unknown modifier {word!r} of {name!r}: u (user space), k (the kernel) or uk (both)"


def _of_cpu(name: str, cpu: str | None) -> CounterEvent | None:
    alias = aliases().get(name.lower())
    absent = pfm.missing()
    if absent:
        if alias is not None or cpu is not None:
            msg = f"event {name!r} cannot be encoded: {absent}"
            raise UserError(msg)
        return None
    pmu = cpu or pfm.this_cpu()
    if pmu is None:
        return None
    if alias is not None:
        return _of_alias(alias, pmu)
    known = pfm.pmu_events(pmu).get(re.split("[:.]", name)[0].upper())
    if known is None:
        return None
    return _encoded(name, name, pmu, known.help)


def _of_alias(alias: Alias, pmu: str) -> CounterEvent:
    native = alias.events.get(pmu)
    if not any(pmu in known.events for known in aliases().values()):
        msg = f"alias {alias.name!r} ({alias.meaning}) is not known for {pmu}: use its own names"
        raise UserError(msg)
    if native is None:
        why = f"; {alias.missing}" if alias.missing else ""
        msg = f"{pmu} has no event for {alias.name!r} ({alias.meaning}){why}"
        raise UserError(msg)
    meaning = f"{alias.meaning} ({native})"
    raw = _RAW.fullmatch(native)  # where libpfm4 has no name for it, or a wrong number
    if raw:
        return CounterEvent(alias.name, RAW, int(raw[1], 16), source="raw", help=meaning, cpu=pmu)
    return _encoded(alias.name, native, pmu, meaning)


def _encoded(name: str, native: str, pmu: str, meaning: str) -> CounterEvent:
    code = pfm.encode(pmu, native)
    cpu = pmu if code.type == RAW else ""
    fields = dataclasses.asdict(code)
    return CounterEvent(name, **fields, source="libpfm4", help=meaning, cpu=cpu)


def _unknown(name: str, cpu: str | None, root: Path) -> str:
    """The sentences of the error: what is near, and what would make more names known."""
    absent = pfm.missing()
    pmu = None if absent else cpu or pfm.this_cpu()
    known = [*GENERIC, *aliases(), *(_pfm_names(pmu) if pmu else ()), *tracepoints(root)]
    where = f" of {pmu}" if pmu else ""
    near = pfm.nearest(name, known)
    shown = name if len(name) <= 80 else f"{name[:80]}..."
    parts = [f"unknown event {shown!r}{where}{near or '.'}"]
    trace = _TRACEPOINT.fullmatch(name)
    unseen = tracepoint(trace[1], trace[2], root)[1] if trace else ""
    if unseen:
        parts.append(f"{unseen}.")
    if absent:
        parts.append(f"{absent}.")
    elif pmu is None:
        parts.append("libpfm4 does not know this machine's processor: name another by cpu=.")
    listed = f"names({pmu!r})" if cpu else "names()"
    return " ".join([*parts, f"All: perflib.instruments.counters.events.{listed}."])
