"""What one sees, what it may be, and where one looks; the texts stand in ``symptoms.toml``."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Symptom:
    """What one sees, what it may be, and the notebooks and experiments that find out.

    Parameters
    ----------
    page
        The page of the documentation that says more, where no notebook does.
    how
        How the experiments are used, where there is more to it, or which, where none is named.
    """

    see: str
    may_be: str
    notebooks: tuple[str, ...] = ()
    experiments: tuple[str, ...] = ()
    page: str = ""
    how: str = ""


@functools.cache
def symptoms() -> tuple[Symptom, ...]:
    """All of them, in the order in which one reads them."""
    stored = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return tuple(_made(**one) for one in stored["symptom"])


def _made(notebooks: Sequence[str] = (), experiments: Sequence[str] = (), **texts: str) -> Symptom:
    return Symptom(notebooks=tuple(notebooks), experiments=tuple(experiments), **texts)
