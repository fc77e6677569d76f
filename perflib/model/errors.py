"""Errors a user can act on, and the sentence that names the nearest valid choice."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from perflib.model.escape import lines


class PerflibError(Exception):
    """Base of every error that perflib raises on purpose; its text is meant for the user."""

    exit_code = 1

    def __str__(self) -> str:
        """The text as a terminal may have it: a name in it is data (`perflib.model.escape`)."""
        return lines(super().__str__())

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the text, without perflib's own calls above it."""
        return [f"{type(self).__name__}: {self}"]


class UserError(PerflibError):
    """The request cannot be carried out; nothing was measured. Exit status 2."""

    exit_code = 2


class MeasurementError(PerflibError):
    """The measurement failed; what was measured before is kept. Exit status 1."""


_MAX_LISTED = 40


def choose(what: str, word: str, choices: Iterable[str]) -> str:
    """Say that ``word`` is no valid ``what`` and name the choices, the nearest first.

    More than forty are counted, not listed.

    >>> choose("parameter", "evnets", ["events", "cores"])
    "unknown parameter 'evnets': did you mean 'events'? (all: cores, events)"
    """
    known = sorted(choices)
    near = difflib.get_close_matches(word, known, n=2, cutoff=0.6)
    every = f"(all: {', '.join(known)})" if known else "(there are none)"
    if len(known) > _MAX_LISTED:
        every = f"({len(known)} are known)"
    if near:
        hint = " or ".join(repr(name) for name in near)
        return f"unknown {what} {word!r}: did you mean {hint}? {every}"
    return f"unknown {what} {word!r} {every}"
