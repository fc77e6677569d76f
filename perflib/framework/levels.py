"""Levels: one number a run, core and setting that can be compared between machines.

A level is positive, and larger is slower. The farm compares them over nodes; a saved run's file
carries them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perflib.framework.samples import usable
from perflib.framework.schema import Column

if TYPE_CHECKING:
    import pandas as pd

_CPU = ("cpu", "core", "load_cpu", "requester_cpu")  # the first of them is where it was measured
_REPEATED = ("round", "repeat", "event", "slice")  # what a level is typical of


def levels(samples: pd.DataFrame, columns: Sequence[Column]) -> pd.DataFrame:
    """The median of what was measured, for each core and setting.

    Parameters
    ----------
    samples
        As `perflib.framework.schema.checked` returns them.
    columns
        Those that the experiment declares. Its keys make the setting, but a core's number, and
        but the numbers of rounds, repeats, events and slices.

    Returns
    -------
    `levels_table`; without rows where no measured column is declared, or only one that is ``set``.
    """
    keys = [column.name for column in columns if column.role == "key" and column.name in samples]
    measured = [column for column in columns if column.role == "measured" and not column.set]
    if not measured or measured[0].name not in samples:
        return levels_table([])
    cpu = next((name for name in _CPU if name in keys), None)
    setting = [name for name in keys if name not in (cpu, *_REPEATED)]
    grouped = ([cpu] if cpu else []) + setting
    rows = usable(samples)
    value = measured[0].name
    if not grouped:
        return levels_table([(-1, "", rows[value].median(), measured[0].unit)])
    medians = rows.groupby(grouped, sort=True, observed=True)[value].median().reset_index()
    cpus = medians[cpu] if cpu else [-1] * len(medians)
    texts = [
        " ".join(f"{name}={part}" for name, part in zip(setting, parts, strict=True))
        for parts in medians[setting].itertuples(index=False, name=None)
    ]
    unit = [measured[0].unit] * len(medians)
    return levels_table(list(zip(cpus, texts, medians[value], unit, strict=True)))


def levels_table(rows: Sequence[tuple[Any, str, Any, str]]) -> pd.DataFrame:
    """Rows of cpu, setting, value and unit as a table; those that hold no positive number go.

    ``cpu`` (int64): -1 where it is of no core. ``setting``: how it was measured, as
    ``n=64 pattern=random``. ``value`` (float64): in ``unit``; larger is slower.
    """
    import numpy as np
    import pandas as pd

    table: pd.DataFrame = pd.DataFrame(rows, columns=["cpu", "setting", "value", "unit"])
    table = table.astype({"cpu": "int64", "setting": "str", "value": "float64", "unit": "str"})
    known: pd.DataFrame = table[np.isfinite(table["value"]) & (table["value"] > 0)]
    return known.reset_index(drop=True)
