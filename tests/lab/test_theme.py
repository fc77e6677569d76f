from __future__ import annotations

import matplotlib as mpl
from matplotlib.figure import Figure

from perflib.lab.theme import show, themed


def test_the_theme_holds_within_the_block_only() -> None:
    mpl.get_backend()  # chosen at the first question, which is none of the theme's business
    before = mpl.rcParams.copy()
    with themed():
        assert mpl.rcParams["figure.constrained_layout.use"]
        assert mpl.rcParams["axes.prop_cycle"] != before["axes.prop_cycle"]
    assert mpl.rcParams == before


def test_a_shown_figure_is_a_png_with_its_title_for_those_who_cannot_see_it() -> None:
    with themed():
        figure = Figure()
        figure.subplots().set_title("Gaps in the clock")
    shown = show(figure)
    assert shown.data.startswith(b"\x89PNG")
    assert shown.alt == "Gaps in the clock"
    assert show(Figure()).alt == "figure"
