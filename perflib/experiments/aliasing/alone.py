"""Samples whose core was alone, those next to a busy sibling, and claims of the latter.

Light: declarations of experiments use it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from perflib.framework.brackets import classify

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from perflib.model.claim import Claim

_LONGEST_NS = 1e6  # of a sample that two probes can speak for
State = Literal["alone", "shared"]
ALONE: State = "alone"
SHARED: State = "shared"


def in_state(samples: pd.DataFrame, state: State = ALONE) -> NDArray[np.bool_]:
    """Which rows were taken while the core was alone, or while its sibling worked all the time.

    Where the probes show nothing, or there are none, all rows count as alone: nothing is
    conditioned on what is not known.
    """
    import numpy as np

    core_states = classify(samples if "cpu" in samples else samples.assign(cpu=0))
    if state == ALONE:
        return np.ones(len(samples), dtype=np.bool_) if core_states is None else core_states.usable
    if core_states is None or not core_states.any_calibrated:
        return np.zeros(len(samples), dtype=np.bool_)
    return core_states.shared


def log_times(
    samples: pd.DataFrame,
    state: State = ALONE,
    *,
    column: str = "time_ns",
    configuration: Sequence[str] = (),
) -> NDArray[np.float64]:
    """Log of each row's time in ns; NaN in rows of another state.

    It is the CPU time where that is known next to probes: what other tasks and the hypervisor take
    is no property of the core. A sibling comes and goes within milliseconds, so that two probes
    say nothing of a longer sample: all rows of a configuration whose samples take longer than a
    millisecond count as alone.

    Parameters
    ----------
    column
        With the wall time.
    configuration
        The columns that say what was timed.
    """
    import numpy as np
    import pandas as pd

    times = samples[column].to_numpy(np.float64)
    if "cpu_time_ns" in samples:
        cpu_times = samples["cpu_time_ns"].to_numpy(np.float64, na_value=np.nan)
        times = np.where(cpu_times > 0, cpu_times, times)
    used = in_state(samples, state)
    if configuration:
        every = pd.Series(times, index=samples.index)
        typical = every.groupby([samples[name] for name in configuration]).transform("median")
        long = (typical > _LONGEST_NS).to_numpy()
        used = used | long if state == ALONE else used & ~long
    return np.where(used, np.log(times), np.nan)


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
