"""A case for each of many channels."""

from __future__ import annotations

import random

from perflib.course.fix.problem import MASK, Case, Problem

_CHANNELS, _TERMS = 512, 16
_WORD = 2**32


def _draw(draw: random.Random, size: float) -> Case:
    hits = draw.randint(0, int(1 + 150 * size))
    most = draw.choice([7, _CHANNELS - 1, _CHANNELS - 1, 2**16 - 1])
    return {
        "channels": [draw.randint(0, most) for _ in range(hits)],
        "values": [draw.randrange(_WORD) for _ in range(hits)],
    }


def _words(case: Case) -> list[int]:
    return [*case["channels"], *case["values"]]


def _offset(channel: int, k: int) -> int:
    return (channel * 2654435761 + k * 40503) % _WORD >> 2


def _factor(channel: int, k: int) -> int:
    return (channel * 2246822519 + k * 3266489917) % _WORD >> 2


def _calibrated(channel: int, value: int) -> int:
    found = 0
    if channel < _CHANNELS:
        for k in range(_TERMS):
            found ^= (value ^ _offset(channel, k)) * _factor(channel, k) & MASK
    return found


def _expected(case: Case) -> list[int]:
    return [*map(_calibrated, case["channels"], case["values"])]


def _place(case: Case, place: int) -> str:
    return f"the calibration of hit {place} (channel {case['channels'][place]})"


_EVERY = list(range(_CHANNELS + 2))

PROBLEM = Problem.of(
    "large_switch",
    threads=1,
    always=[
        {"channels": [], "values": []},
        {"channels": [0], "values": [0]},
        {"channels": [511], "values": [_WORD - 1]},
        {"channels": [512, 65535], "values": [1, 1]},
        {"channels": [4, 1, 4], "values": [1, 2, 3]},
        {"channels": _EVERY, "values": [3 * channel + 1 for channel in _EVERY]},
    ],
    draw=_draw,
    words=_words,
    expected=_expected,
    place=_place,
)
