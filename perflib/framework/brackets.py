"""Samples that know whether their core was alone: their columns, from C to the analysis.

A kernel whose resource belongs to a core takes each sample in a slice of less than a millisecond
between two probes (``kernels_c/common/bracket.h``). The table of samples keeps what the probes
said; what it means is worked out when the table is analysed, so that an old table, or one from
elsewhere, is analysed without it.

Light: declarations of experiments use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflib.framework.schema import START, Column

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from perflib.stats.alone import Calibration

_ADDITIONS = 6400  # of the chain: BRACKET_ADDITIONS in bracket.h
_UNKNOWN = -1  # what the kernel writes for a value that it could not get


def _ns(name: str, about: str) -> Column:
    return Column(name, "number", "ns", about, least=_UNKNOWN)


BRACKET_COLUMNS = (
    _ns("cpu_time_ns", "time the thread had the core"),
    _ns("run_delay_ns", "time it was ready to run and waited for the core"),
    _ns("throttled_ns", "time it was stopped because a CPU quota was spent"),
    _ns("probe_before_ns", "a loop that fills the execution ports, just before"),
    _ns("probe_after_ns", "the same just after"),
    _ns("chain_before_ns", "6400 dependent additions (a cycle each) before"),
    _ns("chain_after_ns", "the same after"),
)
SIBLING_COLUMNS = (
    _ns("sibling_quiet_ns", "the loop of the probes, with the core's sibling kept quiet"),
    _ns("sibling_quiet_chain_ns", "the dependent additions, with it"),
    _ns("sibling_busy_ns", "the loop with the sibling kept busy, at the same clock"),
)
"""What `perflib.framework.siblings` measures of each core that has a sibling."""
PROBE_COLUMNS = (*BRACKET_COLUMNS, *SIBLING_COLUMNS)
"""What a table of samples between probes has."""
CHASE_COLUMNS = (
    Column("core_mhz", "number", "MHz", "the core's frequency just before and after"),
    START,
    Column("involuntary_switches", "integer", "", "times the thread was pushed aside"),
    *PROBE_COLUMNS,
)
"""What every sample of a chase of loads has besides its loads and their time."""


def bracket_columns(samples: NDArray[Any]) -> dict[str, list[Any]]:
    """What goes into the table of each record of type ``bracket``; unknown values are ``None``.

    ``start_ns`` and ``time_ns`` are the experiment's own columns.
    """
    return {
        column.name: [
            None if value == _UNKNOWN else value for value in samples[column.name].tolist()
        ]
        for column in BRACKET_COLUMNS
    }


def core_mhz(samples: NDArray[Any]) -> NDArray[np.float64]:
    """The core's frequency around each record of type ``bracket``; NaN without a chain."""
    import numpy as np

    from perflib.stats.alone import CHAIN_NAMES

    chains = np.array([samples[name] for name in CHAIN_NAMES], dtype=np.float64)
    chains[chains <= 0] = np.nan
    return np.asarray(1e3 * _ADDITIONS / chains.mean(axis=0), dtype=np.float64)


@dataclass(frozen=True)
class CoreStates:
    """What the probes of a table show, in the order of its rows.

    Parameters
    ----------
    states
        Each sample's, as an index into ``perflib.stats.alone.STATES``.
    clock
        How much longer than the fastest core's its probes are, when alone: the logarithm of the
        clock's factor; NaN where the sample was not alone, or the clock is not known.
    calibrations
        By core.
    shared
        Which samples had company at both ends. (One with company at one end had it for a part.)
    """

    states: NDArray[np.int8]
    clock: NDArray[np.float64]
    calibrations: Mapping[int, Calibration]
    shared: NDArray[np.bool_]

    @property
    def alone(self) -> NDArray[np.bool_]:
        """Which samples had their core for themselves, at whatever clock."""
        from perflib.stats.alone import are_alone

        return are_alone(self.states)

    @property
    def usable(self) -> NDArray[np.bool_]:
        """The samples to compare: those alone, or all if no core's samples can be classified."""
        import numpy as np

        return self.alone if self.any_calibrated else np.ones(len(self.states), dtype=np.bool_)

    @property
    def any_calibrated(self) -> bool:
        """Whether the probes of any core are calibrated."""
        return any(one.calibrated for one in self.calibrations.values())


def classify(samples: pd.DataFrame) -> CoreStates | None:
    """What the probes say about each row; ``None`` where the table has no probes.

    The rows need ``cpu``. Chains, and the siblings' columns, are used where all of them are there.
    """
    import numpy as np

    from perflib.stats.alone import (
        CHAIN_NAMES,
        PORT_NAMES,
        STATES,
        Company,
        Probes,
        at_a_level,
        calibrate,
        states,
    )

    def measured(names: Sequence[str]) -> bool:
        return all(name in samples and (samples[name] > 0).any() for name in names)

    if not measured(PORT_NAMES):
        return None
    chained = measured(CHAIN_NAMES)
    names = (*PORT_NAMES, *CHAIN_NAMES) if chained else PORT_NAMES
    values = {name: samples[name].to_numpy(np.float64, na_value=np.nan) for name in names}
    cpus = samples["cpu"].fillna(_UNKNOWN).to_numpy()
    rows = {int(cpu): np.flatnonzero(cpus == cpu) for cpu in np.unique(cpus)}
    probes = {
        cpu: Probes.of({name: values[name][at] for name in names}, chained=chained)
        for cpu, at in rows.items()
    }
    siblings = [one.name for one in SIBLING_COLUMNS]
    company: dict[int, Company] = {}
    if measured(siblings):
        positive = samples[siblings].where(samples[siblings] > 0)
        medians = {cpu: positive.iloc[at].astype(np.float64).median() for cpu, at in rows.items()}
        company = {cpu: Company(*one) for cpu, one in medians.items() if one.notna().all()}
    calibrations = calibrate(probes, company)
    found = np.empty(len(samples), dtype=np.int8)
    clock = np.full(len(samples), np.nan)
    shared = np.zeros(len(samples), dtype=np.bool_)
    known = [one.levels[0] for one in calibrations.values() if one.clock_known]
    for cpu, at in rows.items():
        found[at] = states(probes[cpu], calibrations[cpu])
        busy = ~at_a_level(probes[cpu], calibrations[cpu]).any(axis=0)
        shared[at] = busy & (found[at] == STATES.index("shared"))
        if calibrations[cpu].clock_known:
            ports = probes[cpu].ports()
            near = at_a_level(probes[cpu], calibrations[cpu]).all(axis=0)
            clock[at] = np.where(near, ports.mean(axis=0) - min(known), np.nan)
    return CoreStates(found, clock, calibrations, shared)
