"""What the lab on 4K aliasing asks."""

from __future__ import annotations

import math
import random
from functools import partial
from typing import Any

from perflib.course.items import Code, Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson
from perflib.course.relations import NO_VERDICT, OPEN, found, reads, verdict
from perflib.course.sliders import waits
from perflib.experiments.aliasing.addresses import PERIOD_BYTES, aliasing

_WAIT = found("waits", what="a load 4096 B from the store", distance_bytes=4096)
_SHARES = found("shares", what="large pairs of glibc that alias", allocator="glibc")
_COPY, _MEMCPY = "copy-O3-2048", "memcpy-2048"
_HALF = PERIOD_BYTES // 2


def _falsely(store: int, load: int, size: int) -> bool:
    return waits(store, load, size) == "false dependence"


def _first_bytes_only(store: int, load: int, size: int) -> bool:  # noqa: ARG001
    return store != load and store % PERIOD_BYTES == load % PERIOD_BYTES


def _true_ones_too(store: int, load: int, size: int) -> bool:
    return waits(store, load, size) != "no"


def _pair(drawn: random.Random) -> tuple[int, int, int]:
    store = 0x7F0000000000 + drawn.randrange(1 << 16)
    apart = drawn.choice([0, 0, 4096, -4096, 8192, 2048]) + drawn.randint(-9, 9)
    return store, store + apart, drawn.choice([1, 4, 8])


def _shift(first: int, second: int) -> int:
    return (_HALF + first - second) % PERIOD_BYTES


def _addresses(drawn: random.Random) -> tuple[int, int]:
    return 64 * drawn.randrange(1 << 30), 64 * drawn.randrange(1 << 30)


def _row(run: Any, function: str, before: int) -> Any:
    """One row of the table ``remedy``, or None."""
    table = run.table("remedy")
    rows = table[(table["function"] == function) & (table["before_bytes"] == before)]
    return None if rows.empty else rows.iloc[0]


def _remedy(function: str, before: int, part: str) -> Any:
    """What a distance costs compared with 2048 B, in percent."""

    def measured(run: Any) -> Measured | str:
        row = _row(run, function, before)
        if row is None or math.isnan(row[f"{part}_percent"]):
            return f"this run has no interval of {function} at {before} B compared with {_HALF} B"
        low, value, high = (float(row[f"{part}_percent{end}"]) for end in ("_low", "", "_high"))
        return Measured(low, value, high, f"{function} at {before} B")

    return measured


def _slow_offset(answer: Any, run: Any) -> Judged:
    """An offset at which memcpy is slower than at the median one, or none."""
    curve = run.table("time_memcpy").set_index("offset_bytes")
    slow = curve[curve["percent_low"] > 0]
    if str(answer).strip().lower() == "none":
        return Judged(float(slow.empty), f"the run has {len(slow)} such offsets")
    offset = int(number(answer))
    if offset not in curve.index:
        return Judged(0.0, f"{offset} B was not measured")
    row = curve.loc[offset]
    words = f"{row['percent']:.1f} % [{row['percent_low']:.1f}, {row['percent_high']:.1f}]"
    return Judged(float(offset in slow.index), f"{offset} B compared with the median: {words}")


def _claims(answer: Any, null: Any) -> Judged:
    """How many claims the null test supports."""
    supported = sum(one.verdict == "supported" for one in null.findings)
    given = number(answer)
    says = f"the null test supports {supported} of {len(null.findings)} claims"
    return Judged(float(given == supported), says)


def _apart(answer: Any) -> Judged:
    """Two arrays that are not predicted to alias, either way round."""
    try:
        first, second = (array.ctypes.data for array in answer)
    except (AttributeError, TypeError, ValueError):
        return Judged(0.0, "give the two arrays: pl.alias_free(...)")
    apart = (second - first) % PERIOD_BYTES
    near = bool(aliasing([apart, PERIOD_BYTES - apart])[0].any())
    return Judged(float(not near), f"they are {apart} B apart, modulo 4096")


def _saved(answer: Any, run: Any) -> Judged:
    """What follows from the interval of memcpy at 16 B compared with 2048 B."""
    given, row = str(answer).strip().lower(), _row(run, _MEMCPY, 16)
    if given not in ("faster", "slower", OPEN):
        return Judged(0.0, 'the answer is "faster", "slower" or "open"')
    if row is None or math.isnan(row["cost_percent_low"]):
        return Judged(float(given == OPEN), "this run has no interval of it")
    low, high = row["cost_percent_low"], row["cost_percent_high"]
    right = "faster" if low > 0 else "slower" if high < 0 else OPEN
    says = f"before costs {row['cost_percent']:.1f} % [{low:.1f}, {high:.1f}] more than after"
    return Judged(float(given == right), says)


LESSON = Lesson.of(
    "aliasing_4k",
    {
        "1": partial(
            Code,
            reference=_falsely,
            cases=_pair,
            always=[(4096, 0, 4), (4096, 4096, 4), (4098, 0, 4), (0, 4094, 4), (0, 2048, 8)],
            wrong=[
                (_first_bytes_only, "compares first bytes: accesses of 4 bytes overlap within 3"),
                (_true_ones_too, "counts true dependences, where both share a byte"),
            ],
        ),
        "a load that waits": partial(Prediction, measured=_WAIT),
        "3": partial(
            Relation,
            holds=verdict("waits", distance_bytes=4096),
            wrong=[("refuted", "takes a small effect for none"), NO_VERDICT],
        ),
        "copy at 4 B": partial(Prediction, measured=_remedy(_COPY, 4, "cost")),
        "before and after": partial(Prediction, measured=_remedy(_MEMCPY, 16, "cost")),
        "5": partial(
            Relation,
            holds=_slow_offset,
            wrong=[
                (2048, "takes the distance that is farthest from aliasing"),
                (5000, "names a distance that was not measured"),
            ],
        ),
        "6": partial(
            Relation,
            holds=reads(_remedy(_MEMCPY, 16, "distance"), "%"),
            wrong=[(1000.0, "gives the ratio in the wrong unit"), (-100.0, "turns it round")],
        ),
        "9": partial(
            Relation,
            holds=_claims,
            wrong=[(48, "counts the distances, not the claims"), (-1, "no number of claims")],
        ),
        "pairs of glibc": partial(Prediction, measured=_SHARES),
        "11": partial(
            Code,
            reference=_shift,
            cases=_addresses,
            always=[(0, 0), (0, 2048), (64, 0), (0, 4096)],
            wrong=[
                (lambda *_: _HALF, "shifts by 2048 wherever the second array is"),
                (lambda a, b: (_HALF + b - a) % PERIOD_BYTES, "mixes up the two addresses"),
            ],
        ),
        "12": partial(
            Relation,
            holds=_apart,
            wrong=[((0, 2048), "gives distances, not arrays"), ("pl.alias_free", "gives text")],
        ),
        "13": partial(
            Relation,
            holds=_saved,
            wrong=[
                ("slower", "turns before and after round"),
                ("it works", "states no direction that an interval could contradict"),
            ],
        ),
    },
)
