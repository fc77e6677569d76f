"""What one sees, what it may be, and where one looks; the texts stand in ``symptoms.toml``."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Symptom:
    """What one sees, what it may be, and the notebooks and experiments that find out.

    Parameters
    ----------
    words
        What else one may search for.
    page
        The page of the documentation that says more, where no notebook does.
    how
        How the experiments are used, where there is more to it, or which, where none is named.
    """

    see: str
    may_be: str
    notebooks: tuple[str, ...] = ()
    experiments: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    page: str = ""
    how: str = ""


@functools.cache
def symptoms() -> tuple[Symptom, ...]:
    """All of them, in the order in which one reads them."""
    stored = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return tuple(_made(one) for one in stored["symptom"])


def _made(stored: dict[str, Any]) -> Symptom:
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in stored.items()
    }
    return Symptom(**fields)
