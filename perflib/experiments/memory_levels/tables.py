"""The derived tables; each figure is drawn from the one of its name."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.memory_levels.table import MemoryTable
from perflib.framework.samples import labelled
from perflib.measure.pages.kinds import SMALL_PAGES
from perflib.stats.interval import NO_INTERVAL, columns

_KIB = 1024
_UNITS = ("cycles", "ns")
_SHARED_FACTOR = 2  # times the core's own caches: so far a busy sibling is drawn
Pair = tuple[tuple[str, str], tuple[str, str]]


def levels(table: MemoryTable) -> pd.DataFrame:
    """Each level that is claimed or found, and what a load from it takes.

    Derumigny and Thomas print this table. Where samples next to a busy sibling show levels of their
    own, those of the core's own caches follow.

    Columns: ``level``; ``samples``, which were used (``alone``, ``shared`` with a busy sibling,
    ``all``); ``size_kib``, as claimed; ``array_kib``, the array that was used; ``latency_cycles``
    (of the core) and ``latency_ns``, each with the ends of its 95 % interval;
    ``first_kib`` and ``last_kib``, the sizes that the level reaches from and to. What
    was not seen, or claims no size, is NaN.
    """
    named: list[tuple[str, float, int | None]] = [
        (claim.name, claim.claimed_bytes, claim.level) for claim in table.matches.claims
    ]
    named += [("unclaimed", math.nan, number) for number in table.matches.unclaimed]
    if table.matches.memory is not None:
        named.append(("memory", math.nan, table.matches.memory))

    def place(row: tuple[str, float, int | None]) -> float:
        _, size, number = row
        return size if number is None else table.levels[number].end_bytes or math.inf

    rows = [_level(table, *row) for row in sorted(named, key=place)]
    if (shared := table.shared) is not None:
        rows += [
            _level(shared, claim.name, claim.claimed_bytes, claim.level)
            for claim in shared.matches.claims
            if claim.claimed_bytes <= table.own_bytes
        ]
    names = ["level", "samples", "size_kib", "array_kib"]
    names += [name for unit in _UNITS for name in columns(f"latency_{unit}", NO_INTERVAL)]
    return pd.DataFrame(rows, columns=[*names, "first_kib", "last_kib"])


def _level(table: MemoryTable, name: str, size: float, number: int | None) -> dict[str, Any]:
    level = None if number is None else table.levels[number]
    row: dict[str, Any] = {"level": name, "samples": table.state, "size_kib": size / _KIB}
    if level is not None:
        table = table.sampled(level)
        row |= {
            "samples": table.state,
            "array_kib": level.array_bytes / _KIB,
            "first_kib": level.first_bytes / _KIB,
            "last_kib": level.last_bytes / _KIB,
        }
    for unit in _UNITS:
        found = NO_INTERVAL if level is None else table.latency(level, f"latency_{unit}")
        row |= columns(f"latency_{unit}", found)
    return row


def latency(table: MemoryTable) -> pd.DataFrame:
    """Latency in ns at each size, in each order and on each backing: minima of the repeats.

    ``samples``: those that had the core alone where that is known, else all; in the order and on
    the backing of the levels, and as far as the core's own caches matter, also those next to a busy
    sibling (``shared``; medians of the repeats).
    """
    parts = []
    for order, backing in itertools.product(table.orders, table.backings):
        tables = [table]
        if (order, backing) == table.primary and table.shared is not None:
            tables.append(table.shared)
        for each in tables:
            if each.measured(order, backing):
                part = each.curve(order, backing)
                if each.state == "shared" and table.own_bytes:
                    part = part[part["array_bytes"] <= _SHARED_FACTOR * table.own_bytes]
                parts.append(labelled(part, order=order, backing=backing, samples=each.state))
    return pd.concat(parts, ignore_index=True)


def pairs(table: MemoryTable) -> dict[str, list[Pair]]:
    """What can be compared: small and huge pages, random order and windows, ascending and not.

    Only where at least one round has usable samples of both.
    """
    found: dict[str, list[Pair]] = {}
    orders = [name for name in table.orders if name != "sequential"]
    if SMALL_PAGES in table.backings:
        found["pages"] = [
            ((order, SMALL_PAGES), (order, huge)) for huge in table.huge for order in orders
        ]
    found["random"] = [(("random", backing), ("window", backing)) for backing in table.backings]
    found["sequential"] = [
        (("sequential", backing), (order, backing))
        for order in orders[:1]
        for backing in table.backings
    ]
    there = {
        name: [pair for pair in chosen if np.isfinite(table.ratio(*pair)).any()]
        for name, chosen in found.items()
    }
    return {name: chosen for name, chosen in there.items() if chosen}


def ratios(table: MemoryTable) -> pd.DataFrame:
    """One order or backing over another at each size, within rounds; see ``pairs``.

    Columns: ``compared`` (``pages``, ``random`` or ``sequential``), ``order`` and ``backing`` of
    the numerator, ``over_order`` and ``over_backing``, ``array_bytes``, ``ratio`` with its ends.
    """
    parts = []
    for name, chosen in pairs(table).items():
        for above, below in chosen:
            names = ("order", "backing", "over_order", "over_backing")
            labels = dict(zip(names, above + below, strict=True))
            parts.append(labelled(table.ratio_curve(above, below), compared=name, **labels))
    return pd.concat(parts, ignore_index=True)


def core_difference(table: MemoryTable) -> pd.DataFrame:
    """How much longer a load takes on each core than on the median of the others, by size.

    In the order and on the backing in whose curve levels are looked for.
    """
    compared = [table.core_difference([place]) for place in range(len(table.sizes))]
    order, backing = table.primary
    rows = [
        {
            "order": order,
            "backing": backing,
            "cpu": cpu,
            "array_bytes": size,
            **columns("slowdown_percent", each.effects[core].slowdown),
        }
        for core, cpu in enumerate(table.cores)
        for size, each in zip(table.sizes, compared, strict=True)
    ]
    return pd.DataFrame(rows)


def repeats(table: MemoryTable) -> pd.DataFrame:
    """In the curve of the levels: the median of a trial's repeats above their minimum, usually."""
    median, least = (
        table.values(*table.primary, statistic="median"),
        table.values(*table.primary, statistic="min"),
    )
    above = pd.DataFrame((median - least).reshape(-1, len(table.sizes))).median()
    return pd.DataFrame({"array_bytes": table.sizes, "above_percent": 100 * np.expm1(above)})
