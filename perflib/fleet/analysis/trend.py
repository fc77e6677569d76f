"""One machine over days: whether it became slower or faster at once, when, and what else changed.

A series is made of the levels of its runs (`perflib.framework.levels`): logarithms, each core and
setting relative to its own median, so that runs of other cores or settings can be in it, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.model.claim import read_claims
from perflib.stats.decide import Reason, Witness
from perflib.stats.interval import NO_INTERVAL, percent
from perflib.stats.series import MIN_DAYS, MIN_VALUES, StepChange, find_steps

if TYPE_CHECKING:
    from perflib.model.finding import Finding

ALL = "all cores"
_ALPHA = 0.01  # of all series of a machine together
_RECORDED = ("params.", "machine.", "versions.", "kernel", "program.", "conditions.")
_MADE_BY_EACH_RUN = ("machine.boot_id", "machine.limits.periods", "machine.limits.throttled")

STEP = read_claims(__file__)["step"]


def series(levels: pd.DataFrame) -> pd.DataFrame:
    """How each run compares with the others of its machine.

    Parameters
    ----------
    levels
        Those of one machine and experiment: ``run, start, cpu, setting, value``.

    Returns
    -------
    A row a run, in the order of their starts: ``start``; ``all cores``, the mean over cores and
    settings of log(value / median of that core and setting); and, where there are several cores,
    for each of them (``cpu3``) its own mean minus that.
    """
    logs = pd.Series(np.log(levels["value"].to_numpy(float)), levels.index)
    cell = [levels["cpu"], levels["setting"]]
    relative = levels[["run", "cpu"]].assign(log=logs - logs.groupby(cell).transform("median"))
    found = relative.groupby("run")["log"].mean().to_frame(ALL)
    if levels["cpu"].nunique() > 1:
        by_core = relative.groupby(["run", "cpu"])["log"].mean().unstack()
        for cpu in by_core:
            found[f"cpu{cpu}"] = by_core[cpu] - found[ALL]
    start = pd.to_datetime(levels.groupby("run")["start"].first(), utc=True, format="ISO8601")
    found.insert(0, "start", start)
    return found.sort_values("start", kind="stable")


def over_time(
    levels: pd.DataFrame, node: str, experiment: str, threshold_percent: float = 1.0
) -> list[Finding]:
    """The largest step of a machine as a whole, and of each core against the others.

    Parameters
    ----------
    levels
        As of `series`.
    node, experiment
        What the sentences call them.
    threshold_percent
        Smaller steps are none.
    """
    table = series(levels)
    names = [str(name) for name in table.columns if name != "start"]
    steps = find_steps(_seconds(table["start"]), table[names].to_numpy(float))
    about = {"node": node, "experiment": experiment}
    return [
        _finding(table["start"], step, len(names), {**about, "what": name}, threshold_percent)
        for name, step in zip(names, steps, strict=True)
    ]


def _seconds(start: pd.Series[Any]) -> NDArray[np.float64]:
    epoch = pd.Timestamp(0, tz="UTC")
    return np.asarray((start - epoch) / pd.Timedelta(seconds=1), dtype=np.float64)


def _finding(
    start: pd.Series[Any],
    step: StepChange | None,
    family: int,
    about: Mapping[str, Any],
    threshold: float,
) -> Finding:
    if step is None:
        days = int(start.dt.floor("D").nunique())
        few = len(start) < MIN_VALUES or days < MIN_DAYS
        least = {"least_runs": MIN_VALUES, "least_days": MIN_DAYS}
        why = Reason("few", {"runs": len(start), "days": days, **least})
        return STEP.decided(
            NO_INTERVAL, threshold, about=about, prevented=why if few else Reason("like_load")
        )
    before, after = max(0, step.first - 1), step.last
    numbers = {"p": step.p, "series": family}
    return STEP.decided(
        percent(step.size),
        threshold,
        about=about,
        facts={
            "day": f"{start.iloc[step.at]:%Y-%m-%d}",
            "first": f"{start.iloc[before]:%Y-%m-%d %H:%M}",
            "last": f"{start.iloc[after]:%Y-%m-%d %H:%M} UTC",
        },
        evidence={
            "p_corrected": step.p,
            "runs": len(start),
            "at": start.iloc[step.at].isoformat(),
            "last_before": str(start.index[before]),
            "first_after": str(start.index[after]),
        },
        to_support=[Witness(step.p <= _ALPHA, Reason("chance", numbers), Reason("odds", numbers))],
    )


def what_changed(finding: Finding) -> dict[str, tuple[Any, Any]]:
    """What the machine's description says differently before and after a step.

    Raises
    ------
    UserError
        A run of the series is no longer in the store.
    """
    from perflib.model.differences import differences
    from perflib.store.run_files import load

    names = ("last_before", "first_after")
    before, after = (load(finding.evidence[name]) for name in names)
    return {
        name: both
        for name, both in differences(before, after).items()
        if name.startswith(_RECORDED) and not name.startswith(_MADE_BY_EACH_RUN)
    }
