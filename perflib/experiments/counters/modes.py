"""The ways in which a job is counted, and the configurations that are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

ALONE, ONE_SET, ROTATED, KERNEL, SAMPLED = "alone", "one set", "rotated", "kernel", "sampled"
MULTIPLEXED = (ROTATED, KERNEL)
NOTHING = "(none)"  # in the columns of set and event, where there is none


class Configuration(NamedTuple):
    """How the job is counted, how many jobs there are, and which set is counted alone."""

    mode: str
    jobs: int
    set: str = NOTHING


def configurations(
    jobs: Sequence[int], sets: Sequence[str], *, sampled: bool, alone: bool = True
) -> list[Configuration]:
    """Every mode with every number of jobs; one set at a time is a configuration for each set.

    ``alone``: the job uncounted, too; not needed where costs come from segments of it.
    """
    modes = [*MULTIPLEXED, *([SAMPLED] if sampled else [])]
    return [
        configuration
        for count in jobs
        for configuration in (
            *([Configuration(ALONE, count)] if alone else []),
            *(Configuration(ONE_SET, count, name) for name in sets),
            *(Configuration(mode, count) for mode in modes),
        )
    ]
