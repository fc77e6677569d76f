"""What every kernel's brackets must be, however busy the machine is."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

PROBES = ("probe_before_ns", "probe_after_ns", "chain_before_ns", "chain_after_ns")


def check_brackets(samples: NDArray[Any]) -> None:
    """Assert that successive records of type ``bracket`` are plausible, and in order of time."""
    begins, times = samples["start_ns"], samples["time_ns"]
    assert (begins > 0).all()
    assert (times > 0).all()
    assert (begins[1:] >= (begins + times)[:-1]).all(), "one after the other"
    assert (samples["cpu_time_ns"] >= 0).all()
    assert (samples["cpu_time_ns"] <= times + 1_000_000).all()
    assert (samples["run_delay_ns"] >= -1).all()
    assert (samples["throttled_ns"] >= -1).all()
    for name in PROBES:
        assert (samples[name] > 0).all()


def check_shared(samples: NDArray[Any]) -> None:
    """Assert that the probe after each record is the one before the next."""
    for what in ("probe", "chain"):
        before, after = (samples[f"{what}_{when}_ns"] for when in ("before", "after"))
        np.testing.assert_array_equal(before[1:], after[:-1])


def check_since(before_ns: int, samples: NDArray[Any]) -> None:
    """Assert all this of samples of one call, after a reading of the clock and before now."""
    check_brackets(samples)
    check_shared(samples)
    assert before_ns <= samples["start_ns"][0]
    assert samples["start_ns"][-1] + samples["time_ns"][-1] <= time.monotonic_ns()
