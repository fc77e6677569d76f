"""What the lab on threads asks."""

from __future__ import annotations

import json
import math
import random
from functools import partial
from typing import Any

from perflib.course.items import Code, Judged, Measured, Prediction, Relation
from perflib.course.lesson import Lesson
from perflib.course.relations import NO_VERDICT, OPEN, found, reads, sentence, verdict

_VERSION = "Initial"  # of the event loop: with all of its synchronisation points


def _most(share: float, threads: int) -> float:
    """The speed-up that a lock allows, if the rest of an event runs next to it."""
    return min(float(threads), 1 / share) if share else float(threads)


def _amdahl(share: float, threads: int) -> float:
    """Amdahl's law: as if nothing else ran while the lock is held."""
    return 1 / (share + (1 - share) / threads)


def _share(drawn: random.Random) -> tuple[float, int]:
    return round(drawn.uniform(0.02, 1.0), 2), drawn.randint(1, 64)


def _bound_percent(waiting_s: float, threads: int, loop_s: float) -> float:
    """What a loop gains at most, if its threads no longer wait for a lock."""
    return 100 * waiting_s / threads / loop_s


def _waits(drawn: random.Random) -> tuple[float, int, float]:
    threads, loop_s = drawn.randint(2, 16), drawn.uniform(0.1, 10)
    return drawn.uniform(0, 0.9) * threads * loop_s, threads, loop_s


def _speedup(run: Any) -> Measured | str:
    """Time with one thread over time with all, in pairs."""
    table = run.table("calibration")
    rows = table[table["version"] == _VERSION] if len(table) else table
    if len(rows) != 1 or not math.isfinite(rows["speedup_low"].iloc[0]):
        return f"this run has no interval of the speed-up of {_VERSION}"
    low, value, high = rows[["speedup_low", "speedup", "speedup_high"]].iloc[0]
    return Measured(low, value, high, f"the speed-up of {_VERSION}")


def _held(run: Any) -> Measured | str:
    """For which share of the loop one thread alone holds the lock that it holds longest."""
    rows = run.samples.query("configuration == 'one_thread' and version == @_VERSION")
    shares = []
    for text, loop_s in zip(rows["self_report"], rows["job_time_s"], strict=True):
        locks = json.loads(text) if isinstance(text, str) else {}
        shares += [100 * max(lock["held_s"] for lock in locks.values()) / loop_s] if locks else []
    if not shares:
        return f"this run did not time {_VERSION} with one thread"
    shares.sort()
    return Measured(shares[0], shares[len(shares) // 2], shares[-1], "held longest")


def _limiting(answer: Any, run: Any) -> Judged:
    """The name of the limiting lock; none where the run refutes it, open where it cannot tell."""
    findings = [*run.findings.where(claim="limiting_lock", version=_VERSION)]
    decided, says = "inconclusive", "this run has no profile"
    if findings:
        decided, says = findings[0].verdict, sentence(findings[0])
    right = {"supported": "", "refuted": "none"}.get(decided, OPEN)
    if not right:
        waits = run.table("waits").query("version == @_VERSION")
        right = str(waits.loc[waits["share_percent"].idxmax(), "lock"])
    given = str(answer).strip()
    if given == right:
        return Judged(1.0, f"{right}: {says}")
    return Judged(0.0, f"{given} is not what the profile shows; the verdict: {decided}")


LESSON = Lesson.of(
    "threads_waiting",
    {
        "2": partial(
            Code,
            reference=_most,
            cases=_share,
            always=[(0.0, 8), (1.0, 8), (0.5, 2), (0.25, 8)],
            wrong=[
                (_amdahl, "nobody works while the lock is held: that is a serial phase"),
                (lambda share, _: 1 / share if share else math.inf, "forgets how many threads"),
            ],
        ),
        "speed-up": partial(Prediction, measured=_speedup),
        "gain without formula": partial(
            Prediction,
            measured=found("gain", version=_VERSION, point="formula", what="the measured gain"),
        ),
        "3": partial(
            Relation,
            holds=reads(_held, "%"),
            wrong=[
                (0.5, "gives a share of 1 in place of percent"),
                (5000, "gives the time that the lock is held, in some unit"),
            ],
        ),
        "4": partial(
            Relation,
            holds=_limiting,
            wrong=[
                ("interface_lock", "names the lock that is taken most often, not the waited for"),
                ("correct_jets", "names a function that waits, not what it waits for"),
            ],
        ),
        "5": partial(
            Relation,
            holds=verdict("waits_agree", version=_VERSION),
            wrong=[NO_VERDICT, ("refuted", "takes any difference for a disagreement")],
        ),
        "7": partial(
            Code,
            reference=_bound_percent,
            cases=_waits,
            always=[(0.0, 2, 1.0), (1.0, 2, 1.0), (3.0, 8, 2.0)],
            wrong=[
                (lambda waiting_s, _, loop_s: 100 * waiting_s / loop_s, "forgets the threads"),
                (lambda waiting_s, threads, loop_s: waiting_s / threads / loop_s, "no percent"),
            ],
        ),
        "8": partial(
            Relation,
            holds=verdict("gain", version=_VERSION, point="formula"),
            wrong=[
                ("refuted", "compares the interval's lower end with nothing"),
                ("faster", "gives an answer that is no verdict"),
            ],
        ),
        "10": partial(
            Relation,
            holds=verdict("limiting_lock"),
            wrong=[("supported", "expects an effect in a run without any"), NO_VERDICT],
        ),
        "run-queue delay": partial(
            Prediction, measured=found("run_queue_delay", what="without a core and without a lock")
        ),
        "concurrency above speed-up": partial(
            Prediction, measured=found("predicts", what="spinning: concurrency above the speed-up")
        ),
    },
)
