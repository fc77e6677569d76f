"""What is swept: functions, how they are built, of what size; where each is predicted to alias."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from perflib.experiments.aliasing.addresses import PERIOD_BYTES

# The numbers by which the kernel knows its functions.
FUNCTIONS: Mapping[str, int] = {"convolution": 0, "copy": 1, "memcpy": 2}
DGEMV = "dgemv"
ROUTINES = (*FUNCTIONS, DGEMV)
_ITEM_BYTES = 8  # of dgemv
_LEAST_PERIOD = 2048  # below, every offset is near a predicted one


def variant(level: str, *, restrict: bool) -> str:
    """The kernel's variant of that optimisation, with or without ``restrict``."""
    return f"{level}-restrict" if restrict else level


# What each variant is.
VARIANTS: Mapping[str, tuple[str, bool]] = {
    variant(level, restrict=restrict): (level, restrict)
    for level in ("O0", "O2", "O3")
    for restrict in (False, True)
}


class Swept(NamedTuple):
    """A function whose buffers are at many distances.

    ``routine``: one of ``ROUTINES``, or empty for any other function, of which nothing but its name
    is known. ``build``: the kernel's variant, or the library's name. ``order``: ``column`` or
    ``row`` of dgemv, else empty.
    """

    name: str
    routine: str = ""
    build: str = ""
    n: int = 0
    order: str = ""

    @property
    def period(self) -> int | None:
        """It is predicted to alias just above multiples of so many bytes; ``None``: nowhere.

        The columns of a matrix begin at several places of a page; all that are loaded from together
        count. By rows dgemv stores one element a row: wherever y is, one row or another meets it.
        """
        if self.routine != DGEMV:
            return PERIOD_BYTES
        period = math.gcd(_ITEM_BYTES * self.n, PERIOD_BYTES)
        return period if self.order == "column" and period >= _LEAST_PERIOD else None

    @property
    def columns(self) -> dict[str, Any]:
        """By the names of the columns of samples and tables."""
        return {
            "function": self.name,
            "routine": self.routine,
            "build": self.build,
            "n": self.n,
            "order": self.order,
        }

    @property
    def place(self) -> tuple[int, str, str, int, str]:
        """For sorting: routines in their order, and each routine's sizes by number."""
        known = self.routine in ROUTINES
        first = ROUTINES.index(self.routine) if known else len(ROUTINES)
        return first, self.build, self.order, self.n, self.name


class Configuration(NamedTuple):
    """A function, how it is built or in which library it is, and of what size, on a core.

    ``core`` counts the run's cores from 0; ``routine`` to ``order`` as of `Swept`. ``calls``,
    ``warm_calls``: each sample's. ``visits``: how many samples each offset has in a trial.
    """

    core: int
    routine: str
    build: str
    n: int
    order: str = ""
    calls: int = 1
    warm_calls: int = 0
    visits: int = 1

    @property
    def swept(self) -> Swept:
        """What is swept, named by one word: ``convolution-O2-restrict-2048``."""
        build = "" if self.routine == "memcpy" else self.build  # it is the C library's
        name = "-".join(filter(None, [self.routine, build, self.order, str(self.n)]))
        return Swept(name, self.routine, build, self.n, self.order)
