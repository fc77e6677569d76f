"""Samples whose core was alone, those beside a busy sibling, and claims of the latter.

Light: declarations of experiments use it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from perflib.framework.brackets import tell

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from perflib.model.claim import Claim

__all__ = ["ALONE", "SHARED", "State", "beside_sibling", "in_state", "log_times"]

State = Literal["alone", "shared"]
ALONE: State = "alone"
SHARED: State = "shared"


def in_state(samples: pd.DataFrame, state: State = ALONE) -> NDArray[np.bool_]:
    """Which rows were taken while the core was alone, or while its sibling worked.

    Where the probes tell nothing, or there are none, all rows count as alone: nothing is
    conditioned on what is not known.
    """
    import numpy as np

    from perflib.stats.alone import STATES

    told = tell(samples if "cpu" in samples else samples.assign(cpu=0))
    if state == ALONE:
        return np.ones(len(samples), dtype=np.bool_) if told is None else told.usable
    if told is None or not told.any_told:
        return np.zeros(len(samples), dtype=np.bool_)
    return np.asarray(told.states == STATES.index(SHARED))


def log_times(
    samples: pd.DataFrame, state: State = ALONE, column: str = "time_ns"
) -> NDArray[np.float64]:
    """Log of each row's time in ns; NaN in rows of another state.

    It is the CPU time where that is known beside probes: what other tasks and the hypervisor take
    is no property of the core.
    """
    import numpy as np

    times = samples[column].to_numpy(np.float64)
    if "cpu_time_ns" in samples:
        cpu_times = samples["cpu_time_ns"].to_numpy(np.float64, na_value=np.nan)
        times = np.where(cpu_times > 0, cpu_times, times)
    return np.where(in_state(samples, state), np.log(times), np.nan)


def beside_sibling(claim: Claim) -> Claim:
    """The same claim, of samples that were taken while a sibling of the core worked."""
    condition = "while a sibling of the core works"
    changed: dict[str, Any] = {
        "name": f"{claim.name}_shared",
        "kind": "description",
        "subject": f"{claim.subject} shared",
        "quantity": f"{claim.quantity}, {condition}",
        "exact": f"{condition}, {claim.exact}",
        "plain": {verdict: f"{condition}, {text}" for verdict, text in claim.plain.items()},
        "together": {
            verdict: f"While a sibling of the core works: {text}"
            for verdict, text in claim.together.items()
        },
    }
    return replace(claim, **changed)
