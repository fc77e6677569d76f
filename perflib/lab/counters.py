"""Counters by hand, for a notebook: ``pl.counters``.

Events by name (`event`, `aliases`) and by set (`events_of`), groups of them on this thread
(`CounterGroup`, `in_domain`), what multiplexing estimates (`rotation`, `scale_slices`), what counts
say of a pipeline (`topdown`, `topdown_figure`, `consistency`) and as the perfctr monitor's table
(`monitor_table`), counts that the kernel keeps on every machine (`SystemCounts`), and counters that
are simulated (`qemu_counts` with its models).
"""

from __future__ import annotations

from perflib.instruments.counters.aliases import aliases
from perflib.instruments.counters.events import event
from perflib.instruments.counters.groups import CounterGroup, in_domain
from perflib.instruments.counters.multiplexing import rotation, scale_slices
from perflib.instruments.counters.sets import events_of, expand, monitor_table
from perflib.instruments.counters.system_counts import SystemCounts
from perflib.instruments.counters.topdown import consistency
from perflib.instruments.counters.topdown import table_of as topdown
from perflib.instruments.simulators.models import HASWELL_ITLB, HASWELL_STORES
from perflib.instruments.simulators.qemu import qemu_counts
from perflib.lab.topdown import topdown_figure

__all__ = [
    "HASWELL_ITLB",
    "HASWELL_STORES",
    "CounterGroup",
    "SystemCounts",
    "aliases",
    "consistency",
    "event",
    "events_of",
    "expand",
    "in_domain",
    "monitor_table",
    "qemu_counts",
    "rotation",
    "scale_slices",
    "topdown",
    "topdown_figure",
]
