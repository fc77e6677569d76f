"""A virtual machine and its host: which part of the difference is the clock, which stolen time.

Both ran the same events. Each machine's time is a product of parts (`perflib.stats.decomposition`);
the ratio of the two products is the product of the ratios. What is left of the cores' own speed at
the same clock is nested paging, and whatever else differs: caches that are shared otherwise, pages
that are elsewhere. Runs with and without transparent huge pages on both machines separate the
first from the rest: a huge page needs a shorter walk, and rarely one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from perflib.experiments.kv_per_core.claims import NESTED_PAGING, PAIR_PART
from perflib.experiments.kv_per_core.table import KvTable, kv_table
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.stats.decide import Reason
from perflib.stats.interval import NO_INTERVAL, Interval, percent
from perflib.stats.intervals import Floats, t_interval

_SAME_WORK = ("job", "job_command", "code_kib")
_TOTAL, _OWN, _CLOCK, _UNDIVIDED = "total", "own speed", "clock", "own speed, clock or sibling"
_WITHOUT_CLOCK = "own speed or clock"


def pair(
    host: Sequence[Run], guest: Sequence[Run], threshold_percent: float = 1.0
) -> list[Finding]:
    """What the same work takes longer in a guest than on its host, part by part.

    Parameters
    ----------
    host, guest
        Runs of ``kv_per_core`` with the same job and events: one each; or two each, with and
        without transparent huge pages (``huge_pages=always`` and ``never``).
    threshold_percent
        From what on a part counts.

    Returns
    -------
    For the run without huge pages, or the only one, a finding for the whole and one for each part;
    the parts' logarithms add up to the whole's. Then one for nested paging.

    Raises
    ------
    UserError
        The runs are of other experiments, of different work, or have no event in common.
    """
    first, second = _by_pages(host, "host"), _by_pages(guest, "guest")
    common = [pages for pages in first if pages in second]
    if not common:
        shown = " and ".join(
            f"{side}: {', '.join(found)}" for side, found in (("host", first), ("guest", second))
        )
        msg = f"the runs have different huge_pages ({shown}): measure both machines with the same"
        raise UserError(msg)
    compared = {pages: _compared(first[pages], second[pages]) for pages in common}
    shown_pages = min(compared, key=("never", "default", "always").index)
    remarks = _remarks(first[shown_pages], second[shown_pages])
    found = [
        PAIR_PART.decided(
            percent(interval),
            threshold_percent,
            about={"part": part},
            evidence={"huge_pages": shown_pages},
            remarks=remarks,
        )
        for part, interval in compared[shown_pages].items()
    ]
    return [*found, _nested(compared, threshold_percent)]


def _by_pages(runs: Sequence[Run], side: str) -> dict[str, Run]:
    found: dict[str, Run] = {}
    for run in runs:
        if run.experiment != "kv_per_core":
            msg = f"{run.id} is a run of {run.experiment}: a pair is compared by kv_per_core"
            raise UserError(msg)
        pages = str(run.params.get("huge_pages", "default"))
        if pages in found:
            msg = f"two runs of the {side} have huge_pages={pages}: {found[pages].id} and {run.id}"
            raise UserError(msg)
        found[pages] = run
    if not found:
        msg = f"there is no run of the {side}"
        raise UserError(msg)
    return found


def _compared(host: Run, guest: Run) -> dict[str, Interval]:
    """By how much each part of the guest's time is longer: logarithms, the whole first."""
    differing = [name for name in _SAME_WORK if host.params.get(name) != guest.params.get(name)]
    if differing:
        msg = f"{host.id} and {guest.id} did different work: {', '.join(differing)} differ"
        raise UserError(msg)
    tables = kv_table(host.samples), kv_table(guest.samples)
    common = tables[0].cost_ns.index.intersection(tables[1].cost_ns.index)
    if common.empty:
        msg = f"{host.id} and {guest.id} have no event in common: nothing can be compared"
        raise UserError(msg)
    machines = [_parts(table, float(np.log(table.cost_ns[common].sum()))) for table in tables]
    differences = {}
    calibrated = all(
        table.core_states is not None and table.core_states.any_calibrated for table in tables
    )
    for name in _divided(machines, calibrated=calibrated):
        before, after = (t_interval(_known(machine[name])) for machine in machines)
        centre = after.effect - before.effect
        half = math.hypot(after.half_width, before.half_width)
        differences[name] = Interval(centre, centre - half, centre + half)
    return differences


