"""The tracepoints that concern threads: their numbers and fields, in the kernel and in a file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from perflib.instruments.counters.kernel_names import tracefs
from perflib.instruments.perf.data import Field, PerfData
from perflib.machine.files import text
from perflib.model.errors import MeasurementError

_TRACEPOINT, _SOFTWARE = 2, 1
_CPU_CLOCK = 0
_FIELD = re.compile(
    r"field:[^;]*?(\w+)(?:\[\d+\])?;\s*offset:(\d{1,5});\s*size:([1248]);\s*signed:(\d);"
)


@dataclass(frozen=True)
class Tracepoints:
    """The tracepoints' numbers and fields on the kernel that runs.

    Attributes
    ----------
    ids
        Their numbers by their names.
    state_bits
        Of ``prev_state``: those of a thread that sleeps. Others mark a runnable one.
    """

    ids: dict[str, int]
    fields: dict[str, list[Field]]
    state_bits: int

    @classmethod
    def read(cls, root: Path = Path("/")) -> Tracepoints:
        """Read them.

        Raises
        ------
        MeasurementError
            They may not be read, or one of them has not the fields that are known.
        """
        wanted = {  # in the order of a record's a to d
            "sched:sched_switch": ("next_pid", "prev_state", "prev_pid"),
            "sched:sched_waking": ("pid", "common_pid", "common_flags"),
            "syscalls:sys_enter_futex": ("uaddr", "op", "val"),
            "syscalls:sys_exit_futex": ("ret",),
        }
        base = tracefs(root)
        if base is None or text(base / "sched/sched_switch/id") is None:
            msg = "the kernel's tracepoints cannot be read (tracefs is not there, or not allowed)"
            raise MeasurementError(msg)
        ids, fields = {}, {}
        state_bits = 0xFF
        for name, words in wanted.items():
            folder = base / name.replace(":", "/")
            described = text(folder / "format") or ""
            found = {
                word: Field(int(offset), int(size), signed == "1")
                for word, offset, size, signed in _FIELD.findall(described)
            }
            number = text(folder / "id")
            if not re.fullmatch(r"\d{1,9}", number or "", re.ASCII) or not set(words) <= set(found):
                msg = f"the kernel has no tracepoint {name} with {', '.join(words)}"
                raise MeasurementError(msg)
            ids[name] = int(number or 0)
            fields[name] = [found[word] for word in words]
            if name == "sched:sched_switch":
                state_bits = _state_bits(described)
        return cls(ids, fields, state_bits)


def _state_bits(described: str) -> int:
    """All states that the kernel has a letter for; the next bit is that of a preempted thread."""
    letters = re.findall(r'\{ (0x[0-9a-fA-F]+), "\w" \}', described)
    known = 0
    for bit in letters:
        known |= int(bit, 16)
    return known or 0xFF


class Numbers(NamedTuple):
    """Numbers of a file's events; -1: it has none of them."""

    switch: int
    waking: int
    wait: int
    exit: int
    clock: int


def numbers(data: PerfData, tracepoints: Tracepoints) -> Numbers:
    """Which event is what."""
    place = {(event.type, event.config): i for i, event in reversed([*enumerate(data.events)])}
    ids = tracepoints.ids
    return Numbers(
        place.get((_TRACEPOINT, ids["sched:sched_switch"]), -1),
        place.get((_TRACEPOINT, ids["sched:sched_waking"]), -1),
        place.get((_TRACEPOINT, ids["syscalls:sys_enter_futex"]), -1),
        place.get((_TRACEPOINT, ids["syscalls:sys_exit_futex"]), -1),
        place.get((_SOFTWARE, _CPU_CLOCK), -1),
    )
