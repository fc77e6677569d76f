"""What ``make test`` leaves to ``make test-slow``: what costs most, by measurement."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

SLOW = Path(__file__).parent / "slow.txt"


def mark_listed(items: Iterable[pytest.Item], listed: Iterable[str]) -> None:
    """Mark the tests of listed functions as slow; of one with parameters, the first stays.

    The processor for which kernels are built is no such parameter.
    """
    functions, seen = set(listed), set()
    for item in items:
        name = item.nodeid.partition("[")[0]
        parameters = getattr(getattr(item, "callspec", None), "params", {}).keys() - {"processor"}
        if name in functions and (name in seen or not parameters):
            item.add_marker(pytest.mark.slow)
        seen.add(name)


def mostly_slow(values: Mapping[str, Any] | Iterable[Any], quick: Collection[Any] | int) -> Any:
    """Parameters for ``parametrize``: all of the values; a mapping's names are their ids.

    ``quick``: the names, or of an unnamed iterable the values, that are not slow; a number: so
    many of them, the first and others evenly spread.
    """
    named = dict(values) if isinstance(values, Mapping) else {}
    names = list(named) or list(values)
    if isinstance(quick, int):
        quick = [names[number * len(names) // quick] for number in range(quick)]
    made = []
    for name in names:
        value = named.get(name, name)
        marks = () if name in quick else pytest.mark.slow
        words = value if isinstance(value, tuple) and not named else (value,)
        made.append(pytest.param(*words, marks=marks, id=name if named else None))
    return made
