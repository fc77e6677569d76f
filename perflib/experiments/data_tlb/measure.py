"""How the data TLBs are measured: how many pages, every configuration once a round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from perflib.experiments.data_tlb import LINES, DataTlbParams
from perflib.experiments.data_tlb.table import TlbTable
from perflib.experiments.data_tlb.trials import (
    Configuration,
    Trials,
    calibrate,
    page_bytes,
    place,
)
from perflib.framework.experiment import Session
from perflib.framework.page_control import PageControl, timed_pairs
from perflib.machine.hardware.caches import caches
from perflib.machine.hardware.known_tlbs import tlbs_here
from perflib.machine.hardware.memory import free_bytes
from perflib.machine.hardware.tlbs import reach_bytes
from perflib.measure.arrays import LINE_BYTES, Arrays
from perflib.measure.pages.backings import resolve
from perflib.measure.pages.kinds import BACKINGS, HUGE_PAGE_BYTES, SMALL_PAGES
from perflib.model.errors import MeasurementError, UserError

_KNOWN = tuple(name for name in BACKINGS if name != "loaded")
_PAGE = page_bytes(SMALL_PAGES)
_LEAST, _LEAST_HUGE = 16, 8  # pages
_BEYOND = 3  # times the entries of the second level
_UNKNOWN = 6144  # pages, where nobody says how many entries there are
_SHARE = 4  # by itself it takes at most this part of the free memory
# Rounds from one visit to the next: hundreds of MiB take long to place.
_HUGE_EVERY, _STRIDE_EVERY = 3, 2
_FEW = 16  # pages: up to so many each number, for ways are few
_MOST_FEW, _BEYOND_FEW = 160, 1.6  # where the entries of the first level are not known; times these
_LEAST_ROUNDS = 16  # for batches of two rounds or more


def _known_entries(level: int) -> int:
    """For pages of 4 KiB; 0 where nothing says so."""
    return reach_bytes(tlbs_here().tlbs, "data", level) // _PAGE


def _cached_lines(cpus: Sequence[int]) -> int:
    """How many lines the second-level caches of the cores hold; 0 where they are not known."""
    sizes = [
        cache.size_bytes
        for cache in caches()
        if cache.level == 2 and not set(cpus).isdisjoint(cache.shared_cpus)
    ]
    return min(sizes, default=0) // LINE_BYTES


def most_pages(
    requested: int | None, entries: int, cached_lines: int, free: int | None
) -> tuple[int, list[str]]:
    """The largest number of pages of 4 KiB, and what the run must note about it.

    Parameters
    ----------
    requested
        By the user, if at all.
    entries, cached_lines
        Of the second-level TLB and cache; 0: not known.
    free
        Bytes of free memory, if known.

    Raises
    ------
    UserError
        They were requested, and do not fit into memory.
    """
    room = math.inf if free is None else free // _PAGE
    if requested is not None:
        if requested > room:
            msg = (
                f"largest_pages: {requested} pages need {requested * _PAGE >> 20} MiB, and "
                f"{int(room) * _PAGE >> 20} MiB are free: give {int(room)} at most"
            )
            raise UserError(msg)
        return requested, []
    wanted = _BEYOND * entries if entries else _UNKNOWN
    most = min(wanted, cached_lines / 2 if cached_lines else wanted, room / _SHARE)
    most = max(int(most), 4 * _LEAST)
    if entries and most < 1.5 * entries:
        note = (
            f"there are {most} pages at most, so that their lines stay in the second-level cache "
            f"and in free memory: too few for the {entries} entries of the second-level TLB. "
            "'largest_pages' sets another number"
        )
        return most, [note]
    return most, []


def most_huge_pages(requested: int, free: int | None) -> int:
    """The largest number of pages of 2 MiB: as requested, or what has room."""
    room = requested if free is None else free // _SHARE // HUGE_PAGE_BYTES
    return max(min(requested, room), 2 * _LEAST_HUGE)


def strides_within(requested: Sequence[int], pages: int, free: int | None) -> list[int]:
    """The strides at which so many pages have room."""
    room = math.inf if free is None else free / _SHARE
    return [stride for stride in requested if stride * pages * _PAGE <= room]


def numbers(least: int, most: int, per_doubling: int) -> list[int]:
    """Numbers of pages that grow by equal factors.

    >>> numbers(16, 64, 2)
    [16, 23, 32, 45, 64]
    """
    steps = int(per_doubling * math.log2(most / least) + 1e-9)
    return sorted({round(least * 2 ** (step / per_doubling)) for step in range(steps + 1)})


def plan(params: DataTlbParams) -> dict[str, Any]:
    """Cores, numbers of pages, and the backings that are available."""
    cores, free = params.resolved_cores(), free_bytes()
    most, notes = most_pages(params.largest_pages, _known_entries(2), _cached_lines(cores), free)
    few = int(_BEYOND_FEW * _known_entries(1)) or _MOST_FEW
    huge = most_huge_pages(params.largest_huge_pages, free)
    return {
        "cores": cores,
        "pages": {
            "small": numbers(_LEAST, most, params.sizes_per_doubling),
            "huge": numbers(_LEAST_HUGE, huge, params.sizes_per_doubling),
            "few": [*range(2, _FEW), *numbers(_FEW, max(few, 2 * _FEW), params.sizes_per_doubling)],
        },
        "strides": strides_within(params.strides, few, free),
        "notes": notes,
        "hugetlb_pages": huge + 1,
        **resolve(params.backings, _KNOWN, huge + 1, params.settings),
    }


def pilot(params: DataTlbParams, plan: Mapping[str, Any]) -> dict[str, Any]:
    """The backings that fail, the loads that take a repeat's time, the control of page sizes."""
    cpu = plan["cores"][0]
    pages = {name: _pages(plan, name) for name in plan["backings"]}
    with Arrays(params.conditions(None)) as arrays:
        answers = {
            name: place(arrays, "spread", name, own[-1], 1, cpu) for name, own in pages.items()
        }
        failed = {name: why for name, why in answers.items() if why}
        absent = plan["absent"] | failed
        backings = [name for name in pages if name not in failed]
        if not backings:
            reasons = "; ".join(f"{name}: {why}" for name, why in absent.items())
            msg = f"none of the backings is available here: {reasons}"
            raise MeasurementError(msg)
        control = timed_pairs(backings, arrays.page_reach)
        backings = _backed(backings, PageControl(control))
        strides = plan["strides"] if SMALL_PAGES in backings else []
        wanted = [(name, 1, n) for name in backings for n in pages[name]]
        wanted += [(SMALL_PAGES, stride, n) for stride in strides for n in plan["pages"]["few"]]
        loads = calibrate(arrays, cpu, wanted, params.trial_ms)
    configurations = [
        Configuration(
            core, name, lines, stride, n, loads[name, stride, n], _every(name, stride, backings)
        )
        for core in plan["cores"]
        for name, stride, n in wanted
        for lines in (LINES if stride == 1 else LINES[:1])
    ]
    return {
        "absent": absent,
        "backings": backings,
        "page_reach": control,
        "configurations": configurations,
    }


