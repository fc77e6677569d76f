"""What a busy sibling does to the probes of a core, measured with a sibling that is kept busy.

The probes of a run show a second state only where a neighbour came by. Where the sibling of a core
is known (by the kernel, or by a run of `sharing`), and this process may use it, it is kept busy and
quiet by turns for some hundredths of a second, while the core times the loop of the probes: then
both states are known, as `perflib.stats.alone.Company` has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

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
_HELD_PERCENT = 90.0  # less, and the lower quartile of slices would be of both states
_PORTS, _NO_THREAD = 0, 3  # of sharing.c: the resource; of the stages in an answer
_ALTERNATION = record("sharing", "sharing_alternation")
_ACCOUNT = record("sharing", "sharing_account")
TAKEN = "other programs, or the hypervisor, kept a CPU from its thread"
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
    said = (
        f"no sibling was kept busy to calibrate the probes of CPUs {format_cpus(why)}, which show "
        f"a busy one only where it came by: {'; '.join(dict.fromkeys(why.values()))}"
    )
    return samples, [said] if why else []


def company(worker: Worker, cpu: int, siblings: Sequence[int]) -> list[float]:
    """The values of ``SIBLING_COLUMNS`` of a core.

    Raises
    ------
    MeasurementError
        A sibling did not have its CPU; or the worker died.
    """
    cpus = [cpu, *siblings]
    found, _, why = alternated(worker, _PORTS, cpus, len(siblings), _HALF_NS, _ALTERNATIONS)
    if not why and len(found) < _MIN_USED:
        why = TAKEN
    if why:
        raise MeasurementError(why)
    quiet, chain = found["quiet_ns"], found["chain_ns"]
    least = int(np.argmin(quiet / chain))  # with a neighbour of the host it was not quiet
    slower = float(np.median(found["busy_ns"] / quiet / found["chain_ratio"]))
    return [float(quiet[least]), float(chain[least]), slower * float(quiet[least])]


def alternated(
    worker: Worker,
    resource: int,
    cpus: Sequence[int],
    first: int,
    half_ns: int,
    alternations: int,
    sizes: Sequence[int] = (0, 0),
    seed: int = 0,
) -> tuple[NDArray[Any], float, str]:
    """One call of ``sharing_run`` (``kernels_c/sharing.c``, which explains its arguments).

    Returns
    -------
    The alternations that can be used, the percentage of the time that a busy CPU's thread had it at
    least, and why nothing of it is used (empty: it is).

    Raises
    ------
    WorkerError
        The worker died, or took too long.
    """
    answer, (found, account) = worker.call(
        "sharing_run", resource, np.array(cpus, dtype=np.int64), first, len(cpus) - 1 - first,
        *sizes, half_ns, alternations, seed, Out(_ALTERNATION, alternations), Out(_ACCOUNT, 1),
        timeout_s=_GRACE_S,
    )  # fmt: skip
    used = found[(found["busy_ns"] > 0) & (found["quiet_ns"] > 0) & (found["chain_ratio"] > 0)]
    held_percent = 100 * float(account["held"][0])
    why = refused("sharing", int(answer), _NO_THREAD)
    if not why and account["moved"][0]:
        why = "a thread migrated from its CPU"
    if not why and account["wrong"][0]:
        why = f"{account['wrong'][0]} sums of memory that was read were wrong"
    if not why and (held_percent < _HELD_PERCENT or not len(used)):
        why = TAKEN
    return used, held_percent, why
