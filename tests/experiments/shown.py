"""What the tables and the figures of a run hold, in few numbers and words.

``python -m tests.experiments.shown`` renews what is expected of the stored runs: look at the
difference before you commit it.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perflib import experiments
from perflib.lab.theme import themed
from perflib.store.run_files import load
from tests.stored import RUNS

EXPECTED = RUNS / "shown.json"
_OPTIONAL = {"topdown"}  # libpfm4 has its names, where it is installed


def numbers(values: npt.ArrayLike) -> list[float]:
    """How many are finite, their mean, and their mean weighted by their place."""
    every = np.ravel(np.asarray(values, dtype=float))
    places = np.flatnonzero(np.isfinite(every))
    finite = every[places]
    if not finite.size:
        return [0.0]
    means = finite.mean(), (finite * (places + 1)).mean()
    return [float(finite.size), *(float(f"{mean:.9g}") for mean in means)]


def words(values: list[str]) -> str:
    """The first, the last, and a checksum of all."""
    if not values:
        return ""
    return f"{values[0]} ... {values[-1]} {zlib.crc32(chr(0).join(values).encode()):08x}"


def columns(table: pd.DataFrame) -> dict[str, list[float] | str]:
    """Each column of a table, an index with a name first."""
    whole = table.reset_index() if any(table.index.names) else table
    return {
        str(name): numbers(column.to_numpy(float, na_value=np.nan))
        if pd.api.types.is_numeric_dtype(column)
        else words(
            [
                "" if missing else str(value)
                for value, missing in zip(column, column.isna(), strict=True)
            ]
        )
        for name, column in whole.items()
    }


def panel(axes: Axes) -> dict[str, Any]:
    """What is written on one pair of axes, and the data of what is drawn there."""
    legend = axes.get_legend()
    named = [text.get_text() for text in legend.get_texts()] if legend else []
    data: list[Any] = [line.get_data() for line in axes.lines]
    clouds = [numbers(np.ma.filled(one.get_offsets(), np.nan)) for one in axes.collections]
    shades = [one.get_array() for one in axes.collections]
    boxes = [one.get_path().get_extents(one.get_patch_transform()).extents for one in axes.patches]
    ticks = [*axes.get_xticklabels(), *axes.get_yticklabels()]
    return {
        "labels": [axes.get_title(loc="left") or axes.get_title(), axes.get_xlabel(),
                   axes.get_ylabel()],
        "scales": [axes.get_xscale(), axes.get_yscale()],
        "limits": numbers([axes.get_xlim(), axes.get_ylim()]),
        "legend": named,
        "ticks": words([tick.get_text() for tick in ticks if tick.get_text()]),
        "texts": words([text.get_text() for text in axes.texts]),
        "lines": [numbers(one) for one in data],
        "points": clouds,
        "shades": [numbers(np.ma.filled(one, np.nan)) for one in shades if one is not None],
        "boxes": numbers(boxes),
    }  # fmt: skip


def panels(figure: Figure) -> list[dict[str, Any]]:
    """Every pair of axes of a figure, and its own legends."""
    own = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    return [{"legend": own}, *(panel(axes) for axes in figure.axes)]


def shown(name: str) -> dict[str, Any]:
    """The tables and the figures of an experiment's stored run."""
    experiment, run = experiments.get(name), load(RUNS / f"{name}.parquet")
    made = experiment.derived(run)
    tables = {table: columns(make()) for table, make in made.items() if table not in _OPTIONAL}
    with themed():
        drawings = experiment.drawings(run).items()
        drawn = {plot: panels(draw()) for plot, draw in drawings if plot not in _OPTIONAL}
    return {"tables": tables, "figures": drawn}


def differences(now: Any, then: Any, where: str = "") -> list[str]:
    """Where two of them differ: numbers by more than a millionth."""
    if isinstance(now, dict) and isinstance(then, dict):
        if now.keys() != then.keys():
            return [f"{where}: {[*now]} instead of {[*then]}"]
        return [d for key in now for d in differences(now[key], then[key], f"{where}/{key}")]
    if isinstance(now, list) and isinstance(then, list) and len(now) == len(then):
        pairs = zip(now, then, strict=True)
        return [d for n, one in enumerate(pairs) for d in differences(*one, f"{where}/{n}")]
    if isinstance(now, float) and isinstance(then, float):
        return (
            [] if np.isclose(now, then, rtol=1e-6, atol=1e-9) else [f"{where}: {now}, not {then}"]
        )
    return [] if now == then else [f"{where}: {now!r} instead of {then!r}"]


def write(expected: dict[str, Any]) -> None:
    """One line for each experiment."""
    lines = [f"{json.dumps(name)}: {json.dumps(made)}" for name, made in expected.items()]
    EXPECTED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write({name: shown(name) for name in experiments.NAMES})
