"""The names of hardware events of every processor, through libpfm4.

libpfm4 (Debian's package of that name) holds the event tables of some fifty processors and turns a
name into the numbers that ``perf_event_open`` takes. It is optional: it is searched when first
needed, through cffi's ABI mode, so that neither its headers nor a compiler are needed. It encodes
for any processor, also for one that this machine is not, and where a hypervisor hides the counters.

Source: libpfm4 4.13, its manual pages pfm_get_pmu_info(3), pfm_get_event_info(3),
pfm_get_event_attr_info(3) and pfm_get_os_event_encoding(3).
"""

from __future__ import annotations

import difflib
import functools
import os
import re
import threading
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perflib.machine.hardware.microarch import processor
from perflib.model.errors import MeasurementError, UserError, choose

LIBRARY = "libpfm.so.4"

_INTERFACE = Path(__file__).with_name("pfm.h")
_USER_AND_KERNEL = 0x1 | 0x8  # PFM_PLM0, PFM_PLM3
_PERF_EVENT = 1  # PFM_OS_PERF_EVENT
_EXCLUDE_USER, _EXCLUDE_KERNEL = 1 << 4, 1 << 5  # in perf_event_attr's flags
_PRESENT, _DEFAULT_PMU = 1, 2
_DEFAULT_MASK = 1
_KINDS = {1: "core", 2: "uncore", 3: "system"}
_UNIT_MASK, _BOOLEAN, _INTEGER = 1, 2, 3
_MAX_PMUS = 4096  # identifiers are below: 515 of them in 4.13, most of them not for this machine
_UNSUPPORTED, _NOT_FOUND, _COMBINATION, _MASK = -1, -4, -5, -6
_ATTRIBUTE, _VALUE, _TWICE = -8, -9, -10
_PLAIN = re.compile(r"[A-Za-z0-9_:.=-]+")

_PMU_OF: dict[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())

# One thread at a time: libpfm4 keeps what it is working on in static variables.
_lock = threading.RLock()


@dataclass(frozen=True)
class PfmPmu:
    """A set of counters that libpfm4 knows; ``kind`` is ``core``, ``uncore`` or ``system``."""

    name: str
    kind: str
    present: bool
    generic: bool


@dataclass(frozen=True)
class UnitMask:
    """Which of its cases an event counts; ``default``: the one that counts if none is named."""

    name: str
    help: str
    default: bool


@dataclass(frozen=True)
class PmuEvent:
    """An event of one PMU, its unit masks, and its modifiers (``u``, ``k``, ``c``, ``e`` ...)."""

    name: str
    help: str
    masks: tuple[UnitMask, ...]
    modifiers: tuple[str, ...]


@dataclass(frozen=True)
class Encoding:
    """What ``perf_event_open`` takes for the event."""

    type: int
    config: int
    config1: int
    config2: int
    exclude_user: bool
    exclude_kernel: bool


def missing() -> str:
    """Why there are no names from libpfm4, as a sentence; empty where there are."""
    try:
        with _lock:
            _library()
    except UserError as error:
        return str(error)
    return ""


@contextmanager
def _encoding_for_any_cpu() -> Iterator[None]:
    """Let libpfm4, which reads its environment once when it starts, encode for absent CPUs.

    Through ``os.environ``, so that C's environment and Python's stay one; what was there before
    is put back, and no process started later inherits it.
    """
    name = "LIBPFM_ENCODE_INACTIVE"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@functools.cache
def _library() -> tuple[Any, Any]:
    """The two halves of cffi, ``(ffi, lib)``, initialised; call with the lock held."""
    import cffi

    ffi = cffi.FFI()
    try:
        lib: Any = ffi.dlopen(LIBRARY)
    except OSError:
        msg = (
            f"libpfm4 is not installed ({LIBRARY} is not found): "
            "with apt-get install libpfm4 more names are known, those of each processor"
        )
        raise UserError(msg) from None
    ffi.cdef(_INTERFACE.read_text(encoding="utf-8"))
    version = getattr(lib, "pfm_get_version", None)
    if version is None or version() >> 16 != 4:
        msg = f"{LIBRARY} is there, but it is no libpfm4"
        raise UserError(msg)
    with _encoding_for_any_cpu():
        code = lib.pfm_initialize()
    if code != 0:
        msg = f"libpfm4 does not start: {_text(ffi, lib.pfm_strerror(code))}"
        raise UserError(msg)
    return ffi, lib


