from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib.lab.threads.page import colours, duration, shown, time_axis

# Machado, Oliveira and Fernandes (2009), doi:10.1109/TVCG.2009.113: what the colour-blind see.
SIGHT = {
    "all": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
XYZ = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])


def lab(colour: str, sight: str) -> np.ndarray:
    """CIELAB of a colour as it is seen."""
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.asarray(SIGHT[sight]) @ linear, 0, 1)
    x, y, z = np.cbrt(np.maximum(XYZ @ seen / [0.95047, 1, 1.08883], 0.008856))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("sight", SIGHT)
def test_no_two_states_look_alike(sight: str) -> None:
    """A distance of 2 is seen in areas side by side; thin columns need much more."""
    for one, other in itertools.combinations(colours().values(), 2):
        assert np.linalg.norm(lab(one, sight) - lab(other, sight)) > 18


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 s"),
        (7, "7 ns"),
        (999.9, "1.00 µs"),
        (12_340, "12.3 µs"),
        (999_600, "1.00 ms"),
        (20_000_000, "20.0 ms"),
        (1e9, "1.00 s"),
        (7200e9, "7,200 s"),
    ],
)
def test_durations(ns: float, text: str) -> None:
    assert duration(ns) == text


@given(st.integers(0, 10**14), st.integers(1000, 10**13))
def test_the_axis_has_some_round_ticks_that_differ(start: int, span: int) -> None:
    title, ticks = time_axis(start, start + span)
    places = [place for place, _ in ticks]
    texts = [text for _, text in ticks]
    assert 3 <= len(ticks) <= 9
    assert len(set(texts)) == len(texts)
    assert all(start <= place <= start + span for place in places)
    assert len(set(np.diff(places))) == 1
    assert max(map(len, texts)) <= 9
    unit = {"(s)": 1e9, "(ms)": 1e6, "(µs)": 1e3, "(ns)": 1}[title.rpartition(" ")[2]]
    base = float(title.split(" ")[0]) * 1e9 if ", and " in title else 0.0
    for place, text in ticks:
        said = float(text.replace("\u2009", "")) * unit + base
        assert said == pytest.approx(place, abs=max(1e-3 * span, 1e-9 * place))


@given(st.text(st.characters()))
def test_shown_names_can_be_printed_and_sent(name: str) -> None:
    text = shown(name)
    text.encode()
    assert text
    assert all(letter.isprintable() or letter.isspace() for letter in text)
    assert "\n" not in text
