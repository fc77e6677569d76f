"""Was a core alone while a sample ran? What probes before and after it say, calibrated by the run.

A probe (``kernels_c/common/bracket.h``) fills the execution ports. Its times have a sharp lowest
level, when the core is alone at its highest clock, and longer ones while a thread on the same
physical core works. What the levels are differs from processor to processor, so they are found in
each core's own distribution: a spike, nearly nothing below it, much less right above it, and a
second state far above. A chain of additions, timed with each probe, separates a lower clock from
a busy sibling: at a lower clock both take longer by the same factor.

Where there is no such spike, or never a second state, nothing follows: a state that was never
seen to end cannot be known to be the core's own. Interrupts and steps of the clock are no second
state. What cannot be seen from here: a sibling that always works, and whose own work has a state
so even that it passes for the core's (no other core, at the same clock, shows a lower level). Where
a core's sibling was kept busy and quiet on purpose (`Company`), both states are known beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
PORT_NAMES = ("probe_before_ns", "probe_after_ns")
CHAIN_NAMES = ("chain_before_ns", "chain_after_ns")
State = Literal["alone", "lower clock", "shared", "interrupted", "unclassified"]
STATES: tuple[State, ...] = ("alone", "lower clock", "shared", "interrupted", "unclassified")
Status = Literal["calibrated", "no probes", "few probes", "no second state", "no first state"]

_SPIKE_WIDTH_LOG = math.log(1.015)  # a spike is within so much ...
_ABOVE_SPIKE_LOG = (math.log(1.03), math.log(1.08))  # ... and is denser than what is there
_MIN_CONTRAST = 3.0
_MIN_PROBES, _MIN_SPIKE_PROBES, _MIN_SPIKE_FRACTION = 60, 20, 0.005
_MIN_LOWER_CLOCK_FRACTION = 0.02  # of the probes are at a lower clock, if there is one
_SECOND_STATE_LOG, _MIN_SECOND_FRACTION, _MIN_SECOND_SAMPLES = math.log(1.1), 0.005, 5
_MIN_WIDTH_LOG, _MAX_WIDTH_LOG = (
    math.log(1.008),
    math.log(1.03),
)  # the farthest that a probe may be from its spike
_SAME_RATIO_LOG = math.log(1.02)
_CLEAR_SECOND_FRACTION = 0.05  # of the probes: a second state that no interrupts make
_MIN_RATIO_TO_CHANCE = 5.0  # times as many samples between two such probes as by chance
_OTHER_CORE_LOG = math.log(1.04)  # a spike so far above another core's is no core that is alone
_INTERRUPTED_LOG = math.log(4.0)  # no sibling makes a probe so long


@dataclass(frozen=True)
class Probes:
    """The probes of one core's samples, in ns: before and after each, ports and chain.

    NaN: no probe. The chains may be missing: then a lower clock passes for a sibling. (To leave
    such samples out is right for either: those that are left had the core alone at one clock.)
    """

    before: Floats
    after: Floats
    chain_before: Floats | None = None
    chain_after: Floats | None = None

    @classmethod
    def of(cls, values: Any, *, chained: bool = True) -> Probes:
        """Those of records, or of arrays by the fields' names; what is not positive is missing."""
        names = (*PORT_NAMES, *CHAIN_NAMES) if chained else PORT_NAMES
        found = [np.asarray(values[name], dtype=np.float64) for name in names]
        return cls(*(np.where(times > 0, times, np.nan) for times in found))

    def ports(self) -> Floats:
        """``[2, sample]``: logarithms."""
        with np.errstate(divide="ignore", invalid="ignore"):
            both = np.log(np.array([self.before, self.after], dtype=np.float64))
        return np.where(np.isfinite(both), both, np.nan)

    def ratios(self) -> Floats | None:
        """``[2, sample]``: logarithms of ports over chain; ``None`` without chains."""
        if self.chain_before is None or self.chain_after is None:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            chains = np.log(np.array([self.chain_before, self.chain_after], dtype=np.float64))
        ratios = self.ports() - chains
        return ratios if np.isfinite(ratios).any() else None


@dataclass(frozen=True)
class Calibration:
    """What one core's probes show.

    Parameters
    ----------
    status
        ``calibrated``, or why it is not.
    levels
        Of the ports alone, as logarithms of ns: the highest clock's first, then lower clocks'.
    width
        How far from a level a probe may be, as a logarithm.
    ratio
        Ports over chain when alone; NaN without chains.
    second_share
        Of the probes, those of a second state.
    """

    status: Status
    levels: tuple[float, ...] = ()
    width: float = math.nan
    ratio: float = math.nan
    second_share: float = 0.0

    @property
    def calibrated(self) -> bool:
        """Whether its probes show when the core is alone."""
        return self.status == "calibrated"

    @property
    def clock_known(self) -> bool:
        """Whether its levels are those of clocks: not of a sibling that is always busy."""
        return self.calibrated or (bool(self.levels) and math.isfinite(self.ratio))

    @property
    def alone_ns(self) -> float:
        """The probe's time when the core is alone at its highest clock; NaN if not known."""
        return math.exp(self.levels[0]) if self.levels else math.nan