def _backed(backings: list[str], control: PageControl) -> list[str]:
    """Without huge pages that the host does not back: their entries hold pages of 4 KiB.

    All of them where nothing else would be left.
    """
    return [name for name in backings if control.prevents(name) is None] or backings


def _every(backing: str, stride: int, backings: Sequence[str]) -> int:
    if SMALL_PAGES not in backings:
        return 1
    if backing != SMALL_PAGES:
        return _HUGE_EVERY
    return 1 if stride == 1 else _STRIDE_EVERY


def _pages(plan: Mapping[str, Any], backing: str) -> list[int]:
    found: list[int] = plan["pages"]["small" if backing == SMALL_PAGES else "huge"]
    return found


def take(params: DataTlbParams, session: Session) -> str:
    """Every core, kind of pages and of lines, and number of pages once a round."""
    plan = session.plan
    configurations = [Configuration(*one) for one in plan["configurations"]]
    with Arrays(params.conditions(None)) as arrays:
        trials = Trials(arrays, configurations, seed=params.seed, repeats=params.repeats)
        stopped = session.rounds(params, len(configurations), trials.take, half_width)
        session.note(trials)
    session.problems += plan["notes"]
    session.problems += [f"{name}: {why}" for name, why in plan["absent"].items()]
    return stopped


def half_width(samples: pd.DataFrame) -> float:
    """How precise the run is so far, in percent: see ``TlbTable.half_width``.

    Infinite until there are rounds for batches.
    """
    if not samples["ok"].any() or samples["round"].max() + 1 < _LEAST_ROUNDS:
        return math.inf
    return TlbTable(samples).half_width
