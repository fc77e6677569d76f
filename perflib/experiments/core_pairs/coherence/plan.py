"""Which pairs of cores meet when, and what is measured of each: the plan of a coherence run."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from perflib.experiments.core_pairs.coherence.names import ALONE, CHASED, LAYOUT_CONTROL, LAYOUTS

LEVELS = ("groups", "cores", "pairs")  # of detail
PLANNED = "planned"  # all pairs in one round, then those that ``Deciding`` names
_ALWAYS_GROUPS = 2
Pair = tuple[int, int]  # owner, requester


class What(NamedTuple):
    """What one call measures. ``lines``: how many cache lines take part."""

    name: str
    kind: str
    state: str
    access: str
    layout: str
    lines: int


class PairConfiguration(NamedTuple):
    """What one trial measures: pairs at the same time, or one of the controls.

    ``stage``: coarse pictures come first, one round each; pairs take part in the rounds of their
    stage, and the last stage stays. Controls take part in all.
    """

    stage: int
    pairs: tuple[Pair, ...]
    control: str = ""


def whats_of(
    protocols: Iterable[str], states: Iterable[str], accesses: Sequence[str], lines: int
) -> list[What]:
    """Every protocol, and every access to a line in every state."""
    of_protocols = [
        What(name, "protocol", "", "", "", 1 if name == "cas_one_line" else 2) for name in protocols
    ]
    return of_protocols + [
        What(f"{state} {access}", "transfer", state, access, LAYOUTS[0], lines)
        for state in states
        for access in accesses
    ]


def control_layouts(lines: int) -> list[What]:
    """The same lines in every layout: what prefetchers can do, and where they cannot."""
    state, access = CHASED.split()
    return [
        What(f"{CHASED}, {layout}", "transfer", state, access, layout, lines) for layout in LAYOUTS
    ]


def tournament(players: Sequence[int]) -> Iterator[list[Pair]]:
    """Everybody meets everybody once, in as few rounds of disjoint pairs as there can be.

    The circle method: one stays, the others move on by one seat. An odd one out pauses.

    Examples
    --------
    >>> list(tournament([0, 1, 2, 3]))
    [[(0, 3), (1, 2)], [(0, 2), (3, 1)], [(0, 1), (2, 3)]]
    """
    seats: list[int | None] = [*players, *([None] if len(players) % 2 else [])]
    half = len(seats) // 2
    for _ in range(len(seats) - 1):
        facing = zip(seats[:half], reversed(seats[half:]), strict=True)
        yield [(one, other) for one, other in facing if one is not None and other is not None]
        seats = [seats[0], seats[-1], *seats[1:-1]]


def configurations_of(
    cores: Sequence[int], near: Sequence[Sequence[int]], detail: str, at_once: int
) -> list[PairConfiguration]:
    """All pairs of the detail that is wanted, both ways, and the controls.

    Parameters
    ----------
    cores
        The cores to visit.
    near
        Of each group of cores one or two that stand for it, the first of them for comparisons with
        all cores.
    detail
        ``groups``: the cores of ``near`` with one another; ``cores``: besides, each core with the
        first of each group; ``pairs``: all. ``planned``: all, without coarser rounds before.
    at_once
        How many disjoint pairs are measured together at most.
    """
    few, first = {cpu for group in near for cpu in group}, {group[0] for group in near}

    def level(pair: Pair) -> int:
        if detail == PLANNED or few.issuperset(pair):
            return 0
        return 1 if first.intersection(pair) else 2

    wanted = 0 if detail == PLANNED else LEVELS.index(detail)
    levels = {level(pair) for games in tournament(cores) for pair in games}
    found = []
    for stage, finest in enumerate(sorted(one for one in levels if one <= wanted)):
        for games in tournament(cores):
            one_way = [pair for pair in games if level(pair) <= finest]
            for pairs in (one_way, [(requester, owner) for owner, requester in one_way]):
                found += [
                    PairConfiguration(stage, tuple(pairs[begin : begin + at_once]))
                    for begin in range(0, len(pairs), at_once)
                ]
    found.append(PairConfiguration(0, ((cores[0], cores[1]),), LAYOUT_CONTROL))
    if any(len(one.pairs) > 1 for one in found):
        found.append(PairConfiguration(0, (), ALONE))  # each round has its own
    return found


def always_visited(near: Sequence[Sequence[int]]) -> frozenset[Pair]:
    """A few pairs of which a planned run measures everything: two cores of each of two groups."""
    few = [cpu for group in near[:_ALWAYS_GROUPS] for cpu in group]
    return frozenset(itertools.permutations(few, 2))
