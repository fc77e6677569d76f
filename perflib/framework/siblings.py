"""What a busy sibling does to the probes of a core, measured with a sibling that is kept busy.

The probes of a run show a second state only where a neighbour came by. Where the sibling of a core
is known (by the kernel, or by a run of `sharing`), and this process may use it, it is kept busy and
quiet by turns for some hundredths of a second, while the core times the loop of the probes: then
both states are known, as `perflib.stats.alone.Company` has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from perflib.framework.brackets import SIBLING_COLUMNS
from perflib.kernels import build, record
from perflib.machine.cpulist import format_cpus
from perflib.machine.hardware.topology import topology
from perflib.measure.conditions import Conditions
from perflib.measure.process import Out, Worker
from perflib.measure.workers import refused
from perflib.model.errors import MeasurementError
from perflib.stats.alone import PORT_NAMES

_PRIORITY = 50  # so that no other program runs on the sibling while it is quiet
_HALF_NS, _ALTERNATIONS, _MIN_USED = 5_000_000, 5, 3
_MIN_HELD = 0.9  # of the time: the sibling's thread had its CPU
_PORTS, _NO_THREAD = 0, 3  # of sharing.c: the resource; of the stages in an answer
_GRACE_S = 10.0


def with_siblings(samples: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The samples of a run with ``SIBLING_COLUMNS``; a sentence where that was not possible.

    Nothing is measured, and nothing changes, where no sample has probes or no core has a sibling.
    """
    if not {"cpu", *PORT_NAMES} <= {*samples} or not samples[list(PORT_NAMES)].gt(0).any(axis=None):
        return samples, []
    places = topology()
    allowed = set(places.allowed_cpus())
    cpus = sorted(allowed & {int(cpu) for cpu in samples["cpu"].dropna().unique()})
    siblings = {cpu: sorted({*places.cpu(cpu).siblings} - {cpu}) for cpu in cpus}
    if not any(siblings.values()):
        return samples, []
    known: dict[int, list[float]] = {}
    why: dict[int, str] = {}
    with Worker(build("sharing"), Conditions(fifo_priority=_PRIORITY)) as worker:
        for cpu, others in siblings.items():
            if not allowed.issuperset(others):
                why[cpu] = "this process may not run there"
            elif others:
                try:
                    known[cpu] = company(worker, cpu, others)
                except MeasurementError as error:
                    why[cpu] = str(error).partition("\n")[0]
    if known:
        of_cpu = pd.DataFrame.from_dict(known, "index", columns=[c.name for c in SIBLING_COLUMNS])
        values = of_cpu.reindex(samples["cpu"].to_numpy()).set_axis(samples.index)
        samples = samples.assign(**{str(name): column for name, column in values.items()})
    return samples, [_sentence(why, reason) for reason in dict.fromkeys(why.values())]


def _sentence(why: Mapping[int, str], reason: str) -> str:
    cpus = format_cpus(cpu for cpu in why if why[cpu] == reason)
    return (
        f"no sibling was kept busy to calibrate the probes of CPUs {cpus}: {reason}; they show a "
        "busy sibling only where one came by"
    )


def company(worker: Worker, cpu: int, siblings: Sequence[int]) -> list[float]:
    """The values of ``SIBLING_COLUMNS`` of a core.

    Raises
    ------
    MeasurementError
        A sibling did not have its CPU; or the worker died.
    """
    answer, (found, account) = worker.call(
        "sharing_run", _PORTS, np.array([cpu, *siblings], dtype=np.int64), len(siblings), 0, 0, 0,
        _HALF_NS, _ALTERNATIONS, 0, Out(record("sharing", "sharing_alternation"), _ALTERNATIONS),
        Out(record("sharing", "sharing_account"), 1), timeout_s=_GRACE_S,
    )  # fmt: skip
    if why := refused("sharing", int(answer), _NO_THREAD):
        raise MeasurementError(why)
    times = [found[name] for name in ("quiet_ns", "chain_ns", "busy_ns", "chain_ratio")]
    used = np.logical_and.reduce([one > 0 for one in times])
    if account["moved"][0] or account["held"][0] < _MIN_HELD or used.sum() < _MIN_USED:
        msg = "other programs, or the hypervisor, kept a CPU from its thread"
        raise MeasurementError(msg)
    quiet, chain, busy, clock = (one[used] for one in times)
    least = int(np.argmin(quiet / chain))  # with a neighbour of the host it was not quiet
    slower = float(np.median(busy / quiet / clock))
    return [float(quiet[least]), float(chain[least]), slower * float(quiet[least])]
