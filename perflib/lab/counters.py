"""Counters by hand, for a notebook: ``pl.counters``.

Events by name (`event`, `aliases`) and by set (`events_of`), groups of them on this thread
(`Group`, `in_domain`), what multiplexing estimates (`rotation`, `scale_slices`), and counters that
are simulated (`qemu_counts` with its models).
"""

from __future__ import annotations

from perflib.instruments.counters.aliases import aliases
from perflib.instruments.counters.events import event
from perflib.instruments.counters.groups import Group, in_domain
from perflib.instruments.counters.multiplexing import rotation, scale_slices
from perflib.instruments.counters.sets import events_of
from perflib.instruments.simulators.models import HASWELL_ITLB, HASWELL_STORES
from perflib.instruments.simulators.qemu import qemu_counts

__all__ = [
    "HASWELL_ITLB",
    "HASWELL_STORES",
    "Group",
    "aliases",
    "event",
    "events_of",
    "in_domain",
    "qemu_counts",
    "rotation",
    "scale_slices",
]
