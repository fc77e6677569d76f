"""What ``kernels_c/bound_job.c`` computes, in Python."""

from __future__ import annotations

_MASK = (1 << 64) - 1
_LINE, _PAGE = 64, 4096
_WINDOW = 32 * _PAGE // _LINE
_STEPS = 1 << 16


def _next(state: int) -> int:
    return (state * 6364136223846793005 + 1442695040888963407) & _MASK


def compute(passes: int) -> int:
    """The last state of the chain."""
    state = 1
    for _ in range(passes * _STEPS):
        state = _next(state)
    return state


def order(count: int, window: int) -> list[int]:
    """The order of the visits: each window shuffled by itself."""
    state, found = 1, list(range(count))
    for begin in range(0, count, window):
        size = min(window, count - begin)
        for i in range(size - 1, 0, -1):
            state = _next(state)
            j = (state >> 33) % (i + 1)
            one, other = begin + i, begin + j
            found[one], found[other] = found[other], found[one]
    return found


def chased(bytes_: int, passes: int, *, walk: bool) -> int:
    """The folded offsets of all lines that were loaded."""
    count = bytes_ // (_PAGE if walk else _LINE)
    visits = order(count, count if walk else _WINDOW)
    offsets = [i * _PAGE + i % (_PAGE // _LINE) * _LINE if walk else i * _LINE for i in visits]
    total = 0
    for _ in range(passes):
        for offset in [*offsets[1:], offsets[0]]:
            total = (total * 3 + offset) & _MASK
    return total


def triad(bytes_: int, passes: int) -> int:
    """The sum of one element of each pass and of the last one."""
    count = bytes_ // 24
    c = [1 + 3 * (i % 1000) for i in range(count)]
    return sum(c[one % count] + c[count - 1] for one in range(passes))
