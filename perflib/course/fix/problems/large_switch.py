"""A case for each of many channels."""

from __future__ import annotations

import random

from perflib.course.fix.problem import MASK, Case, Problem

__all__ = ["PROBLEM"]

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

PROBLEM = Problem(
    name="large_switch",
    title="hits are calibrated, by a case for each of 512 channels",
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
    hints=[
        (
            "How large is the code of the switch? (objdump, or 512 cases of some 300 bytes.) How "
            "large is the instruction cache?"
        ),
        "What differs from case to case: what is done, or the constants it is done with?",
        (
            "Put the constants into a table, with a row for each channel, and write what is done "
            "once. (Or: bring the 128 hot cases together.)"
        ),
    ],
    mechanism=(
        "512 cases of some 300 bytes are far more code than the first-level instruction cache "
        "holds, and the hot ones are every fourth: their 40 KiB are spread over all pages of the "
        "switch. Each hit jumps to another case, which must be fetched from the second level, and "
        "the jump itself is hard to predict. All cases do the same with other constants. In a "
        "table the constants are data, which is fetched ahead, and one short loop stays in the "
        "cache; its jumps are always the same. What is saved has three parts that cannot be told "
        "apart here: instruction fetches, the instruction TLB, mispredicted jumps. A machine with "
        "counters tells them (notebook 03); the code segment's notebook varies the code's size "
        "alone."
    ),
    others={},
)
