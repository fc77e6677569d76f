"""Mysteries by their cause: the first seed that means it here."""

from __future__ import annotations

import functools

import pytest

from perflib.course.mystery import Mystery, mystery
from perflib.course.mystery.causes import Level
from perflib.course.mystery.draw import Trouble, draw, impossible, this_machine


@functools.cache
def seed_of(cause: str, level: Level = "medium") -> int:
    """A seed whose trouble has that cause; where it cannot be made, the test is skipped."""
    machine = this_machine()
    if why := impossible(cause, machine):
        pytest.skip(f"{cause}: {why}")
    return next(seed for seed in range(1000) if draw(seed, level, machine).cause == cause)


def trouble_of(cause: str, level: Level = "medium") -> Trouble:
    """Its trouble."""
    return draw(seed_of(cause, level), level, this_machine())


def opened(cause: str, level: Level = "medium") -> Mystery:
    """Open a mystery with that cause."""
    made = mystery(seed_of(cause, level), level)
    assert isinstance(made, Mystery)
    return made
