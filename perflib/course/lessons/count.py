"""What notebook 14 asks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

from perflib.course.items import Code, Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson
from perflib.course.relations import parts

_NEAR_PERCENT = 3.0  # intervals are not quite equally long
_INTERVALS = 1.5  # so far may the times of a phase be off


def _rates(run: Any, event: str) -> Any:
    """The rows of one count that the kernel kept, in the order of their time."""
    table = run.table("series")
    mine = table[(table["set"] == "kernel") & (table["event"] == event)]
    return mine.dropna(subset=["per_s"]).sort_values("time_s", kind="stable")


def _touched(run: Any) -> Measured | str:
    """Faults after the first pause: the start of the program is before it."""
    rates = _rates(run, "task-minor-faults")
    faults = (rates["per_s"] * rates["elapsed_ns"] / 1e9).to_numpy()
    quiet = [at for at, count in enumerate(faults) if count == 0]
    started = [at for at in quiet if faults[:at].sum() > 0]
    if not started or faults[started[0] :].sum() == 0:
        return "this run has no pause between the program's start and its memory"
    count = float(round(faults[started[0] :].sum()))
    return Measured(count, count, count, "after the program's start")


def _cpu_s(run: Any) -> Measured | str:
    """CPU time in user space; the kernel gives it in ticks of 10 ms."""
    rates = _rates(run, "task-user")
    if rates.empty:
        return "this run has no task-user"
    seconds = float((rates["per_s"] * rates["elapsed_ns"]).sum() / 1e12)
    return Measured(seconds - 0.01, seconds, seconds + 0.01, "in user space")


def _scaled(parts: Sequence[tuple[float, float, float]]) -> float | None:
    counted, on, due = (sum(column) for column in zip(*parts, strict=True))
    return counted * due / on if on else None


def _unscaled(parts: Sequence[tuple[float, float, float]]) -> float:
    return sum(count for count, _, _ in parts)


def _each_scaled(parts: Sequence[tuple[float, float, float]]) -> float:
    """Parts in which the counter was off give nothing: half of the time is missing."""
    return sum(count * due / on for count, on, due in parts if on)


def _parts(draw: random.Random) -> tuple[Any, ...]:
    """Whole numbers of ms; some parts off, some on for a while, now and then none on."""
    never = draw.random() < 0.1
    found = []
    for _ in range(draw.randint(1, 12)):
        due = draw.randint(1, 200)
        on = 0 if never else draw.choice([0, due, draw.randint(1, due)])
        found.append((draw.randint(0, 1000) if on else 0, on, due))
    return (found,)


def _merged(intervals: Sequence[tuple[int, int, int]], times: int) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    room = 0
    for begin, end, count in intervals:
        if room and found[-1][1] == begin:
            first, _, before = found[-1]
            found[-1] = (first, end, before + count)
            room -= 1
        else:
            found.append((begin, end, count))
            room = times - 1
    return found


def _bridged(intervals: Sequence[tuple[int, int, int]], times: int) -> list[tuple[int, int, int]]:
    """So many rows become one, whatever is between them."""
    pieces = [intervals[at : at + times] for at in range(0, len(intervals), times)]
    return [(one[0][0], one[-1][1], sum(count for _, _, count in one)) for one in pieces]


def _without_end(
    intervals: Sequence[tuple[int, int, int]], times: int
) -> list[tuple[int, int, int]]:
    """What is left over at the end is thrown away."""
    return [one for one in _merged(intervals, times) if times == 1 or one[1] - one[0] > 1]


def _intervals(draw: random.Random) -> tuple[Any, ...]:
    found, at = [], draw.randint(0, 5)
    for _ in range(draw.randint(0, 12)):
        at += draw.randint(1, 9) if draw.random() < 0.2 else 0
        found.append((at, at + 1, draw.randint(0, 50)))
        at += 1
    return found, draw.randint(1, 4)


def _waking(answer: Any, run: Any) -> Judged:
    begin, end = map(number, parts(answer, 2, "give two times in s: (begin, end)"))
    rates = _rates(run, "task-switches-voluntary")
    many = rates[rates["per_s"] > rates["per_s"].max() / 2] if len(rates) else rates
    if many.empty:
        return Judged(1.0, "this run has no voluntary switches")
    each_s = float(rates["elapsed_ns"].median()) / 1e9
    first = float(many["time_s"].iloc[0])
    last = float(many["time_s"].iloc[-1]) + each_s
    says = f"the job wakes up often from {first:.1f} to {last:.1f} s"
    right = [abs(begin - first) <= _INTERVALS * each_s, abs(end - last) <= _INTERVALS * each_s]
    return Judged(sum(right) / 2, says)


def _estimate(answer: Any, run: Any) -> Judged:
    """Every other interval seen, and scaled by the time: against all of them."""
    rates = _rates(run, "task-minor-faults")
    elapsed = rates["elapsed_ns"].to_numpy()
    faults = rates["per_s"].to_numpy() * elapsed
    if not faults.sum() > 0:
        return Judged(1.0, "this run has no page faults")
    estimate = faults[::2].sum() * elapsed.sum() / elapsed[::2].sum()
    wanted, given = 100 * (estimate / faults.sum() - 1), number(answer)
    says = f"with every other interval seen, the estimate is off by {wanted:+.0f} %"
    return Judged(float(abs(given - wanted) <= _NEAR_PERCENT), says)


LESSON = Lesson.of(
    "count",
    {
        "page faults": partial(Prediction, measured=_touched),
        "CPU time": partial(Prediction, measured=_cpu_s),
        "1": partial(
            Relation,
            holds=_waking,
            wrong=[((0.0, 100.0), "takes all of it"), (3, "gives one time")],
        ),
        "2": partial(
            Code,
            reference=_scaled,
            cases=_parts,
            always=[
                ([(10, 100, 100), (0, 0, 100)],),
                ([(0, 0, 100)],),
                ([(0, 100, 100)],),
                ([(10, 50, 100), (30, 100, 100)],),
            ],
            wrong=[
                (_unscaled, "adds up what was counted"),
                (_each_scaled, "scales each part, and takes those that were off for empty"),
            ],
        ),
        "3": partial(
            Relation,
            holds=_estimate,
            wrong=[(-50.0, "forgets to scale"), (100.0, "scales what is complete")],
        ),
        "4": partial(
            Code,
            reference=_merged,
            cases=_intervals,
            always=[
                ([(0, 1, 5), (1, 2, 6), (2, 3, 7)], 2),
                ([(0, 1, 5), (4, 5, 6)], 2),
                ([(0, 1, 5), (4, 5, 6), (5, 6, 7), (6, 7, 8)], 2),
                ([], 3),
            ],
            wrong=[
                (_bridged, "merges across gaps: the rate there would be too small"),
                (_without_end, "drops what is left over"),
            ],
        ),
    },
)
