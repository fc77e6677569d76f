"""Simulated counters, for machines without hardware counters (see the modules named below).

iTLB misses and 4K aliases come from our plugin of QEMU (``simulated_qemu``), caches, branches and
data TLBs from cachegrind (``cachegrind``). Both execute in order: nothing is speculated, prefetched
or hidden, the kernel is not seen. What they give are counts of a model, which stand in the column
``simulated_count`` and are never mixed with measured ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from perflib.instruments.simulators.cachegrind import EVENTS, cachegrind, cachegrind_tlb
from perflib.instruments.simulators.qemu import (
    HASWELL_ITLB,
    HASWELL_STORES,
    StoreBufferModel,
    TlbModel,
    aliases,
    itlb_misses,
    itlb_of_this_machine,
    qemu_counts,
)
from perflib.instruments.simulators.run import COLUMNS, find_program, labelled
from perflib.model.errors import PerflibError

__all__ = [
    "COLUMNS",
    "HASWELL_ITLB",
    "HASWELL_STORES",
    "StoreBufferModel",
    "TlbModel",
    "aliases",
    "cachegrind",
    "cachegrind_tlb",
    "itlb_misses",
    "itlb_of_this_machine",
    "qemu_counts",
    "table",
]

_QEMU_COUNTERS = ("iTLB misses", "4K aliases")


def table(
    argv: Sequence[str],
    *,
    itlb: TlbModel | None = None,
    store_buffer: StoreBufferModel = HASWELL_STORES,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 600.0,
) -> pd.DataFrame:
    """All that can be simulated of a program, in one table: two runs, some 150 times its time.

    Parameters
    ----------
    argv
        The program; its output is thrown away.
    itlb
        The instruction TLB; by default this machine's, or a Haswell core's where it is not known.
    store_buffer
        For the 4K aliases; by default a Haswell core's.
    environment, timeout_s
        As of ``itlb_misses``; the time limit is each run's.

    Returns
    -------
    pandas.DataFrame
        The columns ``COLUMNS`` and ``remark``. Where a simulator is absent or failed, its counters
        have no count, and the remark says why.

    Raises
    ------
    UserError
        There is no such program.

    Examples
    --------
    >>> table(["kv", "--events", "2"])  # doctest: +SKIP
    """
    find_program(argv, environment)
    tlb = itlb or itlb_of_this_machine() or HASWELL_ITLB

    def under_qemu() -> pd.DataFrame:
        return qemu_counts(
            argv, tlb=tlb, store_buffer=store_buffer, environment=environment, timeout_s=timeout_s
        )

    def under_cachegrind() -> pd.DataFrame:
        return cachegrind(argv, environment=environment, timeout_s=timeout_s)

    parts = [
        _or_remark(under_qemu, "qemu plugin", _QEMU_COUNTERS),
        _or_remark(under_cachegrind, "cachegrind", list(EVENTS.values())),
    ]
    return pd.concat(parts, ignore_index=True)


def _or_remark(
    simulate: Callable[[], pd.DataFrame], source: str, counters: Sequence[str]
) -> pd.DataFrame:
    try:
        found = simulate().assign(remark="")
    except PerflibError as error:
        rows = pd.DataFrame({"counter": list(counters), "simulated_count": pd.NA})
        found = labelled(rows, source=source, tool="", model="").assign(remark=str(error))
    return found.astype({"simulated_count": "Int64"})
