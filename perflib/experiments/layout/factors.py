"""The factors: what should not matter, which levels each has here, and random layouts of them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from perflib.experiments.layout.relink import orders
from perflib.kernels import build
from perflib.machine.files import text
from perflib.machine.libraries.allocators import chosen
from perflib.measure.conditions import Conditions, check, environment_bytes, inherited_preload
from perflib.measure.pages import of_programs
from perflib.model.errors import PerflibError, UserError

if TYPE_CHECKING:
    from perflib.experiments.layout import LayoutParams

Layout = Mapping[str, Any]
_HEAP_OFFSET = "PERFLIB_HEAP_OFFSET"
_NODES = "/sys/devices/system/node/has_normal_memory"
_ROOM_BYTES = 64  # for what differs between this start of perflib and one that resumes


@dataclass(frozen=True)
class Factor:
    """Something that should not matter.

    Parameters
    ----------
    name
        As in the parameter ``factors``.
    column
        Of the samples: which level a trial had.
    says
        It, in words, at the beginning of a sentence.
    level
        How a level is written.
    """

    name: str
    column: str
    says: str
    level: str


FACTORS = {
    one.name: one
    for one in (
        Factor("environment", "padding_bytes", "the size of the environment", "{} B larger"),
        Factor("argv0", "name_bytes", "the length of the program's name", "{} B longer"),
        Factor("link_order", "link_order", "the order in which objects are linked", "order {}"),
        Factor("aslr", "aslr", "address randomisation (ASLR)", "ASLR {}"),
        Factor("heap", "heap_bytes", "the heap's offset", "{} B further"),
        Factor("allocator", "allocator", "the allocator", "{}"),
        Factor("huge_pages", "huge_pages", "transparent huge pages", "huge pages: {}"),
        Factor("cpu", "cpu", "the core", "cpu{}"),
        Factor("node", "memory_node", "the memory's NUMA node", "node {}"),
    )
}


CARRIED = ("environment", "argv0", "link_order", "heap", "allocator")
"""The factors that a start under an emulator has, too."""
COUNTED = ("4K aliases", "iTLB misses")
"""What is counted there, in 1000 instructions."""


def levels(params: LayoutParams) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Each requested factor's levels on this machine, and why others have none.

    Raises
    ------
    UserError
        A factor that was named has fewer than two levels, or none has two.
    """
    every = params.factors == ["all"]
    absent: dict[str, str] = {}
    found: dict[str, list[Any]] = {}
    for name in FACTORS if every else dict.fromkeys(params.factors):
        reason = _fixed(name, params)
        if not reason:
            found[name], reason = _HERE[name](params)
        if reason:
            found.pop(name, None)
            absent[name] = reason
    if absent and not every:
        name, reason = next(iter(absent.items()))
        msg = f"factors: {name} cannot be varied: {reason}"
        raise UserError(msg)
    if not found:
        msg = f"factors: none can be varied: {'; '.join(absent.values())}"
        raise UserError(msg)
    return found, {name: f"{name} is not varied: {reason}" for name, reason in absent.items()}


def _fixed(name: str, params: LayoutParams) -> str:
    """Which parameter fixes a factor."""
    fixing = {
        "environment": ("environment_bytes", params.environment_bytes is not None),
        "aslr": ("aslr", not params.aslr),
        "allocator": ("preload", bool(params.preload)),
        "huge_pages": ("huge_pages", params.huge_pages != "default"),
        "node": ("memory_policy", params.memory_policy != "default"),
    }
    parameter, given = fixing.get(name, ("", False))
    return f"the parameter {parameter} fixes it" if given else ""


def _environment(params: LayoutParams) -> tuple[list[Any], str]:
    found = list(dict.fromkeys(params.paddings))
    return found, "" if len(found) > 1 else "paddings has one size"


def _argv0(_params: LayoutParams) -> tuple[list[Any], str]:
    return [0, 40, 120], ""  # beyond the shortest; made lengths when the links are made


def _link_order(params: LayoutParams) -> tuple[list[Any], str]:
    if not params.relink:
        return [], "it takes the line that links the program (relink)"
    found = orders(params.relink, params.link_orders, params.seed)
    return list(range(len(found))), "" if len(found) > 1 else "its objects are one and the same"


