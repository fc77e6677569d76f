"""``kernels_c/tracking.c`` in plain Python: the same events, bit for bit.

>>> checksum(seed=1, event=0, steps=1)  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

from tests.reference.words import WORD, bits, fold, splitmix

TRACKS, CALLS, PLACES, WALK = 12, 400, 256, 6000


def uniforms(state: int) -> Iterator[float]:
    """The numbers of splitmix64, from 0 to 1."""
    return ((random >> 11) * 2.0**-53 for random in splitmix(state))


def propagate(state: list[float], curvature: float) -> float:
    """A track in a field that weakens outwards."""
    for _ in range(40):
        field = curvature / (1.0 + 0.1 * (state[0] * state[0] + state[1] * state[1]))
        mid_x = state[3] + 0.5 * 0.02 * field * state[4]
        mid_y = state[4] - 0.5 * 0.02 * field * state[3]
        norm = 1.0 / sqrt(mid_x * mid_x + mid_y * mid_y + state[5] * state[5])
        state[3], state[4], state[5] = mid_x * norm, mid_y * norm, state[5] * norm
        for axis in range(3):
            state[axis] = state[axis] + 0.02 * state[3 + axis]
    return state[0] + state[1] + state[2]


def lose(energy: float, chance: int) -> float:
    """What is left of an energy."""
    drawn = uniforms(chance)
    for _ in range(70):
        beta2 = 1.0 - 1.0 / (1.0 + energy * energy)
        energy = energy - 1e-4 / beta2 * (2.0 - beta2) * next(drawn)
        energy = max(energy, 0.1)
    return energy


def shape(amplitude: float, phase: float) -> float:
    """Pulses through a filter."""
    total = 0.0
    for _ in range(20):
        before = last = 0.0
        for i in range(32):
            sample = 1.6 * last - 0.64 * before + (amplitude if i == 2 else 0.0) + 1e-3 * phase
            before, last = last, sample
        total = total + last
        phase = phase + 0.1
    return total


def fit(offset: float, slope: float, chance: int) -> float:
    """A weighted straight line."""
    drawn = uniforms(chance)
    y = [offset + slope * i + next(drawn) for i in range(24)]
    a = b = 0.0
    for _ in range(14):
        w = wx = wy = wxx = wxy = 0.0
        for i in range(24):
            residual = y[i] - a - b * i
            weight = 1.0 / (1.0 + residual * residual)
            w, wx, wy = w + weight, wx + weight * i, wy + weight * y[i]
            wxx, wxy = wxx + weight * i * i, wxy + weight * i * y[i]
        b = (w * wxy - wx * wy) / (w * wxx - wx * wx)
        a = (wy - b * wx) / w
    return a + b


def unpack(x: int) -> int:
    """What each of the 2048 functions computes."""
    y = (x + 1) & WORD
    for _ in range(36):
        x = (x * 0x5851F42D & WORD) ^ 0x11D4AB39
        y = (y * 0x4C957F2D & WORD) ^ 0x1B56C4E9
    return (x + y) & WORD


def table() -> list[int]:
    """The successor of each place."""
    order, drawn = list(range(PLACES)), splitmix(1)
    for i in range(PLACES - 1, 0, -1):
        other = next(drawn) % (i + 1)
        order[i], order[other] = order[other], order[i]
    found = [0] * PLACES
    for i, place in enumerate(order):
        found[place] = order[(i + 1) % PLACES]
    return found


def step(chance: int, successors: list[int]) -> int:
    """One step's checksum."""
    x, drawn = chance, splitmix(chance)
    for _ in range(CALLS):
        x = unpack(x ^ next(drawn) >> 32)
    total = 0.0
    numbers = splitmix(chance)  # of the tracks: uniforms and whole numbers of one sequence
    for _ in range(TRACKS):
        first, second = ((next(numbers) >> 11) * 2.0**-53 for _ in range(2))
        random = next(numbers)
        track = [0.0, 0.0, 0.0, first, second, 0.5]
        total = total + propagate(track, 0.3)
        energy = lose(1.0 + first, random)
        total = total + energy + shape(energy, track[0]) + fit(track[1], track[4], random)
    place = 0
    for _ in range(WALK):
        place = successors[place]
    return fold(fold(x, bits(total)), place)


def checksum(seed: int, event: int, steps: int) -> int:
    """The checksum of one event of so many steps."""
    drawn, found, successors = splitmix((seed * 1000003 + event) & WORD), 0, table()
    for _ in range(steps):
        found = fold(found, step(next(drawn), successors))
    return found
