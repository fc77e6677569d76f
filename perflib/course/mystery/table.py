"""The table of causes, as an open mystery and a recorded one show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from perflib.course.mystery.causes import CAUSES

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["causes_table"]


def causes_table(here: Mapping[str, str]) -> pd.DataFrame:
    """What each cause does, its place and size, and where it is examined: one cause a row.

    Parameters
    ----------
    here
        The causes to show, each with why it is impossible here; empty: it is possible.
    """
    import pandas as pd

    rows = {
        name: {
            "does": CAUSES[name].does,
            "place": CAUSES[name].place or "none",
            "size (percent)": CAUSES[name].size,
            "examined in": CAUSES[name].notebook,
            "here": why or "possible",
        }
        for name, why in here.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("cause")
