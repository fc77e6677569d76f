"""The figures of an event's profile: their data, units, words; nothing is cut off."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from perflib.experiments import figures as shared
from perflib.experiments.event_profile import figures
from perflib.instruments.profile.comparison import Comparison, compare
from perflib.lab.theme import png, themed

SHARES = np.array([0.4, 0.2, 0.1, 0.1, 0.1, 0.05, 0.03, 0.02])
NAMES = [
    "__sin_avx",
    "G4VEnergyLossProcess::PostStepGetPhysicalInteractionLength(G4Track const&, double)",
    "G4Tubs::DistanceToOut(CLHEP::Hep3Vector const&) const",
    "G4Tubs::DistanceToOut(CLHEP::Hep3Vector const&, CLHEP::Hep3Vector const&, bool) const",
    "std::_Rb_tree<int, std::pair<int const, double> >::_M_get_insert_unique_pos(int const&)",
    "operator new(unsigned long)",
    "an_unqualified_name_that_is_longer_than_any_figure_has_room_for",
    "[unknown] in libm.so.6",
]


def comparison(unit: str = "ns", factor: float = 1.5) -> Comparison:
    rounds, generator = 10, np.random.default_rng(1)
    parts = []
    for core, growth in (("cpu0", 1.0), ("cpu8", factor)):
        mean = 4000 * SHARES
        mean[1] *= growth
        counts = generator.poisson(np.broadcast_to(mean, (rounds, 8))).ravel()
        table = pd.DataFrame({"function": NAMES * rounds, "samples": counts, "cost": counts * 1e6})
        parts.append(table.assign(round=np.repeat(np.arange(rounds), 8), configuration=core))
    return compare(pd.concat(parts), "cpu0", "cpu8", unit=unit)


def texts(figure: Figure) -> str:
    axes = figure.axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    inside = [text.get_text() for text in axes.texts]
    legend = [text.get_text() for found in figure.legends for text in found.get_texts()]
    title = axes.get_title() + axes.get_title(loc="left")
    return "\n".join([title, axes.get_xlabel(), axes.get_ylabel(), *labels, *inside, *legend])


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("G4Tubs::DistanceToOut(CLHEP::Hep3Vector const&) const", "G4Tubs::DistanceToOut"),
        ("void foo::bar<int>(int)", "foo::bar<…>"),
        ("std::ostream::operator<<(int)", "std::ostream::operator<<"),
        ("(anonymous namespace)::helper(int)", "{anonymous}::helper"),
        ("<alloc::vec::Vec<T> as core::ops::Drop>::drop", "<…>::drop"),
        ("[unknown] in libm.so.6", "[unknown] in libm.so.6"),
        ("", ""),
        (f"one::{'x' * 60}", "…" + "x" * 39),
        (f"one::two::three::{'x' * 30}", f"…::three::{'x' * 30}"),
    ],
)
def test_names_lose_arguments_and_keep_their_end(name: str, short: str) -> None:
    assert shared.abbreviated(name) == short


def test_overloads_stay_apart() -> None:
    with themed():
        shown = texts(figures.cost_on_both(comparison()))
    assert "G4Tubs::DistanceToOut\n" in shown
    assert "G4Tubs::DistanceToOut #2" in shown


# --- comparison ----------------------------------------------------------------------------------


def test_without_anything_that_stands_out_nothing_is_marked() -> None:
    with themed():
        figure = shared.additional_time(comparison(factor=1.0), most=3)
        assert png(figure).startswith(b"\x89PNG")
        drawn = figure.get_tightbbox()  # of all that is visible, in inches
    assert "stands out" not in texts(figure)
    assert len(figure.axes[0].patches) == 3
    width, height = figure.get_size_inches()
    assert min(drawn.x0, drawn.y0, width - drawn.x1, height - drawn.y1) >= -0.01, "it is cut off"


def test_cycles_have_powers_of_ten() -> None:
    with themed():
        assert "(10⁶ cycles)" in texts(shared.additional_time(comparison(unit="cycles")))
        assert "(10⁹ cycles)" in texts(figures.cost_on_both(comparison(unit="cycles")))
