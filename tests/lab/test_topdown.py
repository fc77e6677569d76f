from __future__ import annotations

import pandas as pd
import pytest

import perflib as pl
from perflib.lab.theme import png
from perflib.lab.topdown import topdown_figure
from perflib.model.errors import UserError


def table(values: dict[str, float], error: float = 0.0) -> pd.DataFrame:
    """A table as `topdown` makes it, of these shares; the others were not measured."""
    made = pl.counters.topdown(pd.DataFrame({"event": ["cycles"], "status": ["absent"]}), "skx")
    made["value"] = made["metric"].map(values)
    made["error"] = error
    return made


LEVEL1 = {"retiring": 0.4, "bad-speculation": 0.1, "frontend-bound": 0.2, "backend-bound": 0.3}
LEVEL2 = {"memory-bound": 0.2, "core-bound": 0.1}


def test_bars_are_the_shares_and_parts_stand_below_their_parents() -> None:
    figure = topdown_figure({"one": table(LEVEL1 | LEVEL2), "two": table(LEVEL1, error=0.01)})
    axes = figure.axes[0]
    bars = [(bar.get_x(), bar.get_width(), bar.get_y() < 0.5) for bar in axes.patches]  # type: ignore[attr-defined]
    first = [(round(start, 6), round(width, 6)) for start, width, of_first in bars if of_first]
    level1 = [(0.0, 0.4), (0.4, 0.1), (0.5, 0.2), (0.7, 0.3)]
    assert set(level1) <= set(first)
    assert {(0.7, 0.2), (0.9, 0.1)} <= set(first)  # memory and core below the back end
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one", "two"]
    labels = [text.get_text() for text in axes.texts]
    assert "40" in labels
    assert "40.0 ± 2.0" in labels
    assert "10" in labels  # too narrow for its uncertainty
    legend = [text.get_text().strip() for text in figure.legends[0].get_texts()]
    assert "memory bound" in legend
    assert "fetch latency" not in legend
    assert "parts not measured" in legend
    assert png(figure).startswith(b"\x89PNG")


def test_nothing_to_draw_says_why() -> None:
    with pytest.raises(UserError, match="nothing to draw: cannot be measured here: needs"):
        topdown_figure(table({}))
    with pytest.raises(UserError, match="there is no table"):
        topdown_figure({})
