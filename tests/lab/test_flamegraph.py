from __future__ import annotations

import colorsys
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib.lab.flamegraph import INK, flame_figure, flame_graph
from perflib.lab.theme import png
from perflib.model.errors import UserError
from tests.instruments.profile.tables import samples_of, table

STACKS = {"main;f;g": 5, "main;h": 3, "main": 2}


def drawn(data: dict[str, Any]) -> dict[str, tuple[int, int, int]]:
    """Path to start, total and self of every frame of the layout."""
    paths = {}
    above: list[str] = []
    for name, depth, *numbers in zip(
        *(data[key] for key in ("name", "depth", "start", "total", "self")), strict=True
    ):
        del above[depth:]
        above.append(data["names"][name])
        paths[";".join(above)] = (numbers[0], numbers[1], numbers[2])
    return paths


def test_frames_stand_side_by_side_above_their_callers() -> None:
    graph = flame_graph(samples_of(STACKS), orientation="icicle")
    assert graph.orientation == "icicle"
    data = graph.data
    assert drawn(data) == {
        "all": (0, 10, 0),
        "all;main": (0, 10, 2),
        "all;main;f": (0, 5, 0),
        "all;main;f;g": (0, 5, 5),
        "all;main;h": (5, 3, 3),
    }
    assert data["left_out"] == data["gone"] == ""
    assert data["changes"] == []
    json.dumps(data)  # it goes to the page as JSON


@given(
    st.dictionaries(
        st.lists(st.sampled_from("abc"), min_size=1, max_size=5).map(";".join),
        st.integers(1, 20),
        min_size=1,
        max_size=10,
    ),
    st.sampled_from([0.0, 5.0, 30.0]),
)
def test_frames_lie_within_their_callers_and_do_not_overlap(
    stacks: dict[str, int], minimum_percent: float
) -> None:
    frames = drawn(flame_graph(samples_of(stacks), minimum_percent=minimum_percent).data)
    ends: dict[str, int] = {}
    for path, (start, total, _) in frames.items():
        above = path.rpartition(";")[0]
        if above:
            assert start >= ends.get(above, frames[above][0])
            assert start + total <= frames[above][0] + frames[above][1]
            ends[above] = start + total
            assert total >= minimum_percent / 100 * sum(stacks.values())


# --- colours -------------------------------------------------------------------------------------


def colours(data: dict[str, Any]) -> dict[str, str]:
    return {
        data["names"][name]: data["palette"][colour]
        for name, colour in zip(data["name"], data["colour"], strict=True)
    }


def test_a_function_has_the_same_colour_in_every_graph() -> None:
    first = colours(flame_graph(samples_of(STACKS)).data)
    second = colours(flame_graph(samples_of({"start;h;g": 1, "main": 9})).data)
    for name in ("main", "g", "h"):
        assert first[name] == second[name]
    assert len(set(first.values())) > 1


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("base", [None, {"main": 1}])
def test_names_are_legible_on_every_colour(base: dict[str, int] | None) -> None:
    """The contrast of WCAG's strictest level, 7 to 1."""
    palette = flame_graph(samples_of(STACKS), samples_of(base) if base else None).data["palette"]
    for colour in palette:
        assert (luminance(colour) + 0.05) / (luminance(INK) + 0.05) >= 7


# --- two profiles --------------------------------------------------------------------------------


def test_more_is_red_less_is_blue_and_equal_is_neither() -> None:
    now = samples_of({"main;more": 60, "main;less": 20, "main;same": 20})
    before = samples_of({"main;more": 8, "main;less": 8, "main;same": 4})
    data = flame_graph(now, before).data
    changes = dict(zip((data["names"][i] for i in data["name"]), data["changes"], strict=True))
    assert changes == {"all": 0.0, "main": 0.0, "more": 20.0, "less": -20.0, "same": 0.0}
    assert data["largest"] == pytest.approx(20)
    hue = {}
    for name, colour in colours(data).items():
        red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        hue[name] = colorsys.rgb_to_hls(red, green, blue)
    assert hue["more"][0] < 0.1
    assert 0.5 < hue["less"][0] < 0.7
    assert hue["same"][2] < 0.2


# --- what cannot be drawn ------------------------------------------------------------------------


@pytest.mark.parametrize("draw", [flame_graph, flame_figure])
def test_bad_input_is_a_sentence(draw: Any) -> None:
    with pytest.raises(UserError, match="a flame graph needs samples"):
        draw(table([]))
    with pytest.raises(UserError, match="samples in the base"):
        draw(samples_of(STACKS), table([]))
    with pytest.raises(UserError, match="did you mean 'icicle'"):
        draw(samples_of(STACKS), orientation="icycle")
    with pytest.raises(UserError, match="have no period"):
        draw(samples_of(STACKS, period=-1), weight="period")


# --- the figure ----------------------------------------------------------------------------------


def test_the_figure_shortens_names_shows_signs_as_they_are_and_the_scale_of_changes() -> None:
    long = "a" * 300 + "$x^2$"
    figure = flame_figure(
        samples_of({f"main;{long}": 1, "main;$y$": 4000, "main;z": 2000}),
        samples_of({"main;z": 1}),
        width_inches=8,
    )
    axes, scale = figure.axes
    assert "$y$" in {text.get_text() for text in axes.texts}
    assert "1 frame is left out" in axes.get_xlabel()
    assert "points" in scale.get_xlabel()
    (shortened,) = (
        text.get_text()
        for text in flame_figure(samples_of({long: 1})).axes[0].texts
        if text.get_text() != "all"
    )
    assert shortened.endswith("…")
    png(figure)
