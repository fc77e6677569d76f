"""The file that the library and we share: what is to be delayed, and what happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from perflib.model.errors import UserError

Kind = Literal["function", "lock", "lock_taken_in"]

_KINDS: tuple[Kind, ...] = ("function", "lock", "lock_taken_in")
_CALLERS = ("none", "fp", "dwarf")
_MAGIC = 0x6669746168770001
_RANGES, _MODULES, _PATH = 256, 8, 1024
_SHARED = np.dtype(  # wi_shared of kernels_c/common/what_if_state.h
    [
        ("magic", "u8"),
        *((name, "i8") for name in ("period_ns", "delay_ppm")),
        *((name, "i8") for name in ("kind", "callers", "ranges", "modules", "root")),
        *((name, "i8") for name in ("flags", "live", "most_live", "global_ns")),
        *((name, "i8") for name in ("samples", "target_samples", "target_ns", "sections")),
        *((name, "i8") for name in ("paid_ns", "paid_cpu_ns", "run_queue_ns")),
        *((name, "i8") for name in ("cpu_ns", "start_ns", "end_ns", "modules_found")),
        ("range", [("start", "u8"), ("end", "u8"), ("module", "u8")], _RANGES),
        ("module", f"S{_PATH}", _MODULES),
    ]
)


@dataclass(frozen=True)
class AddressRange:
    """A range of addresses of a file, as its symbol table has them."""

    module: str
    start: int
    end: int


@dataclass(frozen=True)
class VirtualSpeedup:
    """What is to seem faster.

    Parameters
    ----------
    kind
        ``function``: with all that it calls; ``lock``: while a lock within these places is held;
        ``lock_taken_in``: while a lock is held that a function at these places took.
    name
        As the program's symbols have it.
    places
        Of all functions or variables of that name.
    """

    kind: Kind
    name: str
    places: tuple[AddressRange, ...]


NO_TARGET = VirtualSpeedup("function", "", ())


def written(
    path: Path, target: VirtualSpeedup, speedup_percent: float, period_us: float, callers: str
) -> None:
    """Write the file for one run.

    Raises
    ------
    UserError
        The target is in too many places.
    """
    modules = list(dict.fromkeys(place.module for place in target.places))
    raw = [module.encode(errors="surrogateescape") for module in modules]
    if len(target.places) > _RANGES or len(modules) > _MODULES:
        msg = (
            f"{target.name} is in {len(target.places)} places of {len(modules)} files; at most "
            f"{_RANGES} places of {_MODULES} files can be one target"
        )
        raise UserError(msg)
    if long := [one for one, bytes_ in zip(modules, raw, strict=True) if len(bytes_) >= _PATH]:
        msg = f"the path {long[0]!r} is too long for the library ({_PATH - 1} bytes)"
        raise UserError(msg)
    shared = np.zeros(1, _SHARED)
    shared["magic"] = _MAGIC
    shared["period_ns"] = round(1000 * period_us)
    shared["delay_ppm"] = round(1e4 * speedup_percent)
    shared["kind"] = _KINDS.index(target.kind)
    shared["callers"] = _CALLERS.index(callers)
    shared["ranges"], shared["modules"] = len(target.places), len(modules)
    for row, place in enumerate(target.places):
        shared["range"][0, row] = (place.start, place.end, modules.index(place.module))
    for row, name in enumerate(raw):
        shared["module"][0, row] = name
    path.write_bytes(shared.tobytes())


def read(path: Path) -> dict[str, int]:
    """The numbers of the file after a run, by the names of `wi_shared`."""
    row: Any = np.frombuffer(path.read_bytes(), _SHARED)[0]
    names: Sequence[str] = _SHARED.names or ()
    return {name: int(row[name]) for name in names if name not in ("range", "module")}