@dataclass(frozen=True)
class Company:
    """What a sibling under control did to a core's probe.

    Parameters
    ----------
    quiet_ns, quiet_chain_ns
        The ports and the chain while it paused.
    busy_ns
        The ports while it filled them, too, at the same clock.
    """

    quiet_ns: float
    quiet_chain_ns: float
    busy_ns: float

    def was_alone(self, own: Calibration) -> bool | None:
        """Whether a core's lowest level is its own; ``None``: this does not decide it.

        Ports over chain are compared, where there are chains: a clock changes both alike.
        """
        if not own.levels or math.log(self.busy_ns / self.quiet_ns) <= _SECOND_STATE_LOG:
            return None
        above = own.levels[0] - math.log(self.quiet_ns)
        if chained := math.isfinite(own.ratio):
            above = own.ratio - math.log(self.quiet_ns / self.quiet_chain_ns)
        if above <= _OTHER_CORE_LOG:
            return True
        return False if chained and above > _SECOND_STATE_LOG else None


def _spike(values: Floats) -> tuple[float, float] | None:
    """The lowest spike of sorted values, and its half width; ``None`` if there is none."""
    least = max(_MIN_SPIKE_PROBES, _MIN_SPIKE_FRACTION * len(values))
    starts = np.arange(len(values))
    ends = np.searchsorted(values, values + _SPIKE_WIDTH_LOG, side="right")
    inside = ends - starts
    above = np.searchsorted(values, values + _ABOVE_SPIKE_LOG[1]) - np.searchsorted(
        values, values + _ABOVE_SPIKE_LOG[0]
    )
    density, density_above = (
        inside / _SPIKE_WIDTH_LOG,
        above / (_ABOVE_SPIKE_LOG[1] - _ABOVE_SPIKE_LOG[0]),
    )
    spikes = (inside >= least) & (density >= _MIN_CONTRAST * density_above) & (starts <= inside / 4)
    if not spikes.any():
        return None
    # The window that holds the most, not the first that holds enough: that one cuts the spike.
    first = int(np.flatnonzero(spikes)[0])
    near = np.flatnonzero(spikes & (values <= values[first] + 2 * _SPIKE_WIDTH_LOG))
    best = near[int(np.argmax(inside[near]))]
    members = values[best : ends[best]]
    middle = float(np.median(members))
    width = 4 * 1.4826 * float(np.median(np.abs(members - middle)))
    return middle, min(max(width, _MIN_WIDTH_LOG), _MAX_WIDTH_LOG)


def _spike_at_one_ratio(ports: Floats, ratios: Floats) -> tuple[float, float] | None:
    """The lowest level of a core whose clock steps: steps are so close that none stands alone.

    Ports over chain do not know the clock. What is in *their* lowest spike was alone, at some
    clock; of that, the lowest level is the highest clock's.
    """
    there = np.isfinite(ports) & np.isfinite(ratios)
    found = _spike(np.sort(ratios[there]))
    if found is None:
        return None
    alone = np.sort(ports[there & (np.abs(ratios - found[0]) <= min(found[1], _SAME_RATIO_LOG))])
    inside = np.searchsorted(alone, alone + _SPIKE_WIDTH_LOG, side="right") - np.arange(len(alone))
    often = np.flatnonzero(inside >= max(_MIN_SPIKE_PROBES, _MIN_LOWER_CLOCK_FRACTION * len(alone)))
    if not often.size:
        return None
    near = often[alone[often] <= alone[often[0]] + _SPIKE_WIDTH_LOG]
    best = near[int(np.argmax(inside[near]))]
    return float(np.median(alone[best : best + inside[best]])), _MIN_WIDTH_LOG


def _by_itself(probes: Probes) -> Calibration:
    """What a core's own probes show, before it is compared with other cores."""
    ports, ratios = probes.ports().ravel(), probes.ratios()
    there = np.isfinite(ports)
    if not there.any():
        return Calibration("no probes")
    if there.sum() < _MIN_PROBES:
        return Calibration("few probes")
    values = np.sort(ports[there])
    found = _spike(values)
    if found is None and ratios is not None:
        found = _spike_at_one_ratio(ports, ratios.ravel())
    if found is None:
        return Calibration("no first state")
    level, width = found
    levels, ratio = [level], math.nan
    if ratios is not None:
        flat = ratios.ravel()
        ratio = float(np.nanmedian(flat[there & (np.abs(ports - level) <= width)]))
        # What is longer as the chain is, and in a spike of its own, is the core at a lower clock.
        slower = there & (ports > level + 2 * width) & (np.abs(flat - ratio) < _SAME_RATIO_LOG)
        lower = np.sort(ports[slower])
        least = max(_MIN_SPIKE_PROBES, _MIN_LOWER_CLOCK_FRACTION * len(values))
        while len(lower) >= least and (further := _spike(lower)) is not None:
            if (np.abs(lower - further[0]) <= width).sum() >= least:
                levels.append(further[0])
            lower = lower[lower > further[0] + further[1]]
    both = probes.ports()
    company = (both > level + _SECOND_STATE_LOG) & (both < level + _INTERRUPTED_LOG)
    if ratios is not None:
        company &= ~(ratios - ratio <= _SAME_RATIO_LOG)  # the chain is longer by as much: the clock
    share = float(company.sum()) / len(values)
    status: Status = "calibrated" if _lasts(company, share) else "no second state"
    return Calibration(status, tuple(levels), width, ratio, share)


