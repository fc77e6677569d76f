"""How much of each core a thread gets: alone on it, next to a busy sibling, or waiting for it.

The kernel ``core_probe`` goes round the cores and probes them (``perflib.stats.alone`` says what a
probe shows); what it finds holds for the second or two of the measurement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perflib import kernels
from perflib.model.errors import MeasurementError
from perflib.stats.alone import STATES, Probes, Status, are_alone, calibrate, states

_MIN_WATCH_S, _MAX_WATCH_S, _PER_CORE_S = 1.5, 3.0, 0.1
_TURN_NS, _SLICE_NS, _SAMPLE_NS = 20_000_000, 25_000, 30_000
_STOLEN_NS = 50_000  # what is missing for less is an interrupt


@dataclass(frozen=True)
class CoreShare:
    """What one core gives.

    Parameters
    ----------
    status
        ``calibrated``, or why no sample shows whether the core is alone.
    alone_percent
        Of the time in which the thread had the core: no sibling worked. NaN: unknown.
    sibling_cost_percent
        What a sibling at work adds to the time of a loop that fills the execution ports: an upper
        bound for most code. NaN: unknown, or there was none.
    taken_percent
        Of the whole time: other tasks (or a quota) had the core. NaN: the kernel does not say.
    stolen_percent
        Of the whole time: nobody here had the core. NaN: the kernel does not say.
    """

    cpu: int
    samples: int
    status: Status
    alone_percent: float
    sibling_cost_percent: float
    taken_percent: float
    stolen_percent: float

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it: what is unknown is ``None``."""
        return {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in asdict(self).items()
        }


def watch_s(cores: int) -> float:
    """How long so many cores are probed, in all."""
    return min(_MAX_WATCH_S, max(_MIN_WATCH_S, _PER_CORE_S * cores))


def core_shares(cpus: Sequence[int], duration_s: float | None = None) -> list[CoreShare]:
    """Probe cores by turns (``None``: as long as ``watch_s`` says), and say what each one gives.

    Raises
    ------
    PerflibError
        The kernel cannot be built or run here.
    """
    kernel = kernels.load("core_probe")
    duration_ns = int(1e9 * (watch_s(len(cpus)) if duration_s is None else duration_s))
    # One turn for each at least; a core of a large machine is probed for less time.
    turn_ns = max(1, min(_TURN_NS, duration_ns // max(1, len(cpus))))
    out = np.zeros(
        duration_ns // _SAMPLE_NS + len(cpus), kernels.record(kernel.build, "core_probe")
    )
    places = np.array(cpus, dtype=np.int64)
    from_buffer = kernel.ffi.from_buffer
    taken = kernel.lib.core_probe_run(
        from_buffer("int64_t[]", places), len(places), duration_ns, turn_ns, _SLICE_NS,
        from_buffer("core_probe[]", out, require_writable=True), len(out),
    )  # fmt: skip
    if taken < 0:
        msg = "no thread could be started to probe the cores"
        raise MeasurementError(msg)
    samples = out[:taken]
    return shares_of({cpu: samples["sample"][samples["cpu"] == cpu] for cpu in cpus})


def shares_of(samples: Mapping[int, NDArray[Any]]) -> list[CoreShare]:
    """What each core gives, of its records of type ``bracket``."""
    probes = {cpu: Probes.of(of) for cpu, of in samples.items()}
    calibrations = calibrate(probes)
    found = []
    for cpu, of in samples.items():
        calibration = calibrations[cpu]
        state = states(probes[cpu], calibration)
        alone = are_alone(state)
        shared = state == STATES.index("shared")
        both = int(alone.sum() + shared.sum())
        ports = np.exp(np.nanmean(probes[cpu].ports()[:, shared])) if shared.any() else math.nan
        wall = float(of["time_ns"].sum())
        # The kernel's accounts are read a moment before and after the clock.
        delay = np.minimum(of["run_delay_ns"], of["time_ns"])
        missing = of["time_ns"] - of["cpu_time_ns"] - delay
        known = wall > 0 and bool((of["run_delay_ns"] >= 0).all())
        found.append(
            CoreShare(
                cpu=cpu,
                samples=len(of),
                status=calibration.status,
                alone_percent=100 * float(alone.sum()) / both if both else math.nan,
                sibling_cost_percent=100 * (float(ports) / calibration.alone_ns - 1),
                taken_percent=100 * float(delay.sum()) / wall if known else math.nan,
                stolen_percent=(
                    100 * float(missing[missing > _STOLEN_NS].sum()) / wall if known else math.nan
                ),
            )
        )
    return found
