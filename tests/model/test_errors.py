"""Errors that a user can act on."""

from __future__ import annotations

import pytest

from perflib.model.errors import choose

NAMES = ("events", "cores", "precision_percent", "budget_s")


@pytest.mark.parametrize(
    ("word", "nearest"),
    [
        ("evnets", "events"),
        ("event", "events"),
        ("core", "cores"),
        ("precision", "precision_percent"),
        ("budget", "budget_s"),
    ],
)
def test_nearest_name_comes_first(word: str, nearest: str) -> None:
    said = choose("parameter", word, NAMES)
    assert said.startswith(f"unknown parameter {word!r}: did you mean {nearest!r}")
    assert said.endswith("(all: budget_s, cores, events, precision_percent)")


def test_many_choices_are_counted() -> None:
    said = choose("function", "f17x", [f"f{number}" for number in range(500)])
    assert said.startswith("unknown function 'f17x': did you mean 'f17")
    assert said.endswith("(500 are known)")
