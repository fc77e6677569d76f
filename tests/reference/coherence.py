"""What coherence.c is to do: where its lines lie, in which order they are taken, the checksum."""

from __future__ import annotations

from collections.abc import Iterator

LINE, PAGE, PLACES = 64, 4096, 64
NEIGHBOURS, ASCENDING = 1, 2
_MASK = (1 << 64) - 1


def splitmix(state: int) -> Iterator[int]:
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
        yield z ^ z >> 31


def shuffled(n: int, random: Iterator[int]) -> list[int]:
    numbers = list(range(n))
    for i in range(n, 1, -1):
        j = (next(random) >> 32) * i >> 32
        numbers[i - 1], numbers[j] = numbers[j], numbers[i - 1]
    return numbers


def plan(layout: int, lines: int, seed: int, sample: int) -> list[int]:
    """Offsets of the lines in the order in which a sample (from 0, the first kept) takes them."""
    random, places, at = splitmix(seed), list[int](), list[int]()
    for i in range(lines):
        if i % PLACES == 0:
            places = shuffled(PLACES, random)
        at.append(i * LINE if layout & NEIGHBOURS else i * PAGE + places[i % PLACES] * LINE)
    random = splitmix((seed + sample + 1) & _MASK)
    next(random)
    order = range(lines) if layout & ASCENDING else shuffled(lines, random)
    return [at[i] for i in order]


def checksum(offsets: list[int]) -> int:
    total = 0
    for at in offsets:
        total = ((total << 5 | total >> 59) & _MASK) ^ at
    return total
