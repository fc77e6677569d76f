"""Today against a baseline: several runs of one machine that are known to be good.

How far runs of an unchanged machine differ is seen from the baseline's runs, not from the
scatter within one: pages, addresses and neighbours are drawn anew by each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats as distributions

from perflib.fleet.analysis.trend import ALL, series
from perflib.model.claim import read_claims
from perflib.model.errors import UserError
from perflib.stats.decide import Reason
from perflib.stats.interval import NO_INTERVAL, Interval, percent

if TYPE_CHECKING:
    from perflib.framework.experiment import Experiment
    from perflib.model.finding import Finding
    from perflib.model.run import Run

LEAST_RUNS = 3
_SAME_DAY_H = 12.0

UNCHANGED = read_claims(__file__)["changed_since_baseline"]


def baseline_tag(name: str) -> str:
    """What the runs of a baseline are tagged with."""
    return f"baseline {name}"


def runs_of_baseline(name: str) -> pd.DataFrame:
    """The saved runs of a baseline, oldest first: ``run, experiment, start``."""
    from perflib.store.query import query

    tag = baseline_tag(name).replace("'", "''")
    return query(
        "SELECT run, experiment, start FROM runs "
        f"WHERE json_extract_string(provenance, '$.tag') = '{tag}' ORDER BY start, run"
    )


def _levels_of(experiment: Experiment, runs: Sequence[Run]) -> pd.DataFrame:
    """The levels of runs, one below the other: ``run, start, cpu, setting, value, unit``."""
    tables = [
        experiment.levels(run).assign(run=run.id, start=run.provenance.get("start")) for run in runs
    ]
    return pd.concat(tables, ignore_index=True)


def against_baseline(
    experiment: Experiment,
    name: str,
    baseline: Sequence[Run],
    run: Run,
    threshold_percent: float = 2.0,
) -> list[Finding]:
    """How a run differs from the baseline's: as a whole, and each core against the others.

    Parameters
    ----------
    experiment
        That of all the runs.
    name
        What the sentences call the baseline.
    baseline
        Its runs; `LEAST_RUNS` of them give a verdict.
    run
        The run to be judged.
    threshold_percent
        Smaller changes are none.

    Returns
    -------
    A finding for all cores together and one for each core. The intervals are of what one more run
    of an unchanged machine would show (prediction intervals of Student's t); those of the cores
    hold for all cores together (Bonferroni). A core's scatter from run to run is its own, and not
    less than that of all cores.
    """
    about = {"experiment": experiment.name, "baseline": name}
    common = _common(_levels_of(experiment, [*baseline, run]), run.id)
    runs = common["run"].nunique() - 1
    why = None
    if len(baseline) < LEAST_RUNS:
        why = Reason("few_runs", {"runs": len(baseline), "least": LEAST_RUNS})
    elif runs < LEAST_RUNS:
        numbers = {"runs": max(0, runs), "of": len(baseline), "least": LEAST_RUNS}
        why = Reason("not_common", numbers)
    if why is not None:
        return [
            UNCHANGED.decided(
                NO_INTERVAL, threshold_percent, about={**about, "what": ALL}, prevented=why
            )
        ]
    table = series(common)
    old, new = table.drop(index=run.id), table.loc[run.id]
    names = [str(column) for column in table if column != "start"]
    intervals = prediction(old[names].to_numpy(float), new[names].to_numpy(float))
    hours = (old["start"].max() - old["start"].min()) / pd.Timedelta(hours=1)
    remarks = [Reason("one_day", {"hours": hours})] if hours < _SAME_DAY_H else []
    return [
        UNCHANGED.decided(
            percent(interval),
            threshold_percent,
            about={**about, "what": what},
            evidence={"baseline_runs": [str(one) for one in old.index], "run": run.id},
            remarks=remarks,
        )
        for what, interval in zip(names, intervals, strict=True)
    ]


def _common(levels: pd.DataFrame, run: str) -> pd.DataFrame:
    """Levels of the same cores and settings.

    Those of the run that enough of the others have; and of the others those that have all of them.
    """
    cell = pd.MultiIndex.from_frame(levels[["cpu", "setting"]])
    judged = levels["run"] == run
    of_run = cell.isin(cell[judged])
    many = levels[of_run].groupby(["cpu", "setting"])["run"].nunique()
    kept = levels[of_run & cell.isin(many.index[many > LEAST_RUNS])]
    cells = kept.groupby("run")["value"].transform("size")
    return kept[cells == (kept["run"] == run).sum()]


def prediction(old: NDArray[np.float64], new: NDArray[np.float64]) -> list[Interval]:
    """The change of each column, and how far one more unchanged run may be from the mean.

    Parameters
    ----------
    old
        Runs x columns: all cores together, then each core against them.
    new
        The same columns of one run.
    """
    runs, columns = old.shape
    cores = columns - 1
    change = new - old.mean(axis=0)
    scatter = old.std(axis=0, ddof=1)
    half = distributions.t.ppf(0.975, runs - 1) * scatter
    if cores:
        of_all = 1 - 0.025 / cores
        own = distributions.t.ppf(of_all, runs - 1) * scatter[1:]
        pooled = math.sqrt(float((scatter[1:] ** 2).mean()))
        # A core whose few runs happened to agree is no steadier than the others.
        least = distributions.t.ppf(of_all, (runs - 1) * max(1, cores - 1)) * pooled
        half[1:] = np.maximum(own, least)
    half *= math.sqrt(1 + 1 / runs)
    return [
        Interval(float(c), float(c - h), float(c + h)) for c, h in zip(change, half, strict=True)
    ]


def parameters_of(baseline: Sequence[Run]) -> dict[str, Any]:
    """The parameters that all runs of a baseline share.

    Raises
    ------
    UserError
        They were measured with different ones.
    """
    first, *others = baseline
    for other in others:
        differing = sorted(
            key
            for key in first.params.keys() | other.params.keys()
            if first.params.get(key) != other.params.get(key)
        )
        if differing:
            msg = (
                f"the runs of the baseline were measured with different {', '.join(differing)} "
                f"({first.id}, {other.id}): make a new baseline, under another name"
            )
            raise UserError(msg)
    return dict(first.params)
