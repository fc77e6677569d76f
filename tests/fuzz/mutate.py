"""Damage to files: what a bad disk, a cut transfer or an ill-meaning stranger makes of one."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any

_NUMBERS: tuple[int, ...] = (
    0,
    1,
    -1,
    7,
    64,
    127,
    128,
    255,
    256,
    32767,
    65535,
    65536,
    10**6,
    2**31 - 1,
    -(2**31),
)
_NUMBERS += (2**32 - 1, 2**53, 2**61, 2**63 - 1, -(2**63), 2**64 - 1, 10**19, 10**40)
_ODD: tuple[Any, ...] = (None, True, "", "x", "\0", "0-9999999999", [], {}, [[]], {"": None})
_ODD += (
    *_NUMBERS,
    0.5,
    -1e308,
    float("nan"),
    float("inf"),
    "1" * 5000,
    ["a"] * 99,
    {"a": {"b": 1}},
)
_DIGITS = re.compile(rb"\d+")
_DEEP = 10_000


def mutated(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A file with one to eight places changed; ``others`` are files to take pieces from."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 8))):
        at = rng.randrange(len(made) + 1)
        size = min(len(made) - at, rng.choice((1, 2, 4, 8, 16, 100, 1000)))
        match rng.randrange(11):
            case 0 if size:
                made[at] ^= 1 << rng.randrange(8) if at < len(made) else 0
            case 1:
                made[at:at] = rng.randbytes(rng.choice((1, 2, 8, 60)))
            case 2:
                del made[at : at + size]
            case 3:
                made[at:at] = made[at : at + size] * rng.choice((1, 2, 30))
            case 4:
                del made[at:]
            case 5:
                other = rng.choice(others)
                begin = rng.randrange(len(other) + 1)
                made[at : at + size] = other[begin : begin + size]
            case 6:
                wide = rng.choice((1, 2, 4, 8))
                number = rng.choice(_NUMBERS) % (1 << 8 * wide)
                made[at : at + wide] = number.to_bytes(wide, rng.choice(("little", "big")))
            case 7:
                if found := list(_DIGITS.finditer(made[at : at + 500])):
                    one = rng.choice(found)
                    number = rng.choice(_NUMBERS)
                    made[at + one.start() : at + one.end()] = str(number).encode()
            case 8:
                lines = bytes(made).split(b"\n")
                i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
                lines[i], lines[j] = lines[j], lines[i]
                made[:] = b"\n".join(lines)
            case 9:
                made[at : at + size] = bytes([rng.randrange(256)]) * size
            case _:
                begin = rng.randrange(len(made) + 1)
                made[at : at + size] = made[begin : begin + size]
    return bytes(made)


def mutated_json(rng: random.Random, text: str) -> str:
    """A record with one to four values changed, left out, added, or moved to another place."""
    root: list[Any] = [json.loads(text)]
    for _ in range(rng.choice((1, 1, 2, 4))):
        holder: Any = root
        key: Any = 0
        while isinstance(holder[key], dict | list) and holder[key] and rng.random() < 0.8:
            holder = holder[key]
            keys = list(holder) if isinstance(holder, dict) else range(len(holder))
            key = rng.choice(keys)
        match rng.randrange(6):
            case 0 if isinstance(holder, dict):
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[rng.choice(("", "x", "schema", f"{key}x"))] = holder.pop(key)
            case 2:
                holder[key] = [holder[key]] * rng.choice((1, 2, 20))
            case 3:
                holder[key] = {str(holder[key])[:20]: holder[key]}
            case _:
                holder[key] = rng.choice(_ODD)
    made = json.dumps(root[0])
    if rng.random() < 0.01:  # deeper than any recursion
        made = made.replace(": ", ": " + "[" * _DEEP + "]" * _DEEP + ', "deep": ', 1)
    return made