def _text(ffi: Any, pointer: Any) -> str:
    return str(ffi.string(pointer).decode(errors="replace")) if pointer else ""


@functools.cache
def _pmu_indices() -> dict[str, tuple[PfmPmu, int]]:
    """Every PMU with libpfm4's index of its first event."""
    with _lock:
        ffi, lib = _library()
        found = {}
        info = ffi.new("pmu_info *")
        for number in range(_MAX_PMUS):
            info.size = ffi.sizeof("pmu_info")
            if lib.pfm_get_pmu_info(number, info) != 0 or not info.name:
                continue
            pmu = PfmPmu(
                name=_text(ffi, info.name),
                kind=_KINDS.get(info.type, "unknown"),
                present=bool(info.flags & _PRESENT),
                generic=bool(info.flags & _DEFAULT_PMU),
            )
            found[pmu.name] = (pmu, info.first_event)
        return found


def pmus() -> list[PfmPmu]:
    """Every PMU that this libpfm4 knows, present here or not.

    Raises
    ------
    UserError
        libpfm4 is not installed (so do all functions here but `missing` and `nearest`).
    """
    return [pmu for pmu, _ in _pmu_indices().values()]


@functools.cache
def pmu_events(pmu: str) -> dict[str, PmuEvent]:
    """The events of a PMU by name, in upper case; none where libpfm4 is another architecture's."""
    with _lock:
        index = _pmu_indices().get(pmu_named(pmu), (None, -1))[1]
        ffi, lib = _library()
        events = {}
        info = ffi.new("event_info *")
        while index >= 0:
            info.size = ffi.sizeof("event_info")
            if lib.pfm_get_event_info(index, _PERF_EVENT, info) == 0:
                masks, modifiers = _attributes(ffi, lib, index, info.nattrs)
                name = _text(ffi, info.name)
                events[name.upper()] = PmuEvent(name, _text(ffi, info.desc), masks, modifiers)
            index = lib.pfm_get_event_next(index)
        return events


def _attributes(
    ffi: Any, lib: Any, event: int, count: int
) -> tuple[tuple[UnitMask, ...], tuple[str, ...]]:
    masks, modifiers = [], []
    info = ffi.new("attribute_info *")
    for number in range(count):
        info.size = ffi.sizeof("attribute_info")
        if lib.pfm_get_event_attr_info(event, number, _PERF_EVENT, info) != 0:
            continue
        if info.type == _UNIT_MASK:
            default = bool(info.flags & _DEFAULT_MASK)
            masks.append(UnitMask(_text(ffi, info.name), _text(ffi, info.desc), default))
        elif info.type in (_BOOLEAN, _INTEGER):
            modifiers.append(_text(ffi, info.name))
    return tuple(masks), tuple(modifiers)


def this_cpu(root: Path = Path("/")) -> str | None:
    """libpfm4's name for the core PMU of this machine's processor; ``None`` if it knows none.

    Decided by family and model, not by whether counters answer: names are encoded in a guest
    that has no PMU too.
    """
    cores = [pmu for pmu in pmus() if pmu.kind == "core"]
    design = processor(root)
    for word in (design.product, design.name):
        if _PMU_OF.get(word) in {pmu.name for pmu in cores}:
            return _PMU_OF[word]
    if root != Path("/"):
        return None
    # A processor newer than pfm.toml may be known to a libpfm4 newer than 4.13.
    return next((pmu.name for pmu in cores if pmu.present and not pmu.generic), None)


