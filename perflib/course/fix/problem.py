"""What a piece of code to mend declares: its inputs, what must come out, and what is wrong with it.

Light: names and texts are wanted without numpy.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MASK = 2**64 - 1  # words of an input and an output are unsigned, of 64 bits
Case = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One piece of code; its C is ``kernels_c/fix/NAME.inc``, next to ``NAME_mended.inc``.

    Parameters
    ----------
    name
        Of the problem.
    title
        What the code does, in a few words.
    threads
        How many call it at the same time: 1 or 2.
    always
        Inputs that are tried first: none of everything, one of everything, extremes.
    draw
        One input at random, larger ones for a larger ``size`` (from 0 to 1).
    words
        An input as the words that ``fix_check`` of the kernel ``fix_NAME`` takes.
    expected
        The words that must come out: the specification, in Python.
    place
        What the word at a place of the output is, for a sentence.
    hints
        What to look at, the next one each time.
    mechanism
        What is wrong, why it costs time, and what a machine like a guest shows of it.
    others
        Further ways to mend it: suffixes of ``NAME_SUFFIX.inc``, each with a sentence.
    """

    name: str
    title: str
    threads: int
    always: Sequence[Case]
    draw: Callable[[random.Random, float], Case]
    words: Callable[[Case], list[int]]
    expected: Callable[[Case], list[int]]
    place: Callable[[Case, int], str]
    hints: Sequence[str]
    mechanism: str
    others: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, **given: Any) -> Problem:
        """The problem whose prose (title, hints, mechanism, others) ``problems/NAME.toml`` has."""
        path = Path(__file__).parent / "problems" / f"{name}.toml"
        return cls(name=name, **tomllib.loads(path.read_text(encoding="utf-8")), **given)
