"""How levels of memory are measured: which arrays, how warm, every configuration once a round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.memory_levels import MemoryLevelsParams
from perflib.experiments.memory_levels.table import MemoryTable, primary
from perflib.experiments.memory_levels.trials import ArrayConfiguration, Trials, Visits, calibrate
from perflib.framework.experiment import Session
from perflib.framework.page_control import timed_pairs
from perflib.machine.hardware.caches import caches
from perflib.machine.hardware.memory import free_bytes
from perflib.machine.hardware.topology import topology
from perflib.measure.arrays import LINE_BYTES, Arrays
from perflib.measure.pages.backings import resolve
from perflib.measure.pages.kinds import DATA_BACKINGS, HUGE_PAGE_BYTES
from perflib.model.errors import MeasurementError, UserError

_KIB, _MIB = 1 << 10, 1 << 20
_LAPS = 10  # of the warm-up, as Derumigny and Thomas have it
_LARGEST_IN_CACHES = 4  # the largest array, in last-level caches
_UNKNOWN_MIB = 256  # the same, where no cache is known
_SHARE = 4  # by itself it takes at most this part of the free memory
_OWN_CACHES_FACTOR = 2  # times what the core's own caches hold: up to there a sibling is felt
_UNKNOWN_OWN = 1 << 20  # bytes: up to there where no cache is known
_LARGE_EVERY_ROUNDS = 3  # rounds from one visit to the next
_DENSE_FACTOR = 1.42  # times a cache's size: so far there are more sizes
_ORDER_FACTOR = 1.1  # the order of the visits is kept next to the array: 4 bytes of 64, and a bit


# --- how large, how warm -------------------------------------------------------------------------


def _cache_sizes(cpus: Sequence[int], *, own: bool = False) -> list[int]:
    """The sizes of the caches for data that the CPUs use, as sysfs has them; ascending.

    ``own``: those of the first two levels that no other core uses. (A last-level cache looks like
    a core's own to a virtual machine that has one.)
    """
    places = topology()
    found: set[int] = set()
    for cpu in cpus:
        threads = {cpu, *places.cpu(cpu).siblings}
        found |= {
            cache.size_bytes
            for cache in caches()
            if cpu in cache.shared_cpus
            and cache.kind != "instruction"
            and (not own or (cache.level <= 2 and threads.issuperset(cache.shared_cpus)))
        }
    return sorted(found)


def largest_bytes(params: MemoryLevelsParams, cache_bytes: int) -> tuple[int, list[str]]:
    """The size of the largest array, and what the run must note about it.

    Raises
    ------
    UserError
        It was requested, and does not fit into memory.
    """
    free = free_bytes()
    if params.largest_mib is not None:
        wanted = params.largest_mib * _MIB
        if free is not None and wanted * _ORDER_FACTOR > free:
            msg = (
                f"largest_mib: an array of {params.largest_mib} MiB needs "
                f"{wanted * _ORDER_FACTOR / _MIB:.0f} MiB with the order of its lines, and "
                f"{free / _MIB:.0f} MiB are free: give {free / _ORDER_FACTOR / _MIB:.0f} at most"
            )
            raise UserError(msg)
        return wanted, []
    wanted = _LARGEST_IN_CACHES * cache_bytes if cache_bytes else _UNKNOWN_MIB * _MIB
    if free is None or wanted <= free / _SHARE:
        return wanted, []
    note = (
        f"the largest array has {free / _SHARE / _MIB:.0f} MiB, a quarter of the free memory, and "
        f"not {wanted / _MIB:.0f} MiB: memory may look like the last-level cache. "
        "'largest_mib' sets another size"
    )
    return int(free / _SHARE), [note]


def sizes(smallest: int, largest: int, per_doubling: int) -> list[int]:
    """Sizes in bytes that grow by equal factors, in whole lines of 64 bytes.

    >>> sizes(2048, 8192, 2)
    [2048, 2880, 4096, 5824, 8192]

    Raises
    ------
    UserError
        The smallest is larger than the largest.
    """
    if smallest > largest:
        msg = (
            f"smallest_kib: {smallest // _KIB} KiB is more than the largest array, "
            f"{largest / _KIB:.0f} KiB (largest_mib)"
        )
        raise UserError(msg)
    steps = int(per_doubling * math.log2(largest / smallest) + 1e-9)
    exact = smallest * 2 ** (np.arange(steps + 1) / per_doubling)
    return sorted({round(size / LINE_BYTES) * LINE_BYTES for size in exact})


def _near(ends: Sequence[int], smallest: int, largest: int, per_doubling: int) -> set[int]:
    """Sizes halfway between others, near those at which the core's own caches should end."""
    found: set[int] = set()
    for end in ends:
        low, high = max(smallest, end // 2), min(largest, end * _DENSE_FACTOR)
        if low < high:
            found.update(sizes(low, int(high), 2 * per_doubling))
    return found


def warm_loads(array_bytes: int, loads: int, cache_bytes: int) -> int:
    """How many loads warm an array up.

    What the caches hold: ten laps, as Derumigny and Thomas have it, but in no more time than a
    repeat takes, and one lap in any case. What they do not hold: one lap, but in no more time than
    ten repeats. That suffices, because the chase begins with the lines that were written first
    when the array was placed, which have left the caches since.
    """
    lines = array_bytes // LINE_BYTES
    if array_bytes <= cache_bytes:
        return max(lines, min(_LAPS * lines, loads))
    return min(lines, _LAPS * loads)


def _visits(size: int, own_bytes: int, cache_bytes: int, *, main: bool) -> Visits:
    """In which rounds an array is visited.

    In the curve of the levels, what the core's own caches hold: in each round, until enough of it
    was measured alone. Other arrays take longer to place and gain less from that: in every third
    round, a third of the doublings in each. Those of all curves come in the same rounds, in which
    they are compared; and so do all beyond the caches.
    """
    if main and size <= own_bytes:
        return Visits(1, 0, until_alone=True)
    return Visits(
        _LARGE_EVERY_ROUNDS,
        size.bit_length() % _LARGE_EVERY_ROUNDS if size <= cache_bytes else 0,
        until_alone=False,
    )


# --- a run ---------------------------------------------------------------------------------------


def plan(params: MemoryLevelsParams) -> dict[str, Any]:
    """Cores, sizes, and the backings that are available."""
    cores = params.resolved_cores()
    cache_bytes = max(_cache_sizes(cores), default=0)
    own = _cache_sizes(cores, own=True)
    largest, notes = largest_bytes(params, cache_bytes)
    smallest = params.smallest_kib * _KIB
    found = sizes(smallest, largest, params.sizes_per_doubling)
    near = _near(own, smallest, largest, params.sizes_per_doubling)
    pages = -(-found[-1] // HUGE_PAGE_BYTES) + 2  # one array at a time; the control's two
    return {
        "cores": cores,
        "sizes": found,
        "level_sizes": sorted(near.union(found)),
        "cache_bytes": cache_bytes,
        "own_bytes": _OWN_CACHES_FACTOR * max(own, default=0) or _UNKNOWN_OWN,
        "notes": notes,
        "hugetlb_pages": pages,
        **resolve(params.backings, tuple(DATA_BACKINGS), pages, params.settings),
    }


def pilot(params: MemoryLevelsParams, plan: Mapping[str, Any]) -> dict[str, Any]:
    """The backings that fail, the loads that take a repeat's time, the control of page sizes."""
    found, cache_bytes, cpu = plan["sizes"], plan["cache_bytes"], plan["cores"][0]
    orders = list(dict.fromkeys(params.orders))
    with Arrays(params.conditions(None)) as arrays:
        failed = _failing(arrays, plan["backings"], orders[0], found[-1], cpu)
        absent = plan["absent"] | failed
        backings = [name for name in plan["backings"] if name not in failed]
        if not backings:
            reasons = "; ".join(f"{name}: {why}" for name, why in absent.items())
            msg = f"none of the backings is available here: {reasons}"
            raise MeasurementError(msg)
        main = primary(orders, backings)
        fewer = found[:: params.sizes_per_doubling]  # enough where no level is looked for
        curves = {
            (order, backing): plan["level_sizes"] if (order, backing) == main else fewer
            for order in orders
            for backing in backings
        }
        wanted = dict.fromkeys((order, size) for (order, _), own in curves.items() for size in own)
        loads = calibrate(arrays, cpu, backings[0], wanted, params.trial_ms)
        control = timed_pairs(backings, arrays.page_reach)
    configurations = [
        ArrayConfiguration(
            cpu, order, backing, size, count, warm_loads(size, count, cache_bytes),
            *_visits(size, plan["own_bytes"], cache_bytes, main=(order, backing) == main),
        )
        for cpu in plan["cores"]
        for (order, backing), own in curves.items()
        for size in own
        for count in [loads[order, size]]
    ]  # fmt: skip
    return {
        "absent": absent,
        "backings": backings,
        "page_reach": control,
        "configurations": configurations,
    }


def _failing(
    arrays: Arrays, backings: Sequence[str], order: str, largest: int, cpu: int
) -> dict[str, str]:
    """The backings on which the largest array is not placed as requested, with the reason."""
    answers = {
        name: arrays.place("array", order=order, bytes_=largest, backing=name, cpu=cpu)
        for name in backings
    }
    arrays.release("array")
    return {name: why for name, why in answers.items() if why}


def take(params: MemoryLevelsParams, session: Session) -> str:
    """Every core, order, backing and size once a round."""
    plan = session.plan
    configurations = [ArrayConfiguration(*one) for one in plan["configurations"]]
    machine = session.journal.header["machine"]
    with Arrays(params.conditions(None)) as arrays:
        trials = Trials(arrays, configurations, params, params.repeats)
        stopped = session.rounds(
            params,
            len(configurations),
            trials.take,
            lambda samples: half_width(samples, machine, configurations),
        )
        session.note(trials)
    session.problems += plan["notes"]
    session.problems += [f"{name}: {why}" for name, why in plan["absent"].items()]
    return stopped


def half_width(
    samples: pd.DataFrame,
    machine: Mapping[str, Any],
    configurations: Sequence[ArrayConfiguration] = (),
) -> float:
    """How precise the run is so far, in percent: see ``MemoryTable.half_width``.

    Infinite until all arrays were visited twice.
    """
    twice = 2 * max((one.every for one in configurations), default=0)
    if not samples["ok"].any() or samples["round"].max() + 1 < twice:
        return math.inf
    return MemoryTable(samples, machine).alone.half_width