def pmu_named(cpu: str) -> str:
    """libpfm4's name for a CPU: that name itself, ``zen4``, or a design (``Skylake-SP``).

    Raises
    ------
    UserError
        There is none; the message names the nearest.
    """
    # each libpfm4 has one architecture's names; raw codes need none
    known = [*dict.fromkeys([*(pmu.name for pmu in pmus()), *_PMU_OF.values()])]
    word = cpu.strip().lower()
    for name in known:
        if word == name.lower() or (word.startswith("zen") and name.endswith(f"_{word}")):
            return name
    for design, name in _PMU_OF.items():
        if word == design.lower() and name in known:
            return name
    cores = [pmu.name for pmu in pmus() if pmu.kind == "core" and not pmu.generic]
    short = [name.rpartition("_")[2] for name in cores if "_zen" in name]
    raise UserError(choose("CPU", cpu, [*cores, *short]))


def encode(pmu: str, text: str) -> Encoding:
    """Encode ``EVENT:UNIT_MASK:modifier`` of a PMU.

    Raises
    ------
    UserError
        Unknown event, unit mask or modifier (with the nearest), one that is missing, or a
        combination that the hardware does not have.

    Examples
    --------
    ``encode("skx", "ITLB_MISSES:WALK_COMPLETED").config`` is 0xe85.
    """
    pmu = pmu_named(pmu)
    with _lock:
        ffi, lib = _library()
        attributes = ffi.new("perf_attributes *")
        output = ffi.new("encoding *", {"size": ffi.sizeof("encoding"), "attributes": attributes})
        code = _NOT_FOUND
        if _PLAIN.fullmatch(text):
            name = f"{pmu}::{text}".encode()
            code = lib.pfm_get_os_event_encoding(name, _USER_AND_KERNEL, _PERF_EVENT, output)
        if code != 0:
            reason = _text(ffi, lib.pfm_strerror(code))
            raise _refusal(pmu, text, code, reason)
    return Encoding(
        type=attributes.type,
        config=attributes.config,
        config1=attributes.config1,
        config2=attributes.config2,
        exclude_user=bool(attributes.flags & _EXCLUDE_USER),
        exclude_kernel=bool(attributes.flags & _EXCLUDE_KERNEL),
    )


def _refusal(pmu: str, text: str, code: int, reason: str) -> UserError | MeasurementError:
    events = pmu_events(pmu)
    name, *parts = re.split("[:.]", text)
    event = events.get(name.upper())
    if event is None or code == _NOT_FOUND:
        near = nearest(name, events)
        return UserError(f"unknown event {text!r} of {pmu}{near}")
    masks = [mask.name for mask in event.masks]
    if code == _MASK:
        return UserError(
            f"{text!r} of {pmu} lacks a unit mask, or has one too many: choose one, as in "
            f"'{event.name}:{masks[0] if masks else ''}' (all: {', '.join(masks)})"
        )
    if code == _ATTRIBUTE:
        known = {word.upper() for word in (*masks, *event.modifiers)}
        for part in parts:
            if part.partition("=")[0].upper() not in known:
                unknown = choose("unit mask or modifier", part, [*masks, *event.modifiers])
                return UserError(f"{event.name} of {pmu}: {unknown}")
    sentence = {
        _UNSUPPORTED: "the kernel of this machine has no such device",
        _COMBINATION: "these unit masks or modifiers cannot be combined",
        _VALUE: "a modifier has a value out of its range",
        _TWICE: "a unit mask or modifier is given twice",
    }.get(code, reason)
    return UserError(f"{text!r} of {pmu}: {sentence}")


def nearest(word: str, choices: Iterable[str]) -> str:
    """Say ``: did you mean 'A' or 'B'?``; empty where nothing is near. Case does not count.

    Next to `perflib.model.errors.choose` for names that are too many to list.
    """
    known = {name.upper(): name for name in choices}
    near = difflib.get_close_matches(word.upper(), known, n=3, cutoff=0.6)
    if not near:
        return ""
    return f": did you mean {' or '.join(repr(known[name]) for name in near)}?"
