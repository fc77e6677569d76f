"""What coherence.c is to do: where its lines lie, in which order they are taken."""

from __future__ import annotations

from tests.reference.words import WORD, shuffled, splitmix

LINE, PAGE, PLACES = 64, 4096, 64
NEIGHBOURS, ASCENDING = 1, 2


def plan(layout: int, lines: int, seed: int, sample: int) -> list[int]:
    """Offsets of the lines in the order in which a sample (from 0, the first kept) takes them."""
    random, places, at = splitmix(seed), list[int](), list[int]()
    for i in range(lines):
        if i % PLACES == 0:
            places = shuffled(PLACES, random)
        at.append(i * LINE if layout & NEIGHBOURS else i * PAGE + places[i % PLACES] * LINE)
    random = splitmix((seed + sample + 1) & WORD)
    next(random)
    order = range(lines) if layout & ASCENDING else shuffled(lines, random)
    return [at[i] for i in order]
