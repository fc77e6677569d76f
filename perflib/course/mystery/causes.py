"""The causes that a mystery may have: what each does, where it may be, and what shows it.

They are prose: ``causes.toml``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Level = Literal["easy", "medium", "hard"]
LEVELS: tuple[Level, ...] = ("easy", "medium", "hard")

FUNCTIONS = ("propagate_track", "lose_energy", "shape_pulse", "fit_line")
LOCKS = ("geometry_lock", "calibration_lock", "output_lock")
NOTHING = "nothing"


@dataclass(frozen=True)
class Cause:
    """One thing that may be wrong.

    Parameters
    ----------
    does
        What it does to the machine or to the job.
    place
        What kind of place an answer names: ``core``, ``function``, ``lock``, or nothing: ``""``.
    size
        What the interval of an answer is about, in percent.
    notebook
        Where it is examined.
    shown_by
        What distinguishes it from the others.
    sizes
        Of each level on which it occurs, the range that its size is drawn from, in thousandths:
        of a core's time; of calls, steps or walks of the job; times that a function is called more.
    """

    does: str
    place: Literal["core", "function", "lock", ""]
    size: str
    notebook: str
    shown_by: str
    sizes: Mapping[Level, list[int]]


CAUSES: Mapping[str, Cause] = {
    name: Cause(**described)
    for name, described in tomllib.loads(
        Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    ).items()
}
"""Every cause, in the order in which a table lists them."""