def _aslr(_params: LayoutParams) -> tuple[list[Any], str]:
    switch = text("/proc/sys/kernel/randomize_va_space")
    if switch == "0":
        return [], "the machine has switched ASLR off (kernel.randomize_va_space)"
    return ["off", "on"], ""


def _heap(_params: LayoutParams) -> tuple[list[Any], str]:
    try:
        check(Conditions(preload=(_heap_library(),)))
    except PerflibError as error:  # no compiler, or a path that LD_PRELOAD cannot name
        return [], str(error)
    return [0, 1040, 2080, 3120], ""


def _heap_library() -> str:
    return str(build("heap_offset").library)


def _allocator(params: LayoutParams) -> tuple[list[Any], str]:
    found, absent = chosen(params.allocators)
    if len(found) < 2:
        return [], "; ".join(absent) or "allocators names one"
    return [vars(one) for one in found], ""


def _huge_pages(_params: LayoutParams) -> tuple[list[Any], str]:
    found, why = of_programs.levels()
    return list(found), why


def _cpu(params: LayoutParams) -> tuple[list[Any], str]:
    found = params.resolved_cores()
    return found, "" if len(found) > 1 else "there is one core to use (cores)"


def _node(_params: LayoutParams) -> tuple[list[Any], str]:
    from perflib.machine.cpulist import parse_cpus

    found = parse_cpus(text(_NODES) or "0")
    return found, "" if len(found) > 1 else "the machine has one NUMA node"


_HERE = {
    "environment": _environment,
    "argv0": _argv0,
    "link_order": _link_order,
    "aslr": _aslr,
    "heap": _heap,
    "allocator": _allocator,
    "huge_pages": _huge_pages,
    "cpu": _cpu,
    "node": _node,
}


# --- layouts -------------------------------------------------------------------------------------


def draw(factors: Mapping[str, list[Any]], seed: int, number: int) -> dict[str, Any]:
    """Layout of a number: a level of each factor, drawn at random; the same when resumed."""
    generator = random.Random(f"layout/{seed}/{number}")
    return {name: generator.choice(found) for name, found in factors.items()}


def base_environment_bytes(params: LayoutParams, factors: Mapping[str, list[Any]]) -> int:
    """An environment's size in which every layout without padding has room."""
    if params.environment_bytes is not None:
        return params.environment_bytes

    def least_bytes(layout: Layout) -> int:
        environment = _conditions(params, layout).process_environment()
        return environment_bytes({**environment, "PERFLIB_PADDING": ""})

    largest = {
        name: max(found, key=lambda level: least_bytes({name: level}))
        for name, found in factors.items()
    }
    return -(-(least_bytes(largest) + _ROOM_BYTES) // 16) * 16


def conditions(params: LayoutParams, layout: Layout, base_bytes: int) -> Conditions:
    """What the process of a layout is to have."""
    wanted = _conditions(params, layout)
    return replace(wanted, environment_bytes=base_bytes + layout.get("environment", 0))


def _conditions(params: LayoutParams, layout: Layout) -> Conditions:
    wanted = replace(params.conditions(layout.get("cpu")), environment_bytes=None)
    if "aslr" in layout:
        wanted = replace(wanted, aslr=layout["aslr"] == "on")
    if path := layout.get("allocator", {}).get("path"):
        wanted = replace(wanted, preload=(path,))
    if "heap" in layout:  # the library named first is initialised last: the allocator is ready
        preload = (_heap_library(), *(wanted.preload or inherited_preload()))
        offset = {_HEAP_OFFSET: f"{layout['heap']:08d}"}  # of one length
        wanted = replace(wanted, preload=preload, environment={**wanted.environment, **offset})
    wanted = of_programs.with_level(wanted, layout.get("huge_pages", "default"))
    if "node" in layout:
        wanted = replace(wanted, memory_policy="preferred", memory_node=layout["node"])
    return wanted


def columns_of(layout: Layout) -> dict[str, Any]:
    """A layout's levels as the samples have them."""
    found = {FACTORS[name].column: level for name, level in layout.items()}
    if "allocator" in layout:
        found["allocator"] = layout["allocator"]["name"]
    return found
