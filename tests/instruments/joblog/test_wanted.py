"""Which events of a log are wanted, and their classes."""

from __future__ import annotations

import pytest

from perflib.instruments.joblog.wanted import Wanted
from perflib.model.errors import UserError


@pytest.mark.parametrize(
    ("text", "event", "found"),
    [
        ("73", 73, "73"),
        ("73", 173, None),
        ("7", 73, None),
        ("Zee|ttbar", "ttbar", "ttbar"),
        ("Zee|ttbar", "Zeeb", None),
        (r"\d+", 12, "12"),
        (r"(?P<event>[A-Za-z]+)_\d+", "Zee_17", "Zee"),
        (r"(?P<event>[A-Za-z]+)_\d+", "17", None),
        (r"(?:(?P<event>Zee)|\w+)_1", "Wenu_1", "Wenu_1"),  # the group took no part
        ("run.1", "run.1", "run.1"),
        ("f(x)", "f(x)", "f(x)"),  # is called exactly so
    ],
)
def test_whole_names_are_matched(text: str, event: int | str, found: str | None) -> None:
    assert Wanted(text).class_of(event) == found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("(a", r"wanted events is no regular expression.*\n  \(a\n"),
        (r"(?P<job>\d)", "the only named group is 'event', not 'job'"),
    ],
)
def test_what_is_no_expression_is_a_sentence(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        Wanted(text)
