"""What notebook 11 asks."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from perflib.course.items import Code, Judged, Prediction, Relation, number
from perflib.course.lesson import Lesson
from perflib.course.relations import found, parts, verdict
from perflib.remedies import alias_free

_AHEAD_BYTES = 128  # how far loads run ahead of a store
_EQUAL, _NEAR = (1.4, 1.8), (2.9, 3.4)  # percent of random pairs


def _by_chance(answer: Any, *_: Any) -> Judged:
    asked = "give two numbers, in percent: (equal, 0 to 127 bytes above)"
    equal, close = map(number, parts(answer, 2, asked))
    right = [low <= one <= high for (low, high), one in ((_EQUAL, equal), (_NEAR, close))]
    says = "there are 64 lines in a page: 1/64 are equal, and 2/64 equal or one line above"
    return Judged(sum(right) / 2, says if all(right) else "how many lines does a page have?")


def _heap(answer: Any, heap: Any) -> Judged:
    """The distance at which most pairs are."""
    given = int(number(answer))
    apart = (heap["second_address"] - heap["first_address"]) % 4096
    most = int(apart.mode().iloc[0])
    if given == most:
        return Judged(1.0, f"most pairs are {most} bytes apart, modulo 4096: none is equal")
    return Judged(0.0, f"most pairs are not {given} bytes apart, modulo 4096")


def _pair(count: int) -> tuple[Any, Any]:
    first, second = alias_free(((count,), np.float32), ((count,), np.float32))
    return first, second


def _apart(pair: Any, expected: Any) -> bool:
    """Whether these are two such arrays, far from aliasing in both directions."""
    first, second = pair
    apart = (second.ctypes.data - first.ctypes.data) % 4096
    shapes = first.shape == second.shape == expected[0].shape
    kinds = first.dtype == second.dtype == expected[0].dtype
    far = _AHEAD_BYTES <= apart <= 4096 - _AHEAD_BYTES
    return bool(shapes and kinds and far and not np.shares_memory(first, second))


def _plain(count: int) -> tuple[Any, Any]:
    return np.zeros(count, np.float32), np.zeros(count, np.float32)


def _longer(count: int) -> tuple[Any, Any]:
    return np.zeros(count, np.float32), np.zeros(count + 1024, np.float32)[:count]


LESSON = Lesson.of(
    "aliasing_allocators",
    {
        "glibc's large pairs": partial(
            Prediction,
            measured=found("shares", what="glibc's new pairs that are equal", allocator="glibc"),
        ),
        "cost of the convolution": partial(
            Prediction,
            measured=found(
                "cost",
                what="the distance, glibc, 256 KiB",
                allocator="glibc",
                function="convolution",
                size_bytes=1 << 18,
            ),
        ),
        "copy": partial(
            Relation,
            holds=verdict("cost", allocator="glibc", function="copy"),
            wrong=[("minds", "no verdict: the whole interval decides")],
        ),
        "1": partial(
            Relation,
            holds=_by_chance,
            wrong=[
                ((0.02, 3.1), "takes 4096 places: but buffers begin at lines"),
                ((1.6, 1.6), "counts only the equal ones"),
            ],
        ),
        "3": partial(
            Relation,
            holds=_heap,
            wrong=[
                (2048, "expects a cure"),
                (4096, "forgets that distances are taken modulo 4096"),
            ],
        ),
        "4": partial(
            Code,
            reference=_pair,
            cases=lambda drawn: (1024 * drawn.randint(256, 1024),),
            same=_apart,
            always=[(1 << 18,)],
            wrong=[
                (_plain, "takes what the allocator gives"),
                (_longer, "asks for another size: a mapping begins at a page all the same"),
            ],
        ),
    },
)
