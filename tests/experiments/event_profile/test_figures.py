"""The figures of an event's profile: their data, units, words; nothing is cut off."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from perflib.experiments import figures as shared
from perflib.experiments.event_profile import figures
from perflib.instruments.profile.comparison import Comparison, compare
from perflib.instruments.profile.entry_cost import entry_cost
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


def comparison(rounds: int = 10, unit: str = "ns", factor: float = 1.5) -> Comparison:
    generator = np.random.default_rng(1)
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


def assert_nothing_is_cut_off(figure: Figure) -> None:
    with themed():
        assert png(figure).startswith(b"\x89PNG")
        drawn = figure.get_tightbbox()  # of all that is visible, in inches
    width, height = figure.get_size_inches()
    assert drawn.x0 >= -0.01
    assert drawn.y0 >= -0.01
    assert drawn.x1 <= width + 0.01
    assert drawn.y1 <= height + 0.01


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("memcpy", "memcpy"),
        ("G4Tubs::DistanceToOut(CLHEP::Hep3Vector const&) const", "G4Tubs::DistanceToOut"),
        ("void foo::bar<int>(int)", "foo::bar<…>"),
        ("operator new(unsigned long)", "operator new"),
        ("std::ostream::operator<<(int)", "std::ostream::operator<<"),
        ("A::operator()(int) const", "A::operator()"),
        ("(anonymous namespace)::helper(int)", "{anonymous}::helper"),
        ("<alloc::vec::Vec<T> as core::ops::Drop>::drop", "<…>::drop"),
        ("java.util.HashMap.get", "java.util.HashMap.get"),
        ("[unknown] in libm.so.6", "[unknown] in libm.so.6"),
        ("unbalanced<(", "unbalanced<("),
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


def test_additional_time_marks_what_stands_out() -> None:
    with themed():
        figure = shared.additional_time(comparison())
    shown = texts(figure)
    assert "additional time per event on cpu8 (ms)" in shown
    assert "stands out, 95 % interval" in shown
    assert "common slowdown's part" in shown
    assert "% excess" in shown
    assert "10 repetitions" in shown
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels[-1] == "…::PostStepGetPhysicalInteractionLength"  # the largest, on top
    lengths = sorted(bar.get_bbox().width for bar in figure.axes[0].patches)  # type: ignore[attr-defined]
    assert lengths[-1] == pytest.approx(0.5 * 0.2 * 4000, rel=0.1)  # ms
    assert_nothing_is_cut_off(figure)


def test_without_anything_that_stands_out_nothing_is_marked() -> None:
    with themed():
        figure = shared.additional_time(comparison(factor=1.0), most=3)
    assert "stands out" not in texts(figure)
    assert len(figure.axes[0].patches) == 3
    assert_nothing_is_cut_off(figure)


def test_costs_on_both_cores_stand_side_by_side() -> None:
    compared = comparison()
    with themed():
        figure = figures.cost_on_both(compared, most=4)
    shown = texts(figure)
    assert "cost per event (s), 95 % interval" in shown
    assert shown.endswith("cpu0\ncpu8")
    drawn = np.asarray(figure.axes[0].lines[0].get_xdata())
    assert len(drawn) == 4
    assert set(drawn) <= set(compared.table["cost_first"] / 1e9)
    assert drawn.max() == compared.table["cost_first"].max() / 1e9
    assert_nothing_is_cut_off(figure)


def test_cycles_have_powers_of_ten() -> None:
    with themed():
        assert "(10⁶ cycles)" in texts(shared.additional_time(comparison(unit="cycles")))
        assert "(10⁹ cycles)" in texts(figures.cost_on_both(comparison(unit="cycles")))


# --- entry, time line ----------------------------------------------------------------------------


def test_entry_shares_show_the_diagonal_and_name_outliers() -> None:
    generator = np.random.default_rng(3)
    parts = []
    code = {}
    for number in range(12):
        name = f"Some::Class{number}::method_with_a_long_name_{number}(int)"
        code[name] = np.arange(0, 400 + 40 * number, 4)
        weight = np.ones(code[name].size)
        weight[:4] = 8.0 if number < 2 else 1.0
        offsets = generator.choice(code[name], 900, p=weight / weight.sum())
        parts.append(pd.DataFrame({"symbol": name, "offset": offsets}))
    parts.append(pd.DataFrame({"symbol": "never_on_entry", "offset": [200] * 80}))
    found = entry_cost(pd.concat(parts), {**code, "never_on_entry": 400})
    with themed():
        figure = figures.entry_shares(found)
    shown = texts(figure)
    for word in (
        "even spread",
        "1.5 × even",
        "control window",
        "costly entry, 95 % interval",
        "(%)",
    ):
        assert word in shown
    assert "method_with_a_long_name_0" in shown
    assert "method_with_a_long_name_5" not in shown
    assert_nothing_is_cut_off(figure)


def one_event(
    time_ms: Any, event_ms: float, missed_begin_ms: float = 0, missed_end_ms: float = 0
) -> pd.DataFrame:
    columns = {"time_ms": time_ms, "event_ms": event_ms}
    return pd.DataFrame(
        columns | {"missed_begin_ms": missed_begin_ms, "missed_end_ms": missed_end_ms}
    )


def histogram(figure: Figure) -> tuple[float, float, int]:
    """The area of the steps (samples times ms), their greatest height, and how many there are."""
    (filled,) = figure.axes[0].collections
    x, y = np.asarray(filled.get_paths()[0].vertices).T
    area = abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2
    return float(area), float(y.max()), len(np.unique(x)) - 1


def test_the_time_line_shows_begin_end_and_what_was_missed() -> None:
    with themed():
        figure = figures.time_line(one_event(np.arange(2.0, 499), 500, 2, 1))
    shown = texts(figure)
    assert "497 samples of an event of 500.0 ms" in shown
    assert "time since the event's begin (ms)" in shown
    assert "samples per 1 ms" in shown
    assert "missed: 3.00 ms, 0.6 %" in shown
    area, highest, _ = histogram(figure)
    assert area == pytest.approx(497)
    assert highest == 1
    assert len(figure.axes[0].patches) == 2, "begin and end were missed"
    assert_nothing_is_cut_off(figure)
