"""Where measuring time is spent: whether the samples of a trial in progress were alone.

A trial continues until enough of its samples had the core for themselves, but not for ever, and not
on a core that is hardly ever alone. What counts as alone here need not be what the analysis finds,
which has all probes of the run.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perflib.stats.alone import Calibration, Probes, are_alone, calibrate, states

_GROWN = 1.5  # what probes mean is looked up again each time that there are so many more trials
_MAX_TRIALS = 2000  # of a core, that are kept for it
_MIN_SHARE = 0.01  # of a core's samples are alone, or nobody waits for more


class Watch:
    """What the probes of a run in progress show, core by core."""

    def __init__(self) -> None:
        self._seen: dict[int, deque[NDArray[Any]]] = {}
        self._known: dict[int, Calibration] = {}
        self._hopeless: set[int] = set()
        self._added = self._next = 0

    def alone(self, cpu: int, samples: NDArray[Any]) -> int | None:
        """How many of these records of type ``bracket`` had the core alone.

        ``None``: it is not known (yet), or the core is hardly ever alone.
        """
        known = self._known.get(cpu)
        if known is None or not known.calibrated or cpu in self._hopeless:
            return None
        return int(_alone(samples, known).sum())

    @property
    def never_alone(self) -> list[int]:
        """The cores whose probes show no lowest level, so far."""
        return [cpu for cpu, known in self._known.items() if known.status == "no first state"]

    def add(self, cpu: int, samples: NDArray[Any]) -> None:
        """Take the records of one trial into account."""
        self._seen.setdefault(cpu, deque(maxlen=_MAX_TRIALS)).append(samples)
        self._added += 1
        if self._added < self._next:
            return
        self._next = int(_GROWN * self._added) + 1
        of_core = {one: np.concatenate(list(seen)) for one, seen in self._seen.items()}
        self._known = calibrate({one: Probes.of(seen) for one, seen in of_core.items()})
        self._hopeless = {
            one
            for one, seen in of_core.items()
            if _alone(seen, self._known[one]).mean() < _MIN_SHARE
        }


def _alone(samples: NDArray[Any], known: Calibration) -> NDArray[np.bool_]:
    return are_alone(states(Probes.of(samples), known))