def _lasts(company: NDArray[np.bool_], share: float) -> bool:
    """Whether ``company[2, sample]`` is a state, and not interrupts: those hit one probe each.

    A sibling that works is mostly seen both before and after a sample; interrupts are so by chance
    alone, and never fill a good part of the probes.
    """
    if share >= _CLEAR_SECOND_FRACTION:
        return True
    by_chance = company.shape[1] * company[0].mean() * company[1].mean()
    least = max(
        _MIN_SECOND_SAMPLES,
        _MIN_SECOND_FRACTION * company.shape[1],
        _MIN_RATIO_TO_CHANCE * by_chance,
    )
    return bool(company.all(axis=0).sum() >= least)


def _near(
    ports: Floats, ratios: Floats | None, levels: list[float], width: float, ratio: float
) -> NDArray[np.bool_]:
    """Which probes are at one of the levels."""
    distance = np.full(ports.shape, np.inf)
    for level in levels:
        distance = np.fmin(distance, np.abs(ports - level))
    near = distance <= width
    if ratios is not None and math.isfinite(ratio):
        near &= ~(np.abs(ratios - ratio) > _SAME_RATIO_LOG)  # without a chain: NaN, not far
    return np.asarray(near, dtype=np.bool_)


def calibrate(
    probes: Mapping[int, Probes], company: Mapping[int, Company] | None = None
) -> dict[int, Calibration]:
    """What the probes of each core of a run show.

    ``company``: of the cores whose sibling was under control.

    A core is judged by its own distribution, and by its company; where that does not decide it,
    against the others. One whose level is more than 4 % above another core's was never alone, if
    chains show the same clock; without chains it may also be at a lower clock, which is believed
    where it had a second state of its own for a good part of the time. One that never had company
    is calibrated where another core that had, or was never alone, shows what company is.
    """
    own = {cpu: _by_itself(of) for cpu, of in probes.items()}
    alone = {cpu: of.was_alone(own[cpu]) for cpu, of in (company or {}).items() if cpu in own}
    known = {cpu: one for cpu, one in own.items() if one.levels}
    by_ratio = bool(known) and all(math.isfinite(one.ratio) for one in known.values())

    def place(one: Calibration) -> float:
        return one.ratio if by_ratio else one.levels[0]

    least = min(map(place, known.values()), default=math.nan)
    apart = {cpu for cpu, one in known.items() if place(one) > least + _OTHER_CORE_LOG}
    seen = any(known[cpu].calibrated or alone.get(cpu) for cpu in known.keys() - apart)
    # At the same clock, what another core's probes always are is a second state as well.
    seen |= by_ratio and bool(apart)

    def judged(cpu: int, one: Calibration) -> Calibration:
        was_alone = alone.get(cpu)
        slower_clock = not by_ratio and one.second_share >= _CLEAR_SECOND_FRACTION
        if was_alone is False or (was_alone is None and cpu in apart and not slower_clock):
            return Calibration("no first state")
        return replace(one, status="calibrated") if one.levels and (was_alone or seen) else one

    return {cpu: judged(cpu, one) for cpu, one in own.items()}


def at_a_level(probes: Probes, calibration: Calibration) -> NDArray[np.bool_]:
    """``[2, sample]``: which probes are at one of the levels, calibrated or not."""
    levels, width, ratio = list(calibration.levels), calibration.width, calibration.ratio
    return _near(probes.ports(), probes.ratios(), levels, width, ratio)


def are_alone(found: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Which states are of a core that was alone, at whatever clock."""
    return np.isin(found, (STATES.index("alone"), STATES.index("lower clock")))


def states(probes: Probes, calibration: Calibration) -> NDArray[np.int8]:
    """Each sample's state, as an index into ``STATES``.

    A sample is alone if both probes are, at the highest clock; a sample between an alone probe and
    one that is not has had company for a part of it, and counts as shared.
    """
    ports, ratios = probes.ports(), probes.ratios()
    found = np.full(ports.shape[1], STATES.index("unclassified"), dtype=np.int8)
    if not calibration.calibrated:
        return found
    levels, width, ratio = list(calibration.levels), calibration.width, calibration.ratio
    at_any = at_a_level(probes, calibration)
    at_top = _near(ports, ratios, levels[:1], width, ratio)
    there = np.isfinite(ports).all(axis=0)
    found[there] = STATES.index("shared")
    found[there & (ports > levels[0] + _INTERRUPTED_LOG).any(axis=0)] = STATES.index("interrupted")
    found[there & at_any.all(axis=0)] = STATES.index("lower clock")
    found[there & at_top.all(axis=0)] = STATES.index("alone")
    return found