def _known(values: Floats) -> Floats:
    return values[np.isfinite(values)]


def _parts(table: KvTable, log_cost: float) -> dict[str, Floats]:
    """Logarithms of a run's parts, block by block, means over its cores; NaN: not known.

    ``log_cost`` is that of the common events, in ns: own speed and the whole are of them.
    """
    found = table.decomposition
    known = np.isfinite(found.whole).any(axis=1)

    def mean(values: Floats) -> Floats:
        there = np.isfinite(values[known])
        count = there.sum(axis=1)
        total = np.where(there, values[known], 0.0).sum(axis=1)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    rest = {name: mean(values) for name, values in found.parts.items()}
    own = mean(found.typical) + log_cost
    clock = mean(found.clock) + _cycle(table)
    whole = mean(found.whole) + log_cost
    return {
        _TOTAL: whole,
        _OWN: own - clock,
        _CLOCK: clock,
        **rest,
        _WITHOUT_CLOCK: own,
        _UNDIVIDED: whole - rest["other tasks"] - rest["hypervisor"],
    }


def _cycle(table: KvTable) -> float:
    """Logarithm of the probe's time on the fastest core, alone: cycles of the same number."""
    if table.core_states is None:
        return math.nan
    known = [one.levels[0] for one in table.core_states.calibrations.values() if one.clock_known]
    return min(known, default=math.nan)


def _divided(machines: Sequence[Mapping[str, Floats]], *, calibrated: bool) -> list[str]:
    """The parts that are known of both machines, and that make up the whole.

    ``calibrated``: both machines' probes show when a core was alone. Otherwise a sibling that
    was always busy on one machine would pass for a slow machine.
    """

    def known(*names: str) -> bool:
        return all(_known(one[name]).size > 0 for one in machines for name in names)

    alone = ["interrupts", "sibling"]
    both = ["other tasks", "hypervisor"] if known("other tasks", "hypervisor") else []
    if calibrated and known(_OWN, _CLOCK, *alone):
        return [_TOTAL, _OWN, _CLOCK, *alone, *both]
    if calibrated and known(_WITHOUT_CLOCK, *alone):
        return [_TOTAL, _WITHOUT_CLOCK, *alone, *both]
    return [_TOTAL, _UNDIVIDED, *both] if both else [_TOTAL]


def _remarks(host: Run, guest: Run) -> list[Reason]:
    def machine(run: Run, name: str) -> Any:
        return (run.provenance.get("machine") or {}).get(name)

    remarks = []
    if machine(host, "microarchitecture") != machine(guest, "microarchitecture"):
        names = [str(machine(run, "microarchitecture")) for run in (host, guest)]
        remarks.append(Reason("other_processor", {"host": names[0], "guest": names[1]}))
    if not machine(guest, "hypervisor"):
        remarks.append(Reason("no_guest"))
    return remarks


def _nested(compared: Mapping[str, Mapping[str, Interval]], threshold: float) -> Finding:
    """What of the guest's own slowness goes away with huge pages."""
    own = (_OWN, _WITHOUT_CLOCK, _UNDIVIDED)
    base, huge = (compared.get(pages, {}) for pages in ("never", "always"))
    part = next((name for name in own if name in base and name in huge), None)
    if part is None:
        return NESTED_PAGING.decided(NO_INTERVAL, threshold, prevented=Reason("no_huge_pages"))
    centre = base[part].effect - huge[part].effect
    half = math.hypot(base[part].half_width, huge[part].half_width)
    return NESTED_PAGING.decided(
        percent(Interval(centre, centre - half, centre + half)), threshold, evidence={"part": part}
    )
